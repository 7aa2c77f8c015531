//! Arrow's C device interface: arrays with the device that they lie on.
//!
//! All work on the arrays has ended when they are handed out, so there is no event to wait for.

use std::ffi::c_void;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, StructArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::raised_by_plan;

/// Where an array lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// `ARROW_DEVICE_…`.
    kind: i32,
    number: i64,
}

impl Place {
    /// The memory of the host, of which there is one.
    pub(crate) const CPU: Self = Self {
        kind: 1,
        number: -1,
    };

    /// The memory of a GPU.
    pub(crate) fn cuda(number: u32) -> Self {
        Self {
            kind: 2,
            number: number.into(),
        }
    }
}

/// `ArrowDeviceArray`.
#[repr(C)]
struct DeviceArray {
    array: FFI_ArrowArray,
    device: i64,
    kind: i32,
    /// None: nothing is to be waited for.
    sync_event: Option<unsafe extern "C" fn(*mut c_void)>,
    reserved: [i64; 3],
}

pub(crate) type Capsules<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// The capsules of an array.
///
/// # Errors
/// When the type has no form in Arrow's C interface.
pub(crate) fn of_array<'py>(
    py: Python<'py>,
    field: &Field,
    array: &ArrayRef,
) -> PyResult<Capsules<'py>> {
    of_data(py, field, &array.to_data(), Place::CPU)
}

/// The capsules of data that may lie on a device: its buffers are not read.
///
/// # Errors
/// As [`of_array`].
pub(crate) fn of_data<'py>(
    py: Python<'py>,
    field: &Field,
    data: &ArrayData,
    place: Place,
) -> PyResult<Capsules<'py>> {
    let schema = FFI_ArrowSchema::try_from(field);
    let schema = schema.map_err(|error| raised_by_plan(py, error.into()))?;
    let array = DeviceArray {
        array: FFI_ArrowArray::new(data),
        device: place.number,
        kind: place.kind,
        sync_event: None,
        reserved: [0; 3],
    };
    // What a consumer has not moved away is released with the capsule.
    Ok((
        PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
        PyCapsule::new_with_value(py, array, c"arrow_device_array")?,
    ))
}

/// The capsules of all rows, as one struct array.
///
/// # Errors
/// When the rows are too many for one array.
pub(crate) fn of_batches<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> PyResult<Capsules<'py>> {
    let whole = py.detach(|| match batches {
        [batch] => Ok(batch.clone()),
        batches => concat_batches(schema, batches),
    });
    let whole = whole.map_err(|error| raised_by_plan(py, error.into()))?;
    let array: ArrayRef = Arc::new(StructArray::from(whole));
    let field = Field::new("", DataType::Struct(schema.fields().clone()), false);
    of_array(py, &field.with_metadata(schema.metadata().clone()), &array)
}
