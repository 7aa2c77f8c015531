//! Rows in Arrow's layout in the memory of a device, for other libraries there.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions,
    make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Least bytes of a buffer: other libraries may not take a null address, also where there is nothing to read.
const LEAST_BYTES: usize = 64;

/// Who holds the memory, in reports.
pub(crate) const PURPOSE: &str = "a result that stays on the device";

/// Rows in Arrow's layout in the memory of a device. All work on them has ended.
///
/// The memory counts as the device's pool has it, and goes back when the last of what was handed out is dropped, after
/// all work that anybody has queued on the device by then.
pub struct DeviceBatch {
    runtime: Arc<Runtime>,
    schema: SchemaRef,
    rows: usize,
    /// Their buffers are addresses of the device.
    columns: Vec<ArrayData>,
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBatch")
            .field("schema", &self.schema)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl DeviceBatch {
    /// Of columns whose buffers are [`placed`].
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        schema: &SchemaRef,
        rows: usize,
        columns: Vec<ArrayData>,
    ) -> Self {
        let fields: Fields = schema
            .fields()
            .iter()
            .zip(&columns)
            .map(|(field, column)| of_type(field, column.data_type()))
            .collect();
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        Self {
            runtime,
            schema: Arc::new(schema),
            rows,
            columns,
        }
    }

    /// Rows of the host, copied to the device.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] where they find no room, [`GpuError::Device`], [`GpuError::DataFusion`] for rows that no single array
    /// holds.
    pub fn upload(
        runtime: &Arc<Runtime>,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Self> {
        let whole = match batches {
            [batch] => batch.clone(),
            batches => concat_batches(schema, batches)?,
        };
        let stream = runtime.lease_stream()?;
        let columns = whole.columns().iter();
        let columns = columns.map(|column| uploaded(runtime, &stream, column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        runtime.device().synchronize(&stream)?;
        Ok(Self::new(
            Arc::clone(runtime),
            schema,
            whole.num_rows(),
            columns,
        ))
    }

    /// The names and types of the columns. Strings lie as offsets and bytes, whichever way the plan's schema has them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The device, as CUDA numbers it; `None` for the emulator, whose memory is the host's.
    pub fn ordinal(&self) -> Option<u32> {
        let info = self.runtime.device().info();
        match info.emulated {
            true => None,
            false => info.id.rsplit(':').next()?.parse().ok(),
        }
    }

    /// A column, by its position.
    ///
    /// # Safety
    /// Its buffers are addresses of the device: nothing may read them on the host, which checks, comparisons and `Debug` of Arrow do.
    /// Whoever gets them passes them on, e.g. by `FFI_ArrowArray::new`.
    pub unsafe fn column(&self, number: usize) -> Option<&ArrayData> {
        self.columns.get(number)
    }

    /// All columns as one struct.
    ///
    /// # Safety
    /// As [`DeviceBatch::column`].
    pub unsafe fn as_struct(&self) -> ArrayData {
        let builder = ArrayData::builder(DataType::Struct(self.schema.fields().clone()))
            .len(self.rows)
            .child_data(self.columns.clone());
        // SAFETY: the children have as many rows and the types of the fields; nothing is read.
        unsafe { builder.build_unchecked() }
    }

    /// The field of [`DeviceBatch::as_struct`].
    pub fn struct_field(&self) -> Field {
        let data_type = DataType::Struct(self.schema.fields().clone());
        Field::new("", data_type, false).with_metadata(self.schema.metadata().clone())
    }

    /// The rows, copied to the host.
    ///
    /// # Errors
    /// [`GpuError::Device`]; [`GpuError::DataFusion`] where they are not what their types say.
    pub fn download(&self) -> Result<RecordBatch> {
        let stream = self.runtime.lease_stream()?;
        let mut copy = |buffer: &Buffer| -> Result<Buffer> {
            let mut bytes = vec![0u8; buffer.len()];
            if !bytes.is_empty() {
                let source = DevicePtr(buffer.as_ptr().expose_provenance() as u64);
                // SAFETY: the buffer is memory of this device, which it keeps.
                unsafe {
                    let device = self.runtime.device();
                    device.copy_to_host(&stream, source, &mut bytes)?;
                }
            }
            Ok(Buffer::from_vec(bytes))
        };
        let columns = self.columns.iter();
        let columns = columns.map(|column| -> Result<ArrayRef> {
            let data = relocated(column, &mut copy)?;
            // Values of 16 bytes ask for more than bytes of a vector do.
            let data = data.into_builder().align_buffers(true).build()?;
            Ok(make_array(data))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns.collect::<Result<_>>()?,
            &options,
        )?)
    }
}

/// The field with another type.
fn of_type(field: &FieldRef, data_type: &DataType) -> FieldRef {
    match field.data_type() == data_type {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_data_type(data_type.clone())),
    }
}

/// Memory that other libraries have, too.
struct HandedOut(DeviceBuffer);

impl Drop for HandedOut {
    fn drop(&mut self) {
        // They may have queued work on it, on streams that nobody here knows.
        if let Err(error) = self.0.device().settle() {
            log::debug!("a result is given back: {error}");
        }
    }
}

/// Memory for a result, in the memory of the device itself.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`].
pub(crate) fn room(runtime: &Runtime, bytes: usize) -> Result<DeviceBuffer> {
    runtime.pool().allocate(bytes.max(LEAST_BYTES), PURPOSE)
}

/// The same memory as a buffer of Arrow, of which the first `bytes` are in use. It is to be passed on, and not to be read here.
pub(crate) fn placed(buffer: DeviceBuffer, bytes: usize) -> Result<Buffer> {
    let first = std::ptr::with_exposed_provenance_mut::<u8>(buffer.ptr().0 as usize);
    let first = NonNull::new(first)
        .filter(|_| bytes <= buffer.len() && !buffer.is_host())
        .ok_or_else(|| GpuError::Internal("memory of a result".into()))?;
    let owner = Arc::new(AssertUnwindSafe(HandedOut(buffer)));
    // SAFETY: the bytes are the owner's; whoever sees the buffer is told not to read it.
    Ok(unsafe { Buffer::from_custom_allocation(first, bytes, owner) })
}

/// NULLs whose bits lie on the device; `None` where there are none.
pub(crate) fn placed_nulls(bits: Buffer, rows: usize, nulls: usize) -> Option<NullBuffer> {
    let bits = BooleanBuffer::new(bits, 0, rows);
    // SAFETY: the number is that of the bits, which nobody counts here.
    (nulls > 0).then(|| unsafe { NullBuffer::new_unchecked(bits, nulls) })
}

/// An array of the host, copied to the device in a layout that other libraries take.
pub(crate) fn uploaded(runtime: &Runtime, stream: &Stream, array: &ArrayRef) -> Result<ArrayData> {
    let data = compact(&without_views(array)?.to_data())?;
    relocated(&data, &mut |buffer: &Buffer| -> Result<Buffer> {
        let memory = room(runtime, buffer.len())?;
        memory.upload(stream, 0, buffer)?;
        placed(memory, buffer.len())
    })
}

/// The array with strings as offsets and bytes: lists of the buffers of views lie on the host.
fn without_views(array: &ArrayRef) -> Result<ArrayRef> {
    let large = match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            views.iter().flatten().map(str::len).sum::<usize>() > i32::MAX as usize
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            views.iter().flatten().map(<[u8]>::len).sum::<usize>() > i32::MAX as usize
        }
        _ => true,
    };
    let data_type = match array.data_type() {
        DataType::Utf8View if !large => DataType::Utf8,
        DataType::BinaryView if !large => DataType::Binary,
        other => type_without_views(other),
    };
    match *array.data_type() == data_type {
        true => Ok(Arc::clone(array)),
        false => Ok(cast(array, &data_type)?),
    }
}

