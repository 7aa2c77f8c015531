//! What is read of files and memory tables, in which order, and what filters come back.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat_batches;
use arrow::datatypes::*;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::collect;
use datafusion::prelude::*;
use warpline_gpu::tables::TableSource;

use super::{
    Setup, analyze, assert_columns, leaf, on_each_device, parquet_folder, plan, register, rows,
    session, write_csv, write_parquet,
};

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
