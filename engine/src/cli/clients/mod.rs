//! `warpline bench clients`: queries from many sessions at once, over one device and the same tables.

mod check;
mod figures;
mod round;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use warpline::{Error, Result, WarplineSession};
use warpline_bench::folder;
use warpline_tpch::{Benchmark, Scale, Task, queries};

use self::figures::{Figures, to_table};
use self::round::{Round, warm_up};
use super::args::{ClientsArguments, ReportFormat};
use super::bench_error::told;
use super::output::OutputFile;
use super::print::print_note;
use super::queries::{chosen, set_up, statements, tasks_of};
use super::tpch::{Source, load};

/// Opens the sessions, lets each run all queries, and measures; the exit status says whether every answer came and was right.
pub(super) async fn run(arguments: ClientsArguments) -> Result<ExitCode> {
    let output = arguments
        .output
        .as_deref()
        .map(OutputFile::create)
        .transpose()?;
    let work = Work::of(&arguments)?;
    let first = Arc::new(arguments.session.builder().open().await?);
    make_tables(&arguments, &first, &work).await?;

    let most = arguments.clients.iter().copied().max().unwrap_or(1);
    let mut sessions = vec![first];
    for _ in 1..most {
        let session = beside(&arguments, &sessions[0]).await?;
        sessions.push(session);
    }
    let heavy = match &work.heavy {
        Some(task) => Some((beside(&arguments, &sessions[0]).await?, task.clone())),
        None => None,
    };
    let checks = warm_up(&sessions, &work.light, heavy.as_ref()).await?;
    let checks = arguments.verify.then(|| Arc::new(checks));

    let device = sessions[0].device().clone();
    let mut measured = Vec::new();
    for clients in &arguments.clients {
        let sessions = &sessions[..usize::from(*clients)];
        let time = Duration::from_secs_f64(arguments.seconds);
        for heavy in [None, heavy.as_ref()]
            .into_iter()
            .take(1 + usize::from(heavy.is_some()))
        {
            let round = Round {
                sessions,
                tasks: &work.light,
                heavy,
                time,
                checks: checks.clone(),
            };
            let figures = round.run(&device).await?;
            print_note(&figures.to_line());
            measured.push(figures);
        }
    }
    let text = match arguments.format {
        ReportFormat::Table => to_table(&measured),
        ReportFormat::Json => format!("{}\n", report(&sessions[0], &work, &measured)),
    };
    match output {
        Some(output) => output.finish(&text)?,
        None => {
            // A reader that went away is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
        }
    }
    let passed = measured.iter().all(Figures::passed);
    Ok(match passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What the sessions run.
struct Work {
    light: Arc<Vec<Task>>,
    heavy: Option<Task>,
}

impl Work {
    fn of(arguments: &ClientsArguments) -> Result<Self> {
        let all = match &arguments.queries {
            Some(path) => tasks_of(path)?,
            None => tpch_tasks(arguments, None)?,
        };
        let mut light = match (&arguments.queries, &arguments.query) {
            (Some(_), Some(names)) => {
                let names: Vec<String> = names.split(',').map(str::to_string).collect();
                chosen(all.clone(), &names)?
            }
            (None, Some(list)) => tpch_tasks(arguments, Some(list))?,
            (_, None) => all.clone(),
        };
        let heavy = match &arguments.heavy {
            Some(name) => chosen(all, std::slice::from_ref(name))?.pop(),
            None => None,
        };
        if let Some(heavy) = &heavy {
            light.retain(|task| task.name != heavy.name);
        }
        if light.is_empty() {
            return Err(Error::NoQuery);
        }
        Ok(Self {
            light: Arc::new(light),
            heavy,
        })
    }
}

/// TPC-H's queries, which are the same at every scale.
fn tpch_tasks(arguments: &ClientsArguments, list: Option<&str>) -> Result<Vec<Task>> {
    let numbers: Vec<u8> = match list {
        Some(list) => queries::parse_list(list)?
            .iter()
            .map(|query| query.number)
            .collect(),
        None => (1..=22).collect(),
    };
    let scale = match arguments.scale {
        Some(scale) => scale,
        None => Scale::new(1.0)?,
    };
    let queries = Benchmark::Tpch.queries(&numbers, scale)?;
    Ok(queries.into_iter().map(Task::from).collect())
}

/// Registers the tables with the first session.
async fn make_tables(
    arguments: &ClientsArguments,
    session: &WarplineSession,
    work: &Work,
) -> Result<()> {
    if arguments.queries.is_some() {
        if let Some(data) = &arguments.data {
            folder::register(session, data).await.map_err(told)?;
        }
        for path in &arguments.setup {
            for statement in statements(path)? {
                set_up(session, &statement).await?;
            }
        }
        return Ok(());
    }
    let tasks = work.light.iter().chain(&work.heavy);
    let named: Vec<u8> = tasks
        .filter_map(|task| match task.name {
            warpline_tpch::QueryName::Number(number) => Some(number),
            warpline_tpch::QueryName::Text(_) => None,
        })
        .collect();
    let read: Vec<_> = queries::ALL
        .iter()
        .filter(|query| named.contains(&query.number))
        .cloned()
        .collect();
    let source = Source {
        scale: arguments.scale,
        data: arguments.data.as_deref(),
    };
    load(
        session,
        Benchmark::Tpch,
        &source,
        &queries::tables_of(&read),
    )
    .await?;
    Ok(())
}

/// A session over the device and the catalogs of another one.
async fn beside(
    arguments: &ClientsArguments,
    first: &WarplineSession,
) -> Result<Arc<WarplineSession>> {
    let session = arguments
        .session
        .builder()
        .shared_device(first.device())
        .runtime(first.context().runtime_env())
        .open()
        .await?;
    let context = first.context();
    for name in context.catalog_names() {
        if let Some(catalog) = context.catalog(&name) {
            session.context().register_catalog(name, catalog);
        }
    }
    Ok(Arc::new(session))
}

fn report(session: &WarplineSession, work: &Work, measured: &[Figures]) -> serde_json::Value {
    let names = work.light.iter().map(|task| task.name.to_string());
    json!({
        "device": session.device().name(),
        "queries": names.collect::<Vec<_>>(),
        "heavy": work.heavy.as_ref().map(|task| task.name.to_string()),
        "rounds": measured.iter().map(Figures::to_json).collect::<Vec<_>>(),
        "environment": warpline::environment(session),
    })
}
