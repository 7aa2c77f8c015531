//! The function that lets the value of a subquery through where it has one row, and fails where it has more.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(OneRow::new())));

/// Its name in plans.
pub const NAME: &str = "warpline_one_row";

/// `warpline_one_row(value, rows)`: the value; an error where `rows`, a BIGINT, is more than one.
pub fn one_row() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

/// `value` of a subquery with so many `rows`.
pub(super) fn checked(value: Expr, rows: Expr) -> Expr {
    one_row().call(vec![value, rows])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl OneRow {
    fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, DataType::Int64] => Ok(value.clone()),
            _ => exec_err!("{NAME} takes a value and a number of rows, not {arguments:?}"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        match arguments.arg_fields {
            [value, rows] if *rows.data_type() == DataType::Int64 => Ok(Arc::clone(value)),
            fields => exec_err!("{NAME} takes a value and a number of rows, not {fields:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Ok([value, rows]) = <[ColumnarValue; 2]>::try_from(arguments.args) else {
            return exec_err!("{NAME} takes a value and a number of rows");
        };
        let counted = rows.into_array(1)?;
        let Some(counted) = counted.as_primitive_opt::<Int64Type>() else {
            return exec_err!("{NAME} takes a BIGINT, not {}", counted.data_type());
        };
        if counted.iter().flatten().any(|rows| rows > 1) {
            return exec_err!(
                "a subquery that stands for one value has more than one row: aggregate its rows, or add LIMIT 1"
            );
        }
        Ok(value)
    }
}
