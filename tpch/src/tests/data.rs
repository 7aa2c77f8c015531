//! Generated rows, files, and tables read back from files.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use super::{TestEngine, on_large_stack, rows_of, small};
use crate::files::{FileFormat, write_tables};
use crate::generate::generate;
use crate::tables::Table;
use crate::verify::{Answer, Ordering, compare};
use crate::{Benchmark, TpchError, data, queries, runner};

fn joined(table: Table, batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(&table.schema(), batches).expect("one batch")
}

fn write(directory: &Path, tables: &[Table], format: FileFormat) -> Result<(), TpchError> {
    write_tables(
        tables,
        small(),
        format,
        directory,
        2,
        &AtomicBool::new(false),
    )
    .map(|_| ())
}

#[test]
fn row_counts_at_scale_one_hundredth_are_those_of_dbgen() {
    let expected = [
        (Table::Nation, 25),
        (Table::Region, 5),
        (Table::Part, 2_000),
        (Table::Supplier, 100),
        (Table::Partsupp, 8_000),
        (Table::Customer, 1_500),
        (Table::Orders, 15_000),
        (Table::Lineitem, 60_175),
    ];
    let generated = generate(&Table::ALL, small(), 2).expect("data");
    for ((table, rows), found) in expected.into_iter().zip(&generated) {
        assert_eq!(found.table, table);
        let count: usize = found
            .partitions
            .iter()
            .flatten()
            .map(RecordBatch::num_rows)
            .sum();
        assert_eq!(count, rows, "{}", table.name());
        if table != Table::Lineitem {
            assert_eq!(
                table.expected_rows(small()),
                rows as u64,
                "{}",
                table.name()
            );
        }
        for batch in found.partitions.iter().flatten() {
            assert_eq!(batch.schema(), table.schema());
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_rows() {
    for table in [Table::Orders, Table::Lineitem, Table::Nation] {
        let whole = joined(table, &rows_of(table, small(), 1, 1));
        let generated = generate(&[table], small(), 3).expect("data").remove(0);
        assert_eq!(
            joined(table, &generated.partitions.concat()),
            whole,
            "{}",
            table.name()
        );
    }
}

#[test]
fn parquet_files_hold_the_generated_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new/data");
    write(&path, &Table::ALL, FileFormat::Parquet).expect("files");
    assert!(path.join("lineitem/part-000.parquet").is_file());
    on_large_stack(async move {
        let engine = TestEngine::new();
        data::register(&engine, &path, &Table::ALL)
            .await
            .expect("tables");
        let scale = data::measured_scale(&engine, Benchmark::Tpch, &Table::ALL)
            .await
            .expect("a scale")
            .expect("a scaled table");
        assert!((scale / 0.01 - 1.0).abs() < 0.01, "{scale}");
        for table in Table::ALL {
            let sql = format!("SELECT * FROM {}", table.name());
            let (found, _) = runner::reference_answer(&engine.context, &sql)
                .await
                .expect("rows");
            let expected =
                Answer::new(&table.schema(), &rows_of(table, small(), 1, 1)).expect("an answer");
            assert_eq!(
                compare(&expected, &found, &Ordering::default()),
                None,
                "{}",
                table.name()
            );
        }
        drop(directory);
    });
}

#[test]
fn text_files_have_a_line_for_each_row() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = |format: FileFormat, table: Table| {
        let path = directory.path().join(format.extension());
        let file = path.join(table.name()).join(format!("part-000.{format}"));
        fs::read_to_string(file)
            .expect("a file")
            .lines()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    for format in [FileFormat::Tbl, FileFormat::Csv] {
        write(
            &directory.path().join(format.extension()),
            &Table::ALL,
            format,
        )
        .expect("files");
    }
    let tbl = lines(FileFormat::Tbl, Table::Lineitem);
    assert_eq!(tbl.len(), 60_175);
    assert!(
        tbl[0]
            .starts_with("1|1552|93|1|17|24710.35|0.04|0.02|N|O|1996-03-13|1996-02-12|1996-03-22|"),
        "{}",
        tbl[0]
    );
    assert!(tbl[0].ends_with('|'));
    let csv = lines(FileFormat::Csv, Table::Orders);
    assert_eq!(csv.len(), 15_001);
    assert!(csv[0].starts_with("o_orderkey,o_custkey,"), "{}", csv[0]);
}

#[test]
fn output_is_all_or_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let entries = || fs::read_dir(directory.path()).expect("a listing").count();
    // Cancelled before the first row: nothing is left behind.
    let cancelled = write_tables(
        &[Table::Orders],
        small(),
        FileFormat::Csv,
        directory.path(),
        2,
        &AtomicBool::new(true),
    );
    assert!(matches!(cancelled, Err(TpchError::Cancelled)));
    assert_eq!(entries(), 0);
    write(directory.path(), &[Table::Region], FileFormat::Tbl).expect("files");
    assert_eq!(entries(), 1);
    // What is there is neither overwritten nor mixed with new files.
    let error = write(directory.path(), &[Table::Region], FileFormat::Tbl)
        .expect_err("not empty")
        .to_string();
    assert!(
        error.contains("is not empty") && error.contains("region"),
        "{error}"
    );
}

#[test]
fn unwritable_output_names_the_path() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("a file");
    let error = write(&file.join("below"), &[Table::Region], FileFormat::Tbl)
        .expect_err("below a file")
        .to_string();
    assert!(
        error.contains("file/below") && error.contains("check the path"),
        "{error}"
    );
}

#[test]
fn missing_or_foreign_data_is_one_clear_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_path_buf();
    write(&path, &[Table::Region], FileFormat::Parquet).expect("files");
    // A file that is parquet, but another table's.
    fs::copy(
        path.join("region/part-000.parquet"),
        path.join("nation.parquet"),
    )
    .expect("a copy");
    on_large_stack(async move {
        let engine = TestEngine::new();
        let nowhere = path.join("nowhere");
        for (place, table, parts) in [
            (
                &nowhere,
                Table::Region,
                ["nowhere does not exist", "warpline tpch generate"],
            ),
            (
                &path,
                Table::Orders,
                ["no table 'orders'", "orders.parquet or orders/*.parquet"],
            ),
            (
                &path,
                Table::Nation,
                [
                    "nation.parquet is not TPC-H's table 'nation'",
                    "'n_nationkey' is missing",
                ],
            ),
        ] {
            let error = data::register(&engine, place, &[table])
                .await
                .expect_err("no data")
                .to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        data::register(&engine, &path, &[Table::Region])
            .await
            .expect("region is good");
        drop(directory);
    });
}

#[test]
fn each_query_lists_the_tables_it_reads() {
    on_large_stack(async {
        let all = &queries::ALL;
        let engine = TestEngine::with_tables(all);
        for query in queries::ALL.iter() {
            let state = engine.context.state();
            let statement = state
                .sql_to_statement(&query.sql, &datafusion::config::Dialect::Generic)
                .expect("a statement");
            let references = state
                .resolve_table_references(&statement)
                .expect("references");
            // The common table expression of query 15 is no table.
            let mut found: Vec<String> = references
                .iter()
                .map(|name| name.table().to_string())
                .collect();
            found.retain(|name| name != "revenue");
            let mut listed: Vec<String> = query
                .tables
                .iter()
                .map(|table| table.name().to_string())
                .collect();
            found.sort();
            listed.sort();
            assert_eq!(found, listed, "Q{}", query.number);
        }
    });
}
