//! DataFusion's own evaluation of an expression over values, each of which is a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;

use crate::column::{as_logical, map};
use crate::error::{GpuError, Result};
use crate::expr::faults::function_may_fault;

/// Strings that one thread evaluates at a time.
const EVALUATED: usize = 1 << 18;

/// Strings of one thread for which an expression may fail: each is found by halving.
const MOST_FAILED: usize = 1 << 12;

/// The expression, with strings of `data_type` as its column 0, over each of `values`, then over NULL; many in parts, on all cores.
///
/// # Errors
/// [`GpuError::Unsupported`] where it fails for one of them.
pub fn evaluate_strings(
    function: &Arc<dyn PhysicalExpr>,
    values: &ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    Ok(evaluated(function, values, data_type, 0)?.0)
}

/// What [`evaluate_strings`] yields, and for which of the values, with NULL behind them, the expression fails: these have another one's result.
/// `None` where it never does.
///
/// # Errors
/// [`GpuError::Unsupported`] where it fails for too many, or is none of which [`function_may_fault`] knows that it can.
pub(crate) fn evaluate_fallible(
    function: &Arc<dyn PhysicalExpr>,
    values: &ArrayRef,
    data_type: &DataType,
) -> Result<(ArrayRef, Option<Vec<bool>>)> {
    let most_failed = match function_may_fault(function) {
        true => MOST_FAILED,
        false => 0,
    };
    let (results, fails) = evaluated(function, values, data_type, most_failed)?;
    if !fails.contains(&true) {
        return Ok((results, None));
    }
    // A NULL could be one where the expression has none.
    let stand_in = fails.iter().position(|fails| !fails).unwrap_or(0);
    let places = fails.iter().enumerate();
    let places = places.map(|(place, fails)| if *fails { stand_in } else { place } as u32);
    let results = take(&results, &UInt32Array::from_iter_values(places), None)?;
    Ok((results, Some(fails)))
}

/// The results, and which of them are missing, at most `most_failed` of a part: NULL is in their places.
fn evaluated(
    function: &Arc<dyn PhysicalExpr>,
    values: &ArrayRef,
    data_type: &DataType,
    most_failed: usize,
) -> Result<(ArrayRef, Vec<bool>)> {
    let start = Instant::now();
    let parts = (0..values.len()).step_by(EVALUATED);
    let parts = parts.map(|start| values.slice(start, EVALUATED.min(values.len() - start)));
    let parts = parts.chain([one_null(data_type)?]);
    let found = map(parts.collect(), |part| {
        let mut found = Found::default();
        found.add(function, part, data_type, most_failed)?;
        Ok(found)
    })?;
    let found: Vec<Found> = found.into_iter().collect::<Result<_>>()?;
    let results = found.iter().flat_map(|part| &part.results);
    let results: Vec<&dyn Array> = results.map(|part| &**part).collect();
    let results = concat(&results)?;
    let fails = found.into_iter().flat_map(|part| part.fails).collect();
    log::debug!(
        "{function} of {} strings took {:.0?}",
        values.len(),
        start.elapsed()
    );
    Ok((results, fails))
}

/// Results, and which values have none: their places hold NULLs.
#[derive(Default)]
struct Found {
    results: Vec<ArrayRef>,
    fails: Vec<bool>,
    failed: usize,
}

impl Found {
    /// Adds the results of a part. Where it fails as a whole its halves are tried, while fewer than `most_failed` have failed.
    fn add(
        &mut self,
        function: &Arc<dyn PhysicalExpr>,
        part: ArrayRef,
        data_type: &DataType,
        most_failed: usize,
    ) -> Result<()> {
        let rows = part.len();
        match evaluate_part(function, Arc::clone(&part), data_type) {
            Ok(results) => {
                self.results.push(results);
                self.fails.resize(self.fails.len() + rows, false);
            }
            Err(GpuError::Unsupported(_)) if self.failed < most_failed && rows > 1 => {
                let half = rows / 2;
                for (start, rows) in [(0, half), (half, rows - half)] {
                    self.add(function, part.slice(start, rows), data_type, most_failed)?;
                }
            }
            Err(GpuError::Unsupported(_)) if self.failed < most_failed => {
                let results = match function.data_type(&one_column(data_type))? {
                    DataType::Dictionary(_, value) => *value,
                    other => other,
                };
                self.results.push(new_null_array(&results, 1));
                self.fails.push(true);
                self.failed += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn one_column(data_type: &DataType) -> Schema {
    Schema::new(vec![Field::new("value", data_type.clone(), true)])
}

/// One NULL. A dictionary has a value beside it: kernels of arrow panic over one without any.
pub(crate) fn one_null(data_type: &DataType) -> Result<ArrayRef> {
    let DataType::Dictionary(_, value) = data_type else {
        return Ok(new_null_array(data_type, 1));
    };
    let both: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None]));
    let both = arrow::compute::cast(&arrow::compute::cast(&both, value)?, data_type)?;
    Ok(both.slice(1, 1))
}

fn evaluate_part(
    function: &Arc<dyn PhysicalExpr>,
    input: ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let input = as_logical(input, data_type)?;
    let schema = Arc::new(one_column(data_type));
    evaluate_batch(function, &RecordBatch::try_new(schema, vec![input])?)
}

/// The expression over the rows of a batch; strings are not in dictionaries.
pub(crate) fn evaluate_batch(
    function: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> Result<ArrayRef> {
    let rows = batch.num_rows();
    // A value that fails may belong to rows that a filter removes: the CPU knows, as it sees only the others.
    let fails = |why: &str| {
        GpuError::Unsupported(format!(
            "{function} fails for one of the column's values ({why})"
        ))
    };
    // So may a panic.
    let results = catch_unwind(AssertUnwindSafe(|| function.evaluate(batch)));
    let results = results.map_err(|_| fails("it panicked"))?;
    let results = results.map_err(|error| fails(&error.strip_backtrace()))?;
    let results = results.into_array(rows)?;
    Ok(match results.data_type() {
        // Parts of one result have one dictionary after this.
        DataType::Dictionary(_, value) => arrow::compute::cast(&results, value)?,
        _ => results,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    #[test]
    fn a_null_of_a_dictionary_has_a_value_beside_it() {
        let strings = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let null = one_null(&strings).expect("a NULL");
        assert_eq!((null.len(), null.null_count()), (1, 1));
        assert_eq!(null.as_any_dictionary().normalized_keys(), [0]);
        let plain = one_null(&DataType::Utf8View).expect("a NULL");
        assert_eq!((plain.len(), plain.null_count()), (1, 1));
    }
}
