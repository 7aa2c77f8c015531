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
        ("join", (12 + 14 + 14 + 5 + 4) * 4),
        ("group-by", 3 * 2 * 2 + 2 * 2 + 2 * 2),
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
        assert_eq!(all.len(), points, "{name}");
        assert!(all.iter().all(|p| p["bytes"].as_u64() > Some(0)), "{name}");
    }
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
fn what_cannot_be_measured_says_why() {
    run(&["bench", "nothing"]).fails_with(&["'nothing' is no benchmark", "partition"]);
    run(&[
        "bench", "sort", "--device", "emulator", "--sweep", "nothing",
    ])
    .fails_with(&["'nothing' is no sweep of 'sort'", "words"]);
    run(&["bench", "sort", "--device", "cpu"]).fails_with(&["a GPU is required", "cpu"]);
}
