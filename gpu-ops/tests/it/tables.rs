//! Resident tables: loading from files and memory, canonical order, caching, eviction, failures.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat_batches;
use arrow::datatypes::*;
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::*;
use warpline_gpu::GpuError;
use warpline_gpu::column::{Column, ColumnRoom};
use warpline_gpu::device::{Device, Stream};
use warpline_gpu::memory::MemoryPool;
use warpline_gpu::runtime::Runtime;
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

#[test]
fn parquet_loads_in_canonical_order_however_it_is_split() {
    on_each_device(|device, _| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        for (partitions, range) in [(1, 1 << 30), (3, 1), (8, 1000), (64, 1)] {
            let setup = Setup::new(&device, 64 << 20);
            let ctx = session(partitions, range);
            register(&ctx, folder.path()).await;
            let loaded = setup.load(&ctx, "SELECT * FROM t").await.unwrap();
            assert_eq!((loaded.rows, loaded.columns_loaded), (15_010, 5));
            assert!(loaded.bytes_uploaded > 0 && loaded.load_ms > 0.0);
            assert_columns(&setup.arrays(&loaded), &expected, &[0, 1, 2, 3, 4]);
            let id = &loaded.columns[0].statistics;
            assert!(id.sorted && id.unique && id.range == Some((0, 15_009)));
        }
    });
}

#[test]
fn only_missing_columns_are_loaded_and_pushed_down_predicates_do_not_matter() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        let ctx = session(4, 1);
        register(&ctx, folder.path()).await;
        // The predicate prunes row groups of this scan; the column is loaded whole.
        let loaded = setup
            .load(&ctx, "SELECT price FROM t WHERE id < 100")
            .await
            .unwrap();
        assert_eq!((loaded.rows, loaded.columns_loaded), (15_010, 2));
        let again = setup.load(&ctx, "SELECT sum(price) FROM t").await.unwrap();
        assert_eq!(
            (again.columns_loaded, again.bytes_uploaded, again.load_ms),
            (0, 0, 0.0)
        );
        assert_columns(&setup.arrays(&again), &expected, &[1]);
        let more = setup.load(&ctx, "SELECT flag, id FROM t").await.unwrap();
        assert_eq!(more.columns_loaded, 1);
        // Another session, another split: the same table.
        let other = session(2, 1 << 30);
        register(&other, folder.path()).await;
        let shared = setup.load(&other, "SELECT id FROM t").await.unwrap();
        assert_eq!(shared.columns_loaded, 0);
        let resident = setup.cache.resident();
        let hits: Vec<_> = resident
            .iter()
            .map(|r| (r.column.as_str(), r.hits))
            .collect();
        assert_eq!(hits, [("flag", 0), ("id", 2), ("price", 1)]);
        assert!(
            resident
                .iter()
                .all(|r| r.rows == 15_010 && r.bytes > 0 && !r.table.is_empty())
        );
        assert_eq!(resident[1].encoding, "integer(2 bytes, base 0)");
        assert_eq!(resident[0].encoding, "dictionary(1 bytes, 4 values)");
    });
}

#[test]
fn a_count_needs_no_column() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        parquet_folder(folder.path());
        let ctx = session(4, 1);
        register(&ctx, folder.path()).await;
        let source = analyze(&ctx, "SELECT id FROM t").await.source;
        for _ in 0..2 {
            let loaded = setup.load_source(&ctx, &source, &[]).await.unwrap();
            assert_eq!(
                (loaded.rows, loaded.columns.len(), loaded.bytes_uploaded),
                (15_010, 0, 0)
            );
        }
        assert!(setup.cache.resident().is_empty());
        assert_eq!(setup.pool.statistics().in_use, 0);
    });
}

