//! Functions in Python that queries call: arrays of pyarrow in, an array out.

use std::hash::{Hash, Hasher};

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyArray;

use crate::columns::of_pyarrow;
use crate::error::PythonFailure;

/// A function of Python in SQL.
#[derive(Debug)]
pub(crate) struct PythonFunction {
    name: String,
    signature: Signature,
    returns: DataType,
    /// Called with an array an argument; returns an array, of any type that can be converted.
    call: Py<PyAny>,
}

impl PythonFunction {
    /// A function of these types; `volatility` tells whether equal arguments give equal results.
    pub(crate) fn new(
        name: String,
        arguments: Vec<DataType>,
        returns: DataType,
        volatility: Volatility,
        call: Py<PyAny>,
    ) -> Self {
        let signature = match arguments.as_slice() {
            [] => Signature::nullary(volatility),
            _ => Signature::exact(arguments, volatility),
        };
        Self {
            name,
            signature,
            returns,
            call,
        }
    }

    fn evaluate(
        &self,
        py: Python<'_>,
        arguments: Vec<ArrayRef>,
        rows: usize,
    ) -> PyResult<ArrayRef> {
        let arguments = arguments
            .into_iter()
            .map(|array| of_pyarrow(py, PyArray::from_array_ref(array)))
            .collect::<PyResult<Vec<_>>>()?;
        // Without arguments there is nothing that tells how many values are wanted.
        let result = match arguments.is_empty() {
            true => self.call.call1(py, (rows,))?,
            false => self.call.call1(py, PyTuple::new(py, arguments)?)?,
        };
        let (array, _) = result.extract::<PyArray>(py)?.into_inner();
        if array.len() != rows {
            return Err(PyTypeError::new_err(format!(
                "it returned {} values for {rows} rows",
                array.len()
            )));
        }
        Ok(array)
    }
}

impl PartialEq for PythonFunction {
    fn eq(&self, other: &Self) -> bool {
        self.call.is(&other.call) && self.name == other.name && self.signature == other.signature
    }
}

impl Eq for PythonFunction {}

impl Hash for PythonFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        (self.call.as_ptr() as usize).hash(state);
    }
}

impl ScalarUDFImpl for PythonFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = call.number_rows;
        let arguments = call
            .args
            .into_iter()
            .map(|argument| argument.into_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let failed = |cause| PythonFailure::new(format!("the function '{}'", self.name), cause);
        let evaluated = Python::try_attach(|py| self.evaluate(py, arguments, rows));
        let array = evaluated
            .ok_or_else(|| DataFusionError::Execution("the interpreter ends".into()))?
            .map_err(failed)?;
        if *array.data_type() == self.returns {
            return Ok(ColumnarValue::Array(array));
        }
        let converted = cast(&array, &self.returns).map_err(|error| {
            failed(PyTypeError::new_err(format!(
                "it returned {} where it is declared to return {}: {error}",
                array.data_type(),
                self.returns
            )))
        })?;
        Ok(ColumnarValue::Array(converted))
    }
}
