//! DLPack: an array of numbers as a tensor of one dimension, without a copy.

use std::ffi::c_void;
use std::ptr::NonNull;

use arrow::array::ArrayData;
use arrow::datatypes::{DataType, Field};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorDevice {
    kind: i32,
    number: i32,
}

/// `kDLCPU`.
pub(crate) const CPU: TensorDevice = TensorDevice { kind: 1, number: 0 };

/// `kDLCUDA`.
const CUDA: i32 = 2;

impl TensorDevice {
    /// The GPU of this number, or the host.
    pub(crate) fn of(ordinal: Option<u32>) -> Self {
        ordinal.map_or(CPU, |number| Self {
            kind: CUDA,
            number: number.cast_signed(),
        })
    }

    /// As `__dlpack_device__` tells it.
    pub(crate) fn pair(self) -> (i32, i32) {
        (self.kind, self.number)
    }
}

/// `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl TensorType {
    /// The type as numpy names it, e.g. `<i8`.
    pub(crate) fn typestr(self) -> String {
        let family = ['i', 'u', 'f'][usize::from(self.code).min(2)];
        let order = if self.bits == 8 { '|' } else { '<' };
        format!("{order}{family}{}", self.bits / 8)
    }
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
    _data: ArrayData,
    shape: i64,
    stride: i64,
}

/// The type of an array's values, if DLPack has it.
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

/// Values to be handed out.
struct Exported {
    /// Numbers, in the memory of `device`; they are not read.
    data: ArrayData,
    kind: TensorType,
    device: TensorDevice,
    /// Others have the values as well.
    read_only: bool,
}

/// Where the values of an array of numbers begin.
pub(crate) fn address(data: &ArrayData, kind: TensorType) -> usize {
    let start = data.offset() * usize::from(kind.bits / 8);
    // Numbers have one buffer; an array without rows may have one without room.
    let values = data
        .buffers()
        .first()
        .map_or(std::ptr::null(), |buffer| buffer.as_ptr());
    values.wrapping_add(start).expose_provenance()
}

/// The tensor of an array of numbers, and what owns it.
fn tensor(exported: Exported) -> (Tensor, *mut Owner) {
    let Exported {
        data, kind, device, ..
    } = exported;
    let values = std::ptr::with_exposed_provenance_mut(address(&data, kind));
    let owner = Box::into_raw(Box::new(Owner {
        shape: i64::try_from(data.len()).unwrap_or(i64::MAX),
        stride: 1,
        _data: data,
    }));
    // SAFETY: the owner was just made; its fields are only pointed to.
    let (shape, strides) = unsafe { (&raw mut (*owner).shape, &raw mut (*owner).stride) };
    let tensor = Tensor {
        data: values,
        device,
        dimensions: 1,
        kind,
        shape,
        strides,
        byte_offset: 0,
    };
    (tensor, owner)
}

/// What a consumer asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The newest version of the protocol that it knows.
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
}

/// The type of a column's numbers as those of a tensor.
///
/// # Errors
/// Why it is none: another type, or NULLs.
pub(crate) fn numbers(field: &Field, data: &ArrayData) -> Result<TensorType, String> {
    let kind = tensor_type(field.data_type()).ok_or_else(|| {
        format!(
            "column '{}' is of type {}, which tensors have not: CAST it to an integer or a float",
            field.name(),
            field.data_type()
        )
    })?;
    match data.null_count() {
        0 => Ok(kind),
        nulls => Err(format!(
            "column '{}' has {nulls} NULLs, which tensors have not: COALESCE gives them a value",
            field.name()
        )),
    }
}

/// The capsule of a column that lies on `device`, which messages call `place`.
///
/// # Errors
/// `BufferError` where the consumer asks for another device or a copy, and where the column is no tensor.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    field: &Field,
    data: ArrayData,
    (device, place, read_only): (TensorDevice, &str, bool),
    asked: Asked,
) -> PyResult<Bound<'py, PyCapsule>> {
    if asked.device.is_some_and(|wanted| wanted != device.pair()) {
        return Err(PyBufferError::new_err(format!(
            "the values lie {place}: take them from there, and copy them"
        )));
    }
    if asked.copy == Some(true) {
        return Err(PyBufferError::new_err(
            "the values are handed out without a copy: copy them there",
        ));
    }
    let kind = numbers(field, &data).map_err(PyBufferError::new_err)?;
    let exported = Exported {
        data,
        kind,
        device,
        read_only,
    };
    // Consumers of the version before 1 cannot be told that values are not to be written to.
    match asked.max_version {
        Some((major, _)) if major >= 1 => versioned(py, exported),
        _ => unversioned(py, exported),
    }
}

/// The capsule of the protocol before its versions had numbers.
///
/// # Errors
/// When Python has no memory.
fn unversioned(py: Python<'_>, exported: Exported) -> PyResult<Bound<'_, PyCapsule>> {
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
    let (tensor, owner) = tensor(exported);
    let managed = Box::new(ManagedTensor {
        tensor,
        context: owner.cast(),
        deleter: Some(delete),
    });
    let pointer = NonNull::from(Box::leak(managed)).cast();
    // SAFETY: the pointer lives until the deleter, which the destructor calls if nobody else has.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, c"dltensor", Some(unused)) }
}

/// The capsule of version 1, which tells whether the values can be written to.
///
/// # Errors
/// When Python has no memory.
fn versioned(py: Python<'_>, exported: Exported) -> PyResult<Bound<'_, PyCapsule>> {
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
    let flags = if exported.read_only { READ_ONLY } else { 0 };
    let (tensor, owner) = tensor(exported);
    let managed = Box::new(VersionedTensor {
        version: [1, 0],
        context: owner.cast(),
        deleter: Some(delete),
        flags,
        tensor,
    });
    let pointer = NonNull::from(Box::leak(managed)).cast();
    // SAFETY: the pointer lives until the deleter, which the destructor calls if nobody else has.
    unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer, c"dltensor_versioned", Some(unused))
    }
}
