//! What a cache keeps: columns of files that change, eviction, pins, loads at once, failures.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use warpline_gpu::GpuError;
use warpline_gpu::column::{Column, ColumnRoom};
use warpline_gpu::runtime::Runtime;

use super::{
    Setup, analyze, assert_columns, on_each_device, parquet_folder, register, rows, session,
    write_parquet,
};

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
