//! Pages hold what the reports hold, and nothing that a browser would fetch or run.

use warpline_tpch::compare::Earlier;
use warpline_tpch::report::{QueryReport, Report};
use warpline_tpch::{Benchmark, Scale, Subject};

use super::tpch;

/// Elements and attributes with which a page could load or run something.
const ACTIVE: [&str; 9] = [
    "<script", "<link", "<img", "<iframe", "@import", "url(", "src=", "href=", "onload",
];

fn report() -> Report {
    let scale = Scale::new(1.0).expect("a scale");
    let good = |query: u8, hot: f64| QueryReport {
        query: query.into(),
        rows: Some(4),
        verified: Some(true),
        cold_ms: Some(200.0),
        load_ms: Some(100.0),
        plan_ms: Some(20.0),
        compile_ms: Some(50.0),
        hot_plan_ms: Some(0.1),
        hot_ms: vec![hot],
        hot_median_ms: Some(hot),
        kernel_ms: Some(hot / 2.0),
        bytes: Some(1_000_000),
        floor_ms: Some(0.25),
        cpu_ms: vec![100.0],
        cpu_median_ms: Some(100.0),
        ..QueryReport::default()
    };
    let failed = QueryReport {
        query: 3.into(),
        fallbacks: vec!["<b>bold</b>".into()],
        error: Some("a & b".into()),
        ..QueryReport::default()
    };
    Report::of(
        "H200 \"x\"",
        &Subject::benchmark(Benchmark::Tpch, scale),
        vec![good(1, 1.0), good(6, 4.0), failed],
    )
}

#[test]
fn a_page_is_complete_and_fetches_nothing() {
    let page = tpch(&report(), None);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for active in ACTIVE {
        assert!(!page.contains(active), "{active}");
    }
    // The only addresses are names of formats.
    assert_eq!(
        page.matches("http").count(),
        page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    assert!(page.contains("width=device-width"));
    assert!(!page.contains("NaN") && !page.contains("inf "));
}

#[test]
fn text_from_outside_is_shown_as_text() {
    let page = tpch(&report(), None);
    assert!(page.contains("&lt;b&gt;bold&lt;/b&gt;") && !page.contains("<b>bold"));
    assert!(page.contains("failed: a &amp; b"));
    assert!(page.contains("H200 &quot;x&quot;"));
}

#[test]
fn every_chart_has_its_queries() {
    let page = tpch(&report(), None);
    // Times, ratio to the floor, two of phases, the CPU; not the comparison with an earlier report.
    assert_eq!(page.matches("<figure>").count(), 5);
    assert!(!page.contains("Speedup over then"));
    // 1.0 / 0.25 and 4.0 / 0.25; 100 / 1 and 100 / 4.
    for hint in ["Q1: 4.000", "Q6: 16.000", "Q1: 100.000", "Q6: 25.000"] {
        assert!(page.contains(hint), "{hint}");
    }
    assert!(page.contains("Q1 compile: 50.0 ms") && page.contains("Q1 run: 30.0 ms"));
    assert!(page.contains("2 of 3"));
}

#[test]
fn what_no_query_has_is_not_summed_up() {
    let mut on_the_cpu = report();
    for query in &mut on_the_cpu.queries {
        query.floor_ms = None;
    }
    let page = tpch(&on_the_cpu, None);
    assert!(page.contains("cold, all together") && !page.contains("Ratio to the floor"));
    assert!(!page.contains("-0.0"), "a sum of nothing");
    for query in &mut on_the_cpu.queries {
        query.cold_ms = None;
    }
    let page = tpch(&on_the_cpu, None);
    assert!(!page.contains("cold, all together") && !page.contains("-0.0"));
}

#[test]
fn an_earlier_report_adds_columns_and_a_chart() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("old.json");
    let mut old = report();
    old.queries[0].hot_median_ms = Some(2.0);
    std::fs::write(&path, old.to_json().expect("JSON")).expect("a file");
    let earlier = Earlier::read(&path).expect("a report");
    let page = tpch(&report(), Some(&earlier));
    assert!(page.contains("Speedup over then") && page.contains("Q1: 2.000"));
    assert!(
        page.contains("<td class=\"good\">-50 %</td>"),
        "a change that is good"
    );
    assert!(page.contains("<td>+0 %</td>"), "a change that is none");
    assert_eq!(page.matches("<figure>").count(), 6);
}
