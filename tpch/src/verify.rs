//! Compares the answer of an engine with the reference answer to the same query.
//!
//! SQL fixes the order of rows only as far as `ORDER BY` does, so two right answers may differ in the order of ties.
//! Hence two checks that together say what SQL says: the answers are equal as multisets of rows, and the engine's
//! answer is sorted by the query's sort keys. Under `LIMIT` the rows that tie with the last one may differ too; they
//! are compared by their sort keys.
//!
//! Types and column names must be the same. All values must be the same, but floats, for which 1e-9 relative is
//! allowed, as sums may be made in another order. NaN equals NaN, and zero equals negative zero.

mod hidden;
mod order;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

pub use hidden::Candidates;
pub use order::{Ordering, SortKey, ordering_of};
use rows::ComparableRows;

/// Relative difference up to which two floats count as equal.
pub const FLOAT_TOLERANCE: f64 = 1e-9;

/// An answer as one batch.
#[derive(Debug, Clone)]
pub struct Answer(RecordBatch);

impl Answer {
    /// Joins the batches of an answer; `schema` also says what an empty answer would have held.
    ///
    /// # Errors
    /// When the batches do not have the types of `schema`, or together exceed 2^31 bytes in a 32-bit string column.
    pub fn new(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        concat_batches(schema, batches).map(Self)
    }

    /// The rows as one batch.
    pub fn batch(&self) -> &RecordBatch {
        &self.0
    }

    /// Have two rows the same keys, in an answer in their order? Which of them comes first is nobody's promise.
    ///
    /// # Errors
    /// When values of a key cannot be compared.
    pub fn has_ties(&self, keys: &[SortKey]) -> Result<bool, ArrowError> {
        order::has_ties(&self.0, keys)
    }

    /// One row as text, `name=value` for each column.
    fn row_text(&self, row: usize) -> String {
        let fields = self.0.schema_ref().fields().iter().zip(self.0.columns());
        let cells =
            fields.map(|(field, column)| format!("{}={}", field.name(), cell_text(column, row)));
        format!("({})", cells.collect::<Vec<_>>().join(", "))
    }
}

fn cell_text(column: &dyn arrow::array::Array, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    ArrayFormatter::try_new(column, &options)
        .and_then(|formatter| formatter.value(row).try_to_string())
        .unwrap_or_else(|error| format!("<{error}>"))
}

/// The first difference found between two answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Column names or types differ.
    Schema {
        /// The column's position, from 1.
        column: usize,
        /// Name and type in the reference, or "nothing".
        expected: String,
        /// Name and type in the answer, or "nothing".
        found: String,
    },
    /// The numbers of rows differ.
    RowCount {
        /// Rows of the reference.
        expected: usize,
        /// Rows of the answer.
        found: usize,
    },
    /// A row differs from the one it pairs with.
    Row {
        /// The row of the reference, from 1.
        row: usize,
        /// The first column that differs.
        column: String,
        /// The row of the reference.
        expected: String,
        /// The nearest row of the answer.
        found: String,
    },
    /// The answer is not in the order that the query asks for.
    Order {
        /// The first row, from 1, that should come before the one above it.
        row: usize,
        /// The row above.
        above: String,
        /// The row itself.
        found: String,
    },
    /// The answers could not be compared.
    Failed(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema {
                column,
                expected,
                found,
            } => {
                write!(f, "column {column}: expected {expected}, found {found}")
            }
            Self::RowCount { expected, found } => {
                write!(f, "expected {expected} rows, found {found}")
            }
            Self::Row {
                row,
                column,
                expected,
                found,
            } => {
                write!(
                    f,
                    "row {row} differs first in '{column}': expected {expected}, found {found}"
                )
            }
            Self::Order { row, above, found } => {
                write!(f, "row {row} is out of order: {found} comes after {above}")
            }
            Self::Failed(reason) => write!(f, "the answers cannot be compared: {reason}"),
        }
    }
}

/// Compares an answer with the reference under the ordering that the query asks for; `None` means they agree.
///
/// A limit without an order takes any rows: then only their number is compared. An order that the reference itself does not keep is not
/// asked of the answer: DataFusion 55 takes the sides of `a FULL JOIN b ON a.x = b.y` for equal, and orders by either.
pub fn compare(expected: &Answer, found: &Answer, ordering: &Ordering) -> Option<Difference> {
    compare_schemas(expected, found)
        .or_else(|| {
            let (expected, found) = (expected.0.num_rows(), found.0.num_rows());
            (expected != found).then_some(Difference::RowCount { expected, found })
        })
        .or_else(|| {
            compare_values(expected, found, ordering)
                .unwrap_or_else(|error| Some(Difference::Failed(error.to_string())))
        })
}

