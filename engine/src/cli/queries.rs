//! `warpline bench queries`: queries of a user over tables of a user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use datafusion::logical_expr::{LogicalPlan, Statement};
use warpline::fetch_first::as_limit;
use warpline::{Error, Result, WarplineSession, order_keys};
use warpline_bench::folder;
use warpline_planner::statements::{plain_text, plan_text, register_functions};
use warpline_tpch::{QueryName, Subject, Task, TpchError};

use super::args::QueriesArguments;
use super::bench_error::told;
use super::measure::{Measure, Work};
use super::script::{Item, Script};
use super::shell::register_shell_catalog;

/// Sets the tables up and measures the queries.
pub(super) async fn run(arguments: QueriesArguments) -> Result<ExitCode> {
    let mut tasks = chosen(tasks_of(&arguments.queries)?, &arguments.query)?;
    let mut setup = Vec::new();
    for path in &arguments.setup {
        setup.extend(statements(path)?);
    }
    let measure = Measure::new(arguments.measure)?;
    let session = measure.session().await?;
    register_shell_catalog(session.context());
    if let Some(data) = &arguments.data {
        folder::register(&session, data).await.map_err(told)?;
    }
    for statement in &setup {
        set_up(&session, statement).await?;
    }
    let reference = session.reference();
    register_functions(reference);
    for task in &mut tasks {
        // What is wrong with a query is said when it runs.
        if let Ok(text) = plain_text(&reference.state(), &task.reference).await {
            task.reference = text;
        }
    }
    let work = Work {
        subject: Subject::queries(format!(
            "{} of {}",
            counted(tasks.len()),
            arguments.queries.display()
        )),
        tasks,
        verify: arguments.verify,
    };
    measure.run(&session, work).await
}

fn counted(queries: usize) -> String {
    match queries {
        1 => "1 query".to_string(),
        n => format!("{n} queries"),
    }
}

/// The statements of a file, or of each `.sql` file of a folder, under the names of the files. Several of a file are numbered.
pub(super) fn tasks_of(path: &Path) -> Result<Vec<Task>> {
    if !path.is_dir() {
        let statements = statements(path)?;
        let named = statements.into_iter().enumerate();
        return Ok(named
            .map(|(i, sql)| Task::new(QueryName::Text(format!("Q{}", i + 1)), sql))
            .collect());
    }
    let read = |error| TpchError::io("read folder", path, error);
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        if file.extension().is_some_and(|extension| extension == "sql") {
            files.push(file);
        }
    }
    files.sort_by_key(|file| natural(&stem(file)));
    let mut tasks = Vec::new();
    for file in &files {
        let (name, statements) = (stem(file), statements(file)?);
        let only = statements.len() == 1;
        for (i, sql) in statements.into_iter().enumerate() {
            let name = match only {
                true => name.clone(),
                false => format!("{name}.{}", i + 1),
            };
            tasks.push(Task::new(QueryName::Text(name), sql));
        }
    }
    Ok(tasks)
}

fn stem(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A key that sorts `q2` before `q10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(text);
        let digits = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        if !word.is_empty() {
            key.push((u64::MAX, word.to_string()));
        }
        if !number.is_empty() {
            key.push((number.parse().unwrap_or(u64::MAX - 1), String::new()));
        }
        rest = after;
    }
    key
}

/// Those of the queries that are asked for by name; all, when none is.
pub(super) fn chosen(tasks: Vec<Task>, names: &[String]) -> Result<Vec<Task>> {
    if tasks.is_empty() {
        return Err(Error::NoQuery);
    }
    if names.is_empty() {
        return Ok(tasks);
    }
    let find = |name: &String| {
        let found = tasks
            .iter()
            .find(|task| task.name.to_string() == name.trim());
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = tasks.iter().map(|task| task.name.to_string()).collect();
            Error::Bench(format!(
                "there is no query '{}': give some of {}",
                name.trim(),
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

/// The statements of a file, without backslash commands.
pub(super) fn statements(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|error| TpchError::io("read", path, error))?;
    let mut script = Script::default();
    let mut items: Vec<Item> = text.lines().flat_map(|line| script.line(line)).collect();
    items.extend(script.end());
    items
        .into_iter()
        .map(|item| match item {
            // Plain DataFusion runs the same text.
            Item::Sql(sql) => {
                let sql = as_limit(&sql);
                Ok(order_keys::text_apart(&sql).unwrap_or_else(|| sql.into_owned()))
            }
            // Those are for people at a shell.
            Item::Command(given) => Err(Error::OutsideShell { given }),
        })
        .collect()
}

/// Runs a statement and lets go of what it answers. What `SET` sets counts for the reference as well.
pub(super) async fn set_up(session: &WarplineSession, sql: &str) -> Result<()> {
    let plan = plan_text(&session.context().state(), sql).await?;
    if let LogicalPlan::Statement(Statement::SetVariable(set)) = &plan {
        return session.set(&set.variable, &set.value).await;
    }
    let run = async {
        let frame = session.context().execute_logical_plan(plan).await?;
        frame.collect().await
    };
    session.guard(sql, run).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_files_and_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let put =
            |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
        put("q10.sql", "select 10");
        put("q2.sql", "-- two\nselect ';';\nselect 2;");
        put("notes.txt", "select 0");
        let tasks = tasks_of(folder.path()).expect("queries");
        let named: Vec<_> = tasks
            .iter()
            .map(|t| (t.name.to_string(), t.sql.as_str()))
            .collect();
        assert_eq!(
            named,
            [
                ("q2.1".to_string(), "-- two\nselect ';'"),
                ("q2.2".to_string(), "select 2"),
                ("q10".to_string(), "select 10")
            ]
        );
        let some = chosen(tasks.clone(), &["q10".into(), " q2.1".into()]).expect("two");
        assert_eq!(some.len(), 2);
        let error = chosen(tasks, &["q3".into()])
            .expect_err("no such query")
            .to_string();
        assert!(
            error.contains("'q3'") && error.contains("q2.1, q2.2, q10"),
            "{error}"
        );
        let one = tasks_of(&folder.path().join("q2.sql")).expect("a file");
        assert_eq!(one[1].name.to_string(), "Q2");
        put("bad.sql", "\\d");
        assert!(tasks_of(folder.path()).is_err());
    }
}
