//! Fields of structs, whose definition levels tell of the structs around them as well.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Schema};
use datafusion::parquet::basic::Encoding;

use super::files::{Nulls, Written, batch, write};
use super::{ALLOWED, Setup, codecs};
use crate::support::devices;

/// Structs of these columns, NULL where `is_null` says so; without it never, and not as a column.
fn within(columns: &RecordBatch, is_null: Option<&dyn Fn(usize) -> bool>) -> ArrayRef {
    let there = is_null.map(|is_null| {
        let there = (0..columns.num_rows()).map(|row| !is_null(row));
        NullBuffer::from_iter(there)
    });
    let fields = columns.schema().fields().clone();
    Arc::new(StructArray::new(fields, columns.columns().to_vec(), there))
}

fn of_columns(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    let fields = columns
        .iter()
        .map(|(name, array, nullable)| Field::new(*name, array.data_type().clone(), *nullable));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array, _)| array).collect();
    RecordBatch::try_new(Arc::new(schema), arrays).unwrap()
}

/// Columns of every kind within structs that are always there, that may be NULL, and within two of both.
fn structs(rows: usize, nulls: Nulls) -> RecordBatch {
    let columns = batch(rows, nulls);
    let often = |row: usize| row % 5 == 2 || row % 300 > 250;
    let rarely = |row: usize| row == 17;
    let required = within(&columns, None);
    let optional = within(&columns, Some(&often));
    let inner = of_columns(vec![
        ("in", Arc::clone(&optional), true),
        ("sure", Arc::clone(&required), false),
        ("id", Arc::clone(columns.column(0)), false),
    ]);
    of_columns(vec![
        ("id", Arc::clone(columns.column(0)), false),
        ("required", required, false),
        ("optional", optional, true),
        ("deep", within(&inner, Some(&rarely)), true),
        ("whole", within(&inner, Some(&|_| false)), true),
        ("last", Arc::clone(columns.column(1)), true),
    ])
}

fn check(setup: &Setup, written: &Written, nulls: Nulls, rows: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let what = format!("{written:?}, {nulls:?}, {rows} rows");
    write(&path, &structs(rows, nulls), written);
    let counts = setup.compare(&path, &what);
    for (reason, chunks) in &counts.cpu {
        assert!(
            ALLOWED.contains(reason),
            "{what}: {chunks} chunks, {reason}"
        );
    }
    assert!(rows == 0 || counts.device > 0, "{what}: {counts}");
}

#[test]
fn fields_at_every_level() {
    for device in devices() {
        let setup = Setup::new(&device);
        for (number, nulls) in Nulls::ALL.into_iter().enumerate() {
            for version in [1, 2] {
                let written = Written {
                    version,
                    codec: codecs()[(number + version) % 4],
                    encoding: (version == 2).then_some(Encoding::PLAIN),
                    page_rows: 130,
                    ..Written::default()
                };
                check(&setup, &written, nulls, 400);
            }
        }
    }
}

#[test]
fn few_rows_and_several_row_groups() {
    for device in devices() {
        let setup = Setup::new(&device);
        for (rows, page_rows, group_rows) in [
            (0, 10, 10),
            (1, 1, 10),
            (31, 31, 100),
            (33, 32, 100),
            (260, 40, 90),
        ] {
            let written = Written {
                page_rows,
                group_rows,
                ..Written::default()
            };
            check(&setup, &written, Nulls::Some, rows);
        }
    }
}
