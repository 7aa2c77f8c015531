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
    assert_eq!(
        outcome.stdout,
        "a\n1\nb\n;\nOutput format is Csv.\nc\n3\nd\n4\n"
    );
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
