//! Micro-benchmarks in the emulator, where only their answers count.

use serde_json::Value;

use super::run;

#[test]
fn every_benchmark_measures_and_checks_its_sweeps() {
    let listed = run(&["bench"]).ok().stdout;
    for (name, points) in [
        ("partition", 20 + 20 + 15),
        ("gather", 8),
        ("sort", 8 + 18 + 4),
        ("join", (2 + 2 + 5 + 2 + 2 + 2) * 3 + 4),
        ("group-by", (2 + 2 + 2 + 4 + 1 + 2) * 3 + 2 + 2),
    ] {
        assert!(listed.contains(&format!("{name}: ")), "{listed}");
        let arguments = [
            "bench", name, "--device", "emulator", "--rows", "300", "--runs", "1", "--format",
            "json",
        ];
        let report: Value = serde_json::from_str(&run(&arguments).ok().stdout).unwrap();
        assert_eq!(report["rows"], 300, "{name}");
        let sweeps = report["sweeps"].as_array().unwrap();
        let all: Vec<&Value> = sweeps
            .iter()
            .flat_map(|sweep| sweep["points"].as_array().unwrap())
            .collect();
        let series: Vec<&Value> = all.iter().map(|point| &point["series"]).collect();
        assert_eq!(all.len(), points, "{name}: {series:?}");
        assert!(all.iter().all(|p| p["bytes"].as_u64() > Some(0)), "{name}");
        let priced = matches!(name, "join" | "group-by");
        let auto = |p: &&&Value| p["series"].as_str().is_some_and(|s| s.ends_with("auto"));
        let autos: Vec<_> = all.iter().filter(auto).collect();
        assert_eq!(!autos.is_empty(), priced, "{name}");
        assert!(
            autos
                .iter()
                .all(|p| p["algorithm"].is_string() && p["predicted_ms"].is_number()),
            "{name}"
        );
    }
}

#[test]
fn joins_larger_than_device_memory_are_right_and_priced_by_the_link() {
    let arguments = [
        "bench", "triton", "--sweep", "sizes", "--device", "emulator", "--runs", "1", "--format",
        "json",
    ];
    let report: Value = serde_json::from_str(&run(&arguments).ok().stdout).unwrap();
    let points = report["sweeps"][0]["points"].as_array().unwrap();
    let of = |line: &str, size: f64| {
        let found = points
            .iter()
            .find(|p| p["series"] == line && p["x"] == size);
        found.unwrap_or_else(|| panic!("no {line} at {size}: {points:?}"))
    };
    let tables = |size: f64| (2.0 * size * f64::from(512 << 10)) as u64;
    for line in ["triton", "phj_tr", "nphj"] {
        let (small, large) = (of(line, 0.25), of(line, 2.0));
        assert_eq!(small["bytes"], tables(0.25));
        assert_eq!(large["rows"], tables(2.0) / 16);
        // Both tables come over the link, and of the state little crosses it.
        let streamed = small["link"]["streamed"].as_u64().unwrap();
        assert!(
            (tables(0.25)..tables(0.25) * 3 / 2).contains(&streamed),
            "{line}: {small}"
        );
        assert!(
            small["link"]["spilled"].as_u64() < Some(tables(0.25) / 2),
            "{line}: {small}"
        );
        assert!(
            large["link"]["spilled"].as_u64() > Some(0),
            "{line}: {large}"
        );
        let predicted = |point: &Value| point["predicted_ms"].as_f64().unwrap();
        assert!(predicted(large) > 8.0 * predicted(small), "{line}: {large}");
    }
    // Of the partitions some stay on the device; those that do not come once more.
    let (triton, nphj) = (of("triton", 2.0), of("nphj", 2.0));
    let spilled = triton["link"]["spilled"].as_u64().unwrap();
    assert!(spilled < tables(2.0), "{triton}");
    assert!(
        triton["link"]["streamed"].as_u64() > Some(tables(2.0) + spilled / 2),
        "{triton}"
    );
    assert_eq!(nphj["link"]["streamed"], tables(2.0), "{nphj}");
    let arguments = [
        "bench",
        "triton",
        "--sweep",
        "partitioner",
        "--device",
        "emulator",
        "--rows",
        "3001",
        "--runs",
        "1",
        "--format",
        "json",
    ];
    let report: Value = serde_json::from_str(&run(&arguments).ok().stdout).unwrap();
    let points = report["sweeps"][0]["points"].as_array().unwrap();
    let fanouts = |way: &str| -> Vec<f64> {
        let of = points.iter().filter(|p| p["series"] == way);
        of.map(|p| p["x"].as_f64().unwrap()).collect()
    };
    for way in ["staged", "sorted", "shared", "hierarchical", "standard"] {
        assert_eq!(fanouts(way), [2.0, 2048.0], "{way}");
    }
    let arguments = [
        "bench", "triton", "--sweep", "runs", "--device", "emulator", "--runs", "1", "--format",
        "json",
    ];
    let report: Value = serde_json::from_str(&run(&arguments).ok().stdout).unwrap();
    let points = report["sweeps"][0]["points"].as_array().unwrap();
    for way in ["copy engine", "kernel"] {
        let of = points.iter().filter(|p| p["series"] == way);
        let runs: Vec<f64> = of.map(|p| p["x"].as_f64().unwrap()).collect();
        assert_eq!(runs, [16384.0, f64::from(4 << 20)], "{way}");
    }
    run(&[
        "bench", "triton", "--device", "emulator", "--budget", "much",
    ])
    .refuses_with(&["much", "16GiB"]);
}