fn type_without_views(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| of_type(field, &type_without_views(field.data_type()));
    match data_type {
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(field) => DataType::List(inner(field)),
        DataType::LargeList(field) => DataType::LargeList(inner(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(inner(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::Map(field, sorted) => DataType::Map(inner(field), *sorted),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(type_without_views(values)))
        }
        other => other.clone(),
    }
}

/// The same values in buffers of their own that begin with the first of them, at every level.
fn compact(data: &ArrayData) -> Result<ArrayData> {
    let mut copied = MutableArrayData::new(vec![data], false, data.len());
    copied.try_extend(0, 0, data.len())?;
    let copied = copied.freeze();
    // Of dictionaries only the keys are copied.
    if !matches!(copied.data_type(), DataType::Dictionary(..)) {
        return Ok(copied);
    }
    let values = copied.child_data().iter().map(compact);
    let values = values.collect::<Result<Vec<_>>>()?;
    Ok(copied.into_builder().child_data(values).build()?)
}

/// The same array with other buffers.
fn relocated(
    data: &ArrayData,
    place: &mut dyn FnMut(&Buffer) -> Result<Buffer>,
) -> Result<ArrayData> {
    let buffers = data.buffers().iter().map(&mut *place);
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    let nulls = match data.nulls() {
        Some(nulls) => {
            let bits = BooleanBuffer::new(place(nulls.buffer())?, nulls.offset(), nulls.len());
            // SAFETY: the bits are the same.
            Some(unsafe { NullBuffer::new_unchecked(bits, nulls.null_count()) })
        }
        None => None,
    };
    let mut children = Vec::with_capacity(data.child_data().len());
    for child in data.child_data() {
        children.push(relocated(child, place)?);
    }
    let builder = ArrayData::builder(data.data_type().clone())
        .len(data.len())
        .offset(data.offset())
        .nulls(nulls)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: the bytes are those of a valid array; they may lie where they cannot be read here.
    Ok(unsafe { builder.build_unchecked() })
}
