//! Answers for programs: every row in csv, tsv, json and nd-json, as it comes, and nothing else on standard output.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{run, run_in};

const FORMATS: [&str; 4] = ["csv", "tsv", "json", "nd-json"];
const ROWS: usize = 20_000;
const SERIES: &str = "SELECT value FROM generate_series(1, 20000)";

/// The values of the answer to [`SERIES`].
fn values(format: &str, text: &str) -> Vec<usize> {
    let of_object = |object: &serde_json::Value| {
        let value = object["value"].as_u64().expect("a number");
        value as usize
    };
    match format {
        "json" => {
            let answer: serde_json::Value = serde_json::from_str(text).expect("one array");
            let objects = answer.as_array().expect("one array");
            objects.iter().map(of_object).collect()
        }
        "nd-json" => {
            let object = |line| serde_json::from_str(line).expect("an object a line");
            text.lines().map(|line| of_object(&object(line))).collect()
        }
        _ => {
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some("value"), "one header");
            lines.map(|line| line.parse().expect("a number")).collect()
        }
    }
}

#[test]
fn every_row_is_there_whatever_a_table_would_show() {
    let all: Vec<usize> = (1..=ROWS).collect();
    for (format, most) in FORMATS.into_iter().zip(["0", "3", "40", "inf"]) {
        let arguments = [
            "--device",
            "cpu",
            "-q",
            "--format",
            format,
            "--maxrows",
            most,
        ];
        let answer = run(&[&arguments[..], &["-c", SERIES]].concat()).ok().stdout;
        assert!(values(format, &answer) == all, "{format}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("q.sql"), SERIES).expect("a script");
    let arguments = ["--device", "cpu", "-q", "--format", "csv"];
    let file = [&arguments[..], &["-f", "q.sql"]].concat();
    let answer = run_in(directory.path(), &file, "").ok().stdout;
    assert!(values("csv", &answer) == all);
    let answer = run_in(directory.path(), &arguments, SERIES).ok().stdout;
    assert!(values("csv", &answer) == all);
    // A plan that was made for an earlier query, and rows from a device.
    let emulated = [
        "--device",
        "emulator",
        "--set",
        "warpline.min_rows=0",
        "-q",
        "--format",
        "csv",
    ];
    let table = format!("CREATE TABLE t AS {SERIES}");
    let query = "SELECT value FROM t WHERE value > 0 ORDER BY value";
    let answer = run(&[&emulated[..], &["-c", &table, "-c", query, "-c", query]].concat());
    let answer = answer.ok().stdout;
    let twice: Vec<&str> = answer.splitn(3, "value\n").skip(1).collect();
    assert_eq!(twice.len(), 2);
    for answer in twice {
        assert!(values("csv", &format!("value\n{answer}")) == all);
    }
}

#[test]
fn tables_count_the_rows_that_they_do_not_show() {
    let table = |most: &[&str]| {
        let arguments = [&["--device", "cpu", "-c", SERIES], most].concat();
        run(&arguments).ok().stdout
    };
    let (three, forty) = (table(&["--maxrows", "3"]), table(&[]));
    for (text, shown) in [(&three, 3), (&forty, 40)] {
        let count = format!("20000 row(s) fetched. (First {shown} displayed.");
        assert!(text.contains(&count), "{text}");
        let rows = text
            .lines()
            .filter(|line| line.starts_with("| ") && !line.contains('.'));
        assert_eq!(rows.count(), shown + 1, "{text}");
    }
    let all = table(&["--maxrows", "inf"]);
    assert!(all.contains("| 20000 |") && all.contains("20000 row(s) fetched. \n"));
}

#[test]
fn statements_of_each_kind_answer_in_the_format() {
    let answers = |format, statements: &[&str]| {
        let mut arguments = vec!["--device", "cpu", "-q", "--format", format];
        statements
            .iter()
            .for_each(|sql| arguments.extend(["-c", *sql]));
        let directory = tempfile::tempdir().expect("a directory");
        run_in(directory.path(), &arguments, "").ok().stdout
    };
    let json = |statement| -> serde_json::Value {
        let text = answers("json", &["CREATE TABLE t (a INT, b VARCHAR)", statement]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{statement}: {error}: {text}"))
    };
    let rows = |answer: serde_json::Value| answer.as_array().map_or(0, Vec::len);
    assert_eq!(json("INSERT INTO t VALUES (1, NULL)")[0]["count"], 1);
    assert_eq!(json("COPY t TO 't.parquet'")[0]["count"], 0);
    assert_eq!(
        json("EXPLAIN SELECT * FROM t")[0]["plan_type"],
        "logical_plan"
    );
    assert!(json("EXPLAIN ANALYZE SELECT * FROM t")[0]["plan"].is_string());
    assert_eq!(json("DESCRIBE t")[1]["column_name"], "b");
    assert_eq!(json("\\d t")[0]["column_name"], "a");
    assert!(rows(json("SHOW TABLES")) > 1 && rows(json("\\d")) > 1);
    assert!(rows(json("SHOW ALL")) > 100 && rows(json("SHOW warpline.*")) > 15);
    assert_eq!(json("SELECT * FROM t"), serde_json::json!([]));
    // What answers nothing leaves no trace, and what has no rows has the names of its columns.
    let silent = [
        "CREATE TABLE t (a INT, b VARCHAR)",
        "SET datafusion.execution.batch_size = 100",
        "\\pset format csv",
        "COPY t TO 't.csv' STORED AS CSV OPTIONS ('format.has_header' 'true')",
        "CREATE EXTERNAL TABLE u STORED AS CSV LOCATION 't.csv' OPTIONS ('format.has_header' 'true')",
        "SELECT * FROM t",
        "\\pset format nd-json",
        "SELECT * FROM t",
        "INSERT INTO t VALUES (1, NULL)",
        "SELECT * FROM t",
        "\\timing off",
        "\\quiet on",
        "DROP TABLE t",
    ];
    let text = "count\n0\na,b\n{\"count\":1}\n{\"a\":1,\"b\":null}\n";
    assert_eq!(answers("tsv", &silent), text);
}

#[test]
fn what_is_said_about_answers_is_not_among_them() {
    let commands = [
        "-c",
        "CREATE TABLE t (a INT)",
        "-c",
        SERIES,
        "-c",
        "SHOW ALL",
    ];
    for format in FORMATS {
        let arguments = ["--device", "cpu", "--format", format];
        let loud = run(&[&arguments[..], &commands].concat()).ok();
        let quiet = run(&[&arguments[..], &["-q"], &commands].concat()).ok();
        assert!(loud.stdout == quiet.stdout, "{format}");
        assert_eq!(quiet.stderr, "");
        for part in ["20000 row(s) fetched.\nElapsed ", "\nAnswered on the CPU"] {
            assert!(loud.stderr.contains(part), "{}", loud.stderr);
        }
    }
}

#[test]
fn an_error_in_the_middle_leaves_an_answer_that_is_not_whole() {
    let query = "SELECT 1 / (value - 19000) AS v FROM generate_series(1, 20000)";
    for format in FORMATS {
        let arguments = [
            "--device", "cpu", "--format", format, "-c", query, "-c", "SELECT 1",
        ];
        let text = run(&arguments).fails_with(&["Divide by zero"]).stdout;
        let lines = text.lines().count();
        match format {
            // Rows that came before the error, one to a line, and no end.
            "json" => assert!(lines == 1 && text.starts_with("[{") && !text.contains(']')),
            _ => assert!((8_000..19_000).contains(&lines), "{lines} lines"),
        }
    }
    let input = format!("{query};\nSELECT 2 AS b;\n");
    let directory = tempfile::tempdir().expect("a directory");
    let shell = ["--device", "cpu", "-q", "--format", "json"];
    let text = run_in(directory.path(), &shell, &input)
        .fails_with(&["zero"])
        .stdout;
    assert!(text.ends_with("}\n[{\"b\":2}]\n"), "{text}");
}

/// Starts on an answer that has no end in sight, with rows of a thousand characters.
fn endless(format: &str) -> Child {
    let query = "SELECT repeat('x', 1000) AS x FROM generate_series(1, 1000000000000)";
    let directory = tempfile::tempdir().expect("a directory");
    Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args([
            "--device", "cpu", "--format", format, "-c", query, "-c", "SELECT 1",
        ])
        .env("HOME", directory.path())
        .env_remove("XDG_STATE_HOME")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Ends the program where a test fails: it would not do so by itself.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that the program has had, in bytes.
fn peak(child: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words: Vec<&str> = line.expect("a peak").split_whitespace().collect();
    words[0].parse::<usize>().expect("a number") << 10
}

/// Reads the beginning, and fails where none comes.
fn beginning(child: &mut Child, bytes: usize) -> (Vec<u8>, BufReader<std::process::ChildStdout>) {
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = vec![0; bytes];
        let read = output.read_exact(&mut text);
        let _ = sender.send(read.map(|()| (text, output)));
    });
    let read = receiver.recv_timeout(Duration::from_secs(120));
    read.expect("rows come before all are known")
        .expect("as many")
}

#[test]
fn rows_wait_for_their_reader_and_the_query_ends_with_it() {
    for (format, begins) in [
        ("csv", "x\nxxx"),
        ("json", "[{\"x\":\"xxx"),
        ("nd-json", "{\"x\":\"xxx"),
    ] {
        let mut child = Killed(endless(format));
        let (text, mut output) = beginning(&mut child.0, 1 << 20);
        assert!(text.starts_with(begins.as_bytes()));
        if cfg!(target_os = "linux") && format == "csv" {
            // Rows of a second would fill hundreds of megabytes.
            let before = peak(&child.0);
            std::thread::sleep(Duration::from_secs(1));
            assert!(peak(&child.0) < before + (64 << 20));
            // Still there, and still in order.
            let mut line = Vec::new();
            output.read_until(b'\n', &mut line).expect("a line");
            output.read_until(b'\n', &mut line).expect("a line");
            assert!(line.ends_with(b"xxx\n"));
        }
        drop(output);
        let closed = Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait().expect("its status") {
                break status;
            }
            assert!(
                closed.elapsed() < Duration::from_secs(60),
                "it goes on without a reader"
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(141));
        let mut errors = String::new();
        let stderr = child.0.stderr.as_mut().expect("its errors");
        stderr.read_to_string(&mut errors).expect("text");
        assert_eq!(errors, "");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let output = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(["--device", "cpu", "-q", "--format", "csv", "-c", SERIES])
        .stdin(Stdio::null())
        .stdout(full)
        .output()
        .expect("the program ends");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.starts_with("warpline: error: cannot write standard output: "),
        "{errors}"
    );
}
