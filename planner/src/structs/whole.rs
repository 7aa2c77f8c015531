//! The function that puts structs together of their fields, as rows leave the device.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(StructOf::new())));

/// Its name in plans.
const NAME: &str = "warpline_struct";

/// `warpline_struct(type, fields…, present)`: structs of the type that the first argument has, whose value does not count, with
/// these fields; NULL where `present` is false. Without `present` none is NULL.
pub(crate) fn struct_of() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StructOf {
    signature: Signature,
}

impl StructOf {
    fn new() -> Self {
        Self {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

/// The fields of the type, and whether there is an argument more than those.
fn fields_of(data_type: &DataType, arguments: usize) -> Result<(&Fields, bool)> {
    match data_type {
        DataType::Struct(fields) if arguments == fields.len() + 1 => Ok((fields, false)),
        DataType::Struct(fields) if arguments == fields.len() + 2 => Ok((fields, true)),
        other => exec_err!("{NAME} takes the fields of {other}, not {arguments} arguments"),
    }
}

impl ScalarUDFImpl for StructOf {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [first, ..] => Ok(first.clone()),
            [] => exec_err!("{NAME} takes a type and fields"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let [first, ..] = arguments.arg_fields else {
            return exec_err!("{NAME} takes a type and fields");
        };
        let (_, nullable) = fields_of(first.data_type(), arguments.arg_fields.len())?;
        Ok(Arc::new(first.as_ref().clone().with_nullable(nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let Some((first, rest)) = arguments.args.split_first() else {
            return exec_err!("{NAME} takes a type and fields");
        };
        let data_type = first.data_type();
        let (fields, nullable) = fields_of(&data_type, arguments.args.len())?;
        let arrays = rest.iter().map(|argument| argument.to_array(rows));
        let mut arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let present = match nullable {
            true => arrays.pop(),
            false => None,
        };
        let nulls = match &present {
            None => None,
            Some(present) => match present.as_boolean_opt() {
                Some(present) => Some(NullBuffer::new(present.values().clone())),
                None => return exec_err!("{NAME} takes a BOOLEAN, not {}", present.data_type()),
            },
        };
        let structs = match fields.is_empty() {
            true => StructArray::new_empty_fields(rows, nulls),
            false => StructArray::try_new(fields.clone(), arrays, nulls)?,
        };
        Ok(ColumnarValue::Array(Arc::new(structs)))
    }
}
