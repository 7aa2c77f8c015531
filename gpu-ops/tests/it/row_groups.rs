//! Tables of parquet whose row groups go to their place while others are decoded: what comes of it is what comes of a table that
//! is read first and laid out then.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::*;
use arrow::datatypes::*;
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::prelude::*;
use warpline_gpu::GpuError;
use warpline_gpu::column::{Column, ColumnRoom, Encoding};
use warpline_gpu::device::{Device, Stream};
use warpline_gpu::runtime::Runtime;
use warpline_gpu::tables::{LoadedTable, TableSource};
use warpline_gpu::trace::Trace;

use crate::support::devices;

/// Rows of a row group.
const GROUP: usize = 1000;
const ROWS: usize = 20_011;

/// A session that reads every row group on its own.
fn session(partitions: usize) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(partitions);
    config.options_mut().optimizer.repartition_file_min_size = 1;
    SessionContext::new_with_config(config)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
}

/// Some of the values, `false` becomes NULL.
fn some<T>(row: usize, value: T) -> Option<T> {
    (row % 7 != 3).then_some(value)
}

/// Columns of every kind; what they show only in later row groups is what a layout could be wrong about.
fn batch() -> RecordBatch {
    let rows = 0..ROWS;
    let words = [
        "",
        "A",
        "Bär",
        "R",
        "a longer text than fits a view",
        "日本語",
    ];
    let late = |row: usize| match row {
        row if row > ROWS - 50 => "zz late",
        row => words[row % 3],
    };
    let decimals = rows.clone().map(|i| some(i, (i as i128 - 9) << (i % 60)));
    let small = rows.clone().map(|i| some(i, (i * 1009 % 100_000) as i128));
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| i as i64))),
        ),
        (
            "negative",
            Arc::new(Int64Array::from_iter(
                rows.clone().map(|i| some(i, -(i as i64) << 20)),
            )),
        ),
        (
            "byte",
            Arc::new(UInt8Array::from_iter_values(
                rows.clone().map(|i| (i / 100) as u8),
            )),
        ),
        (
            "unsigned",
            Arc::new(UInt64Array::from_iter(
                rows.clone().map(|i| some(i, u64::MAX - i as u64)),
            )),
        ),
        (
            "wide",
            Arc::new(
                Decimal128Array::from_iter(decimals)
                    .with_precision_and_scale(38, 3)
                    .unwrap(),
            ),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter(small)
                    .with_precision_and_scale(15, 2)
                    .unwrap(),
            ),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(
                rows.clone().map(|i| 9000 + (i % 2500) as i32),
            )),
        ),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter(
                rows.clone().map(|i| some(i, i as i64 * 3_600_000_000)),
            )),
        ),
        (
            "nothing",
            Arc::new(Int32Array::from_iter(rows.clone().map(|_| None))),
        ),
        // Only the last row group has values.
        (
            "seldom",
            Arc::new(Int32Array::from_iter(
                rows.clone().map(|i| (i > ROWS - 5).then_some(i as i32)),
            )),
        ),
        (
            "single",
            Arc::new(Float32Array::from_iter(
                rows.clone().map(|i| some(i, i as f32 / 3.0)),
            )),
        ),
        (
            "ratio",
            Arc::new(Float64Array::from_iter_values(rows.clone().map(
                |i| match i % 5 {
                    4 => f64::NAN,
                    3 => -0.0,
                    _ => i as f64 / 7.0,
                },
            ))),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                rows.clone().map(|i| some(i, i % 3 == 0)),
            )),
        ),
        (
            "word",
            Arc::new(StringViewArray::from_iter(
                rows.clone().map(|i| some(i, words[i * 31 % 6])),
            )),
        ),
        (
            "late",
            Arc::new(StringViewArray::from_iter_values(rows.clone().map(late))),
        ),
        (
            "text",
            Arc::new(StringViewArray::from_iter_values(
                rows.clone().map(|i| format!("text {i} of {}", i * 7)),
            )),
        ),
        (
            "constant",
            Arc::new(Int16Array::from_iter_values(rows.map(|_| -3))),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

fn write(path: &Path, batch: &RecordBatch, statistics: EnabledStatistics) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP))
        .set_statistics_enabled(statistics)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

async fn source(ctx: &SessionContext) -> TableSource {
    let frame = ctx.table("t").await.unwrap();
    let mut plan = frame.create_physical_plan().await.unwrap();
    while let Some(child) = plan.children().first().map(|child| Arc::clone(child)) {
        plan = child;
    }
    TableSource::analyze(&plan).unwrap().source
}

