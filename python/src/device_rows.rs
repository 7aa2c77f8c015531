//! Rows that stay on a device, for other packages there.

use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::datatypes::{DataType, FieldRef};
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString};
use pyo3_arrow::PyTable;
use pyo3_arrow::ffi::to_schema_pycapsule;
use warpline::{DeviceBatch, RowsOnDevice};

use crate::device_array::{self, Place};
use crate::dlpack::{self, TensorDevice};
use crate::error::raised_by_plan;

/// The rows of a query in the memory of a device.
#[pyclass(frozen, module = "warpline", name = "DeviceResult")]
pub(crate) struct DeviceRows(Arc<RowsOnDevice>);

impl DeviceRows {
    pub(crate) fn new(rows: RowsOnDevice) -> Self {
        Self(Arc::new(rows))
    }

    fn number(&self, column: &Bound<'_, PyAny>) -> PyResult<usize> {
        let fields = self.0.batch.schema().fields();
        if let Ok(name) = column.cast::<PyString>() {
            let name = name.to_str()?;
            let found = fields.iter().position(|field| field.name() == name);
            return found.ok_or_else(|| {
                let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
                PyKeyError::new_err(format!(
                    "there is no column '{name}': the columns are {}",
                    names.join(", ")
                ))
            });
        }
        let number: isize = column.extract()?;
        let at = match number < 0 {
            true => fields.len().checked_sub(number.unsigned_abs()),
            false => usize::try_from(number).ok(),
        };
        at.filter(|at| *at < fields.len()).ok_or_else(|| {
            PyIndexError::new_err(format!(
                "there is no column {number}: there are {}",
                fields.len()
            ))
        })
    }
}

/// Where arrays of a batch lie, in Arrow's words.
fn place(batch: &DeviceBatch) -> Place {
    batch.ordinal().map_or(Place::CPU, Place::cuda)
}

#[pymethods]
impl DeviceRows {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.0.batch.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The device's kind and number, as DLPack has them: (2, 0) is the first GPU.
    #[getter]
    fn device(&self) -> (i32, i32) {
        TensorDevice::of(self.0.batch.ordinal()).pair()
    }

    /// Why the rows came by way of the host; None where they lie where the last kernel wrote them.
    #[getter]
    fn by_host(&self) -> Option<&str> {
        self.0.by_host.as_deref()
    }

    fn __len__(&self) -> usize {
        self.0.batch.rows()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let batch = &self.0.batch;
        let fields = batch.schema().fields().iter();
        let columns: Vec<String> = fields
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect();
        format!(
            "<warpline.DeviceResult of {} rows on {}: {}>",
            batch.rows(),
            on(batch),
            columns.join(", ")
        )
    }

    /// A column by name or position.
    fn __getitem__(&self, column: &Bound<'_, PyAny>) -> PyResult<DeviceColumn> {
        let number = self.number(column)?;
        Ok(DeviceColumn {
            rows: Arc::clone(&self.0),
            number,
        })
    }

    /// The schema of the arrays: strings lie as offsets and bytes.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.0.batch.schema().as_ref())?)
    }

    /// All rows as one struct array of Arrow's C device interface.
    #[pyo3(signature = (requested_schema=None, **_more))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        _more: Option<Bound<'py, PyAny>>,
    ) -> PyResult<device_array::Capsules<'py>> {
        // A wish, which need not be met.
        drop(requested_schema);
        let batch = &self.0.batch;
        // SAFETY: the addresses are passed on.
        let data = unsafe { batch.as_struct() };
        device_array::of_data(py, &batch.struct_field(), &data, place(batch))
    }

    /// The rows as `pyarrow.Table`, copied to the host.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let batch = &self.0.batch;
        let copied = py.detach(|| batch.download());
        let copied = copied.map_err(|error| raised_by_plan(py, error.into()))?;
        let schema = copied.schema();
        PyTable::try_new(vec![copied], schema)?.into_pyarrow(py)
    }
}

fn on(batch: &DeviceBatch) -> String {
    batch
        .ordinal()
        .map_or_else(|| "the emulator".into(), |number| format!("cuda:{number}"))
}

/// A column of rows that stay on a device.
#[pyclass(frozen, module = "warpline")]
pub(crate) struct DeviceColumn {
    rows: Arc<RowsOnDevice>,
    number: usize,
}

impl DeviceColumn {
    fn field(&self) -> &FieldRef {
        &self.rows.batch.schema().fields()[self.number]
    }

    /// The column as Arrow data that is passed on and not read.
    fn data(&self) -> PyResult<ArrayData> {
        // SAFETY: callers pass its addresses on.
        let data = unsafe { self.rows.batch.column(self.number) };
        data.cloned()
            .ok_or_else(|| PyIndexError::new_err("there is no such column"))
    }
}

#[pymethods]
impl DeviceColumn {
    /// The column's name.
    #[getter]
    fn name(&self) -> &str {
        self.field().name()
    }

    /// The type of its values, in Arrow's words.
    #[getter]
    fn r#type(&self) -> String {
        self.field().data_type().to_string()
    }

    /// How many values are NULL.
    #[getter]
    fn null_count(&self) -> PyResult<usize> {
        Ok(match self.field().data_type() {
            DataType::Null => self.rows.batch.rows(),
            _ => self.data()?.null_count(),
        })
    }

    fn __len__(&self) -> usize {
        self.rows.batch.rows()
    }

    fn __repr__(&self) -> String {
        let field = self.field();
        format!(
            "<warpline.DeviceColumn {} {}, {} rows on {}>",
            field.name(),
            field.data_type(),
            self.rows.batch.rows(),
            on(&self.rows.batch)
        )
    }

    /// Arrow's C device array.
    #[pyo3(signature = (requested_schema=None, **_more))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        _more: Option<Bound<'py, PyAny>>,
    ) -> PyResult<device_array::Capsules<'py>> {
        drop(requested_schema);
        let data = self.data()?;
        device_array::of_data(py, self.field(), &data, place(&self.rows.batch))
    }

    /// The device of DLPack.
    fn __dlpack_device__(&self) -> (i32, i32) {
        TensorDevice::of(self.rows.batch.ordinal()).pair()
    }

    /// The values as a tensor of one dimension, without a copy: integers and floats without NULL. All work on them has ended, so
    /// there is no stream to wait for.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(stream);
        let asked = dlpack::Asked {
            max_version,
            device: dl_device,
            copy,
        };
        let batch = &self.rows.batch;
        // The memory is this result's alone, and may be written to.
        let place = format!("on {}", on(batch));
        let place = (TensorDevice::of(batch.ordinal()), place.as_str(), false);
        dlpack::capsule(py, self.field(), self.data()?, place, asked)
    }

    /// Version 3 of the CUDA array interface, for CuPy, Numba and PyTorch: integers and floats without NULL, on a GPU.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.rows.batch.ordinal().is_none() {
            return Err(PyAttributeError::new_err(
                "the values are not in the memory of a GPU: __dlpack__ hands them out",
            ));
        }
        let data = self.data()?;
        let kind = dlpack::numbers(self.field(), &data).map_err(PyAttributeError::new_err)?;
        let known = PyDict::new(py);
        known.set_item("shape", (data.len(),))?;
        known.set_item("typestr", kind.typestr())?;
        known.set_item("data", (dlpack::address(&data, kind), false))?;
        known.set_item("version", 3)?;
        known.set_item("strides", py.None())?;
        // Nothing to wait for.
        known.set_item("stream", py.None())?;
        // The memory lives as long as this column, which the consumer keeps.
        Ok(known)
    }
}
