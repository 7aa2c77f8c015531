//! One column of a result: Arrow's C array, and DLPack for numbers.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::PyArray;
use pyo3_arrow::ffi::to_array_pycapsules;

use crate::device_array;
use crate::error::raised_by_plan;

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
        (CPU.kind, CPU.number)
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
        if dl_device.is_some_and(|device| device != (CPU.kind, CPU.number)) {
            return Err(PyBufferError::new_err(
                "the values lie in the memory of the host: take them from there, and copy them to the device",
            ));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "the values are handed out without a copy: copy them there",
            ));
        }
        let kind = tensor_type(self.array.data_type()).ok_or_else(|| {
            PyBufferError::new_err(format!(
                "column '{}' is of type {}, which DLPack has not: CAST it to an integer or a float",
                self.field.name(),
                self.array.data_type()
            ))
        })?;
        if self.array.null_count() > 0 {
            return Err(PyBufferError::new_err(format!(
                "column '{}' has {} NULLs, which DLPack has not: COALESCE gives them a value",
                self.field.name(),
                self.array.null_count()
            )));
        }
        // Arrays cannot be written to; consumers of an earlier version of the protocol cannot be told.
        match max_version {
            Some((major, _)) if major >= 1 => versioned(py, &self.array, kind),
            _ => unversioned(py, &self.array, kind),
        }
    }
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TensorDevice {
    kind: i32,
    number: i32,
}

/// `kDLCPU`.
const CPU: TensorDevice = TensorDevice { kind: 1, number: 0 };

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TensorType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: TensorDevice,
    dimensions: i32,
    kind: TensorType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct VersionedTensor {
    /// Major and minor.
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut VersionedTensor)>,
    flags: u64,
    tensor: Tensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// What a tensor needs while it lives.
struct Owner {
    /// Keeps the values.
    _array: ArrayRef,
    shape: i64,
    stride: i64,
}

fn tensor_type(data_type: &DataType) -> Option<TensorType> {
    let (code, bits) = match data_type {
        DataType::Int8 => (0, 8),
        DataType::Int16 => (0, 16),
        DataType::Int32 => (0, 32),
        DataType::Int64 => (0, 64),
        DataType::UInt8 => (1, 8),
        DataType::UInt16 => (1, 16),
        DataType::UInt32 => (1, 32),
        DataType::UInt64 => (1, 64),
        DataType::Float16 => (2, 16),
        DataType::Float32 => (2, 32),
        DataType::Float64 => (2, 64),
        _ => return None,
    };
    Some(TensorType {
        code,
        bits,
        lanes: 1,
    })
}

/// The tensor of an array of numbers, and what owns it.
fn tensor(array: &ArrayRef, kind: TensorType) -> (Tensor, *mut Owner) {
    let data = array.to_data();
    let start = data.offset() * usize::from(kind.bits / 8);
    // Numbers have one buffer; an array without rows may have one without room.
    let values = data
        .buffers()
        .first()
        .map_or(std::ptr::null(), |buffer| buffer.as_ptr());
    let owner = Box::into_raw(Box::new(Owner {
        _array: Arc::clone(array),
        shape: i64::try_from(array.len()).unwrap_or(i64::MAX),
        stride: 1,
    }));
    // SAFETY: the owner was just made; its fields are only pointed to.
    let (shape, strides) = unsafe { (&raw mut (*owner).shape, &raw mut (*owner).stride) };
    let tensor = Tensor {
        data: values.wrapping_add(start).cast_mut().cast(),
        device: CPU,
        dimensions: 1,
        kind,
        shape,
        strides,
        byte_offset: 0,
    };
    (tensor, owner)
}

fn unversioned<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    kind: TensorType,
) -> PyResult<Bound<'py, PyCapsule>> {
    unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
        // SAFETY: the consumer calls this once, with what was given to it.
        unsafe {
            let tensor = Box::from_raw(tensor);
            drop(Box::from_raw(tensor.context.cast::<Owner>()));
        }
    }
    unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
        // SAFETY: a capsule that was consumed has another name.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, c"dltensor".as_ptr()) == 1 {
                delete(ffi::PyCapsule_GetPointer(capsule, c"dltensor".as_ptr()).cast());
            }
        }
    }
    let (tensor, owner) = tensor(array, kind);
    let managed = Box::new(ManagedTensor {
        tensor,
        context: owner.cast(),
        deleter: Some(delete),
    });
    let pointer = NonNull::from(Box::leak(managed)).cast();
    // SAFETY: the pointer lives until the deleter, which the destructor calls if nobody else has.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, c"dltensor", Some(unused)) }
}

fn versioned<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    kind: TensorType,
) -> PyResult<Bound<'py, PyCapsule>> {
    unsafe extern "C" fn delete(tensor: *mut VersionedTensor) {
        // SAFETY: the consumer calls this once, with what was given to it.
        unsafe {
            let tensor = Box::from_raw(tensor);
            drop(Box::from_raw(tensor.context.cast::<Owner>()));
        }
    }
    unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
        // SAFETY: a capsule that was consumed has another name.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, c"dltensor_versioned".as_ptr()) == 1 {
                delete(ffi::PyCapsule_GetPointer(capsule, c"dltensor_versioned".as_ptr()).cast());
            }
        }
    }
    let (tensor, owner) = tensor(array, kind);
    let managed = Box::new(VersionedTensor {
        version: [1, 0],
        context: owner.cast(),
        deleter: Some(delete),
        flags: READ_ONLY,
        tensor,
    });
    let pointer = NonNull::from(Box::leak(managed)).cast();
    // SAFETY: the pointer lives until the deleter, which the destructor calls if nobody else has.
    unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer, c"dltensor_versioned", Some(unused))
    }
}