async fn load(
    runtime: &Runtime,
    ctx: &SessionContext,
    room: &ColumnRoom,
    stream: &Stream,
) -> warpline_gpu::Result<Arc<LoadedTable>> {
    let source = source(ctx).await;
    let columns: Vec<usize> = (0..source.schema().fields().len()).collect();
    let tables = runtime.tables();
    tables
        .get_within(&source, &columns, &[], room, ctx.task_ctx(), stream)
        .await
}

/// Files with one row group after the other.
async fn files(folder: &Path, partitions: usize) -> SessionContext {
    let ctx = session(partitions);
    ctx.register_parquet("t", folder.to_str().unwrap(), ParquetReadOptions::default())
        .await
        .unwrap();
    ctx
}

/// The same rows from memory, where nothing is known before all of them are there.
fn memory(batch: &RecordBatch) -> SessionContext {
    let ctx = session(2);
    let table = MemTable::try_new(batch.schema(), vec![vec![batch.clone()]]).unwrap();
    ctx.register_table("t", Arc::new(table)).unwrap();
    ctx
}

fn bytes(column: &Column, stream: &Stream) -> Vec<Vec<u8>> {
    let offsets = match &column.encoding {
        Encoding::Bytes { offsets } => Some(offsets),
        _ => None,
    };
    let buffers = [Some(&column.data), column.validity.as_ref(), offsets];
    let buffers = buffers.into_iter().flatten();
    buffers
        .map(|buffer| buffer.download_vec::<u8>(stream).unwrap())
        .collect()
}

/// Two columns are alike to the last bit, the padding included, and as well known.
#[track_caller]
fn assert_alike(read: &LoadedTable, expected: &LoadedTable, names: &Schema, stream: &Stream) {
    assert_eq!(read.rows, expected.rows);
    for ((one, other), field) in read
        .columns
        .iter()
        .zip(&expected.columns)
        .zip(names.fields())
    {
        let name = field.name();
        let text = |column: &Column| format!("{:?}", column.statistics);
        assert_eq!(text(one), text(other), "{name}");
        match (&one.encoding, &other.encoding) {
            (Encoding::Bytes { .. }, Encoding::Bytes { .. }) => {}
            (
                Encoding::Dictionary { width, dictionary },
                Encoding::Dictionary {
                    width: w,
                    dictionary: d,
                },
            ) => {
                assert_eq!((width, &dictionary.values), (w, &d.values), "{name}");
            }
            (one, other) => assert_eq!(format!("{one:?}"), format!("{other:?}"), "{name}"),
        }
        assert!(
            bytes(one, stream) == bytes(other, stream),
            "bytes of {name}"
        );
    }
}

/// Spans of a kind of work that were done so far, by when they began.
fn spans(trace: &Trace, begin: &str) -> Vec<(f64, f64)> {
    let (spans, _) = trace.spans().unwrap();
    let named = spans.iter().filter(|span| span.name.starts_with(begin));
    named
        .map(|span| (span.start_us, span.start_us + span.duration_us))
        .collect()
}

/// Units of the folder: two files.
const UNITS: usize = 9 + 12;

fn two_files(folder: &Path, statistics: EnabledStatistics) -> RecordBatch {
    let batch = batch();
    let first = 8_500;
    write(
        &folder.join("a.parquet"),
        &batch.slice(0, first),
        statistics,
    );
    write(
        &folder.join("b.parquet"),
        &batch.slice(first, ROWS - first),
        statistics,
    );
    batch
}

/// A runtime with as much host memory as device memory, which is plenty.
fn with_host_memory(device: &Arc<dyn Device>) -> Arc<Runtime> {
    Runtime::with_memory(Arc::clone(device), Some(64 << 20), Some(64 << 20)).unwrap()
}

#[test]
fn columns_laid_out_by_row_groups_are_those_of_a_whole_table() {
    for device in devices() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let batch = two_files(folder.path(), EnabledStatistics::Chunk);
            let gpu = with_host_memory(&device);
            let stream = gpu.lease_stream().unwrap();
            let names = memory(&batch);
            let everything = ColumnRoom::unlimited();
            let expected = load(&gpu, &names, &everything, &stream).await.unwrap();
            let trace = gpu.start_trace().unwrap();
            let mut encoded = 0;
            for partitions in [1, 3, 8] {
                for room in [usize::MAX, 400_000, 0] {
                    gpu.tables().clear();
                    let ctx = files(folder.path(), partitions).await;
                    let room = ColumnRoom::of(room);
                    let read = load(&gpu, &ctx, &room, &stream).await.unwrap();
                    assert_alike(&read, &expected, &batch.schema(), &stream);
                    let now = spans(&trace, "encode").len();
                    assert_eq!(now - encoded, UNITS, "{partitions} readers");
                    encoded = now;
                }
            }
            drop(expected);
            gpu.tables().clear();
            assert_eq!(gpu.pool().statistics().in_use, 0);
        });
    }
}

