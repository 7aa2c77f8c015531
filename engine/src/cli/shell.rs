//! The SQL shell, on datafusion-cli's editor, highlighter, printer and file catalog, with Warpline's session.

use std::fs;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use datafusion::physical_plan::memory::MemoryStream;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion_cli::catalog::DynamicObjectStoreCatalog;
use datafusion_cli::command::{Command, OutputFormat};
use datafusion_cli::functions::ParquetMetadataFunc;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::print_options::PrintOptions;
use rustyline::Editor;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use warpline::fetch_first::as_limit;
use warpline::{ByteSize, DeviceChoice, Error, Result, WarplineSession, statements};
use warpline_tpch::TpchError;

use super::answer::{self, Answer};
use super::args::ShellArguments;
use super::editor::ShellHelper;
use super::print::{print_error, print_line, print_note};
use super::script::{Item, Script};
use super::{inspect, leave, timing};

const HELP: &str = r"A statement ends with a semicolon and may span lines.
  \d              list tables
  \d NAME         describe a table
  \i FILE         run the statements of a file
  \h              list the kinds of statements
  \h STATEMENT    show the syntax of one, for example \h select
  \df             list functions; \df NAME searches
  \device         show the device and what it is; \device NAME takes another one
  \memory         show what the device's memory holds, by table
  \memory columns show each column there: encoding, bytes, uses; \memory TABLE those of one table
  \evict          let go of columns and indexes that are kept for later queries
  \timing on|off  print row counts, times and who answered, or not
  \quiet on|off   the opposite of \timing
  \pset format F  print answers as table, csv, tsv, json or nd-json
  \q              quit
SHOW ALL lists the settings, SHOW warpline.* those of Warpline with their meaning; SET key = value changes one.
PIN TABLE t loads a table into device memory, where it stays until UNPIN TABLE t. CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'path'
adds a table (CSV, JSON and ARROW as well), and SELECT * FROM 'file.parquet' reads a file directly.";

