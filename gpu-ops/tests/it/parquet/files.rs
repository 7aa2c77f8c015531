//! Files of many types, written in many ways.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use datafusion::parquet::schema::types::ColumnPath;

/// Which rows are NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nulls {
    /// None, of columns that may be.
    None,
    /// Every few.
    Some,
    /// None, of columns that may not.
    Required,
}

impl Nulls {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Some, Self::Required];

    fn of<T>(self, row: usize, value: T) -> Option<T> {
        // Some pages have no NULL, some nothing else.
        let null = row % 7 == 3 || row % 500 > 420;
        (self != Self::Some || !null).then_some(value)
    }
}

/// How a file is written.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) codec: Compression,
    pub(super) version: usize,
    /// Without dictionaries, in this encoding where it serves; `None`: dictionaries.
    pub(super) encoding: Option<Encoding>,
    pub(super) page_rows: usize,
    pub(super) dictionary_bytes: usize,
    pub(super) group_rows: usize,
    pub(super) statistics: bool,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            codec: Compression::SNAPPY,
            version: 1,
            encoding: None,
            page_rows: 1000,
            dictionary_bytes: 1 << 20,
            group_rows: 1 << 20,
            statistics: true,
        }
    }
}

/// Columns of every kind that a device stores.
pub(super) fn batch(rows: usize, nulls: Nulls) -> RecordBatch {
    let words = [
        "",
        "A",
        "Bär",
        "R",
        "a longer text than fits a view",
        "日本語",
    ];
    let each = || 0..rows;
    macro_rules! column {
        ($array:ty, $value:expr) => {
            Arc::new(<$array>::from_iter(
                each().map(|row| nulls.of(row, $value(row))),
            )) as ArrayRef
        };
    }
    let decimal = |values: Decimal128Array, precision, scale| {
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let of_decimals = |value: &dyn Fn(usize) -> i128| {
        Decimal128Array::from_iter(each().map(|row| nulls.of(row, value(row))))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            Arc::new(Int64Array::from_iter_values(
                each().map(|row| row as i64 * 3),
            )),
        ),
        (
            "int",
            column!(Int32Array, |row: usize| (row as i32 * 7919) % 1000 - 500),
        ),
        (
            "far",
            column!(Int64Array, |row: usize| (row as i64 - 40) << (row % 40)),
        ),
        ("tiny", column!(Int8Array, |row: usize| (row % 200) as i8)),
        (
            "short",
            column!(UInt16Array, |row: usize| (row * 37) as u16),
        ),
        (
            "unsigned",
            column!(UInt32Array, |row: usize| u32::MAX - row as u32),
        ),
        (
            "huge",
            column!(UInt64Array, |row: usize| (1u64 << 62) + row as u64),
        ),
        (
            "single",
            column!(Float32Array, |row: usize| row as f32 / 3.0),
        ),
        (
            "double",
            column!(Float64Array, |row: usize| match row % 5 {
                4 => f64::NAN,
                3 => -0.0,
                _ => row as f64 / 7.0,
            }),
        ),
        (
            "day",
            column!(Date32Array, |row: usize| 9000 + (row % 250) as i32),
        ),
        (
            "time",
            column!(TimestampMicrosecondArray, |row: usize| row as i64
                * 3_600_000_000),
        ),
        (
            "clock",
            column!(Time64MicrosecondArray, |row: usize| row as i64 * 1_000_003),
        ),
        (
            "money",
            decimal(of_decimals(&|row| row as i128 * 1009 % 99_999 - 7), 9, 2),
        ),
        (
            "price",
            decimal(of_decimals(&|row| (row as i128 - 9) << (row % 40)), 18, 2),
        ),
        (
            "fixed",
            decimal(of_decimals(&|row| row as i128 * -1_000_003), 25, 4),
        ),
        (
            "wide",
            decimal(of_decimals(&|row| (row as i128) << 70), 38, 0),
        ),
        (
            "flag",
            column!(BooleanArray, |row: usize| row.is_multiple_of(3)),
        ),
        (
            "word",
            column!(StringViewArray, |row: usize| words[row * 31 % 6]),
        ),
        (
            "few",
            column!(StringArray, |row: usize| words[row / 100 % 6]),
        ),
        (
            "text",
            column!(StringViewArray, |row: usize| format!(
                "text {} of {}",
                row / 3,
                row * 7 / 20
            )),
        ),
        ("constant", column!(Int16Array, |_: usize| -3)),
        (
            "nothing",
            Arc::new(Int32Array::from_iter(each().map(|_| None::<i32>))),
        ),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| {
            let nullable = nulls != Nulls::Required || *name == "nothing";
            Field::new(*name, array.data_type().clone(), nullable)
        })
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Columns whose dictionary codes come in long runs, in bit-packed ones, and in more bits than a byte has.
pub(super) fn runs(rows: usize, nulls: Nulls) -> RecordBatch {
    let of = |value: &dyn Fn(usize) -> i64| {
        Arc::new(Int64Array::from_iter(
            (0..rows).map(|row| nulls.of(row, value(row))),
        )) as ArrayRef
    };
    let text = |value: &dyn Fn(usize) -> String| {
        Arc::new(StringViewArray::from_iter(
            (0..rows).map(|row| nulls.of(row, value(row))),
        )) as ArrayRef
    };
    RecordBatch::try_from_iter_with_nullable([
        ("long", of(&|row| row as i64 / 1000), true),
        (
            "mixed",
            of(&|row| {
                if (row / 64).is_multiple_of(2) {
                    5
                } else {
                    row as i64 % 11
                }
            }),
            true,
        ),
        ("many", of(&|row| (row as i64 * 7919) % 3001), true),
        (
            "texts",
            text(&|row| format!("value {}", row * 31 % 1500)),
            true,
        ),
    ])
    .unwrap()
}

/// Does the encoding serve values of the column?
fn serves(encoding: Encoding, name: &str) -> bool {
    let floats = ["single", "double"].contains(&name);
    let fixed = ["fixed", "wide"].contains(&name);
    let texts = ["word", "few", "text", "flag"].contains(&name);
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => texts && name != "flag",
        Encoding::DELTA_BYTE_ARRAY => texts && name != "flag" || fixed,
        Encoding::DELTA_BINARY_PACKED => !floats && !fixed && !texts,
        Encoding::BYTE_STREAM_SPLIT => !texts,
        _ => true,
    }
}

