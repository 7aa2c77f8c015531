//! Resident tables: what is read of files and memory, and what is kept of it.

mod growing;
mod keeping;
mod reading;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::*;
use warpline_gpu::device::{Device, Stream};
use warpline_gpu::memory::MemoryPool;
use warpline_gpu::tables::{LoadedTable, ScanAnalysis, TableCache, TableSource};

use crate::support::devices;

/// A cache on a device, wired to its pool as the runtime does it.
struct Setup {
    pool: Arc<MemoryPool>,
    cache: Arc<TableCache>,
    stream: Stream,
}

impl Setup {
    fn new(device: &Arc<dyn Device>, budget: usize) -> Self {
        let pool = MemoryPool::new(Arc::clone(device), budget);
        let cache = Arc::new(TableCache::new(Arc::clone(&pool)));
        let handler = Arc::<TableCache>::downgrade(&cache);
        pool.set_pressure_handler(handler);
        let stream = device.create_stream().unwrap();
        Self {
            pool,
            cache,
            stream,
        }
    }

    /// Load the columns that the scan of `sql` puts out.
    async fn load(
        &self,
        ctx: &SessionContext,
        sql: &str,
    ) -> warpline_gpu::Result<Arc<LoadedTable>> {
        let analysis = analyze(ctx, sql).await;
        self.load_source(ctx, &analysis.source, &analysis.column_of_output)
            .await
    }

    async fn load_source(
        &self,
        ctx: &SessionContext,
        source: &TableSource,
        columns: &[usize],
    ) -> warpline_gpu::Result<Arc<LoadedTable>> {
        self.cache
            .get_or_load(source, columns, &[], ctx.task_ctx(), &self.stream)
            .await
    }

    fn arrays(&self, table: &LoadedTable) -> Vec<ArrayRef> {
        table
            .columns
            .iter()
            .map(|column| column.to_arrow(&self.stream).unwrap())
            .collect()
    }
}

/// Run an asynchronous test on several threads, on each device, with a 64 MiB pool.
fn on_each_device<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Device>, Setup) -> F) {
    for device in devices() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .build()
            .unwrap();
        runtime.block_on(test(Arc::clone(&device), Setup::new(&device, 64 << 20)));
    }
}

/// A session that cuts even small files into ranges.
fn session(partitions: usize, smallest_range: usize) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(partitions);
    config.options_mut().optimizer.repartition_file_min_size = smallest_range;
    SessionContext::new_with_config(config)
}

async fn plan(ctx: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    ctx.sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap()
}

/// The first leaf of the plan.
fn leaf(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.children().first() {
        Some(child) => leaf(child),
        None => Arc::clone(plan),
    }
}

async fn analyze(ctx: &SessionContext, sql: &str) -> ScanAnalysis {
    TableSource::analyze(&leaf(&plan(ctx, sql).await)).unwrap()
}

/// Rows `start..start + rows` of a table of many types.
fn rows(start: i64, rows: i64) -> RecordBatch {
    let numbers = start..start + rows;
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("price", DataType::Decimal128(15, 2), true),
        Field::new("flag", DataType::Utf8View, true),
        Field::new("day", DataType::Date32, false),
        Field::new("ratio", DataType::Float64, true),
    ]);
    let price = numbers
        .clone()
        .map(|i| (i % 7 != 0).then(|| i128::from(i * 1009 % 100_000)));
    let flags = ["A", "N", "R", "a longer text than fits a view"];
    let flag = numbers
        .clone()
        .map(|i| (i % 11 != 0).then(|| flags[(i * 31 % 4) as usize]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(numbers.clone())),
        Arc::new(
            Decimal128Array::from_iter(price)
                .with_precision_and_scale(15, 2)
                .unwrap(),
        ),
        Arc::new(StringViewArray::from_iter(flag)),
        Arc::new(Date32Array::from_iter_values(
            numbers.clone().map(|i| 9000 + (i % 2500) as i32),
        )),
        Arc::new(Float64Array::from_iter(
            numbers.map(|i| (i % 5 != 0).then_some(i as f64 / 3.0)),
        )),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn write_parquet(path: &Path, batch: &RecordBatch, row_group: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group))
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn write_csv(path: &Path, batch: &RecordBatch) {
    let mut writer = arrow::csv::Writer::new(File::create(path).unwrap());
    writer.write(batch).unwrap();
}

/// Three files whose names do not sort as they were made; the rows in canonical order.
fn parquet_folder(folder: &Path) -> RecordBatch {
    write_parquet(&folder.join("b.parquet"), &rows(10_000, 5_000), 700);
    write_parquet(&folder.join("a.parquet"), &rows(0, 10_000), 1_000);
    write_parquet(&folder.join("c.parquet"), &rows(15_000, 10), 100);
    rows(0, 15_010)
}

async fn register(ctx: &SessionContext, folder: &Path) {
    let path = folder.to_str().unwrap();
    ctx.register_parquet("t", path, ParquetReadOptions::default())
        .await
        .unwrap();
}

fn assert_columns(actual: &[ArrayRef], expected: &RecordBatch, columns: &[usize]) {
    assert_eq!(actual.len(), columns.len());
    for (actual, column) in actual.iter().zip(columns) {
        assert_eq!(
            actual.as_ref(),
            expected.column(*column).as_ref(),
            "column {column}"
        );
    }
}
