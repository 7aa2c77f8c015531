//! The window function that finds the latest row with a value.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};

static FUNCTION: LazyLock<Arc<WindowUDF>> =
    LazyLock::new(|| Arc::new(WindowUDF::from(LastKnown::new())));

/// Its name in plans.
pub const NAME: &str = "warpline_last_known";

/// `warpline_last_known(value)` over all rows up to this one: the last value that is not NULL. It is `last_value(value) IGNORE NULLS`,
/// for which DataFusion goes back to the first row of the partition from each one.
pub fn last_known() -> Arc<WindowUDF> {
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LastKnown {
    signature: Signature,
}

impl LastKnown {
    fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl WindowUDFImpl for LastKnown {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        _arguments: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        let value = arguments
            .get_input_field(0)
            .ok_or_else(|| exec_datafusion_err!("{NAME} takes a value"))?;
        let data_type = value.data_type().clone();
        Ok(Arc::new(Field::new(arguments.name(), data_type, true)))
    }
}

#[derive(Debug)]
struct Evaluator;

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let value = values
            .first()
            .ok_or_else(|| exec_datafusion_err!("{NAME} takes a value"))?;
        let mut known = None;
        let latest: UInt64Array = (0..rows)
            .map(|row| {
                if value.is_valid(row) {
                    known = Some(row as u64);
                }
                known
            })
            .collect();
        Ok(take(value, &latest, None)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn it_is_the_last_value_that_is_not_null() {
        let context = SessionContext::new();
        context.register_udwf(last_known().as_ref().clone());
        let create = "CREATE TABLE t AS SELECT value AS id, value % 3 AS k, CASE WHEN value % 4 = 0 THEN 'v' || value END AS v \
                      FROM generate_series(1, 40)";
        answer(&context, create).await;
        let sql = |call: &str| {
            format!(
                "SELECT id, {call} OVER (PARTITION BY k ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS x FROM t ORDER BY id"
            )
        };
        let found = answer(&context, &sql("warpline_last_known(v)")).await;
        let expected = answer(&context, &sql("last_value(v) IGNORE NULLS")).await;
        assert_eq!(found, expected);
    }
}