#[test]
fn choices_are_measured_recorded_and_judged_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("choices.json");
    let file = path.to_str().unwrap();
    let arguments = [
        "bench",
        "choice",
        "--device",
        "emulator",
        "--workloads",
        "6",
        "--seed",
        "5",
        "--runs",
        "1",
        "--format",
        "json",
        "--output",
        file,
    ];
    let printed = run(&arguments).ok().stdout;
    assert!(printed.contains("6 workloads on emulator: "), "{printed}");
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    assert!(cases.iter().all(|c| c["auto"]["ms"].as_f64() > Some(0.0)));
    assert!(
        cases
            .iter()
            .all(|c| !c["forced"].as_array().unwrap().is_empty())
    );
    let replayed = run(&["bench", "choice", "--device", "emulator", "--replay", file]).ok();
    assert!(
        replayed.stdout.contains("(replayed): "),
        "{}",
        replayed.stdout
    );
    run(&[
        "bench", "choice", "--device", "emulator", "--replay", "/nowhere",
    ])
    .fails_with(&["/nowhere cannot be read"]);
    let edited = folder.path().join("edited.json");
    let measured = std::fs::read_to_string(&path).unwrap();
    let edited_text = measured.replace("\"repeats\":", "\"repeats\":0,\"_\":");
    assert_ne!(edited_text, measured);
    std::fs::write(&edited, edited_text).unwrap();
    let edited = edited.to_str().unwrap();
    let refused = run(&[
        "bench", "choice", "--device", "emulator", "--replay", edited,
    ]);
    refused.fails_with(&["edited.json: ", "cases[0]: repeats is 0"]);
}

#[test]
fn reports_go_to_files_as_charts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sort.svg");
    let arguments = [
        "bench",
        "sort",
        "--sweep",
        "words",
        "--device",
        "emulator",
        "--rows",
        "100",
        "--runs",
        "1",
        "--format",
        "svg",
        "--output",
        path.to_str().unwrap(),
    ];
    assert_eq!(run(&arguments).ok().stdout, "");
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.contains("words: key words of 20 bits each"), "{svg}");
}

