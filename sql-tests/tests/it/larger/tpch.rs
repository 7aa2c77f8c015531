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

/// Less and less: the right answer or an error that names what to set, whatever was tried on the way.
#[test]
fn all_22_in_a_tenth_a_thirtieth_and_a_hundredth() {
    let plenty = tables("1GiB");
    let peaks = queries::ALL.iter().map(|query| {
        let run = plenty.block_on(plenty.session().run(&query.sql));
        run.ok().and_then(|run| run.metrics.peak_device_bytes)
    });
    let most = peaks.flatten().max().unwrap_or(0);
    let mut answered = Vec::new();
    for share in [10, 30, 100] {
        let budget = most / share;
        let fixture = tables(&budget.to_string());
        let mut right = 0;
        println!(
            "1/{share}: {budget} bytes of {most}\n query |  peak | streamed | spilled | waits | evictions | repeats | out of core | CPU"
        );
        for query in queries::ALL.iter() {
            let sql: &str = query.sql.as_ref();
            let begin = std::time::Instant::now();
            match fixture.compare(sql) {
                Ok(run) => {
                    right += 1;
                    let (metrics, ladder) = (&run.metrics, &run.metrics.ladder);
                    println!(
                        "   Q{:<3} | {:>5} | {:>8} | {:>7} | {:>5} | {:>9} | {:>7} | {:>11} | {:>3} | {:.1} s",
                        query.number,
                        metrics.peak_device_bytes.unwrap_or(0) >> 10,
                        metrics.streamed_bytes >> 10,
                        metrics.spilled_bytes >> 10,
                        ladder.memory_waits,
                        ladder.evictions,
                        ladder.repeats,
                        ladder.out_of_core,
                        ladder.cpu_fallbacks,
                        begin.elapsed().as_secs_f64()
                    );
                    assert_eq!(ladder.cpu_fallbacks, 0, "Q{}", query.number);
                    let peak = metrics.peak_device_bytes.unwrap_or(0);
                    assert!(
                        peak <= budget,
                        "Q{}: {peak} of {budget} bytes",
                        query.number
                    );
                }
                Err(message) => {
                    println!("   Q{:<3} | {message}", query.number);
                    let clear = message.contains("out of device memory")
                        && message.contains("warpline.device_memory");
                    assert!(clear, "Q{} within {budget} bytes: {message}", query.number);
                }
            }
        }
        answered.push(right);
    }
    println!("answered on the device: {answered:?}");
    assert_eq!(answered[0], queries::ALL.len());
}
