//! `warpline tpch`: reports, files, and the errors of a new user.

use std::fs;

use serde_json::Value;

use super::{run, run_in};

const CPU: [&str; 5] = ["tpch", "--scale", "0.01", "--device", "cpu"];

#[test]
fn the_json_report_is_all_that_is_printed() {
    let outcome = run(&[
        &CPU[..],
        &["--query", "1,6", "--runs", "2", "--format", "json"],
    ]
    .concat())
    .ok();
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one JSON object");
    assert_eq!(report["device"], "cpu");
    assert_eq!(report["scale"], 0.01);
    let queries = report["queries"].as_array().expect("queries");
    assert_eq!(
        queries
            .iter()
            .map(|query| query["query"].as_u64())
            .collect::<Vec<_>>(),
        [Some(1), Some(6)]
    );
    for query in queries {
        assert_eq!(query["verified"], true);
        assert_eq!(query["error"], Value::Null);
        assert_eq!(query["hot_ms"].as_array().map(Vec::len), Some(2));
        assert_eq!(query["fallbacks"].as_array().map(Vec::len), Some(0));
    }
    assert_eq!(outcome.stderr, "");
}

#[test]
fn report_and_answers_go_to_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = [
        &CPU[..],
        &[
            "--query",
            "4",
            "--runs",
            "0",
            "--output",
            "report.txt",
            "--results",
            "answers",
        ],
    ]
    .concat();
    let outcome = run_in(directory.path(), &arguments, "").ok();
    assert_eq!(outcome.stdout, "");
    let report = fs::read_to_string(directory.path().join("report.txt")).expect("a report");
    assert!(
        report.contains("1 of 1 queries succeeded, 1 verified"),
        "{report}"
    );
    let answer = fs::read_to_string(directory.path().join("answers/q04.csv")).expect("an answer");
    assert!(
        answer.starts_with("o_orderpriority,order_count\n1-URGENT,"),
        "{answer}"
    );
    // Nothing else is left in the directory.
    assert_eq!(
        fs::read_dir(directory.path()).expect("a listing").count(),
        2
    );
}

#[test]
fn reports_are_pages_and_are_compared_with_earlier_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |more: &[&str]| {
        let arguments = [&CPU[..], &["--query", "6,14", "--runs", "1"], more].concat();
        run_in(directory.path(), &arguments, "").ok()
    };
    run(&["--format", "json", "--output", "old.json", "--no-verify"]);
    let old = fs::read_to_string(directory.path().join("old.json")).expect("a report");
    let old: Value = serde_json::from_str(&old).expect("one JSON object");
    let environment = &old["environment"];
    assert!(
        environment["host"]["cores"].as_u64() > Some(0),
        "{environment}"
    );
    assert_eq!(environment["device"], Value::Null);
    assert!(
        environment["date"]
            .as_str()
            .is_some_and(|date| date.starts_with("20")),
        "{environment}"
    );
    // Not verified, so plain DataFusion was not measured either.
    assert_eq!(old["queries"][0]["cpu_median_ms"], Value::Null);

    let outcome = run(&[
        "--compare",
        "old.json",
        "--report",
        "new.html",
        "--cpu-runs",
        "2",
        "--set",
        "datafusion.execution.batch_size=1024",
    ]);
    let line = |name: &str| {
        let named = |line: &&str| line.split_whitespace().next() == Some(name);
        outcome.stdout.lines().filter(named).count()
    };
    // Once in the table, once in the comparison.
    assert_eq!((line("Q6"), line("Q14")), (2, 2), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("now / then"), "{}", outcome.stdout);
    let page = fs::read_to_string(directory.path().join("new.html")).expect("a page");
    for part in [
        "TPC-H at scale 0.01",
        "Speedup over then",
        "Speedup over the CPU",
        "datafusion.execution.batch_size = 1024",
        "--compare old.json",
    ] {
        assert!(page.contains(part), "{part}");
    }

    let fails = |more: &[&str], parts: &[&str]| {
        let arguments = [&CPU[..], more].concat();
        run_in(directory.path(), &arguments, "").fails_with(parts);
    };
    fails(
        &["--compare", "nowhere.json"],
        &["nowhere.json", "check the path"],
    );
    fails(
        &["--compare", "new.html"],
        &["new.html", "is no report", "--format json"],
    );
    fails(
        &["--report", "nowhere/new.html"],
        &["nowhere/new.html", "check the path"],
    );
}

