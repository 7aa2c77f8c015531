//! The SQL shell without a terminal: `-c`, `-f` and statements that are piped in.

use std::fs;

use super::{run, run_in};

#[test]
fn commands_print_answers_in_each_format() {
    let answer = |format| {
        run(&[
            "--device",
            "cpu",
            "-q",
            "--format",
            format,
            "-c",
            "SELECT 1 AS a, 'x' AS b",
        ])
        .ok()
        .stdout
    };
    assert_eq!(answer("csv"), "a,b\n1,x\n");
    assert_eq!(answer("tsv"), "a\tb\n1\tx\n");
    assert_eq!(answer("nd-json"), "{\"a\":1,\"b\":\"x\"}\n");
    assert_eq!(answer("json").trim(), "[{\"a\":1,\"b\":\"x\"}]");
    assert!(answer("table").contains("| 1 | x |"), "{}", answer("table"));
    assert_eq!(
        run(&[
            "-q",
            "--format",
            "csv",
            "-c",
            "SELECT 1 a; SELECT 2 b",
            "-c",
            "SELECT 3 c"
        ])
        .ok()
        .stdout,
        "a\n1\nb\n2\nc\n3\n"
    );
}

#[test]
fn a_failing_statement_ends_commands_and_files_with_status_one() {
    let outcome = run(&[
        "-q",
        "--format",
        "csv",
        "-c",
        "SELECT 1 a",
        "-c",
        "SELECT * FROM missing",
        "-c",
        "SELECT 2 b",
    ]);
    assert_eq!(
        outcome.fails_with(&["missing", "SHOW TABLES"]).stdout,
        "a\n1\n"
    );
    run(&["-c", "SELEC 1"]).fails_with(&["SELEC", "syntax"]);
    run(&["-c", "SET warpline.nonsense = 1"]).fails_with(&["nonsense", "warpline.min_rows"]);
    run(&["--set", "datafusion.nonsense=1", "-c", "SELECT 1"])
        .fails_with(&["nonsense", "SHOW ALL"]);
    run(&["--set", "novalue", "-c", "SELECT 1"]).refuses_with(&["KEY=VALUE"]);
    run(&["-f", "nowhere.sql"]).fails_with(&["nowhere.sql", "check the path"]);

    let directory = tempfile::tempdir().expect("a directory");
    let script = "#!/usr/bin/env warpline\n-- a comment;\nSELECT 1 a;\nSELECT nope;\nSELECT 2 b;\n";
    fs::write(directory.path().join("script.sql"), script).expect("a script");
    let outcome = run_in(
        directory.path(),
        &["-q", "--format", "csv", "-f", "script.sql"],
        "",
    );
    assert_eq!(outcome.fails_with(&["nope"]).stdout, "a\n1\n");
}

#[test]
fn piped_statements_go_on_after_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = "SELECT\n 1 a;\nSELECT nope;\n\\nonsense\nSELECT ';' b;\n\\pset format csv\nSELECT 3 c; SELECT 4 d\n";
    let outcome = run_in(directory.path(), &["-q", "--format", "csv"], input);
    assert_eq!(outcome.code, 1);
    assert_eq!(outcome.stdout, "a\n1\nb\n;\nc\n3\nd\n4\n");
    assert_eq!(
        outcome.stderr.matches("warpline: error: ").count(),
        2,
        "{}",
        outcome.stderr
    );
    let outcome = run_in(
        directory.path(),
        &["-q", "--format", "csv"],
        "SELECT 1 a;\n\\q\nSELECT 2 b;\n",
    )
    .ok();
    assert_eq!(outcome.stdout, "a\n1\n");
}

#[test]
fn backslash_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("one.sql"), "SELECT 1 AS included;\n").expect("a script");
    let input = "\\timing off\n\\timing\nCREATE TABLE tt (x INT);\n\\d\n\\d tt\n\\?\n\\i one.sql\n\\h select\n\\quiet on\n";
    let outcome = run_in(directory.path(), &[], input).ok();
    for part in [
        "Timing is off.",
        "Timing is on.",
        "| tt ",
        "Int32",
        "\\timing on|off",
        "included",
        "row(s) fetched",
    ] {
        assert!(
            outcome.stdout.contains(part),
            "'{part}' is not in: {}",
            outcome.stdout
        );
    }
}

