//! One column of a result, for other packages.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::PyArray;
use pyo3_arrow::ffi::to_array_pycapsules;

use crate::error::raised_by_plan;
use crate::{device_array, dlpack};

/// The values of a column of a result.
#[pyclass(frozen, module = "warpline")]
pub(crate) struct Column {
    field: FieldRef,
    array: ArrayRef,
}

impl Column {
    /// The column of these batches, in one piece.
    ///
    /// # Errors
    /// When it is too long for one piece.
    pub(crate) fn of(
        py: Python<'_>,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        number: usize,
    ) -> PyResult<Self> {
        let field = Arc::clone(&schema.fields()[number]);
        let parts: Vec<&dyn Array> = batches
            .iter()
            .map(|batch| batch.column(number).as_ref())
            .collect();
        let array = match parts.as_slice() {
            [] => Ok(new_empty_array(field.data_type())),
            [_] => Ok(Arc::clone(batches[0].column(number))),
            parts => py.detach(|| concat(parts)),
        };
        let array = array.map_err(|error| raised_by_plan(py, error.into()))?;
        Ok(Self { field, array })
    }
}

/// An array as `pyarrow.Array`, without a copy.
pub(crate) fn of_pyarrow(py: Python<'_>, array: PyArray) -> PyResult<Bound<'_, PyAny>> {
    py.import("pyarrow")?.getattr("array")?.call1((array,))
}

#[pymethods]
impl Column {
    /// The column's name.
    #[getter]
    fn name(&self) -> &str {
        self.field.name()
    }

    /// The type of its values, in Arrow's words.
    #[getter]
    fn r#type(&self) -> String {
        self.field.data_type().to_string()
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __repr__(&self) -> String {
        format!(
            "<warpline.Column {} {}, {} rows>",
            self.field.name(),
            self.field.data_type(),
            self.array.len()
        )
    }

    /// Arrow's C array.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = Arc::clone(&self.field);
        Ok(to_array_pycapsules(
            py,
            field,
            self.array.as_ref(),
            requested_schema,
        )?)
    }

    /// Arrow's C device array: in the memory of the host.
    #[pyo3(signature = (requested_schema=None, **_more))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        _more: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A wish, which need not be met.
        drop(requested_schema);
        device_array::of_array(py, &self.field, &self.array)
    }

    /// The values as `pyarrow.Array`.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        of_pyarrow(
            py,
            PyArray::new(Arc::clone(&self.array), Arc::clone(&self.field)),
        )
    }

    /// The device of DLPack: the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU.pair()
    }

    /// The values as a tensor of one dimension, without a copy, for `numpy.from_dlpack`, `torch.from_dlpack` and others: integers
    /// and floats without NULL.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // There is nothing to wait for in the memory of the host.
        drop(stream);
        let asked = dlpack::Asked {
            max_version,
            device: dl_device,
            copy,
        };
        // Arrow's arrays are shared.
        let place = (dlpack::CPU, "in the memory of the host", true);
        dlpack::capsule(py, &self.field, self.array.to_data(), place, asked)
    }
}
