//! `warpline profile`: the shape of the trace, which tools rely on.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::run_in;

/// The events of a trace file.
fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a trace");
    let file: Value = serde_json::from_str(&text).expect("one JSON object");
    assert!(file["otherData"]["query"].is_string());
    assert_eq!(file["otherData"]["spans_without_room"], 0);
    file["traceEvents"].as_array().expect("events").clone()
}

fn number(event: &Value, key: &str) -> f64 {
    event[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {event}"))
}

fn of<'a>(events: &'a [Value], category: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["cat"] == category).collect()
}

/// Times are not negative, every track has a name, and what overlaps on a track lies within.
fn check_shape(events: &[Value]) {
    let mut names: HashMap<(u64, u64), String> = HashMap::new();
    let mut open: HashMap<(u64, u64), Vec<f64>> = HashMap::new();
    for event in events {
        let track = (
            event["pid"].as_u64().expect("a process"),
            event["tid"].as_u64().expect("a thread"),
        );
        match event["ph"].as_str() {
            Some("M") => {
                let arguments = &event["args"];
                match event["name"].as_str() {
                    Some("thread_name") => {
                        let name = arguments["name"].as_str().expect("a name");
                        names.insert(track, name.to_string());
                    }
                    Some("process_name") => assert!(arguments["name"].is_string(), "{event}"),
                    Some("process_sort_index" | "thread_sort_index") => {
                        assert!(arguments["sort_index"].is_u64(), "{event}");
                    }
                    other => panic!("{other:?}: {event}"),
                }
            }
            Some("X") => {
                let (start, duration) = (number(event, "ts"), number(event, "dur"));
                assert!(start >= 0.0 && duration >= 0.0, "{event}");
                assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()));
                assert!(
                    names.contains_key(&track),
                    "no name for the track of {event}"
                );
                // Events come by their beginning, those that enclose others first.
                let open = open.entry(track).or_default();
                while open.last().is_some_and(|end| *end <= start + 0.0015) {
                    open.pop();
                }
                if let Some(end) = open.last() {
                    assert!(start + duration <= end + 0.0015, "{event} is cut at {end}");
                }
                open.push(start + duration);
            }
            other => panic!("{other:?}: {event}"),
        }
    }
    let streams: Vec<&String> = names
        .iter()
        .filter(|(t, _)| t.0 == 2)
        .map(|(_, n)| n)
        .collect();
    assert!(
        streams.iter().all(|name| name.starts_with("stream ")),
        "{streams:?}"
    );
}

#[test]
fn a_trace_has_planning_compilation_copies_and_kernels_by_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = [
        "profile",
        "Q3",
        "--tpch",
        "0.01",
        "--device",
        "emulator",
        "--require-gpu",
        "--output",
        "t.json",
    ];
    let outcome = run_in(directory.path(), &arguments, "").ok();
    assert!(
        outcome
            .stdout
            .contains("10 rows on emulator; t.json opens in"),
        "{}",
        outcome.stdout
    );
    let events = events(&directory.path().join("t.json"));
    check_shape(&events);

    let runs = of(&events, "run");
    let names: Vec<&str> = runs.iter().filter_map(|run| run["name"].as_str()).collect();
    assert_eq!(names, ["cold run", "hot run 1", "hot run 2"]);
    let within = |run: &Value, event: &&&Value| {
        let middle = number(event, "ts") + number(event, "dur") / 2.0;
        let start = number(run, "ts");
        (start..=start + number(run, "dur")).contains(&middle)
    };
    let count = |run: &Value, category: &str| {
        of(&events, category)
            .iter()
            .filter(|e| within(run, e))
            .count()
    };
    for run in &runs {
        assert_eq!(count(run, "plan"), 1, "{run}");
        assert!(count(run, "kernel") > 2 && count(run, "step") > 2, "{run}");
        assert!(count(run, "copy") > 0, "{run}");
    }
    // The first run loads and compiles; nothing is left of that for the last.
    assert!(count(runs[0], "compile") > 2);
    assert_eq!(count(runs[2], "compile"), 0);
    let uploads = |run: &Value| {
        let copies = of(&events, "copy");
        let up = copies.iter().filter(|e| e["name"] == "copy host to device");
        let bytes = up
            .filter(|e| within(run, e))
            .filter_map(|e| e["args"]["bytes"].as_u64());
        bytes.sum::<u64>()
    };
    assert!(uploads(runs[0]) > 100_000, "{}", uploads(runs[0]));
    assert!(uploads(runs[2]) < 10_000, "{}", uploads(runs[2]));
    for kernel in of(&events, "kernel") {
        assert_eq!(kernel["pid"], 2, "{kernel}");
        assert!(kernel["args"]["blocks"].as_u64() > Some(0), "{kernel}");
    }
}

#[test]
fn scripts_set_tables_up_and_the_cpu_has_a_profile_too() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(
        directory.path().join("q.sql"),
        "-- the table\nCREATE TABLE t AS VALUES (1), (2), (3);\nSELECT sum(column1) FROM t;\n",
    )
    .expect("a file");
    let arguments = ["profile", "-f", "q.sql", "--device", "cpu", "--runs", "0"];
    let outcome = run_in(directory.path(), &arguments, "").ok();
    assert!(
        outcome.stdout.contains("1 row on cpu; trace.json opens in"),
        "{}",
        outcome.stdout
    );
    let events = events(&directory.path().join("trace.json"));
    check_shape(&events);
    let names: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "X")
        .filter_map(|e| e["name"].as_str())
        .collect();
    assert_eq!(names, ["cold run", "plan", "execute"]);
}

#[test]
fn what_cannot_be_profiled_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("empty.sql"), "-- nothing\n").expect("a file");
    fs::write(directory.path().join("shell.sql"), "\\d\nSELECT 1;\n").expect("a file");
    let fails = |arguments: &[&str], parts: &[&str]| {
        run_in(directory.path(), arguments, "").fails_with(parts);
        assert!(!directory.path().join("trace.json").exists());
    };
    fails(&["profile", "-f", "empty.sql"], &["no statement"]);
    fails(
        &["profile", "-f", "shell.sql"],
        &["'\\d' is a command of the shell"],
    );
    fails(
        &["profile", "-f", "nowhere.sql"],
        &["nowhere.sql", "check the path"],
    );
    fails(&["profile", "SELECT x FROM t", "--device", "cpu"], &["t"]);
    fails(&["profile", "Q23", "--tpch", "0.01"], &["1 to 22"]);
    run_in(directory.path(), &["profile"], "").refuses_with(&["QUERY"]);
}
