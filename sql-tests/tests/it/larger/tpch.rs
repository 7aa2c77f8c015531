//! The 22 queries of TPC-H with a fraction of the device memory that they want, each twice.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use warpline_sql_tests::{Fixture, test_device};
use warpline_tpch::tables::Table;
use warpline_tpch::{QueryEngine, Scale, generate, queries};

/// Bytes: less than the columns of one table, and than most results.
const BUDGET: &str = "1048576";
const SCALE: f64 = 0.01;

/// The tables within a budget of device memory.
fn tables(budget: &str) -> Fixture {
    let mut fixture = Fixture::open(test_device(), true, &[("warpline.device_memory", budget)]);
    let scale = Scale::new(SCALE).expect("a scale");
    for table in generate::generate(&Table::ALL, scale, 2).expect("data") {
        let schema = table.table.schema();
        let provider = MemTable::try_new(schema, table.partitions).expect("a table");
        fixture = fixture.provider(table.table.name(), Arc::new(provider));
    }
    fixture
}

#[test]
fn all_22_in_a_tenth_of_the_memory() {
    let plenty = tables("1GiB");
    let peaks = queries::ALL.iter().map(|query| {
        let run = plenty.block_on(plenty.session().run(&query.sql));
        run.ok().and_then(|run| run.metrics.peak_device_bytes)
    });
    let most = peaks.flatten().max().unwrap_or(0);
    assert!(most >= 10 * BUDGET.parse::<u64>().expect("bytes"), "{most}");

    let fixture = tables(BUDGET);
    let mut failures = Vec::new();
    let (mut streamed, mut spilled) = (0, 0);
    for query in queries::ALL.iter() {
        // The first run reads sizes between its steps, the second one does not.
        for _ in 0..2 {
            match fixture.compare(query.sql.as_ref()) {
                Ok(run) => {
                    streamed += run.metrics.streamed_bytes;
                    spilled += run.metrics.spilled_bytes;
                }
                Err(message) => failures.push(format!("Q{}: {message}", query.number)),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(streamed > 0, "nothing was streamed");
    assert!(spilled > 0, "no result was too large");
}