#[test]
fn generated_files_are_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let generate = ["tpch", "generate", "--scale", "0.01", "--output", "data"];
    let outcome = run_in(directory.path(), &generate, "").ok();
    assert!(
        outcome.stdout.starts_with("Wrote 86805 rows in 8 files, "),
        "{}",
        outcome.stdout
    );
    run_in(directory.path(), &generate, "").fails_with(&[
        "data",
        "is not empty",
        "give a new or empty directory",
    ]);

    let from_data = [
        "tpch", "--data", "data", "--device", "cpu", "--query", "1,6,22", "--runs", "0",
        "--format", "json",
    ];
    let outcome = run_in(directory.path(), &from_data, "").ok();
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one JSON object");
    // Without --scale, it is what the files hold.
    assert_eq!(report["scale"], 0.01);
    let outcome = run_in(
        directory.path(),
        &[&from_data[..], &["--scale", "1"]].concat(),
        "",
    )
    .ok();
    assert!(
        outcome.stderr.contains("holds about scale 0.010"),
        "{}",
        outcome.stderr
    );

    fs::remove_dir_all(directory.path().join("data/orders")).expect("a table less");
    run_in(directory.path(), &from_data, "")
        .fails_with(&["no table 'orders'", "warpline tpch generate"]);
}

#[test]
fn arguments_that_cannot_be_right_are_refused() {
    for scale in ["0", "-1", "nan", "ten", "1e9"] {
        run(&["tpch", "--scale", scale]).refuses_with(&[scale, "give a number from 0.001"]);
        run(&["tpch", "generate", "--output", "x", "--scale", scale]).refuses_with(&[scale]);
    }
    run(&["tpch", "--query", "23"]).refuses_with(&["'23' does not name queries", "1 to 22"]);
    run(&["tpch", "--query", "1,,2"]).refuses_with(&["1 to 22"]);
    run(&["tpch", "--device", "tpu"]).refuses_with(&["tpu", "cuda:N"]);
    run(&["tpch", "--device-memory", "lots"]).refuses_with(&["lots", "16GiB"]);
    run(&[
        "tpch", "generate", "--scale", "1", "--output", "x", "--format", "xml",
    ])
    .refuses_with(&["parquet, csv, tbl"]);
    run(&["tpch", "generate", "--scale", "1"]).refuses_with(&["--output"]);
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("file"), "").expect("a file");
    let fails = |arguments: &[&str], parts: &[&str]| {
        run_in(directory.path(), &[&CPU[..], arguments].concat(), "").fails_with(parts);
    };
    fails(
        &["--data", "nowhere"],
        &["nowhere", "does not exist", "warpline tpch generate"],
    );
    fails(&["--data", "file"], &["file", "is not a directory"]);
    fails(
        &["--output", "nowhere/report.json"],
        &["nowhere/report.json", "check the path"],
    );
    fails(&["--output", "."], &["check the path"]);
    fails(
        &["--query", "6", "--results", "file/below"],
        &["file/below", "check the path"],
    );
    let generate = [
        "tpch",
        "generate",
        "--scale",
        "0.01",
        "--output",
        "file/below",
    ];
    run_in(directory.path(), &generate, "").fails_with(&["file/below", "check the path"]);
}

#[test]
fn a_required_gpu_is_required() {
    run(&[&CPU[..], &["--require-gpu"]].concat())
        .fails_with(&["a GPU is required", "warpline devices"]);
}