/// Runs `-c` and `-f`, or else the shell on standard input.
pub(super) async fn run(arguments: ShellArguments) -> Result<ExitCode> {
    let builder = arguments
        .session
        .builder()
        .local_files(true)
        .set("datafusion.format.null", "NULL");
    let session = arguments.cluster.join(builder).await?.open().await?;
    register_shell_catalog(session.context());
    let interactive = arguments.command.is_empty() && arguments.file.is_empty();
    let terminal = std::io::stdin().is_terminal();
    let mut shell = Shell {
        session,
        print: PrintOptions {
            format: arguments.format,
            quiet: arguments.quiet,
            maxrows: arguments.maxrows,
            color: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            instrumented_registry: Arc::new(InstrumentedObjectStoreRegistry::new()),
        },
    };
    if interactive && terminal {
        return shell.interact().await;
    }
    if interactive {
        return shell.read_standard_input().await;
    }
    for path in &arguments.file {
        let text = fs::read_to_string(path).map_err(|error| TpchError::io("read", path, error))?;
        if shell.run_text(&text).await? == Flow::Closed {
            return Ok(Flow::Closed.status());
        }
    }
    for text in &arguments.command {
        if shell.run_text(text).await? == Flow::Closed {
            return Ok(Flow::Closed.status());
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Drop for Shell {
    fn drop(&mut self) {
        leave::keep_open(&self.session);
    }
}

/// Object stores are found by the scheme of a location, and `parquet_metadata('file')` shows a file's footer.
pub(super) fn register_shell_catalog(context: &SessionContext) {
    context.register_catalog_list(Arc::new(DynamicObjectStoreCatalog::new(
        Arc::clone(context.state().catalog_list()),
        context.state_weak_ref(),
    )));
    context.register_udtf("parquet_metadata", Arc::new(ParquetMetadataFunc {}));
}

/// Whether to read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
    /// The reader of the output went away.
    Closed,
}

impl Flow {
    /// The status to exit with, unless statements failed.
    fn status(self) -> ExitCode {
        match self {
            Self::Continue | Self::Quit => ExitCode::SUCCESS,
            Self::Closed => ExitCode::from(CLOSED_PIPE),
        }
    }
}

/// What shells tell of a program that SIGPIPE ended.
const CLOSED_PIPE: u8 = 128 + 13;

struct Shell {
    session: WarplineSession,
    print: PrintOptions,
}

impl Shell {
    /// Runs a script; the first error ends it, and so does `\q`.
    async fn run_text(&mut self, text: &str) -> Result<Flow> {
        let mut script = Script::default();
        // A first line `#!…` lets a script be an executable file.
        let lines = text
            .lines()
            .enumerate()
            .filter(|(number, line)| *number > 0 || !line.starts_with("#!"));
        let mut items: Vec<Item> = lines.flat_map(|(_, line)| script.line(line)).collect();
        items.extend(script.end());
        for item in items {
            match self.run_item(item).await? {
                Flow::Continue => {}
                Flow::Quit => break,
                Flow::Closed => return Ok(Flow::Closed),
            }
        }
        Ok(Flow::Continue)
    }

    /// Reads statements that are piped in. An error is printed and the next statement runs, as for a person who types;
    /// the exit status remembers it.
    async fn read_standard_input(&mut self) -> Result<ExitCode> {
        let mut script = Script::default();
        let mut code = ExitCode::SUCCESS;
        let mut lines = std::io::stdin().lock().lines();
        loop {
            let items = match lines.next().transpose() {
                Ok(Some(line)) => script.line(&line),
                Ok(None) => {
                    if let Some(item) = script.end()
                        && self.run_or_report(item, &mut code).await == Flow::Closed
                    {
                        return Ok(Flow::Closed.status());
                    }
                    return Ok(code);
                }
                Err(error) => {
                    return Err(TpchError::io("read", "standard input".as_ref(), error).into());
                }
            };
            for item in items {
                match self.run_or_report(item, &mut code).await {
                    Flow::Continue => {}
                    Flow::Quit => return Ok(code),
                    Flow::Closed => return Ok(Flow::Closed.status()),
                }
            }
        }
    }

    async fn run_or_report(&mut self, item: Item, code: &mut ExitCode) -> Flow {
        match self.run_item(item).await {
            Ok(flow) => flow,
            Err(error) => {
                print_error(&error.to_string());
                *code = ExitCode::FAILURE;
                Flow::Continue
            }
        }
    }

    /// The shell at a terminal: history, multi-line editing, highlighting; Ctrl-C stops a statement.
    async fn interact(&mut self) -> Result<ExitCode> {
        let terminal = |error: ReadlineError| Error::Terminal(error.to_string());
        if !self.print.quiet {
            print_line(&format!(
                "warpline {} on {}; \\? for help, \\q to quit",
                env!("CARGO_PKG_VERSION"),
                self.session.device().name()
            ));
        }
        let mut editor: Editor<ShellHelper, DefaultHistory> = Editor::new().map_err(terminal)?;
        let dialect = self
            .session
            .context()
            .copied_config()
            .options()
            .sql_parser
            .dialect;
        editor.set_helper(Some(ShellHelper::new(&dialect, self.print.color)));
        let history = history_file();
        if let Some(path) = &history {
            // There is none before the first session ends.
            let _ = editor.load_history(path);
        }
        let end = loop {
            match editor.readline("warpline> ") {
                Ok(entry) => {
                    // The history is a convenience; an entry that it refuses runs all the same.
                    let _ = editor.add_history_entry(entry.trim_end());
                    let flow = self.run_entry(&entry).await;
                    if flow != Flow::Continue {
                        break flow;
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break Flow::Quit,
                Err(error) => return Err(terminal(error)),
            }
            let dialect = self
                .session
                .context()
                .copied_config()
                .options()
                .sql_parser
                .dialect;
            if let Some(helper) = editor.helper_mut() {
                helper.set_dialect(&dialect);
                helper.reset_hint();
            }
        };
        if let Some(path) = &history {
            let _ = path.parent().map(fs::create_dir_all);
            if let Err(error) = editor.save_history(path) {
                log::warn!("cannot save the history to {}: {error}", path.display());
            }
        }
        Ok(end.status())
    }

    async fn run_entry(&mut self, entry: &str) -> Flow {
        let mut script = Script::default();
        let mut items: Vec<Item> = entry.lines().flat_map(|line| script.line(line)).collect();
        items.extend(script.end());
        for item in items {
            let outcome = tokio::select! {
                outcome = self.run_item(item) => outcome,
                _ = tokio::signal::ctrl_c() => {
                    print_note("cancelled");
                    return Flow::Continue;
                }
            };
            match outcome {
                Ok(Flow::Continue) => {}
                Ok(end) => return end,
                Err(error) => print_error(&error.to_string()),
            }
        }
        Flow::Continue
    }

    async fn run_item(&mut self, item: Item) -> Result<Flow> {
        match item {
            Item::Sql(sql) => self.run_sql(&sql).await,
            Item::Command(command) => self.run_command(&command).await,
        }
    }

    async fn run_sql(&self, sql: &str) -> Result<Flow> {
        let sql = &*as_limit(sql);
        let answer = Answer::new(&self.session, &self.print, sql);
        if let Some(run) = self.session.statement(sql).await? {
            let rows = MemoryStream::try_new(run.batches, run.schema, None);
            let rows = async { rows.map(|rows| Box::pin(rows) as _) };
            return answer.wrapped().print(rows).await;
        }
        if let Some(query) = self.session.prepare(sql).await? {
            let flow = answer.print(async { query.stream() }).await?;
            if flow == Flow::Continue {
                let metrics = query.finish();
                if !self.print.quiet {
                    let line = timing::line(&self.session.device().name(), &metrics);
                    answer::remark(self.print.format, &format!("{line}\n"));
                }
            }
            return Ok(flow);
        }
        let context = self.session.context();
        let state = context.state();
        let statement = statements::parsed(&state, sql)?;
        match &statement {
            // The log of a Delta table has what datafusion-cli asks of options.
            #[cfg(feature = "delta")]
            Statement::CreateExternalTable(create)
                if crate::delta::is_file_type(&create.file_type) => {}
            Statement::CreateExternalTable(_) => return answer.run_in_cli(0).await,
            Statement::CopyTo(_) => return answer.run_in_cli(1).await,
            _ => {}
        }
        let answer = match shows_all(&statement) {
            true => answer.all_rows(),
            false => answer,
        };
        let rows = async {
            let plan = statements::plan(&state, statement).await?;
            context
                .execute_logical_plan(plan)
                .await?
                .execute_stream()
                .await
        };
        answer.print(rows).await
    }

    async fn run_command(&mut self, command: &str) -> Result<Flow> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["q" | "quit"] => return Ok(Flow::Quit),
            ["?" | "help"] => print_line(HELP),
            // Here, so that a format for programs has all of them.
            ["d"] => return self.run_sql("SHOW TABLES").await,
            ["d", table] => return self.run_sql(&format!("SHOW COLUMNS FROM {table}")).await,
            ["memory"] => print_line(&inspect::memory(&self.session)),
            ["memory", "columns"] => print_line(&inspect::columns(&self.session, None)),
            ["memory", table] => print_line(&inspect::columns(&self.session, Some(table))),
            ["device"] => print_line(&inspect::device(&self.session)),
            ["device", name] => {
                name.parse::<DeviceChoice>()
                    .map_err(|error| Error::device_name(name, &error))?;
                self.session.set("warpline.device", name).await?;
                self.confirm(&format!("The next query runs on {name}."));
            }
            ["evict"] => {
                let bytes = self.session.device().evict()?;
                print_line(&format!("{} let go of.", ByteSize(bytes)));
            }
            ["timing"] => self.set_quiet(!self.print.quiet),
            ["timing", "on"] => self.set_quiet(false),
            ["timing", "off"] => self.set_quiet(true),
            ["quiet", "true" | "t" | "yes" | "y" | "on"] => self.set_quiet(true),
            ["quiet", "false" | "f" | "no" | "n" | "off"] => self.set_quiet(false),
            ["i", path] => {
                let text = fs::read_to_string(path)
                    .map_err(|error| TpchError::io("read", path.as_ref(), error))?;
                // Boxed, because a script may include another.
                return Box::pin(self.run_text(&text)).await;
            }
            ["pset", rest @ ..] => self.set_output(&rest.join(" "))?,
            _ => match words.join(" ").parse::<Command>() {
                // These two are answered above: they run statements or end the shell.
                Ok(Command::Quit | Command::Include(_)) | Err(()) => {
                    return Err(unknown_command(command));
                }
                Ok(known) => {
                    known
                        .execute(self.session.context(), &mut self.print)
                        .await?
                }
            },
        }
        Ok(Flow::Continue)
    }

    fn set_quiet(&mut self, quiet: bool) {
        let text = match quiet {
            true => "Timing is off.",
            false => "Timing is on.",
        };
        // It is told before and after: turning it off is not what a quiet shell is silent about.
        self.print.quiet &= quiet;
        self.confirm(text);
        self.print.quiet = quiet;
    }

    /// Says that a command did what it was told, to those who want to hear more than answers.
    fn confirm(&self, text: &str) {
        if !self.print.quiet {
            answer::remark(self.print.format, text);
        }
    }

    fn set_output(&mut self, option: &str) -> Result<()> {
        if option.is_empty() {
            print_line(&format!("format {:?}", self.print.format));
            return Ok(());
        }
        let format = option.strip_prefix("format ").map(str::parse);
        if let Some(Ok(format)) = format {
            self.print.format = format;
            self.confirm(&format!("Output format is {format:?}."));
            return Ok(());
        }
        let parsed = option
            .parse::<OutputFormat>()
            .map_err(|()| unknown_command(&format!("pset {option}")))?;
        // Names the formats that there are.
        Ok(parsed.execute(&mut self.print)?)
    }
}

/// Whether a table that is limited has all rows all the same, as in datafusion-cli: those who ask want to read them.
fn shows_all(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(_) => true,
        Statement::Statement(inner) => matches!(
            **inner,
            ast::Statement::ShowVariable { .. } | ast::Statement::ExplainTable { .. }
        ),
        _ => false,
    }
}

fn unknown_command(command: &str) -> Error {
    Error::ShellCommand {
        given: command.to_string(),
    }
}

/// Where the history is kept: below `$XDG_STATE_HOME`, or `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state =
        state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("warpline").join("history"))
}
