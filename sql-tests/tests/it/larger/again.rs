//! What fitted device memory once fits again: queries one after the other in memory that does not hold the columns of all of them, each
//! cold and then hot.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{Int16Type, Int64Type};
use datafusion::datasource::MemTable;
use warpline_sql_tests::{Fixture, test_device};
use warpline_tpch::tables::Table;
use warpline_tpch::{QueryMetrics, Scale, generate, queries};

use crate::operators::support::{Nulls, drawn, primitive};

const HOT_RUNS: usize = 3;

/// What was done for want of memory, and what a run had elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Effort {
    repeats: u64,
    out_of_core: u64,
    streamed: u64,
    spilled: u64,
}

impl Effort {
    fn of(metrics: &QueryMetrics) -> Self {
        Self {
            repeats: metrics.ladder.repeats,
            out_of_core: metrics.ladder.out_of_core,
            streamed: metrics.streamed_bytes,
            spilled: metrics.spilled_bytes,
        }
    }

    /// Had all but columns that came in strides room in device memory?
    fn in_core(&self) -> bool {
        self.repeats + self.out_of_core + self.spilled == 0
    }
}

fn fixture(kib: usize) -> Fixture {
    let budget = (kib << 10).to_string();
    Fixture::open(test_device(), true, &[("warpline.device_memory", &budget)])
}

/// The query cold and hot, with the right answer each time; what the cold run did, and hot runs that did more although that one
/// had room.
fn cold_and_hot(fixture: &Fixture, sql: &str) -> (Effort, Vec<String>) {
    let run = || match fixture.compare(sql) {
        Ok(run) => Effort::of(&run.metrics),
        Err(message) => panic!("{sql}: {message}"),
    };
    let cold = run();
    if !cold.in_core() {
        return (cold, vec![]);
    }
    let hot = (1..=HOT_RUNS).map(|number| (number, run()));
    let worse = hot.filter(|(_, hot)| !hot.in_core() || hot.streamed > cold.streamed);
    let worse =
        worse.map(|(number, hot)| format!("{cold:?}, but hot run {number}: {hot:?}\n{sql}"));
    (cold, worse.collect())
}

/// The second query finds two columns on the device and loads a wider one, for which there is no room any more. If it exchanged
/// the narrowest for it in the next run, the table of groups would have no room.
#[test]
fn columns_are_not_exchanged_for_wider_ones() {
    const ROWS: usize = 60_000;
    let keys: Vec<i64> = (0..3000).map(|i| i * 0x1234_5678_9ABC).collect();
    let values: Vec<i64> = (0..5000).map(|i| i << 36).collect();
    let mut failures = Vec::new();
    let mut in_strides = 0;
    for kib in (1184..1440).step_by(64) {
        let fixture = fixture(kib).table(
            "t",
            vec![
                (
                    "k",
                    primitive::<Int64Type>(drawn(&keys, ROWS, Nulls::None, 1)),
                ),
                (
                    "a",
                    primitive::<Int64Type>(drawn(&values, ROWS, Nulls::None, 2)),
                ),
                (
                    "b",
                    primitive::<Int16Type>(drawn(&[1, 500, 999], ROWS, Nulls::None, 3)),
                ),
            ],
        );
        fixture.check("SELECT max(a), sum(b) FROM t");
        let (cold, worse) = cold_and_hot(&fixture, "SELECT k, max(a), sum(b) FROM t GROUP BY k");
        println!("{kib} KiB: {cold:?}");
        in_strides += u64::from(cold.in_core() && cold.streamed > 0);
        failures.extend(worse.iter().map(|worse| format!("{kib} KiB: {worse}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(in_strides > 0, "no budget was short for columns alone");
}

/// The sizes of TPC-H's columns and results, in memory from less than the columns of one query to more than those of all.
#[test]
fn hot_runs_of_tpch_take_the_way_of_the_cold_one() {
    const SCALE: f64 = 0.02;
    const QUERIES: [u8; 3] = [1, 3, 8];
    let scale = Scale::new(SCALE).expect("a scale");
    let data = generate::generate(&Table::ALL, scale, 2).expect("data");
    let mut failures = Vec::new();
    for kib in [1536, 4096] {
        let mut fixture = fixture(kib);
        for table in &data {
            let schema = table.table.schema();
            let provider = MemTable::try_new(schema, table.partitions.clone()).expect("a table");
            fixture = fixture.provider(table.table.name(), Arc::new(provider));
        }
        for query in queries::ALL.iter().filter(|q| QUERIES.contains(&q.number)) {
            let (cold, worse) = cold_and_hot(&fixture, query.sql.as_ref());
            println!("Q{} within {kib} KiB: {cold:?}", query.number);
            failures.extend(worse.iter().map(|worse| format!("{kib} KiB: {worse}")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The lookup tables of kept plans take more than there is in all, and none at the end of a query is in use: they are given back, and made
/// again where a plan is asked for once more.
#[test]
fn lookup_tables_of_kept_plans_leave_room() {
    const PLANS: usize = 24;
    let fixture = fixture(1 << 10);
    let names = (0..60_000).map(|row| Some(format!("name {}", row % 20_000 * 100_003)));
    let names = StringArray::from_iter(names);
    let columns: [(&str, ArrayRef); 1] = [("s", Arc::new(names))];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let fixture = fixture.batches("names", vec![batch]);
    // A number of 31 bits for each of 20,000 strings: 80 KB a plan.
    let sql = |plan: usize| format!("SELECT sum(CAST(substr(s, 6) AS BIGINT) + {plan}) FROM names");
    for plan in (0..PLANS).chain(0..PLANS) {
        let run = fixture.compare(&sql(plan)).expect("the right answer");
        assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
    }
    let again = fixture.run(&sql(PLANS - 1)).expect("an answer");
    assert!(again.metrics.plan_cached);
}
