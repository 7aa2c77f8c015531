//! What the program logs on standard error, and who decides that.

use super::{Outcome, run, run_with};

/// The first launch of a query fails: the CPU answers, and the library warns.
const FAILS_OVER: [&str; 10] = [
    "--device",
    "emulator",
    "--set",
    "warpline.min_rows=0",
    "--inject-failures",
    "launch:1",
    "-q",
    "--format",
    "csv",
    "-c",
];
const QUERY: &str = "CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 100); \
                     SELECT sum(v) AS s FROM t WHERE v > 98";

fn fail_over(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let directory = tempfile::tempdir().expect("a directory");
    let all = [&FAILS_OVER[..], &[QUERY], arguments].concat();
    let outcome = run_with(directory.path(), &all, "", variables).ok();
    assert_eq!(outcome.stdout, "s\n199\n");
    outcome
}

/// Lines of a level.
fn lines(outcome: &Outcome, level: &str) -> usize {
    let mark = format!(" s {level} warpline");
    let of_level = |line: &&str| line.starts_with('[') && line.contains(&mark);
    outcome.stderr.lines().filter(of_level).count()
}

#[test]
fn warnings_are_shown_and_no_more() {
    let outcome = fail_over(&[], &[]);
    assert_eq!(lines(&outcome, "WARN"), 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("warpline_gpu::") && outcome.stderr.contains("the CPU answers"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    // Not a terminal: nothing is erased.
    assert!(!outcome.stderr.contains('\x1b'), "{}", outcome.stderr);
    let nothing = run(&["--device", "cpu", "-q", "-c", "SELECT 1"]).ok();
    assert_eq!(nothing.stderr, "");
}

#[test]
fn the_argument_goes_before_the_variable() {
    for (argument, variable, warnings) in [
        (None, Some("off"), 0),
        (None, Some("warpline_gpu=error"), 0),
        (None, Some("warpline=warn"), 1),
        (None, Some(""), 1),
        (Some("off"), Some("warn"), 0),
        (Some("warn"), Some("off"), 1),
    ] {
        let arguments: Vec<&str> = argument.map_or(vec![], |filter| vec!["--log", filter]);
        let variables: Vec<_> = variable
            .iter()
            .map(|filter| ("RUST_LOG", *filter))
            .collect();
        let outcome = fail_over(&arguments, &variables);
        let label = format!("{argument:?} {variable:?}: {}", outcome.stderr);
        assert_eq!(lines(&outcome, "WARN"), warnings, "{label}");
        assert_eq!(outcome.stderr.lines().count(), warnings, "{label}");
    }
}

#[test]
fn commands_take_a_filter_and_wrong_ones_are_refused() {
    run(&["devices", "--log", "debug"]).ok();
    run(&["--log", "warpline=loud", "-c", "SELECT 1"]).refuses_with(&["--log", "loud", "debug"]);
    run(&["tpch", "--log", "a=b=c"]).refuses_with(&["--log", "MODULE=LEVEL"]);
    // The variable may be meant for another program.
    let outcome = fail_over(&[], &[("RUST_LOG", "warpline=loud")]);
    assert_eq!(lines(&outcome, "WARN"), 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("RUST_LOG"), "{}", outcome.stderr);
}
