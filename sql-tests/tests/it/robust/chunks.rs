//! Outputs of many chunks: equal answers, memory that returns when their reader goes, copies that fail on the way.

use std::future::poll_fn;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion::execution::SendableRecordBatchStream;
use warpline_sql_tests::{Fixture, every, test_device};

use super::cancel::wait_until_idle;
use super::{assert_right, memory};
use crate::operators::support::{Nulls, drawn, primitive, row_numbers};

const INJECT: &str = "warpline.inject_failures";

/// Rows of several chunks, whatever their columns.
const ROWS: usize = 70_000;

/// NULLs, negative numbers, decimals of 128 bits, strings that hardly repeat and some that do.
fn fixture(settings: &[(&str, &str)]) -> Fixture {
    let settings: Vec<_> = [("warpline.min_rows", "0")]
        .iter()
        .chain(settings)
        .copied()
        .collect();
    let null = |row: usize| row % 5 == 3;
    let decimal = |row: usize| (row as i128 - 30_000) * 10_i128.pow((row % 17) as u32);
    let decimals = (0..ROWS).map(|row| (!null(row + 1)).then(|| decimal(row)));
    let decimals = Decimal128Array::from_iter(decimals).with_precision_and_scale(30, 3);
    let texts = (0..ROWS).map(|row| {
        (!null(row)).then(|| format!("ü{}-{}", row * 7919 % ROWS, "x".repeat(row % 23)))
    });
    let words = (0..ROWS).map(|row| (!null(row + 2)).then(|| ["", "one", "zwölf"][row % 3]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", row_numbers(ROWS)),
        (
            "n",
            primitive::<Int64Type>(drawn(&[-3, 0, i64::MAX, 70_000], ROWS, Nulls::Some, 1)),
        ),
        (
            "f",
            primitive::<Float64Type>(drawn(&[0.5, -1e9, f64::NAN], ROWS, Nulls::Some, 2)),
        ),
        ("d", Arc::new(decimals.expect("a type"))),
        ("s", Arc::new(StringArray::from_iter(texts))),
        ("w", Arc::new(StringArray::from_iter(words))),
    ];
    Fixture::open(test_device(), true, &settings).table("big", columns)
}

const QUERIES: [&str; 4] = [
    "SELECT id, n, f, d, s, w FROM big WHERE id % 7 <> 3 ORDER BY s DESC NULLS FIRST, id",
    "SELECT id, d * 2 AS d, w FROM big ORDER BY n NULLS LAST, id DESC",
    "SELECT a.id, b.s, b.d FROM big a JOIN big b ON a.id = b.id WHERE b.n <> 0 OR b.n IS NULL",
    "SELECT id, count(*) AS c, max(s) AS s, sum(d) AS d FROM big GROUP BY id",
];

#[test]
fn answers_of_many_chunks_are_right() {
    for settings in [&[][..], &[("warpline.host_memory", "1")]] {
        let fixture = fixture(settings);
        for sql in QUERIES {
            // Reading sizes, and without.
            for _ in 0..2 {
                let run = fixture.check(sql);
                let rows: usize = run.batches.iter().map(|batch| batch.num_rows()).sum();
                assert!(rows > 40_000, "{sql}: {rows}");
            }
        }
        wait_until_idle(&fixture);
    }
}

/// The next batch; `None` behind the last.
async fn next(
    stream: &mut SendableRecordBatchStream,
) -> datafusion::error::Result<Option<arrow::array::RecordBatch>> {
    poll_fn(|task| stream.as_mut().poll_next(task))
        .await
        .transpose()
}

#[test]
fn a_reader_that_goes_frees_device_memory() {
    let fixture = fixture(&[]);
    for sql in QUERIES {
        let expected = fixture.expect(sql);
        assert_right(&expected, &fixture.run(sql).expect(sql), "before");
        let before = memory(&fixture).in_use;
        fixture.block_on(async {
            let frame = fixture.session().context().sql(sql).await.expect(sql);
            let mut stream = frame.execute_stream().await.expect(sql);
            let first = next(&mut stream).await.expect(sql).expect("rows");
            assert!(first.num_rows() > 0);
            assert!(memory(&fixture).in_use > before, "{sql}");
            drop(stream);
        });
        // A chunk may be on its way.
        while memory(&fixture).in_use > before {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_right(&expected, &fixture.run(sql).expect(sql), "afterwards");
    }
}

#[test]
fn rows_that_nobody_fetches_give_way_to_other_queries() {
    let fixture = fixture(&[]);
    let sql = QUERIES[0];
    let expected = fixture.expect(sql);
    let run = fixture.run(sql).expect(sql);
    assert_right(&expected, &run, "before");
    fixture.block_on(async {
        let context = fixture.session().context();
        let mut stream = context
            .sql(sql)
            .await
            .expect(sql)
            .execute_stream()
            .await
            .expect(sql);
        let mut rows = next(&mut stream)
            .await
            .expect(sql)
            .expect("rows")
            .num_rows();
        let held = memory(&fixture).in_use;
        fixture
            .session()
            .device()
            .evict()
            .expect("a working device");
        let left = memory(&fixture).in_use;
        assert!(left < held, "{held} and {left}");
        while let Some(batch) = next(&mut stream).await.expect(sql) {
            rows += batch.num_rows();
        }
        let all: usize = run.batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, all);
    });
    assert_right(&expected, &fixture.run(sql).expect(sql), "afterwards");
}

#[test]
fn copies_of_chunks_that_fail_are_errors_and_the_session_goes_on() {
    let fixture = fixture(&[]);
    let sql = QUERIES[0];
    let expected = fixture.expect(sql);
    assert_right(&expected, &fixture.run(sql).expect(sql), "before");
    let mut failed = 0;
    for nth in (1..1000).step_by(every(5)) {
        fixture.set(INJECT, &format!("copy:{nth}"));
        match fixture.run(sql) {
            Ok(run) => assert_right(&expected, &run, &format!("copy {nth}")),
            Err(error) => {
                failed += 1;
                let error = error.strip_backtrace();
                assert!(error.contains("injected failure"), "{error}");
            }
        }
        let pending = fixture.session().injected_failures() == 0;
        fixture.set(INJECT, "");
        wait_until_idle(&fixture);
        if pending {
            break;
        }
    }
    assert!(failed > 3, "{failed} failed");
    assert_right(&expected, &fixture.run(sql).expect(sql), "afterwards");
}