#[test]
fn exact_filters_come_back_and_pruning_ones_do_not() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        let ctx = session(2, 1);
        register(&ctx, folder.path()).await;
        let sql = "SELECT price FROM t WHERE id < 100 AND flag = 'A'";
        let pruning = analyze(&ctx, sql).await;
        assert!(pruning.exact_filter.is_none() && pruning.limit.is_none());

        ctx.sql("SET datafusion.execution.parquet.pushdown_filters = true")
            .await
            .unwrap();
        let physical = plan(&ctx, sql).await;
        let exact = TableSource::analyze(&leaf(&physical)).unwrap();
        let filter = exact.exact_filter.clone().unwrap();
        assert_eq!(exact.column_of_output, [1]);
        // Filtering the loaded columns by it gives what the scan gives.
        let loaded = setup
            .load_source(&ctx, &exact.source, &[0, 1, 2, 3, 4])
            .await
            .unwrap();
        let whole = RecordBatch::try_new(expected.schema(), setup.arrays(&loaded)).unwrap();
        assert_eq!(whole, expected);
        let mask = filter
            .evaluate(&whole)
            .unwrap()
            .into_array(whole.num_rows())
            .unwrap();
        let kept = arrow::compute::filter(whole.column(1), mask.as_boolean()).unwrap();
        let answer = collect(physical, ctx.task_ctx()).await.unwrap();
        let answered: usize = answer.iter().map(RecordBatch::num_rows).sum();
        assert!(answered > 0, "the predicate keeps rows");
        assert_eq!(kept.len(), answered);
    });
}

#[test]
fn csv_json_and_arrow_files_load_like_the_cpu_reads_them() {
    on_each_device(|device, _| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        write_csv(Path::new(&path("t.csv")), &rows(0, 3_000));
        let file = File::create(path("t.json")).unwrap();
        let mut json = arrow::json::LineDelimitedWriter::new(file);
        json.write(&rows(0, 3_000)).unwrap();
        let file = File::create(path("t.arrow")).unwrap();
        let batch = rows(0, 3_000);
        let mut ipc = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
        ipc.write(&batch).unwrap();
        ipc.finish().unwrap();
        for partitions in [1, 5] {
            let ctx = session(partitions, 100);
            ctx.register_csv("csv", &path("t.csv"), CsvReadOptions::default())
                .await
                .unwrap();
            ctx.register_json("json", &path("t.json"), JsonReadOptions::default())
                .await
                .unwrap();
            ctx.register_arrow("ipc", &path("t.arrow"), Default::default())
                .await
                .unwrap();
            for table in ["csv", "json", "ipc"] {
                let setup = Setup::new(&device, 64 << 20);
                let frame = ctx
                    .table(table)
                    .await
                    .unwrap()
                    .select_columns(&["day", "id"])
                    .unwrap();
                let sorted = frame.sort(vec![col("id").sort(true, true)]).unwrap();
                let batches = sorted.collect().await.unwrap();
                let expected = concat_batches(&batches[0].schema(), &batches).unwrap();
                // Two loads: the second scan projects otherwise.
                setup
                    .load(&ctx, &format!("SELECT day FROM {table}"))
                    .await
                    .unwrap();
                let sql = format!("SELECT day, id FROM {table}");
                let analysis = analyze(&ctx, &sql).await;
                let schema = analysis.source.schema();
                let columns = ["day", "id"].map(|name| schema.index_of(name).unwrap());
                let loaded = setup
                    .load_source(&ctx, &analysis.source, &columns)
                    .await
                    .unwrap();
                assert_eq!(loaded.columns_loaded, 1, "{table}");
                assert_columns(&setup.arrays(&loaded), &expected, &[0, 1]);
                let count = setup
                    .load_source(&ctx, &analysis.source, &[])
                    .await
                    .unwrap();
                assert_eq!(count.rows, 3_000);
                let fresh = Setup::new(&device, 1 << 20);
                let count = fresh
                    .load_source(&ctx, &analysis.source, &[])
                    .await
                    .unwrap();
                assert_eq!(count.rows, 3_000, "{table}");
            }
        }
    });
}

#[test]
fn hive_partition_columns_are_columns() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        for (part, start) in [("x", 0), ("y", 100)] {
            let part = folder.path().join(format!("part={part}"));
            std::fs::create_dir(&part).unwrap();
            write_parquet(&part.join("f.parquet"), &rows(start, 100), 30);
        }
        let ctx = session(3, 1);
        let options = ParquetReadOptions::default()
            .table_partition_cols(vec![("part".into(), DataType::Utf8)]);
        let path = folder.path().to_str().unwrap();
        ctx.register_parquet("t", path, options).await.unwrap();
        let loaded = setup.load(&ctx, "SELECT id, part FROM t").await.unwrap();
        let arrays = setup.arrays(&loaded);
        assert_columns(&arrays[..1], &rows(0, 200), &[0]);
        let expected =
            StringArray::from_iter_values((0..200).map(|i| if i < 100 { "x" } else { "y" }));
        let part = arrow::compute::cast(&arrays[1], &DataType::Utf8).unwrap();
        assert_eq!(part.as_ref(), &expected as &dyn Array);
        // Fewer partitions are other rows.
        let pruned = setup
            .load(&ctx, "SELECT id FROM t WHERE part = 'y'")
            .await
            .unwrap();
        assert_eq!(pruned.rows, 100);
    });
}

