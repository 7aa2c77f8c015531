//! Tables to which files are added: their columns grow by the rows of these, and are what a load of all files makes.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::*;
use arrow::datatypes::*;
use std::sync::Arc;
use warpline_gpu::column::{Column, Encoding};
use warpline_gpu::tables::LoadedTable;

use super::{Setup, on_each_device, register, rows, session, write_parquet};

/// What a new session loads of the folder.
async fn load(setup: &Setup, folder: &Path, sql: &str) -> Arc<LoadedTable> {
    try_load(setup, folder, sql).await.unwrap()
}

async fn try_load(
    setup: &Setup,
    folder: &Path,
    sql: &str,
) -> warpline_gpu::Result<Arc<LoadedTable>> {
    let ctx = session(4, 1);
    register(&ctx, folder).await;
    setup.load(&ctx, sql).await
}

fn counts(loaded: &LoadedTable) -> (usize, usize) {
    (loaded.columns_loaded, loaded.columns_grown)
}

/// The rows in order: those of columns that belong together stay so.
fn sorted_rows(setup: &Setup, loaded: &LoadedTable) -> Vec<String> {
    let arrays = setup.arrays(loaded);
    let columns: Vec<ArrayRef> = arrays
        .iter()
        .map(|array| arrow::compute::cast(array, &DataType::Utf8).unwrap())
        .collect();
    let mut rows: Vec<String> = (0..loaded.rows)
        .map(|row| {
            let texts = columns.iter().map(|column| {
                let column = column.as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_string())
            });
            format!("{:?}", texts.collect::<Vec<_>>())
        })
        .collect();
    rows.sort();
    rows
}

/// What does not depend on the order of the rows, and must be as a load of all files finds it.
fn facts(column: &Column) -> String {
    let encoding = match &column.encoding {
        Encoding::Integer { width, base } => format!("integer {width} {base}"),
        Encoding::Float { width } => format!("float {width}"),
        Encoding::Dictionary { width, dictionary } => {
            format!("dictionary {width} {:?}", dictionary.values)
        }
        Encoding::Bits => "bits".into(),
        Encoding::Bytes { .. } => "bytes".into(),
    };
    let known = &column.statistics;
    format!(
        "{encoding} {} {:?} {} {:?} {:?} {} {} {}",
        column.rows,
        known.range,
        known.null_count,
        known.distinct,
        known.distinct_estimate,
        known.ascii,
        known.unique,
        column.validity.is_some()
    )
}

/// The table is what another cache loads of the same files.
async fn assert_as_loaded_whole(
    setup: &Setup,
    loaded: &LoadedTable,
    device: &Arc<dyn warpline_gpu::device::Device>,
    folder: &Path,
    sql: &str,
) {
    let other = Setup::new(device, 64 << 20);
    let whole = load(&other, folder, sql).await;
    assert_eq!(counts(&whole), (whole.columns.len(), 0));
    assert_eq!(sorted_rows(setup, loaded), sorted_rows(&other, &whole));
    for (grown, whole) in loaded.columns.iter().zip(&whole.columns) {
        assert_eq!(facts(grown), facts(whole));
    }
}

const ALL: &str = "SELECT id, price, flag, day, ratio FROM t";

#[test]
fn columns_grow_by_the_rows_of_new_files() {
    on_each_device(|device, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_parquet(&folder.join("m.parquet"), &rows(0, 1_001), 300);
        let first = load(&setup, folder, ALL).await;
        assert_eq!(counts(&first), (5, 0));
        drop(first);
        // Names before and behind the others, sizes that end within bytes and words, a file without rows.
        let added = [
            ("z", rows(1_001, 700)),
            ("a", rows(1_701, 3)),
            ("n", rows(0, 0)),
            ("b", rows(1_704, 2_048)),
        ];
        for (name, batch) in added {
            let file = folder.join(format!("{name}.parquet"));
            write_parquet(&file, &batch, 300);
            let grown = load(&setup, folder, ALL).await;
            assert_eq!(counts(&grown), (0, 5), "{name}");
            assert!(grown.load_ms > 0.0);
            assert_as_loaded_whole(&setup, &grown, &device, folder, ALL).await;
            let again = load(&setup, folder, ALL).await;
            assert_eq!(counts(&again), (0, 0));
            for (one, other) in grown.columns.iter().zip(&again.columns) {
                assert!(Arc::ptr_eq(one, other));
            }
        }
        // Those of one state before alone wait for being asked for again.
        assert_eq!(setup.cache.resident().len(), 10);
        // A file that is rewritten and one that is gone replace them.
        write_parquet(&folder.join("a.parquet"), &rows(90_000, 5), 300);
        let replaced = load(&setup, folder, ALL).await;
        assert_eq!(counts(&replaced), (5, 0));
        assert_as_loaded_whole(&setup, &replaced, &device, folder, ALL).await;
        std::fs::remove_file(folder.join("m.parquet")).unwrap();
        let fewer = load(&setup, folder, ALL).await;
        assert_eq!(counts(&fewer), (5, 0));
        assert_as_loaded_whole(&setup, &fewer, &device, folder, ALL).await;
    });
}

