//! Rows that stay on the device: what other libraries get there is what a query answers.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray, TimestampMicrosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
    new_null_array,
};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::datasource::MemTable;
use futures::FutureExt;
use warpline::{DeviceChoice, RowsOnDevice, WarplineSession};

use super::on_a_large_stack;

/// A value in three is NULL, or none is.
#[derive(Clone, Copy, PartialEq)]
enum Nulls {
    Some,
    None,
    All,
}

async fn session(device: DeviceChoice) -> WarplineSession {
    let builder = WarplineSession::builder().device(device);
    builder.open().await.unwrap()
}

/// A column of every kind of type that lies on devices.
fn all_types(rows: usize, nulls: Nulls) -> RecordBatch {
    macro_rules! column {
        ($array:ty, $value:expr) => {{
            let values = (0..rows).map(|row| {
                let null = nulls == Nulls::All || nulls == Nulls::Some && row % 3 == 1;
                #[allow(clippy::redundant_closure_call)]
                (!null).then(|| $value(row))
            });
            Arc::new(values.collect::<$array>()) as ArrayRef
        }};
    }
    let text = |row: usize| match row % 5 {
        0 => String::new(),
        1 => format!("ü{row}\u{1f600}"),
        _ => format!("a string of more than twelve bytes, number {row}"),
    };
    let few = |row: usize| ["AIR", "", "Łódź"][row % 3].to_string();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new((0..rows as i32).collect::<Int32Array>())),
        ("i8", column!(Int8Array, |row| (row as i8).wrapping_mul(17))),
        ("i16", column!(Int16Array, |row| i16::MIN + row as i16)),
        ("i32", column!(Int32Array, |row| i32::MAX - row as i32)),
        ("i64", column!(Int64Array, |row| i64::MIN + row as i64)),
        ("u8", column!(UInt8Array, |row| row as u8)),
        ("u16", column!(UInt16Array, |row| u16::MAX - row as u16)),
        ("u32", column!(UInt32Array, |row| row as u32 * 3)),
        ("u64", column!(UInt64Array, |row| u64::MAX - row as u64)),
        ("f32", column!(Float32Array, |row| row as f32 * -0.5)),
        ("f64", column!(Float64Array, |row| 1e300 / (row + 1) as f64)),
        ("truth", column!(BooleanArray, |row| row % 7 < 3)),
        ("day", column!(Date32Array, |row| row as i32 - 700_000)),
        (
            "moment",
            column!(TimestampMicrosecondArray, |row| row as i64 * 1_000_003 - 5),
        ),
        (
            "d128",
            Arc::new(
                column!(Decimal128Array, |row| 10i128.pow(37) * 9 - row as i128)
                    .as_any()
                    .downcast_ref::<Decimal128Array>()
                    .unwrap()
                    .clone()
                    .with_precision_and_scale(38, 4)
                    .unwrap(),
            ),
        ),
        ("words", column!(StringArray, few)),
        ("views", column!(StringViewArray, text)),
        ("large", column!(LargeStringArray, text)),
        (
            "coded",
            cast(
                &column!(StringArray, few),
                &DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8)),
            )
            .unwrap(),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

fn register(session: &WarplineSession, name: &str, batch: &RecordBatch) {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch.clone()]]).unwrap();
    session
        .context()
        .register_table(name, Arc::new(table))
        .unwrap();
}

async fn left_on_device(session: &WarplineSession, sql: &str) -> RowsOnDevice {
    let query = session.prepare(sql).await.unwrap().unwrap();
    let state = session.context().state();
    let logical = state.create_logical_plan(sql).boxed();
    let rows = session
        .rows_on_device(query.plan(), query.task(), Some(logical))
        .await
        .unwrap();
    query.finish();
    rows
}

/// The rows of a query and those left on the device are equal, whether strings are views or not. Returns why they came by the host.
async fn compared(session: &WarplineSession, sql: &str) -> Option<String> {
    let run = session.query(sql).await.unwrap();
    let expected = concat_batches(&run.schema, &run.batches).unwrap();
    // Twice: what the first run learned serves the second.
    let mut by_host = None;
    for _ in 0..2 {
        let rows = left_on_device(session, sql).await;
        assert_eq!(rows.batch.ordinal(), None);
        let got = rows.batch.download().unwrap();
        assert_eq!(got.num_rows(), expected.num_rows(), "{sql}");
        assert_eq!(got.num_columns(), expected.num_columns(), "{sql}");
        for (number, field) in run.schema.fields().iter().enumerate() {
            let array = cast(got.column(number), field.data_type()).unwrap();
            assert_eq!(&array, expected.column(number), "{sql}: {}", field.name());
        }
        by_host = rows.by_host;
    }
    by_host
}