/// The columns of a file, by the names that lead to them.
fn leaves(fields: &Fields, around: &[String]) -> Vec<Vec<String>> {
    let paths = fields.iter().flat_map(|field| {
        let path = [around, std::slice::from_ref(field.name())].concat();
        match field.data_type() {
            DataType::Struct(within) => leaves(within, &path),
            _ => vec![path],
        }
    });
    paths.collect()
}

pub(super) fn write(path: &Path, batch: &RecordBatch, written: &Written) {
    let version = match written.version {
        1 => WriterVersion::PARQUET_1_0,
        _ => WriterVersion::PARQUET_2_0,
    };
    let statistics = match written.statistics {
        true => EnabledStatistics::Chunk,
        false => EnabledStatistics::None,
    };
    let mut properties = WriterProperties::builder()
        .set_compression(written.codec)
        .set_writer_version(version)
        .set_statistics_enabled(statistics)
        .set_data_page_row_count_limit(written.page_rows)
        .set_write_batch_size(written.page_rows.clamp(1, 1024))
        .set_max_row_group_row_count(Some(written.group_rows))
        .set_dictionary_page_size_limit(written.dictionary_bytes);
    if let Some(encoding) = written.encoding {
        for path in leaves(batch.schema().fields(), &[]) {
            let serves = path.last().is_some_and(|name| serves(encoding, name));
            let column = ColumnPath::from(path);
            properties = properties.set_column_dictionary_enabled(column.clone(), false);
            if serves {
                properties = properties.set_column_encoding(column, encoding);
            }
        }
    }
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}