#[test]
fn memory_tables_are_known_by_their_batches() {
    on_each_device(|_, setup| async move {
        let batches: Vec<RecordBatch> = (0..7).map(|i| rows(i * 100, 100 + i)).collect();
        let schema = batches[0].schema();
        let ctx = session(4, 1);
        let table = MemTable::try_new(Arc::clone(&schema), vec![batches.clone()]).unwrap();
        ctx.register_table("t", Arc::new(table)).unwrap();
        // An aggregation spreads the batches over partitions, by size.
        let first = setup
            .load(&ctx, "SELECT flag, sum(id) FROM t GROUP BY flag")
            .await
            .unwrap();
        let ids = setup.load(&ctx, "SELECT id FROM t").await.unwrap();
        assert_eq!(ids.columns_loaded, 0);
        let days = setup.load(&ctx, "SELECT day FROM t").await.unwrap();
        assert_eq!((days.columns_loaded, days.rows, first.rows), (1, 721, 721));
        // Rows of columns loaded apart belong together.
        let id = setup.arrays(&ids).remove(0);
        let day = setup.arrays(&days).remove(0);
        for (id, day) in id
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .zip(day.as_primitive::<Date32Type>().values())
        {
            assert_eq!(9000 + (id % 2500) as i32, *day);
        }
        // The same values in other arrays are another table; a dropped table's columns go.
        let copies: Vec<RecordBatch> = (0..7).map(|i| rows(i * 100, 100 + i)).collect();
        let table = MemTable::try_new(schema, vec![copies]).unwrap();
        ctx.register_table("u", Arc::new(table)).unwrap();
        assert_eq!(
            setup
                .load(&ctx, "SELECT id FROM u")
                .await
                .unwrap()
                .columns_loaded,
            1
        );
        assert_eq!(setup.cache.resident().len(), 4);
        ctx.deregister_table("t").unwrap();
        drop(batches);
        let table = MemTable::try_new(rows(0, 1).schema(), vec![vec![rows(0, 1)], vec![]]).unwrap();
        ctx.register_table("v", Arc::new(table)).unwrap();
        setup.load(&ctx, "SELECT id FROM v").await.unwrap();
        assert_eq!(setup.cache.resident().len(), 2);
    });
}

#[test]
fn tables_without_rows_load() {
    on_each_device(|_, setup| async move {
        let ctx = session(4, 1);
        let schema = rows(0, 0).schema();
        let none = MemTable::try_new(Arc::clone(&schema), vec![vec![]]).unwrap();
        ctx.register_table("none", Arc::new(none)).unwrap();
        let empty = MemTable::try_new(schema, vec![vec![rows(0, 0)]]).unwrap();
        ctx.register_table("empty", Arc::new(empty)).unwrap();
        for table in ["none", "empty"] {
            // The optimiser may see that there is nothing to scan; the plan is then no data source.
            let loaded = setup
                .load(&ctx, &format!("SELECT * FROM {table}"))
                .await
                .unwrap();
            assert_eq!((loaded.rows, loaded.columns.len()), (0, 5));
            assert_columns(&setup.arrays(&loaded), &rows(0, 0), &[0, 1, 2, 3, 4]);
        }
    });
}

#[test]
fn other_plans_and_limits_are_read_anew_each_time() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        let ctx = session(2, 1);
        register(&ctx, folder.path()).await;
        let physical = plan(&ctx, "SELECT id + 1 AS n, flag FROM t ORDER BY n LIMIT 5").await;
        let analysis = TableSource::analyze(&physical).unwrap();
        assert!(!analysis.source.is_cacheable());
        for _ in 0..2 {
            let loaded = setup
                .load_source(&ctx, &analysis.source, &[1, 0])
                .await
                .unwrap();
            assert_eq!((loaded.rows, loaded.columns_loaded), (5, 2));
            let arrays = setup.arrays(&loaded);
            assert_eq!(arrays[0].as_ref(), expected.column(2).slice(0, 5).as_ref());
            assert_eq!(
                arrays[1].as_primitive::<Int64Type>().values(),
                &[1, 2, 3, 4, 5]
            );
        }
        assert!(setup.cache.resident().is_empty());
        let limited = analyze(&ctx, "SELECT id FROM t LIMIT 7").await;
        assert_eq!(limited.limit, Some(7));
        assert!(!limited.source.is_cacheable());
        // The optimiser pushes the product into the scan, which then is no plain table.
        let physical = plan(&ctx, "SELECT id * 2 FROM t").await;
        let error = TableSource::analyze(&leaf(&physical))
            .unwrap_err()
            .to_string();
        assert!(error.contains("computes id"), "{error}");
    });
}