#[test]
fn columns_that_were_not_asked_for_grow_later() {
    on_each_device(|device, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_parquet(&folder.join("m.parquet"), &rows(0, 100), 300);
        load(&setup, folder, ALL).await;
        write_parquet(&folder.join("a.parquet"), &rows(100, 50), 300);
        let two = "SELECT id, ratio FROM t";
        assert_eq!(counts(&*load(&setup, folder, two).await), (0, 2));
        write_parquet(&folder.join("c.parquet"), &rows(150, 50), 300);
        assert_eq!(counts(&*load(&setup, folder, two).await), (0, 2));
        // `price` grows by both files, beside what has grown before.
        let sql = "SELECT id, price FROM t";
        let grown = load(&setup, folder, sql).await;
        assert_eq!(counts(&grown), (0, 1));
        assert_as_loaded_whole(&setup, &grown, &device, folder, sql).await;
        drop(grown);
        // What is not there any more is loaded in the order of what is.
        setup.cache.clear();
        let kept = load(&setup, folder, "SELECT id FROM t").await;
        let sql = "SELECT id, day FROM t";
        let both = load(&setup, folder, sql).await;
        assert_eq!((counts(&kept), counts(&both)), ((1, 0), (1, 0)));
        assert_as_loaded_whole(&setup, &both, &device, folder, sql).await;
    });
}

