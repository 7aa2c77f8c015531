//! Arrow's C device interface: arrays with the device that they lie on.
//!
//! Rows leave a fragment as arrays of the host, so the device is the CPU, and there is no event to wait for.

use std::ffi::c_void;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::raised_by_plan;

/// `ARROW_DEVICE_CPU`.
const CPU: i32 = 1;
/// The number of a device of which there is one.
const NO_NUMBER: i64 = -1;

/// `ArrowDeviceArray`.
#[repr(C)]
struct DeviceArray {
    array: FFI_ArrowArray,
    device: i64,
    kind: i32,
    /// None for the CPU.
    sync_event: Option<unsafe extern "C" fn(*mut c_void)>,
    reserved: [i64; 3],
}

type Capsules<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// The capsules of an array.
///
/// # Errors
/// When the type has no form in Arrow's C interface.
pub(crate) fn of_array<'py>(
    py: Python<'py>,
    field: &Field,
    array: &ArrayRef,
) -> PyResult<Capsules<'py>> {
    let schema = FFI_ArrowSchema::try_from(field);
    let schema = schema.map_err(|error| raised_by_plan(py, error.into()))?;
    let array = DeviceArray {
        array: FFI_ArrowArray::new(&array.to_data()),
        device: NO_NUMBER,
        kind: CPU,
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
