//! DataFusion's own evaluation of an expression over values, each of which is a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;

use crate::column::{as_logical, map};
use crate::error::{GpuError, Result};

/// Strings that one thread evaluates at a time.
const EVALUATED: usize = 1 << 18;

/// The expression, with strings of `data_type` as its column 0, over each of `values`, then over NULL; many in parts, on all cores.
///
/// # Errors
/// [`GpuError::Unsupported`] where it fails for one of them.
pub fn evaluate_strings(
    function: &Arc<dyn PhysicalExpr>,
    values: &ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let start = Instant::now();
    let parts = (0..values.len()).step_by(EVALUATED);
    let parts = parts.map(|start| values.slice(start, EVALUATED.min(values.len() - start)));
    let parts = parts.chain([one_null(data_type)?]);
    let results = map(parts.collect(), |part| {
        evaluate_part(function, part, data_type)
    })?;
    let results = results.into_iter().collect::<Result<Vec<_>>>()?;
    let results: Vec<&dyn Array> = results.iter().map(|part| &**part).collect();
    let results = concat(&results)?;
    log::debug!(
        "{function} of {} strings took {:.0?}",
        values.len(),
        start.elapsed()
    );
    Ok(results)
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
    let schema = Schema::new(vec![Field::new("value", data_type.clone(), true)]);
    evaluate_batch(
        function,
        &RecordBatch::try_new(Arc::new(schema), vec![input])?,
    )
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