fn write_columns(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let columns = columns.into_iter().map(|(name, a)| (name, a, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    write_parquet(path, &batch, 64);
}

/// Columns whose first file has `n` rows of one kind of values, and the others of another.
fn of_kinds(first: bool, n: usize) -> Vec<(&'static str, ArrayRef)> {
    let numbers = 0..n as i64;
    let wide: Int64Array = match first {
        true => numbers.clone().map(|i| Some(i % 100)).collect(),
        false => numbers.clone().map(|i| Some(i - 70_000)).collect(),
    };
    let whole: Int32Array = match first {
        true => numbers.clone().map(|i| Some(i as i32)).collect(),
        false => numbers.clone().map(|i| (i % 3 > 0).then_some(7)).collect(),
    };
    let nulls: Int16Array = match first {
        true => numbers.clone().map(|_| None).collect(),
        false => numbers.clone().map(|i| Some(i as i16 - 500)).collect(),
    };
    let flags: BooleanArray = match first {
        true => numbers.clone().map(|i| Some(i % 2 > 0)).collect(),
        false => numbers
            .clone()
            .map(|i| (i % 5 > 0).then_some(i % 3 == 0))
            .collect(),
    };
    let known = ["delta", "bravo", "charlie"];
    let text: StringArray = match first {
        true => numbers
            .clone()
            .map(|i| Some(known[i as usize % 3]))
            .collect(),
        // Before, between and behind the others, and one that is known.
        false => numbers
            .clone()
            .map(|i| {
                ["alpha", "bravo", "coda", "zulu", "ü"]
                    .get(i as usize % 6)
                    .copied()
            })
            .collect(),
    };
    let same: StringArray = numbers
        .clone()
        .map(|i| Some(known[i as usize % 3]))
        .collect();
    let from = if first { 0 } else { 1_000_000 };
    let long: StringArray = numbers
        .clone()
        .map(|i| (i % 7 > 0).then(|| format!("a comment of its own {}", i + from)))
        .collect();
    let float: Float32Array = numbers.clone().map(|i| Some(i as f32 / 7.0)).collect();
    let time: TimestampMicrosecondArray = numbers.map(|i| Some(i * 1_000_003 + from)).collect();
    vec![
        ("wide", Arc::new(wide)),
        ("whole", Arc::new(whole)),
        ("nulls", Arc::new(nulls)),
        ("flags", Arc::new(flags)),
        ("text", Arc::new(text)),
        ("same", Arc::new(same)),
        ("long", Arc::new(long)),
        ("float", Arc::new(float)),
        ("time", Arc::new(time)),
    ]
}

#[test]
fn encodings_become_those_of_all_rows() {
    on_each_device(|device, setup| async move {
        for (n, m) in [(200, 90), (7, 200), (64, 33), (1, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            write_columns(&folder.join("b.parquet"), of_kinds(true, n));
            load(&setup, folder, "SELECT * FROM t").await;
            // Behind the other by name as well: all facts are those of one order.
            write_columns(&folder.join("c.parquet"), of_kinds(false, m));
            let grown = load(&setup, folder, "SELECT * FROM t").await;
            assert_eq!(grown.columns_loaded + grown.columns_grown, 9, "{n} {m}");
            if n == 200 {
                assert_eq!(counts(&grown), (0, 9));
            }
            assert_as_loaded_whole(&setup, &grown, &device, folder, "SELECT * FROM t").await;
        }
    });
}

#[test]
fn order_and_uniqueness_are_found_out_again() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let sql = "SELECT x FROM t";
        let write = |name: &str, values: &[i64]| {
            let values = Int64Array::from(values.to_vec());
            write_columns(
                &folder.join(format!("{name}.parquet")),
                vec![("x", Arc::new(values))],
            );
        };
        let known = |loaded: &Arc<LoadedTable>| {
            let known = &loaded.columns[0].statistics;
            (known.sorted, known.unique, known.distinct)
        };
        write("d", &[1, 2, 5]);
        assert_eq!(
            known(&load(&setup, folder, sql).await),
            (true, true, Some(3))
        );
        write("c", &[6, 8]);
        let grown = load(&setup, folder, sql).await;
        assert_eq!(
            (counts(&grown), known(&grown)),
            ((0, 1), (true, true, Some(5)))
        );
        // Once more what is there, then less.
        write("b", &[8, 9]);
        assert_eq!(
            known(&load(&setup, folder, sql).await),
            (true, false, Some(6))
        );
        write("a", &[3]);
        let grown = load(&setup, folder, sql).await;
        assert_eq!(
            (counts(&grown), known(&grown)),
            ((0, 1), (false, false, Some(7)))
        );
    });
}

/// A file in front that is no newer than the known ones was there when they were read: sorted columns are read again, in order.
#[test]
fn files_that_were_left_out_before_keep_the_order() {
    on_each_device(|device, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let write = |name: &str, ordered: &[i64], any: &[i64]| {
            let columns: [(&str, ArrayRef); 2] = [
                ("x", Arc::new(Int64Array::from(ordered.to_vec()))),
                ("y", Arc::new(Int64Array::from(any.to_vec()))),
            ];
            let path = folder.join(format!("{name}.parquet"));
            write_columns(&path, columns.to_vec());
            path
        };
        let old = |path: &Path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1))
                .unwrap();
        };
        write("b", &[5, 6], &[9, 1]);
        // Without a known column that is sorted nothing is lost by growth.
        load(&setup, folder, "SELECT y FROM t").await;
        old(&write("ab", &[3, 4], &[3, 2]));
        let grown = load(&setup, folder, "SELECT y FROM t").await;
        assert_eq!(counts(&grown), (0, 1));
        // The rows of `b` come first now, whatever is read of them.
        let loaded = load(&setup, folder, "SELECT x FROM t").await;
        assert!(!loaded.columns[0].statistics.sorted);

        let other = Setup::new(&device, 64 << 20);
        let loaded = load(&other, folder, "SELECT x FROM t").await;
        assert!(loaded.columns[0].statistics.sorted);
        old(&write("a", &[1, 2], &[7, 8]));
        let loaded = load(&other, folder, "SELECT x, y FROM t").await;
        assert_eq!(counts(&loaded), (2, 0));
        assert!(loaded.columns[0].statistics.sorted);
        // What is added behind grows, old or not.
        old(&write("c", &[7, 7], &[0, 0]));
        let grown = load(&other, folder, "SELECT x, y FROM t").await;
        assert_eq!(counts(&grown), (0, 2));
        assert!(grown.columns[0].statistics.sorted);
    });
}