#[test]
fn external_tables_of_each_format() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("t.csv"), "a,b\n1,x\n2,y\n").expect("a file");
    fs::write(
        directory.path().join("t.json"),
        "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n",
    )
    .expect("a file");
    let input = "
        CREATE EXTERNAL TABLE c STORED AS CSV LOCATION 't.csv' OPTIONS ('format.has_header' 'true');
        COPY c TO 't.parquet' STORED AS PARQUET;
        COPY c TO 't.arrow' STORED AS ARROW;
        CREATE EXTERNAL TABLE p STORED AS PARQUET LOCATION 't.parquet';
        CREATE EXTERNAL TABLE j STORED AS JSON LOCATION 't.json';
        CREATE EXTERNAL TABLE r STORED AS ARROW LOCATION 't.arrow';
        SELECT sum(c.a + p.a + j.a + r.a) AS total FROM c JOIN p ON c.b = p.b JOIN j ON c.b = j.b JOIN r ON c.b = r.b;
        SELECT count(*) AS n FROM 't.parquet';
    ";
    let outcome = run_in(directory.path(), &["-q", "--format", "csv"], input).ok();
    assert!(
        outcome.stdout.ends_with("total\n12\nn\n2\n"),
        "{}",
        outcome.stdout
    );
    let input =
        "CREATE EXTERNAL TABLE m STORED AS PARQUET LOCATION 'missing.parquet'; SELECT * FROM m;";
    assert_eq!(run_in(directory.path(), &[], input).code, 1);
}

#[test]
fn settings_can_be_read_and_changed() {
    let input = "SET datafusion.execution.batch_size = 1024; SHOW datafusion.execution.batch_size;";
    let outcome = run(&["-q", "--format", "csv", "-c", input]).ok();
    assert!(outcome.stdout.contains("1024"), "{}", outcome.stdout);
    let outcome = run(&[
        "-q",
        "--format",
        "csv",
        "--set",
        "datafusion.runtime.memory_limit=1G",
        "-c",
        "SHOW datafusion.runtime.memory_limit",
    ]);
    assert!(outcome.ok().stdout.contains("1"), "the limit is shown");
}

#[test]
fn a_broken_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("broken.parquet");
    fs::write(&path, b"this is no file of that format").expect("written");
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}'",
        path.display()
    );
    run(&["--device", "cpu", "-c", &sql]).fails_with(&["broken.parquet", "Parquet"]);
}

#[test]
fn errors_name_files_where_files_may_be_the_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("broken.parquet"),
        b"no file of that format",
    )
    .expect("written");
    fs::write(folder.path().join("t.csv"), "a,b\n1,x\n2,y\n").expect("written");
    let fails = |sql: &str, parts: &[&str]| {
        let shell = ["--device", "cpu", "--format", "csv", "-c", sql];
        run_in(folder.path(), &shell, "").fails_with(parts).stderr
    };
    fails(
        "SELECT * FROM 'broken.parquet'",
        &["reading broken.parquet", "Corrupt footer"],
    );
    fails(
        "SELECT * FROM 'nowhere.parquet'",
        &["nowhere.parquet", "nor a file of that name", ".parquet"],
    );
    fails(
        "SELECT cast(b AS INT) FROM 't.csv'",
        &["in a query of", "t.csv", "Cannot cast string 'x'"],
    );
    let printed = fails(
        "SELECT make_array(a) FROM 't.csv'",
        &["cannot be printed as csv", "--format"],
    );
    assert!(!printed.contains("t.csv"), "{printed}");
    let computed = fails("SELECT a / 0 FROM 't.csv'", &["Divide by zero"]);
    assert!(!computed.contains("t.csv"), "{computed}");
    let create = "CREATE EXTERNAL TABLE t STORED AS";
    fails(
        &format!("{create} PARQUETTE LOCATION 't.csv'"),
        &["PARQUETTE", "the formats are PARQUET, CSV"],
    );
    let csv = format!("{create} CSV LOCATION 't.csv'");
    fails(
        &format!("{csv}; {csv}"),
        &["'t' already exists", "CREATE OR REPLACE"],
    );
}

