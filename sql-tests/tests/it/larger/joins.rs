//! Joins of every kind in pairs of partitions: by keys of more bytes than partitions are made by, and with conditions beside
//! the keys, where rows without a match count.

use arrow::array::ArrayRef;
use arrow::datatypes::{Int32Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, drawn, primitive, row_numbers, strings};

/// Bytes of device memory: a table of some thousand rows.
const BUDGET: &str = "262144";
const ROWS: [usize; 6] = [0, 1, 31, 33, 3000, 40_000];

/// Keys `a`, `b` and `c` together have more than two words; `a` and `b` alone name few rows.
fn columns(rows: usize, seed: u64) -> Vec<(&'static str, ArrayRef)> {
    let long: Vec<i64> = (0..9001).map(|i| (i - 100) << 44).collect();
    let other: Vec<i64> = (0..5).map(|i| i << 48).collect();
    let few: Vec<i32> = (0..7).map(|i| i << 20).collect();
    vec![
        ("id", row_numbers(rows)),
        (
            "a",
            primitive::<Int64Type>(drawn(&long, rows, Nulls::Some, seed)),
        ),
        (
            "b",
            primitive::<Int64Type>(drawn(&other, rows, Nulls::Some, seed + 1)),
        ),
        (
            "c",
            primitive::<Int32Type>(drawn(&few, rows, Nulls::None, seed + 2)),
        ),
        (
            "s",
            strings(drawn(&["", "a", "Bär", "日本語"], rows, Nulls::Some, seed + 3)),
        ),
        (
            "v",
            primitive::<Int64Type>(drawn(&long, rows, Nulls::Some, seed + 4)),
        ),
    ]
}

fn fixture(settings: &[(&str, &str)]) -> Fixture {
    let budget = [("warpline.device_memory", BUDGET)];
    let settings = [&budget, settings].concat();
    let mut fixture = Fixture::open(test_device(), true, &settings);
    for rows in ROWS {
        fixture = fixture.table(&format!("x{rows}"), columns(rows, 1));
        fixture = fixture.table(&format!("y{rows}"), columns(rows, 11));
    }
    fixture
}

const WIDE: &str = "x.a = y.a AND x.b = y.b AND x.c = y.c";

#[test]
fn explore() {
    let queries = [
        "SELECT x.id, y.id AS j, y.s FROM x{n} x JOIN y{m} y ON {wide}",
        "SELECT x.id, y.id AS j, y.s FROM x{n} x LEFT JOIN y{m} y ON {wide}",
        "SELECT x.id, y.id AS j, y.s FROM x{n} x RIGHT JOIN y{m} y ON {wide}",
        "SELECT x.id, y.id AS j, y.s, x.v FROM x{n} x FULL JOIN y{m} y ON {wide}",
        "SELECT x.id, y.id AS j, y.s, x.v FROM x{n} x FULL JOIN y{m} y ON x.a = y.a AND x.c = y.c",
        "SELECT x.id, y.id AS j, y.s, x.v FROM x{n} x LEFT JOIN y{m} y ON x.a = y.a AND x.c = y.c",
        "SELECT x.id, y.id AS j, y.s, x.v FROM x{n} x RIGHT JOIN y{m} y ON x.a = y.a AND x.c = y.c",
        "SELECT x.id, x.s FROM x{n} x WHERE EXISTS (SELECT 1 FROM y{m} y WHERE {wide})",
        "SELECT x.id, x.s FROM x{n} x WHERE NOT EXISTS (SELECT 1 FROM y{m} y WHERE {wide})",
        "SELECT x.id, x.s FROM x{n} x WHERE x.id < 7 OR EXISTS (SELECT 1 FROM y{m} y WHERE {wide})",
        "SELECT x.id, y.id AS j FROM x{n} x LEFT JOIN y{m} y ON x.a = y.a AND x.v < y.v",
        "SELECT x.id, y.id AS j FROM x{n} x FULL JOIN y{m} y ON x.a = y.a AND x.v < y.v",
        "SELECT x.id FROM x{n} x WHERE EXISTS (SELECT 1 FROM y{m} y WHERE x.a = y.a AND x.v < y.v)",
        "SELECT x.id FROM x{n} x WHERE NOT EXISTS (SELECT 1 FROM y{m} y WHERE x.a = y.a AND x.v < y.v)",
    ];
    for budget in ["262144", "65536"] {
        let fixture = fixture(&[("warpline.device_memory", budget)]);
        for (n, m) in [(40_000, 40_000), (40_000, 3000), (3000, 40_000)] {
            for query in &queries {
                let sql = query
                    .replace("{wide}", WIDE)
                    .replace("{n}", &n.to_string())
                    .replace("{m}", &m.to_string());
                let begin = std::time::Instant::now();
                let text = match fixture.compare(&sql) {
                    Ok(run) => {
                        let parts = counter(&fixture, &sql, "join_parts");
                        format!("{} parts, {:?} spilled {} peak {:?}", parts, run.metrics.ladder, run.metrics.spilled_bytes, run.metrics.peak_device_bytes)
                    }
                    Err(error) => error.replace('\n', " ").chars().skip(0).take(300).collect(),
                };
                println!("{budget} {n} {m} {:5.2}s {}\n    {text}", begin.elapsed().as_secs_f64(), query.replace("SELECT ", ""));
            }
        }
    }
}