#[test]
fn all_types_and_sizes() {
    on_a_large_stack(async || {
        let session = session(DeviceChoice::Emulator).await;
        for nulls in [Nulls::Some, Nulls::None, Nulls::All] {
            for rows in [0, 1, 31, 32, 33, 2500] {
                register(&session, "t", &all_types(rows, nulls));
                let by_host = compared(
                    &session,
                    "SELECT * FROM t WHERE u32 + 1 > 0 OR u32 IS NULL ORDER BY id",
                )
                .await;
                // Tables without rows are answered while planning.
                assert!(by_host.is_none() || rows == 0, "{by_host:?}");
                session.context().deregister_table("t").unwrap();
                session.clear_plan_cache();
            }
        }
    });
}

#[test]
fn groups_sorts_and_joins() {
    on_a_large_stack(async || {
        let session = session(DeviceChoice::Emulator).await;
        register(&session, "t", &all_types(3000, Nulls::Some));
        for sql in [
            "SELECT words, count(*) AS n, sum(i32) AS s, avg(u16) AS a FROM t GROUP BY words ORDER BY words",
            "SELECT views, u64, moment FROM t WHERE truth ORDER BY views DESC NULLS LAST, id LIMIT 100",
            "SELECT a.large, b.views FROM t a JOIN t b ON a.u32 = b.u32 WHERE a.u8 < 9 ORDER BY a.id, b.id",
            "SELECT upper(words) AS w, d128 + 1 AS d, i8 > 0 AS p FROM t ORDER BY id",
            "SELECT array_agg(u32 ORDER BY u32) AS l, words FROM t GROUP BY words ORDER BY words",
        ] {
            assert_eq!(compared(&session, sql).await, None, "{sql}");
        }
        // The CPU has the last word.
        for sql in [
            "SELECT named_struct('a', views, 'b', [u32]) AS s FROM t ORDER BY u32 LIMIT 7",
            "SELECT NULL AS nothing, 'x' AS x",
            "SELECT 1 AS one WHERE false",
        ] {
            let by_host = compared(&session, sql).await;
            assert!(by_host.is_some_and(|why| why.contains("CPU")), "{sql}");
        }
    });
}

#[test]
fn memory_is_counted_and_comes_back() {
    on_a_large_stack(async || {
        let session = session(DeviceChoice::Emulator).await;
        register(&session, "t", &all_types(2500, Nulls::Some));
        let rows = left_on_device(&session, "SELECT u64, views FROM t WHERE u32 < 5000").await;
        let runtime = session.device().runtime().unwrap();
        let held = || runtime.pool().statistics().in_use;
        let all = held();
        // SAFETY: the emulator's memory is the host's.
        let data = unsafe { rows.batch.column(0).unwrap().clone() };
        drop(rows);
        let one = held();
        assert!(one < all, "{one} of {all}");
        drop(data);
        assert!(held() < one, "{} of {one}", held());
    });
}

#[test]
fn without_a_device_there_is_an_error() {
    on_a_large_stack(async || {
        let session = session(DeviceChoice::Cpu).await;
        let query = session.prepare("SELECT 1 AS x").await.unwrap().unwrap();
        let error = session
            .rows_on_device(query.plan(), query.task(), None)
            .await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no device is in use"), "{error}");
    });
}

#[test]
fn no_type_is_lost() {
    on_a_large_stack(async || {
        let session = session(DeviceChoice::Emulator).await;
        let stamps = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("n", new_null_array(&DataType::Null, 3), true),
            ("t", new_null_array(&stamps, 3), true),
            ("b", new_null_array(&DataType::BinaryView, 3), true),
        ])
        .unwrap();
        register(&session, "t", &batch);
        let rows = left_on_device(&session, "SELECT * FROM t").await;
        let types: Vec<_> = rows
            .batch
            .schema()
            .fields()
            .iter()
            .map(|f| f.data_type().clone())
            .collect();
        assert_eq!(types, [DataType::Null, stamps, DataType::Binary]);
        assert_eq!(rows.batch.download().unwrap().column(2).null_count(), 3);
    });
}