#[test]
fn memory_and_failures_are_shown() {
    let shown = run(&["--device", "cpu", "-q", "-c", "\\memory"])
        .ok()
        .stdout;
    assert!(shown.contains("CPU answers"), "{shown}");
    let query = "CREATE TABLE t AS SELECT value % 7 AS k FROM generate_series(1, 1000); \
                 SELECT k, count(*) AS n FROM t GROUP BY k";
    let arguments = [
        "--device",
        "emulator",
        "--device-memory",
        "64MiB",
        "--inject-failures",
        "launch:1",
        "--set",
        "warpline.min_rows=0",
        "--format",
        "csv",
        "-q",
        "-c",
        query,
        "-c",
        "\\memory",
        "-c",
        "\\evict",
    ];
    let shown = run(&arguments).ok().stdout;
    assert!(shown.contains("of 64.0 MiB"), "{shown}");
    assert!(shown.contains("1 on the CPU"), "{shown}");
    assert!(shown.contains("let go of."), "{shown}");
    run(&["--inject-failures", "memory", "-c", "SELECT 1"])
        .fails_with(&["inject_failures", "allocate"]);
    run(&["--time-limit", "soon", "-c", "SELECT 1"]).fails_with(&["time_limit", "10s"]);
}

/// Runs statements in the emulator, with answers as CSV.
fn emulated(statements: &[&str]) -> super::Outcome {
    let mut arguments = vec![
        "--device",
        "emulator",
        "--device-memory",
        "64MiB",
        "--set",
        "warpline.min_rows=0",
        "--format",
        "csv",
        "-q",
    ];
    for statement in statements {
        arguments.extend(["-c", statement]);
    }
    run(&arguments)
}

const TABLE: &str =
    "CREATE TABLE t AS SELECT value % 7 AS k, value AS v FROM generate_series(1, 1000)";

#[test]
fn pinned_tables_stay_when_others_go() {
    let outcome = emulated(&[
        TABLE,
        "PIN TABLE T",
        "\\memory",
        "SELECT k, sum(v) AS s FROM t GROUP BY k ORDER BY k LIMIT 1",
        "\\evict",
        "\\memory columns",
        "UNPIN TABLE public.t",
        "\\evict",
        "\\memory columns",
    ])
    .ok();
    let text = &outcome.stdout;
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let at = |wanted: &str| {
        let found = lines.iter().position(|line| line.starts_with(wanted));
        found.unwrap_or_else(|| panic!("no line begins with '{wanted}': {text}"))
    };
    // The answers of both statements, the second with fewer columns.
    assert!(
        at("table,rows,columns,bytes,not_pinned") < at("t,1000,2,"),
        "{text}"
    );
    assert!(at("table,bytes") > at("k,s"), "{text}");
    assert!(at("pinned datafusion.public.t") < at("k,s"), "{text}");
    // Both columns were there after an eviction, and used: not after they were unpinned.
    let yes = lines.iter().filter(|line| line.ends_with(" yes")).count();
    assert_eq!(yes, 2, "{text}");
    // Afterwards they had to leave.
    let last = lines.last().map_or("", String::as_str);
    assert!(last.contains(" 0 B "), "{text}");

    emulated(&["UNPIN TABLE t"]).fails_with(&["'t' is not pinned", "none"]);
    emulated(&["PIN TABLE t"]).fails_with(&["No table named 't'", "SHOW TABLES"]);
    emulated(&[TABLE, "CREATE VIEW v AS SELECT k FROM t", "PIN TABLE v"])
        .fails_with(&["'v' cannot be pinned", "view"]);
    run(&["--device", "cpu", "-c", TABLE, "-c", "PIN TABLE t"])
        .fails_with(&["device 'cpu' has none", "SET warpline.device"]);
}

#[test]
fn settings_are_shown_with_what_they_mean() {
    let outcome = emulated(&["SET warpline.join = phj_ur", "SHOW warpline.*"]).ok();
    let join = outcome
        .stdout
        .lines()
        .find(|line| line.starts_with("warpline.join,"));
    assert!(
        join.is_some_and(|line| line.contains(",phj_ur,") && line.contains("How joins are done")),
        "{}",
        outcome.stdout
    );
    // All settings, each with a description.
    let lines: Vec<&str> = outcome.stdout.lines().skip(1).collect();
    assert!(
        lines.len() > 15 && lines.iter().all(|line| line.starts_with("warpline.")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line.len() > 60), "{lines:?}");
    // A table for people has no line that is wider than a screen.
    let shown = run(&["--device", "cpu", "-q", "-c", "SHOW warpline.*"])
        .ok()
        .stdout;
    assert!(
        shown.lines().all(|line| line.chars().count() < 130),
        "{shown}"
    );
    let none = emulated(&["SHOW nonsense.*"]).ok().stdout;
    assert_eq!(none, "name,value,description\n");
}

