//! Re-entry: what the CPU has computed goes back to the device for the operators above.
//!
//! Tables are small, so `warpline.reentry = on` stands for prices that say so; `prices` has the tests of those.

mod functions;
mod inputs;
mod prices;
mod recursion;
mod robust;

use warpline::QueryRun;
use warpline_sql_tests::{Fixture, test_device};

use functions::register;

/// Rows of the larger table.
const FACTS: usize = 5_000;

const ON: &[(&str, &str)] = &[("warpline.min_rows", "0"), ("warpline.reentry", "on")];

/// A session with tables and functions that the device does not run, which goes back to the device where it can.
fn fixture() -> Fixture {
    with(ON)
}

/// The same with other settings.
fn with(settings: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::open(test_device(), false, settings)
        .table_from(
            "facts",
            &format!(
                "SELECT value AS id, nullif(value % 97, 13) AS k, value * 3 % 1000 - 500 AS v, \
                 CASE value % 4 WHEN 0 THEN NULL WHEN 1 THEN 'ä' WHEN 2 THEN '' ELSE 'straße ' || (value % 7) END AS s, \
                 CAST(value % 3 AS DOUBLE) / 4 AS f FROM generate_series(1, {FACTS}) t(value)"
            ),
        )
        .table_from(
            "dims",
            "SELECT value AS k, 'name ' || (value % 11) AS name, value % 5 AS part FROM generate_series(0, 89) t(value)",
        )
        .table_from("none", "SELECT 1 AS k, 2 AS v, 'x' AS s WHERE false");
    register(&fixture);
    fixture
}

/// The answer is DataFusion's, on the first run and on the next, and the device computed it above what stays on the CPU.
#[track_caller]
fn check_continued(fixture: &Fixture, sql: &str) -> QueryRun {
    let plan = fixture.explain(sql);
    assert!(is_above(&plan), "{plan}\nquery: {sql}");
    fixture.check(sql);
    let run = fixture.check(sql);
    assert!(run.metrics.kernels > 0, "{:?}\n{plan}", run.metrics);
    let met: Vec<_> = run.metrics.fallbacks.iter().collect();
    let planned = |reason: &&&String| plan_text(&plan).contains(&plan_text(reason));
    let unplanned: Vec<_> = met.iter().filter(|reason| !planned(reason)).collect();
    assert!(unplanned.is_empty(), "{unplanned:?}\n{plan}\nquery: {sql}");
    run
}

/// Has the fragment at the top inputs?
fn is_above(plan: &str) -> bool {
    let lines: Vec<&str> = plan.lines().collect();
    let node = |line: &str| line.rfind("Exec: ").or_else(|| line.rfind("Exec "));
    let depth = |line: &str| {
        let text = line.trim_start_matches(['|', ' ']);
        line.len() - text.len()
    };
    lines.iter().enumerate().any(|(at, line)| {
        line.contains("GpuFragmentExec:")
            && lines[at + 1..]
                .iter()
                .filter(|next| node(next).is_some() || next.contains("Exec"))
                .any(|next| depth(next) == indent(line) + 2)
    })
}

/// Where the text of a line of EXPLAIN begins.
fn indent(line: &str) -> usize {
    line.find("GpuFragmentExec").unwrap_or(0)
}

/// Without the breaks that EXPLAIN puts into lines.
fn plan_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && *c != '|')
        .collect()
}