#[test]
fn row_groups_are_encoded_while_others_are_decoded() {
    for device in devices() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            two_files(folder.path(), EnabledStatistics::Chunk);
            let gpu = Runtime::with_device(Arc::clone(&device), Some(64 << 20)).unwrap();
            let stream = gpu.lease_stream().unwrap();
            let ctx = files(folder.path(), 1).await;
            let trace = gpu.start_trace().unwrap();
            let room = ColumnRoom::of(0);
            load(&gpu, &ctx, &room, &stream).await.unwrap();
            let (decoded, encoded) = (spans(&trace, "decode"), spans(&trace, "encode"));
            assert_eq!((decoded.len(), encoded.len()), (UNITS, UNITS));
            // One reader goes through them in order, and is at most two ahead of what lies in its place.
            for unit in 2..UNITS {
                assert!(
                    encoded[unit - 2].0 < decoded[unit].1,
                    "unit {} lies there when unit {unit} has been read",
                    unit - 2
                );
            }
            let during = (0..UNITS - 1)
                .filter(|unit| encoded[*unit].0 < decoded[unit + 1].1)
                .count();
            assert!(
                during > UNITS / 4,
                "{during} of {UNITS}: {decoded:?} {encoded:?}"
            );
        });
    }
}

/// The file with other statistics of column `id`.
fn tell(path: &Path, min: i64, max: i64) {
    let bytes = std::fs::read(path).unwrap();
    let file = File::open(path).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .unwrap();
    let groups = metadata.row_groups().iter().map(|group| {
        let mut columns = group.columns().to_vec();
        let told = Statistics::int64(Some(min), Some(max), None, Some(0), false);
        columns[0] = columns[0]
            .clone()
            .into_builder()
            .set_statistics(told)
            .build()
            .unwrap();
        let group = group.clone().into_builder().set_column_metadata(columns);
        group.build().unwrap()
    });
    let groups = groups.collect();
    let metadata = metadata
        .clone()
        .into_builder()
        .set_row_groups(groups)
        .build();
    let end = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let mut changed = bytes[..end - footer].to_vec();
    ParquetMetaDataWriter::new(&mut changed, &metadata)
        .finish()
        .unwrap();
    std::fs::write(path, changed).unwrap();
}

#[test]
fn nothing_depends_on_what_files_say_of_themselves() {
    for device in devices() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let batch = batch();
            let path = folder.path().join("t.parquet");
            let gpu = Runtime::with_device(Arc::clone(&device), Some(64 << 20)).unwrap();
            let stream = gpu.lease_stream().unwrap();
            let room = ColumnRoom::unlimited();
            let expected = load(&gpu, &memory(&batch), &room, &stream).await.unwrap();
            let bytes: usize = expected.columns.iter().map(|column| column.bytes()).sum();
            let trace = gpu.start_trace().unwrap();
            // Too low, too narrow, too wide for its codes, nowhere near.
            for told in [
                (0, 10),
                (500, 15_000),
                (-(1 << 40), 1 << 40),
                (1 << 50, 2 << 50),
            ] {
                write(&path, &batch, EnabledStatistics::Chunk);
                tell(&path, told.0, told.1);
                for partitions in [1, 4] {
                    let ctx = files(folder.path(), partitions).await;
                    let ahead = || spans(&trace, "decode").len() - spans(&trace, "encode").len();
                    let before = ahead();
                    // What was expected in vain takes nothing of it.
                    let room = ColumnRoom::of(bytes);
                    let read = load(&gpu, &ctx, &room, &stream).await.unwrap();
                    assert_alike(&read, &expected, &batch.schema(), &stream);
                    assert!(!read.columns.iter().any(|c| c.is_in_host_memory()));
                    // Who reads again does not encode row group by row group.
                    assert!(ahead() > before, "{told:?}: nothing was read again");
                    drop(read);
                    gpu.tables().clear();
                }
            }
            write(&path, &batch, EnabledStatistics::None);
            let ctx = files(folder.path(), 3).await;
            let read = load(&gpu, &ctx, &room, &stream).await.unwrap();
            assert_alike(&read, &expected, &batch.schema(), &stream);
        });
    }
}