#[test]
fn timing_says_who_answered() {
    let query = "SELECT k, sum(v) AS s FROM t GROUP BY k";
    let outcome = run(&[
        "--device",
        "emulator",
        "--set",
        "warpline.min_rows=0",
        "-c",
        TABLE,
        "-c",
        query,
        "-c",
        query,
        "-c",
        "SET warpline.min_rows = 100000",
        "-c",
        query,
    ])
    .ok();
    let lines: Vec<&str> = outcome
        .stdout
        .lines()
        .filter(|l| l.starts_with("Answered on "))
        .collect();
    assert_eq!(lines.len(), 4, "{}", outcome.stdout);
    // The first is of the table, which a query made.
    let lines = &lines[1..];
    for line in &lines[..2] {
        assert!(
            line.starts_with("Answered on emulator: ") && line.contains(" kernels "),
            "{line}"
        );
    }
    assert!(
        lines[0].contains("load ") && !lines[0].contains("(kept)"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("(kept)"), "{}", lines[1]);
    assert!(lines[2].starts_with("Answered on the CPU"), "{}", lines[2]);
}

#[test]
fn statements_that_write_or_repeat_queries_say_who_answered_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let query = "SELECT k, sum(v) AS s FROM t GROUP BY k";
    let shell = |extra: &[&str], statement: &str| {
        let mut arguments = vec!["--device", "emulator", "--set", "warpline.min_rows=0"];
        arguments.extend(extra);
        arguments.extend([
            "-c",
            TABLE,
            "-c",
            "CREATE TABLE u AS SELECT k, v FROM t LIMIT 0",
        ]);
        arguments.extend(["-c", statement]);
        let printed = run_in(directory.path(), &arguments, "").ok().stdout;
        let mut answered = printed.lines().filter(|l| l.starts_with("Answered on "));
        let line = answered
            .next_back()
            .unwrap_or_else(|| panic!("{statement}: {printed}"));
        assert!(
            line.starts_with("Answered on emulator: ") && line.contains(" kernels "),
            "{line}"
        );
        printed
    };
    shell(&["--set", "warpline.plan_cache=false"], query);
    let inserted = shell(&[], &format!("INSERT INTO u {query}"));
    assert!(inserted.contains("| 7     |"), "{inserted}");
    shell(&[], &format!("PREPARE p AS {query}; EXECUTE p"));
    // The file is read by a later run: the rows are there, not only the count.
    let copied = shell(&[], &format!("COPY ({query}) TO 'k.parquet'"));
    assert!(copied.contains("| 7     |"), "{copied}");
    let sum = "SELECT count(*) AS n, sum(s) AS s FROM 'k.parquet'";
    let shell = ["-q", "--device", "cpu", "--format", "csv", "-c", sum];
    let read = run_in(directory.path(), &shell, "").ok().stdout;
    assert_eq!(read, "n,s\n7,500500\n");
}

#[test]
fn devices_are_described_and_changed() {
    let outcome = run(&["--device", "cpu", "-q", "-c", "\\device"]).ok();
    assert!(
        outcome.stdout.contains("device     cpu"),
        "{}",
        outcome.stdout
    );
    let outcome = emulated(&["\\device", "\\device cpu", "SELECT 1 AS a", "\\device"]).ok();
    let text = &outcome.stdout;
    assert!(
        text.contains("device     emulator") && text.contains("at most 64.0 MiB"),
        "{text}"
    );
    assert!(text.contains("device     cpu"), "{text}");
    emulated(&["\\device tpu"]).fails_with(&["'tpu' is not a device", "cuda:N"]);
}

#[test]
fn object_stores_take_the_options_of_datafusion_cli() {
    let create = |location: &str, options: &str| {
        format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{location}' OPTIONS ({options})"
        )
    };
    let fails = |location: &str, options: &str, parts: &[&str]| {
        run(&["--device", "cpu", "-c", &create(location, options)]).fails_with(parts);
    };
    // Each scheme has options of its own, which are read before anything is asked of a network.
    fails(
        "s3://bucket/t.parquet",
        "'aws.nonsense' 'x'",
        &["AwsOptions"],
    );
    fails(
        "gs://bucket/t.parquet",
        "'gcp.nonsense' 'x'",
        &["nonsense", "GcpOptions"],
    );
}