#[test]
fn changed_files_are_loaded_again_and_the_old_columns_dropped() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        parquet_folder(folder.path());
        let ctx = session(4, 1);
        register(&ctx, folder.path()).await;
        setup.load(&ctx, "SELECT id, day FROM t").await.unwrap();
        assert_eq!(setup.cache.resident().len(), 2);
        // The session may have cached the listing: the file's state is looked up at loading.
        write_parquet(&folder.path().join("c.parquet"), &rows(20_000, 40), 100);
        let loaded = setup.load(&ctx, "SELECT id FROM t").await.unwrap();
        assert_eq!((loaded.rows, loaded.columns_loaded), (15_040, 1));
        let ids = setup.arrays(&loaded).remove(0);
        assert_eq!(
            ids.slice(15_000, 40).as_ref(),
            rows(20_000, 40).column(0).as_ref()
        );
        assert_eq!(setup.cache.resident().len(), 1);
        std::fs::remove_file(folder.path().join("b.parquet")).unwrap();
        let error = setup
            .load(&ctx, "SELECT id FROM t")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("b.parquet"), "{error}");
    });
}

#[test]
fn corrupt_files_are_named_and_leave_the_cache_usable() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        let ctx = session(4, 1);
        register(&ctx, folder.path()).await;
        let good = std::fs::read(folder.path().join("b.parquet")).unwrap();
        let mut bad = good.clone();
        bad[4..2000].fill(0x5a);
        std::fs::write(folder.path().join("b.parquet"), &bad).unwrap();
        let error = setup
            .load(&ctx, "SELECT id, flag FROM t")
            .await
            .unwrap_err();
        assert!(matches!(error, GpuError::DataFusion(_)));
        assert!(error.to_string().contains("b.parquet"), "{error}");
        assert_eq!(setup.pool.statistics().in_use, 0);
        std::fs::write(folder.path().join("b.parquet"), &good).unwrap();
        let loaded = setup.load(&ctx, "SELECT id, flag FROM t").await.unwrap();
        assert_columns(&setup.arrays(&loaded), &expected, &[0, 2]);
    });
}

