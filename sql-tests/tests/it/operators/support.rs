//! What the operator tests share: columns with nulls, and checks of many expressions at once.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray, Int32Array, PrimitiveArray};
use arrow::array::{RecordBatch, StringArray, StringViewArray};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use warpline_sql_tests::Fixture;
pub(crate) use warpline_sql_tests::Random;

/// How many rows of a column are NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    None,
    Some,
    All,
}

impl Nulls {
    pub(crate) const EACH: [Self; 3] = [Self::None, Self::Some, Self::All];

    /// Suffix of column names.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Some => "some",
            Self::All => "all",
        }
    }
}

/// `rows` values drawn from `values`; a third of them NULL for [`Nulls::Some`].
pub(crate) fn drawn<T: Copy>(values: &[T], rows: usize, nulls: Nulls, seed: u64) -> Vec<Option<T>> {
    let mut random = Random::new(seed);
    (0..rows)
        .map(|_| {
            let value = values[random.below(values.len())];
            let null = match nulls {
                Nulls::None => false,
                Nulls::Some => random.below(3) == 0,
                Nulls::All => true,
            };
            (!null).then_some(value)
        })
        .collect()
}

pub(crate) fn primitive<T: ArrowPrimitiveType>(values: Vec<Option<T::Native>>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter(values))
}

pub(crate) fn booleans(values: Vec<Option<bool>>) -> ArrayRef {
    Arc::new(BooleanArray::from(values))
}

pub(crate) fn strings(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

pub(crate) fn string_views(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringViewArray::from(values))
}

/// Row numbers from 0, to group by: each row is its own group.
pub(crate) fn row_numbers(rows: usize) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(0..rows as i32))
}

/// A parquet file of one batch.
pub(crate) fn write_parquet(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    let file = File::create(path).expect("a file");
    let mut writer =
        ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("written");
    writer.close().expect("closed");
}

/// Runs every query; fails with all that differ, not only the first.
#[track_caller]
pub(crate) fn check_all(fixture: &Fixture, queries: impl IntoIterator<Item = String>) {
    let mut failures = Vec::new();
    for sql in queries {
        if let Err(message) = fixture.compare(&sql) {
            failures.push(format!("{sql}\n{message}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} queries differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Expressions a query, so that one compilation tests many.
const EXPRESSIONS: usize = 16;

/// The value of each expression in each row of `table`, whose column `id` is unique and not negative.
///
/// The filters are always true: they keep apart calls whose names DataFusion makes equal by leaving out casts.
#[track_caller]
pub(crate) fn check_values<S: AsRef<str>>(fixture: &Fixture, table: &str, expressions: &[S]) {
    check_rows(fixture, table, expressions, |i, e| {
        format!("min({e}) FILTER (WHERE id > -{}) AS e{i}", i + 1)
    });
}

/// As [`check_values`] for decimals and integers, also those that do not fit 64 bits.
#[track_caller]
pub(crate) fn check_sums<S: AsRef<str>>(fixture: &Fixture, table: &str, expressions: &[S]) {
    check_rows(fixture, table, expressions, |i, e| {
        format!("sum({e}) FILTER (WHERE id > -{}) AS e{i}", i + 1)
    });
}

/// As [`check_values`] for conditions: whether each is true, false or NULL in each row.
#[track_caller]
pub(crate) fn check_conditions<S: AsRef<str>>(fixture: &Fixture, table: &str, conditions: &[S]) {
    // DataFusion's common subexpressions have no nullability of their own, and it then refuses its own plan when an
    // operator that never yields NULL occurs twice.
    const NEVER_NULL: [&str; 5] = [
        "DISTINCT FROM",
        "IS TRUE",
        "IS NOT TRUE",
        "IS FALSE",
        "IS UNKNOWN",
    ];
    check_rows(fixture, table, conditions, |i, e| {
        if NEVER_NULL.iter().any(|word| e.contains(word)) {
            return format!("count(*) FILTER (WHERE {e}) AS t{i}");
        }
        format!(
            "count(*) FILTER (WHERE {e}) AS t{i}, count(*) FILTER (WHERE NOT ({e})) AS f{i}, count({e}) AS k{i}"
        )
    });
}

#[track_caller]
fn check_rows<S: AsRef<str>>(
    fixture: &Fixture,
    table: &str,
    expressions: &[S],
    call: impl Fn(usize, &str) -> String,
) {
    let queries = expressions.chunks(EXPRESSIONS).map(|chunk| {
        let calls: Vec<String> = chunk
            .iter()
            .enumerate()
            .map(|(i, e)| call(i, e.as_ref()))
            .collect();
        format!("SELECT id, {} FROM {table} GROUP BY id", calls.join(", "))
    });
    check_all(fixture, queries);
}