#[test]
fn without_memory_for_both_all_is_loaded() {
    on_each_device(|device, _| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let sql = "SELECT ratio FROM t";
        // 8 bytes a row: 32,000 and then 40,000, and neither has room beside the other.
        write_parquet(&folder.join("b.parquet"), &rows(0, 4_000), 2_000);
        let setup = Setup::new(&device, 60 << 10);
        drop(load(&setup, folder, sql).await);
        write_parquet(&folder.join("a.parquet"), &rows(4_000, 1_000), 2_000);
        let loaded = load(&setup, folder, sql).await;
        assert_eq!(counts(&loaded), (1, 0));
        let roomy = Setup::new(&device, 1 << 20);
        let whole = load(&roomy, folder, sql).await;
        assert_eq!(sorted_rows(&setup, &loaded), sorted_rows(&roomy, &whole));
        assert!(setup.pool.statistics().in_use <= 60 << 10);
        // In use, the old column cannot go: the error says what has no room.
        write_parquet(&folder.join("c.parquet"), &rows(5_000, 1_000), 2_000);
        let error = try_load(&setup, folder, sql).await.unwrap_err().to_string();
        assert!(error.contains("ratio"), "{error}");
        drop(loaded);
        let loaded = load(&setup, folder, sql).await;
        assert_eq!(loaded.rows, 6_000);
    });
}

#[test]
fn tables_with_fewer_files_keep_their_columns() {
    on_each_device(|_, setup| async move {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for part in ["x", "y", "z"] {
            let part_folder = folder.join(format!("part={part}"));
            std::fs::create_dir(&part_folder).unwrap();
            write_parquet(&part_folder.join("f.parquet"), &rows(0, 200), 300);
        }
        let mut seen: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for _ in 0..3 {
            for sql in [
                "SELECT price FROM t WHERE part = 'y'",
                "SELECT price FROM t",
            ] {
                let ctx = session(4, 1);
                let options = datafusion::prelude::ParquetReadOptions::default()
                    .table_partition_cols(vec![("part".into(), DataType::Utf8)]);
                let path = folder.to_str().unwrap();
                ctx.register_parquet("t", path, options).await.unwrap();
                let loaded = setup.load(&ctx, sql).await.unwrap();
                seen.entry(sql).or_default().push(counts(&loaded));
            }
        }
        let first: Vec<(usize, usize)> = seen.values().map(|counts| counts[0]).collect();
        assert_eq!(first, [(0, 1), (1, 0)], "{seen:?}");
        for counts in seen.values() {
            assert_eq!(counts[1..], [(0, 0), (0, 0)], "{seen:?}");
        }
    });
}

#[test]
fn failures_of_memory_on_the_way_load_all() {
    on_each_device(|device, _| async move {
        let sql = "SELECT price, flag FROM t";
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (mut grew, mut whole, mut failed) = (0, 0, 0);
        for nth in 1.. {
            let file = folder.join("a.parquet");
            let _ = std::fs::remove_file(&file);
            write_parquet(&folder.join("b.parquet"), &rows(0, 500), 100);
            let setup = Setup::new(&device, 64 << 20);
            drop(load(&setup, folder, sql).await);
            write_parquet(&file, &rows(500, 77), 100);
            setup.pool.fail_allocation(nth);
            match try_load(&setup, folder, sql).await {
                Ok(loaded) => {
                    assert_eq!(loaded.columns_loaded + loaded.columns_grown, 2);
                    match loaded.columns_loaded {
                        0 => grew += 1,
                        _ => whole += 1,
                    }
                    assert_as_loaded_whole(&setup, &loaded, &device, folder, sql).await;
                }
                Err(error) => {
                    assert!(error.to_string().contains("memory"), "{error}");
                    failed += 1;
                }
            }
            let again = load(&setup, folder, sql).await;
            assert_as_loaded_whole(&setup, &again, &device, folder, sql).await;
            drop(again);
            setup.cache.clear();
            assert_eq!(setup.pool.statistics().in_use, 0, "allocation {nth}");
            // The first run that meets no failure any more.
            if grew == 1 {
                break;
            }
        }
        assert!(whole > 8 && failed == 0, "{whole} {failed}");
    });
}
