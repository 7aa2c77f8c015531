//! The harness finds planted differences, and the device answers as plain DataFusion does.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use warpline_sql_tests::Fixture;

fn with_tables(fixture: Fixture) -> Fixture {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(3)]));
    let b: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(0.5),
        Some(f64::NAN),
        None,
        Some(-0.0),
    ]));
    let c: ArrayRef = Arc::new(StringArray::from(vec![
        Some("x"),
        Some(""),
        None,
        Some("ü"),
    ]));
    fixture.table("t", [("a", a), ("b", b), ("c", c)])
}

#[test]
fn the_harness_compares_a_session_with_its_reference() {
    let fixture = with_tables(Fixture::cpu());
    let run = fixture
        .check("SELECT a, count(*) AS n, sum(b) AS s FROM t GROUP BY a ORDER BY a NULLS LAST");
    assert_eq!(run.rows(), 3);
    fixture.check_error("SELECT 1 / (a - 3) FROM t");
    // The time of day differs between two runs, which the harness must notice.
    assert!(fixture.compare("SELECT random() AS r FROM t").is_err());
}

#[test]
fn the_emulator_answers_as_the_reference() {
    let fixture = with_tables(Fixture::device());
    fixture.check(
        "SELECT sum(a) AS s, count(*) AS n, count(a) AS k, min(a) AS lo, max(a) AS hi FROM t",
    );
    fixture.check("SELECT a, count(*) AS n FROM t WHERE a > 0 GROUP BY a ORDER BY a");
}
