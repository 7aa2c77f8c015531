//! Functions that only the CPU runs: they are volatile, so that nobody evaluates them once per distinct value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use warpline_sql_tests::Fixture;

/// The first argument itself, of any type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Opaque(Signature);

impl ScalarUDFImpl for Opaque {
    fn name(&self) -> &str {
        "opaque"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(arguments.args.remove(0))
    }
}

fn of_numbers(
    name: &str,
    compute: impl Fn(&Int64Array) -> Result<ArrayRef> + Send + Sync + 'static,
) -> ScalarUDF {
    create_udf(
        name,
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(move |arguments: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let computed = compute(arrays[0].as_primitive::<Int64Type>())?;
            Ok(ColumnarValue::Array(computed))
        }),
    )
}

/// `opaque(x, …)` is x; `plus_one`; `refuses_7` fails at 7; `slow` takes a while a batch.
pub(super) fn register(fixture: &Fixture) {
    let session = fixture.session();
    for context in [session.context(), session.reference()] {
        context.register_udf(ScalarUDF::from(Opaque(Signature::variadic_any(
            Volatility::Volatile,
        ))));
        context.register_udf(of_numbers("plus_one", |values| {
            Ok(Arc::new(values.unary::<_, Int64Type>(|value| value + 1)))
        }));
        context.register_udf(of_numbers("refuses_7", |values| {
            match values.iter().any(|value| value == Some(7)) {
                true => Err(DataFusionError::Execution("seven is refused here".into())),
                false => Ok(Arc::new(values.clone())),
            }
        }));
        context.register_udf(of_numbers("slow", |values| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Arc::new(values.clone()))
        }));
    }
}

/// `counted(x)` is x: the rows that it is called for are counted.
pub(super) fn register_counted(fixture: &Fixture) -> Arc<AtomicU64> {
    let calls = Arc::<AtomicU64>::default();
    let session = fixture.session();
    for context in [session.context(), session.reference()] {
        let calls = Arc::clone(&calls);
        context.register_udf(of_numbers("counted", move |values| {
            calls.fetch_add(values.len() as u64, Ordering::SeqCst);
            Ok(Arc::new(values.clone()))
        }));
    }
    calls
}
