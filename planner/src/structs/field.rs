//! The function that takes a field out of structs, NULL where its struct is.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::{
    ColumnarValue, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use warpline_gpu::tables::take_field;

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(FieldOf::new())));

/// Its name in plans.
const NAME: &str = "warpline_field";

/// `warpline_field(struct, name…)`: as `get_field`, of a field that is never NULL within its struct; NULL where the next struct
/// around it is that may be.
pub(crate) fn field_of() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

/// Does the function take a field out of structs?
pub(crate) fn reads_field(function: &ScalarUDF) -> bool {
    function.inner().is::<GetFieldFunc>() || function.inner().is::<FieldOf>()
}

/// How many names lead to the next struct that may be NULL around a field that may not; `None` where there is none, and where
/// the names lead to no field.
pub(crate) fn around<'n>(
    data_type: &DataType,
    nullable: bool,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<usize> {
    let mut around = nullable.then_some(0);
    let mut data_type = data_type;
    let mut depth = 0;
    for name in names {
        let DataType::Struct(fields) = data_type else {
            return None;
        };
        let (_, field) = fields.find(name)?;
        depth += 1;
        if field.is_nullable() {
            around = Some(depth);
        }
        data_type = field.data_type();
    }
    around.filter(|around| *around < depth)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FieldOf {
    signature: Signature,
}

impl FieldOf {
    fn new() -> Self {
        Self {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

/// The field of structs that these names lead to, and their places.
fn found<'n>(
    structs: &FieldRef,
    names: impl Iterator<Item = Option<&'n str>>,
) -> Result<(FieldRef, Vec<usize>)> {
    let mut field = Arc::clone(structs);
    let mut places = Vec::new();
    for name in names {
        let within = match (field.data_type(), name) {
            (DataType::Struct(fields), Some(name)) => {
                fields.find(name).map(|(at, field)| (at, Arc::clone(field)))
            }
            _ => None,
        };
        let Some((at, within)) = within else {
            return exec_err!("{NAME} finds no {name:?} in {}", field.data_type());
        };
        places.push(at);
        field = within;
    }
    Ok((field, places))
}

fn text(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

impl ScalarUDFImpl for FieldOf {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        exec_err!("{NAME} takes structs and the names of fields, not {arguments:?}")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let ([structs, ..], [_, names @ ..]) = (arguments.arg_fields, arguments.scalar_arguments)
        else {
            return exec_err!("{NAME} takes structs and the names of fields");
        };
        let (field, _) = found(structs, names.iter().map(|name| name.and_then(text)))?;
        Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ([structs, names @ ..], [described, ..]) =
            (&arguments.args[..], &arguments.arg_fields[..])
        else {
            return exec_err!("{NAME} takes structs and the names of fields");
        };
        let names = names.iter().map(|name| match name {
            ColumnarValue::Scalar(name) => text(name),
            ColumnarValue::Array(_) => None,
        });
        let names: Vec<Option<&str>> = names.collect();
        let (_, places) = found(described, names.iter().copied())?;
        let around = around(
            described.data_type(),
            described.is_nullable(),
            names.into_iter().flatten(),
        );
        let array = structs.to_array(arguments.number_rows)?;
        Ok(ColumnarValue::Array(take_field(&array, &places, around)?))
    }

    /// As DataFusion's own: towards the scans.
    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        use ExpressionPlacement::{Column, KeepInPlace, Literal, MoveTowardsLeafNodes};
        match arguments {
            [Column | MoveTowardsLeafNodes, names @ ..]
                if names.iter().all(|name| *name == Literal) =>
            {
                MoveTowardsLeafNodes
            }
            _ => KeepInPlace,
        }
    }
}