#[test]
fn reports_go_to_pages_and_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (old, page) = (file("old.json"), file("new.html"));
    let sweep = [
        "bench", "sort", "--sweep", "words", "--device", "emulator", "--rows", "100", "--runs", "1",
    ];
    run(&[&sweep[..], &["--format", "json", "--output", &old]].concat()).ok();
    let compared = run(&[&sweep[..], &["--compare", &old, "--report", &page]].concat()).ok();
    assert!(compared.stdout.contains("then ms"), "{}", compared.stdout);
    assert!(
        compared.stdout.contains("now / then"),
        "{}",
        compared.stdout
    );
    let text = std::fs::read_to_string(&page).unwrap();
    for part in [
        "bench sort",
        "key words of 20 bits each",
        "<polyline",
        "<th scope=\"col\">then",
    ] {
        assert!(text.contains(part), "{part}");
    }
    run(&[&sweep[..], &["--compare", &page]].concat())
        .fails_with(&["is no report", "--format json"]);

    let choices = [
        "bench",
        "choice",
        "--device",
        "emulator",
        "--workloads",
        "3",
        "--runs",
        "1",
    ];
    run(&[&choices[..], &["--format", "json", "--output", &old]].concat()).ok();
    let compared = run(&[&choices[..], &["--compare", &old, "--report", &page]].concat()).ok();
    assert!(
        compared.stdout.contains("then: 3 workloads"),
        "{}",
        compared.stdout
    );
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("bench choice") && text.contains("loss then"));
}

#[test]
fn what_cannot_be_measured_says_why() {
    run(&["bench", "nothing"]).fails_with(&["'nothing' is no benchmark", "partition"]);
    run(&[
        "bench", "sort", "--device", "emulator", "--sweep", "nothing",
    ])
    .fails_with(&["'nothing' is no sweep of 'sort'", "words"]);
    run(&["bench", "sort", "--device", "cpu"])
        .fails_with(&["no device to measure", "warpline devices"]);
}

#[test]
fn clients_share_a_device_and_get_right_answers() {
    let arguments = [
        "bench",
        "clients",
        "--device",
        "emulator",
        "--require-gpu",
        "--set",
        "warpline.min_rows=0",
        "--scale",
        "0.001",
        "--query",
        "1,6,13",
        "--clients",
        "1,3",
        "--seconds",
        "0.5",
        "--heavy",
        "Q13",
        "--verify",
        "--format",
        "json",
    ];
    let report: Value = serde_json::from_str(&run(&arguments).ok().stdout).unwrap();
    assert_eq!(report["queries"], serde_json::json!(["Q1", "Q6"]));
    let rounds = report["rounds"].as_array().unwrap();
    let of: Vec<(u64, bool)> = rounds
        .iter()
        .map(|r| (r["clients"].as_u64().unwrap(), r["heavy"].is_object()))
        .collect();
    assert_eq!(of, [(1, false), (1, true), (3, false), (3, true)]);
    for round in rounds {
        let number = |name: &str| round[name].as_f64().unwrap_or(-1.0);
        assert!(number("queries") > 0.0, "{round}");
        assert!(number("p50_ms") > 0.0 && number("p50_ms") <= number("p99_ms"));
        assert!(number("p99_ms") <= number("max_ms"), "{round}");
        assert!(number("kernel_share") > 0.0 && number("streams") > 0.0);
        assert_eq!((number("errors"), number("wrong")), (0.0, 0.0), "{round}");
    }
}

#[test]
fn clients_run_queries_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.sql");
    let setup = folder.path().join("setup.sql");
    std::fs::write(
        &setup,
        "create table t as select value v from generate_series(1, 100)",
    )
    .unwrap();
    std::fs::write(
        &file,
        "select sum(v) from t; select v from t order by v limit 3;",
    )
    .unwrap();
    let (file, setup) = (file.to_str().unwrap(), setup.to_str().unwrap());
    let mut arguments = vec![
        "bench",
        "clients",
        "--device",
        "cpu",
        "--queries",
        file,
        "--setup",
        setup,
        "--clients",
        "2",
        "--seconds",
        "0.1",
        "--verify",
    ];
    let table = run(&arguments).ok().stdout;
    assert!(table.starts_with("clients  queries/s"), "{table}");
    arguments.extend(["--query", "Q7"]);
    run(&arguments).fails_with(&["no query 'Q7'", "Q1, Q2"]);
}