/// Row groups of a file, from byte to byte.
fn row_groups(path: &Path) -> Vec<(usize, usize)> {
    let file = File::open(path).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .unwrap();
    let groups = metadata.row_groups().iter();
    groups
        .map(|group| {
            let ranges = group.columns().iter().map(|column| column.byte_range());
            let ranges: Vec<(u64, u64)> = ranges.collect();
            let first = ranges.iter().map(|(start, _)| *start).min().unwrap();
            let end = ranges
                .iter()
                .map(|(start, bytes)| start + bytes)
                .max()
                .unwrap();
            (first as usize, end as usize)
        })
        .collect()
}

#[test]
fn a_broken_row_group_ends_the_load_with_its_file_and_nothing_left() {
    for device in devices() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let batch = two_files(folder.path(), EnabledStatistics::Chunk);
            let path = folder.path().join("b.parquet");
            let whole = std::fs::read(&path).unwrap();
            let groups = row_groups(&path);
            let gpu = with_host_memory(&device);
            let stream = gpu.lease_stream().unwrap();
            for (first, end) in groups {
                let mut broken = whole.clone();
                broken[first..end].fill(0xff);
                std::fs::write(&path, broken).unwrap();
                for (partitions, room) in [(1, 0), (4, usize::MAX), (16, 100_000)] {
                    let ctx = files(folder.path(), partitions).await;
                    let room = ColumnRoom::of(room);
                    let load = load(&gpu, &ctx, &room, &stream);
                    let ended = tokio::time::timeout(Duration::from_secs(60), load).await;
                    let error = ended.expect("no end").unwrap_err();
                    assert!(matches!(error, GpuError::DataFusion(_)), "{error}");
                    assert!(error.to_string().contains("b.parquet"), "{error}");
                    assert!(!error.to_string().contains("a.parquet"), "{error}");
                    // At once: nobody works on it any more.
                    assert_eq!(gpu.pool().statistics().in_use, 0);
                    assert_eq!(gpu.host_pool().statistics().in_use, 0);
                }
            }
            std::fs::write(&path, whole).unwrap();
            let ctx = files(folder.path(), 4).await;
            let room = ColumnRoom::unlimited();
            let read = load(&gpu, &ctx, &room, &stream).await.unwrap();
            let expected = load(&gpu, &memory(&batch), &room, &stream).await.unwrap();
            assert_alike(&read, &expected, &batch.schema(), &stream);
        });
    }
}

#[test]
fn a_load_that_nobody_waits_for_stops_and_returns_its_memory() {
    for device in devices() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let batch = two_files(folder.path(), EnabledStatistics::Chunk);
            let gpu = with_host_memory(&device);
            let stream = gpu.lease_stream().unwrap();
            let trace = gpu.start_trace().unwrap();
            let (mut dropped, mut stopped) = (0, 0);
            for wait in 0..24 {
                let ctx = files(folder.path(), 1 + wait % 3).await;
                let room = ColumnRoom::of((wait % 2) * 1_000_000);
                let before = spans(&trace, "decode").len();
                // Until some row groups have been decoded.
                let begun = async {
                    while spans(&trace, "decode").len() - before <= wait / 3 {
                        tokio::time::sleep(Duration::from_micros(200)).await;
                    }
                };
                let load = load(&gpu, &ctx, &room, &stream);
                tokio::select! {
                    read = load => drop(read.unwrap()),
                    () = begun => dropped += 1,
                }
                gpu.tables().clear();
                let begin = Instant::now();
                let in_use =
                    || gpu.pool().statistics().in_use + gpu.host_pool().statistics().in_use;
                while in_use() > 0 {
                    assert!(
                        begin.elapsed() < Duration::from_secs(30),
                        "{} bytes",
                        in_use()
                    );
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    gpu.tables().clear();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                stopped += usize::from(spans(&trace, "decode").len() - before < UNITS);
            }
            assert!(
                dropped > 5 && stopped > 5,
                "{dropped} dropped, {stopped} stopped"
            );
            let room = ColumnRoom::unlimited();
            let ctx = files(folder.path(), 4).await;
            let read = load(&gpu, &ctx, &room, &stream).await.unwrap();
            let expected = load(&gpu, &memory(&batch), &room, &stream).await.unwrap();
            assert_alike(&read, &expected, &batch.schema(), &stream);
        });
    }
}