fn compare_schemas(expected: &Answer, found: &Answer) -> Option<Difference> {
    let (expected, found) = (
        expected.0.schema_ref().fields(),
        found.0.schema_ref().fields(),
    );
    (0..expected.len().max(found.len())).find_map(|index| {
        let describe = |fields: &arrow::datatypes::Fields| {
            fields.get(index).map_or_else(
                || "nothing".to_string(),
                |f| format!("'{}' {}", f.name(), f.data_type()),
            )
        };
        let (expected, found) = (describe(expected), describe(found));
        (expected != found).then_some(Difference::Schema {
            column: index + 1,
            expected,
            found,
        })
    })
}

fn compare_values(
    expected: &Answer,
    found: &Answer,
    ordering: &Ordering,
) -> Result<Option<Difference>, ArrowError> {
    if expected.0.num_rows() == 0 {
        return Ok(None);
    }
    let in_order = order::first_unsorted(&expected.0, &ordering.keys)?.is_none();
    if in_order && let Some(row) = order::first_unsorted(&found.0, &ordering.keys)? {
        return Ok(Some(Difference::Order {
            row: row + 1,
            above: found.row_text(row - 1),
            found: found.row_text(row),
        }));
    }
    let Some(difference) = compare_multisets(expected, found, None)? else {
        return Ok(None);
    };
    let unordered = !ordering.sorted && ordering.keys.is_empty();
    if unordered && ordering.limit == Some(expected.0.num_rows()) {
        return Ok(None);
    }
    // Under LIMIT, rows that tie with the last one are interchangeable: compare only their keys.
    let cut = ordering.limit == Some(expected.0.num_rows()) && !ordering.keys.is_empty();
    if cut {
        let kept = order::rows_before_last_tie(&expected.0, &ordering.keys)?;
        let head = |answer: &Answer| Answer(answer.0.slice(0, kept));
        let tail = |answer: &Answer| Answer(answer.0.slice(kept, answer.0.num_rows() - kept));
        let key_columns: Vec<usize> = ordering.keys.iter().map(|key| key.column).collect();
        if compare_multisets(&head(expected), &head(found), None)?.is_none()
            && compare_multisets(&tail(expected), &tail(found), Some(&key_columns))?.is_none()
        {
            return Ok(None);
        }
    }
    Ok(Some(difference))
}

/// Compares two answers of equal schema and length as multisets of rows, by all columns or by some.
fn compare_multisets(
    expected: &Answer,
    found: &Answer,
    columns: Option<&[usize]>,
) -> Result<Option<Difference>, ArrowError> {
    let project = |answer: &Answer| match columns {
        Some(columns) => answer.0.project(columns),
        None => Ok(answer.0.clone()),
    };
    let (left, right) = (
        ComparableRows::new(&project(expected)?)?,
        ComparableRows::new(&project(found)?)?,
    );
    let Some((expected_row, found_row)) = rows::first_unpaired(&left, &right) else {
        return Ok(None);
    };
    let schema = expected.0.schema();
    let differing = (0..schema.fields().len())
        .find(|&column| !cells_equal(expected, expected_row, found, found_row, column));
    Ok(Some(Difference::Row {
        row: expected_row + 1,
        column: differing.map_or_else(
            || "how often it occurs".to_string(),
            |column| schema.field(column).name().clone(),
        ),
        expected: expected.row_text(expected_row),
        found: found.row_text(found_row),
    }))
}

fn cells_equal(
    expected: &Answer,
    expected_row: usize,
    found: &Answer,
    found_row: usize,
    column: usize,
) -> bool {
    let (left, right) = (expected.0.column(column), found.0.column(column));
    if matches!(
        left.data_type(),
        DataType::Float16 | DataType::Float32 | DataType::Float64
    ) {
        return rows::float_cell(left, expected_row)
            .zip(rows::float_cell(right, found_row))
            .is_some_and(|(left, right)| rows::cells_close(left, right));
    }
    cell_text(left, expected_row) == cell_text(right, found_row)
}