#[test]
fn least_recently_used_columns_go_first_and_used_ones_stay() {
    on_each_device(|device, _| async move {
        let ctx = session(2, 1);
        // 8-byte floats: 40,000 bytes a column, 40,960 in the pool's classes; two fit.
        for name in ["a", "b", "c"] {
            let table = MemTable::try_new(rows(0, 1).schema(), vec![vec![rows(1, 4_000)]]).unwrap();
            ctx.register_table(name, Arc::new(table)).unwrap();
        }
        let setup = Setup::new(&device, 80 << 10);
        let tables = || -> Vec<u64> { setup.cache.resident().iter().map(|r| r.hits).collect() };
        drop(setup.load(&ctx, "SELECT ratio FROM a").await.unwrap());
        drop(setup.load(&ctx, "SELECT ratio FROM b").await.unwrap());
        drop(setup.load(&ctx, "SELECT ratio FROM a").await.unwrap());
        assert_eq!(tables().len(), 2);
        // b was used longest ago.
        drop(setup.load(&ctx, "SELECT ratio FROM c").await.unwrap());
        assert_eq!(
            setup
                .load(&ctx, "SELECT ratio FROM a")
                .await
                .unwrap()
                .columns_loaded,
            0
        );
        let held_a = setup.load(&ctx, "SELECT ratio FROM a").await.unwrap();
        let held_c = setup.load(&ctx, "SELECT ratio FROM c").await.unwrap();
        assert_eq!((held_a.columns_loaded, held_c.columns_loaded), (0, 0));
        // Both are in use: nothing can go.
        let error = setup.load(&ctx, "SELECT ratio FROM b").await.unwrap_err();
        assert!(
            matches!(error, GpuError::OutOfDeviceMemory { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("ratio"), "{error}");
        assert_columns(&setup.arrays(&held_a), &rows(1, 4_000), &[4]);
        drop(held_a);
        let loaded = setup.load(&ctx, "SELECT ratio FROM b").await.unwrap();
        assert_columns(&setup.arrays(&loaded), &rows(1, 4_000), &[4]);
        assert_columns(&setup.arrays(&held_c), &rows(1, 4_000), &[4]);
        assert!(setup.pool.statistics().released_under_pressure > 0);
        drop((loaded, held_c));
        assert!(setup.cache.clear() > 0);
        assert_eq!(setup.pool.statistics().in_use, 0);
    });
}

#[test]
fn pinned_columns_are_neither_evicted_nor_moved_to_host_memory() {
    on_each_device(|device, _| async move {
        let ctx = session(2, 1);
        let table = MemTable::try_new(rows(0, 1).schema(), vec![vec![rows(1, 4_000)]]).unwrap();
        ctx.register_table("a", Arc::new(table)).unwrap();
        let runtime = Runtime::with_device(device, Some(64 << 20)).unwrap();
        let stream = runtime.lease_stream().unwrap();
        let tables = runtime.tables();
        let scan = analyze(&ctx, "SELECT * FROM a").await;
        let without_room = || async {
            let room = ColumnRoom::of(0);
            let columns = &scan.column_of_output;
            let loaded =
                tables.get_within(&scan.source, columns, &[], &room, ctx.task_ctx(), &stream);
            let on_host = |c: &Arc<Column>| c.is_in_host_memory();
            loaded
                .await
                .unwrap()
                .columns
                .iter()
                .map(on_host)
                .collect::<Vec<_>>()
        };
        let kept = || {
            tables
                .resident()
                .iter()
                .map(|column| column.pinned)
                .collect::<Vec<_>>()
        };
        let pin = || tables.pin(&scan.source, ctx.task_ctx(), &stream);
        let first = pin().await.unwrap();
        let second = pin().await.unwrap();
        assert_eq!((first.rows(), first.columns()), (4_000, 5));
        drop(first);
        runtime.evict().unwrap();
        assert_eq!(kept(), [true; 5]);
        assert!(tables.resident().iter().all(|column| column.bytes > 0));
        assert_eq!(without_room().await, [false; 5]);
        drop(second);
        assert_eq!(kept(), [false; 5]);
        assert_eq!(without_room().await, [true; 5]);
        // A pin brings them back.
        assert!(pin().await.unwrap().bytes() > 4_000 * 8);
        runtime.evict().unwrap();
        let resident = tables.resident();
        assert!(
            resident
                .iter()
                .all(|column| column.bytes == 0 && !column.pinned)
        );
    });
}

#[test]
fn sessions_that_ask_at_once_load_once() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let expected = parquet_folder(folder.path());
        let setup = Arc::new(setup);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let ctx = session(3, 1);
            register(&ctx, folder.path()).await;
            let setup = Arc::clone(&setup);
            tasks.spawn(async move { setup.load(&ctx, "SELECT id, price FROM t").await.unwrap() });
        }
        let loaded = tasks.join_all().await;
        let uploads: usize = loaded.iter().map(|table| table.columns_loaded).sum();
        assert_eq!(uploads, 2);
        for table in &loaded {
            assert_columns(&setup.arrays(table), &expected, &[0, 1]);
        }
    });
}

#[test]
fn injected_failures_leave_the_cache_usable() {
    on_each_device(|_, setup| async move {
        let ctx = session(2, 1);
        let table = MemTable::try_new(rows(0, 1).schema(), vec![vec![rows(0, 3_000)]]).unwrap();
        ctx.register_table("t", Arc::new(table)).unwrap();
        // Two columns with validity: four allocations.
        for nth in 1..=4 {
            setup.pool.fail_allocation(nth);
            let error = setup
                .load(&ctx, "SELECT price, ratio FROM t")
                .await
                .unwrap_err();
            assert!(
                matches!(error, GpuError::OutOfDeviceMemory { .. }),
                "{error}"
            );
            assert_eq!(setup.pool.statistics().in_use, 0);
        }
        let loaded = setup
            .load(&ctx, "SELECT price, ratio FROM t")
            .await
            .unwrap();
        assert_columns(&setup.arrays(&loaded), &rows(0, 3_000), &[1, 4]);
        let source = analyze(&ctx, "SELECT id FROM t").await.source;
        let error = setup.load_source(&ctx, &source, &[5]).await.unwrap_err();
        assert!(matches!(error, GpuError::Internal(_)), "{error}");
    });
}
