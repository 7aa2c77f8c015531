//! Queries whose columns and results are larger than device memory, which is made tiny for it.

mod again;
mod files;
mod groups;
mod joins;
mod overlap;
mod scans;
mod sorts;
mod support;
mod tpch;

use warpline_sql_tests::Fixture;

/// The counter of a plan that ran.
#[track_caller]
pub(crate) fn counter(fixture: &Fixture, sql: &str, name: &str) -> u64 {
    let plan = fixture.explain(&format!("ANALYZE {sql}"));
    let text: String = plan
        .split(|c: char| c == '|' || c.is_whitespace())
        .collect();
    let value = text.split(&format!("{name}=")).nth(1);
    let digits = value.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {plan}"))
}
