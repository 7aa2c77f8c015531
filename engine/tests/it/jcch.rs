//! `warpline jcch`: answers, files, parameters, and the errors of a new user.

use std::fs;

use serde_json::Value;

use super::{run, run_in};

const SMALL: [&str; 5] = ["jcch", "--scale", "0.003", "--runs", "1"];

fn report(arguments: &[&str]) -> Value {
    let outcome = run(&[&SMALL[..], arguments, &["--format", "json"]].concat()).ok();
    assert_eq!(outcome.stderr, "");
    serde_json::from_str(&outcome.stdout).expect("one JSON object")
}

#[test]
fn the_report_names_bindings_and_seed() {
    for (arguments, bindings, seed) in [
        (&["--query", "1,6"][..], "skewed", 1_648_967_542),
        (
            &["--query", "6,1", "--bindings", "normal", "--seed", "42"],
            "normal",
            42,
        ),
    ] {
        let report = report(&[arguments, &["--device", "cpu"]].concat());
        assert_eq!(report["benchmark"], "jcch");
        assert_eq!(report["bindings"], bindings);
        assert_eq!(report["seed"], seed);
        assert_eq!(report["scale"], 0.003);
        for query in report["queries"].as_array().expect("queries") {
            assert_eq!(query["verified"], true);
            // Flags and states have five combinations here, and four in TPC-H.
            assert_eq!(query["rows"], if query["query"] == 1 { 5 } else { 1 });
        }
    }
    let table = run(&[&SMALL[..], &["--device", "cpu", "--query", "6"]].concat()).ok();
    let first = table.stdout.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("JCC-H scale 0.003, skewed bindings of seed 1648967542, on cpu"),
        "{first}"
    );
}

#[test]
fn some_skewed_queries_run_on_the_device() {
    // The oversized orders, the hot parts and the orders of the populous customers.
    for bindings in ["skewed", "normal"] {
        let report = report(&[
            "--device",
            "emulator",
            "--require-gpu",
            "--query",
            "3,12,18,19,21",
            "--bindings",
            bindings,
        ]);
        for query in report["queries"].as_array().expect("queries") {
            assert_eq!(query["verified"], true, "{query}");
            assert_eq!(query["fallbacks"].as_array().map(Vec::len), Some(0));
        }
    }
}

#[test]
fn parameters_are_shown_one_query_a_line() {
    let shown = run(&["jcch", "--show-parameters"]).ok();
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines.len(), 22);
    assert_eq!(lines[0], "1\t71");
    assert_eq!(lines[10], "11\tUNITED STATES\t0.0001000000");
    assert_eq!(lines[18], "19\tBrand#00\tBrand#00\tBrand#55\t2\t19\t50");
    let some = [
        "jcch",
        "--show-parameters",
        "--query",
        "11,1",
        "--scale",
        "0.01",
        "--bindings",
        "normal",
    ];
    let some = run(&some).ok();
    assert!(some.stdout.starts_with("11\t"), "{}", some.stdout);
    assert!(
        some.stdout.contains("\t0.0100000000\n1\t"),
        "{}",
        some.stdout
    );
}

#[test]
fn generated_files_are_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let generate = |format, output| {
        let arguments = [
            "jcch", "generate", "--scale", "0.0035", "--output", output, "--format", format,
        ];
        run_in(directory.path(), &arguments, "").ok()
    };
    let outcome = generate("parquet", "data");
    assert!(
        outcome.stdout.starts_with("Wrote 26010 rows in 8 files, "),
        "{}",
        outcome.stdout
    );
    assert!(
        outcome.stderr.contains("scale 0.003 is made instead"),
        "{}",
        outcome.stderr
    );
    generate("tbl", "text");
    let nation =
        fs::read_to_string(directory.path().join("text/nation/part-000.tbl")).expect("text");
    assert!(nation.starts_with("0|ALGERIA|0| haggle."), "{nation}");
    generate("csv", "table");

    let from_data = [
        "jcch", "--data", "data", "--device", "cpu", "--query", "1,11,21", "--runs", "0",
        "--format", "json",
    ];
    let outcome = run_in(directory.path(), &from_data, "").ok();
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one JSON object");
    assert_eq!(report["scale"], 0.003);
    for query in report["queries"].as_array().expect("queries") {
        assert_eq!(query["verified"], true);
    }
}

#[test]
fn arguments_that_cannot_be_right_are_refused() {
    for scale in ["0.001", "0.0029", "537"] {
        let parts = [scale, "from 0.003 to 536"];
        run(&["jcch", "--scale", scale]).fails_with(&parts);
        run(&["jcch", "generate", "--output", "x", "--scale", scale]).fails_with(&parts);
    }
    for seed in ["0", "-5", "2147483647", "x"] {
        run(&["jcch", "--seed", seed]).refuses_with(&[seed, "from 1 to 2147483646"]);
    }
    run(&["jcch", "--bindings", "hot"]).refuses_with(&["hot", "skewed or normal"]);
    run(&["jcch", "--query", "23"]).refuses_with(&["'23'", "1 to 22"]);
}

#[test]
fn a_date_that_does_not_exist_names_seed_and_query() {
    let seed = (1..200)
        .map(|seed| seed.to_string())
        .find(|seed| {
            let shown = run(&["jcch", "--show-parameters", "--query", "3", "--seed", seed]).ok();
            shown.stdout.trim_end().ends_with("1993-05-32")
        })
        .expect("one seed in 31");
    let with_seed = [&SMALL[..], &["--device", "cpu", "--seed", &seed]].concat();
    run(&with_seed).fails_with(&[&seed, "query 3", "1993-05-32", "--query"]);
    let others = run(&[&with_seed[..], &["--query", "4"]].concat()).ok();
    assert!(others.stdout.contains("1 verified"), "{}", others.stdout);
}
