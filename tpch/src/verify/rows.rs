//! Comparable rows: exact columns as bytes, float columns as numbers.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};

use super::FLOAT_TOLERANCE;

/// Largest group of rows with the same exact columns whose float columns are paired by search.
///
/// Sorted floats pair up at once unless several float columns carry rounding differences, which TPC-H does not have;
/// the search is quadratic, so it is bounded.
const LARGEST_SEARCHED_GROUP: usize = 4096;

/// The rows of an answer, ready to be paired with those of another.
pub(super) struct ComparableRows {
    /// Exact columns; `None` when there are none.
    exact: Option<Rows>,
    /// Float columns widened to 64 bits; a null is `None`.
    floats: Vec<Vec<Option<f64>>>,
    /// Row numbers, sorted by the exact columns and then by the floats.
    sorted: Vec<usize>,
}

impl ComparableRows {
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, ArrowError> {
        let mut exact_columns: Vec<ArrayRef> = Vec::new();
        let mut floats = Vec::new();
        for column in batch.columns() {
            if column.data_type().is_floating() {
                floats.push(widened(column)?);
            } else {
                exact_columns.push(plain(column)?);
            }
        }
        let exact = if exact_columns.is_empty() {
            None
        } else {
            let fields = exact_columns
                .iter()
                .map(|column| SortField::new(column.data_type().clone()))
                .collect();
            Some(RowConverter::new(fields)?.convert_columns(&exact_columns)?)
        };
        let mut rows = Self {
            exact,
            floats,
            sorted: (0..batch.num_rows()).collect(),
        };
        let mut sorted = std::mem::take(&mut rows.sorted);
        sorted.sort_by(|&a, &b| {
            rows.exact_order(a, &rows, b)
                .then_with(|| rows.float_order(a, &rows, b))
        });
        rows.sorted = sorted;
        Ok(rows)
    }

    fn exact_order(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.row(row).cmp(&b.row(other_row)),
            _ => Ordering::Equal,
        }
    }

    fn float_order(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        let pairs = self.floats.iter().zip(&other.floats);
        pairs
            .map(|(a, b)| total_order(a[row], b[other_row]))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn floats_close(&self, row: usize, other: &Self, other_row: usize) -> bool {
        self.floats
            .iter()
            .zip(&other.floats)
            .all(|(a, b)| cells_close(a[row], b[other_row]))
    }
}

/// Pairs the rows of two answers of equal length; the first pair that cannot be made, as row numbers of both.
pub(super) fn first_unpaired(
    expected: &ComparableRows,
    found: &ComparableRows,
) -> Option<(usize, usize)> {
    let length = expected.sorted.len();
    let mut start = 0;
    while start < length {
        // The group of rows whose exact columns equal those of the first one, on the expected side.
        let first = expected.sorted[start];
        let in_group = |&&row: &&usize| expected.exact_order(first, expected, row).is_eq();
        let end = start + expected.sorted[start..].iter().take_while(in_group).count();
        let (left, right) = (&expected.sorted[start..end], &found.sorted[start..end]);
        let mismatch = left
            .iter()
            .zip(right)
            .find(|&(&a, &b)| expected.exact_order(a, found, b).is_ne());
        if let Some((&a, &b)) = mismatch {
            return Some((a, b));
        }
        if let Some(pair) = first_unpaired_floats(expected, found, left, right) {
            return Some(pair);
        }
        start = end;
    }
    None
}

/// Within a group of rows with equal exact columns: pairs them by their floats.
fn first_unpaired_floats(
    expected: &ComparableRows,
    found: &ComparableRows,
    left: &[usize],
    right: &[usize],
) -> Option<(usize, usize)> {
    let in_order = left
        .iter()
        .zip(right)
        .find(|&(&a, &b)| !expected.floats_close(a, found, b));
    let (&first_left, &first_right) = in_order?;
    if left.len() > LARGEST_SEARCHED_GROUP {
        return Some((first_left, first_right));
    }
    // Rounding differences in one float column may sort rows differently that a second column tells apart.
    let mut free: Vec<usize> = right.to_vec();
    for &row in left {
        match free
            .iter()
            .position(|&candidate| expected.floats_close(row, found, candidate))
        {
            Some(position) => {
                free.remove(position);
            }
            None => return Some((row, *free.first().unwrap_or(&first_right))),
        }
    }
    None
}

/// Null first, then numbers, NaN last; all NaN are one value, and so are the two zeros.
fn total_order(a: Option<f64>, b: Option<f64>) -> Ordering {
    let canonical = |value: f64| {
        if value.is_nan() {
            f64::NAN
        } else {
            value + 0.0
        }
    };
    match (a, b) {
        (Some(a), Some(b)) => canonical(a).total_cmp(&canonical(b)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Whether two float cells count as equal.
pub(super) fn cells_close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            // Infinities equal only themselves: their differences would be within any tolerance.
            let largest = a.abs().max(b.abs());
            a == b
                || (a.is_nan() && b.is_nan())
                || (largest.is_finite() && (a - b).abs() <= FLOAT_TOLERANCE * largest)
        }
        _ => false,
    }
}

/// A cell of a float column: outer `None` when the column cannot be widened, inner `None` for null.
pub(super) fn float_cell(column: &ArrayRef, row: usize) -> Option<Option<f64>> {
    widened(&column.slice(row, 1)).ok()?.first().copied()
}

fn widened(column: &ArrayRef) -> Result<Vec<Option<f64>>, ArrowError> {
    let wide = cast(column, &DataType::Float64)?;
    Ok(wide.as_primitive::<Float64Type>().iter().collect())
}

/// A column without dictionary encoding, in which equal values may have different codes.
fn plain(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        // Rows of type Null have no bytes of their own; any constant stands for them.
        DataType::Null => Ok(std::sync::Arc::new(UInt32Array::from(vec![
            0;
            column.len()
        ]))),
        _ => Ok(std::sync::Arc::clone(column)),
    }
}
