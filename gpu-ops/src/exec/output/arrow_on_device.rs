//! The output of a run in Arrow's layout on the device.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use crate::codegen::{Meaning, Part};
use crate::column::{Dictionary, is_text};
use crate::device::DevicePtr;
use crate::device_batch::{DeviceBatch, placed, placed_nulls, room, uploaded};
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::output::decode::as_type;
use crate::exec::output::host::Host;
use crate::exec::output::text::{RowStrings, base_of};
use crate::exec::prepare::prepared::OutputColumn;
use crate::memory::DeviceBuffer;
use crate::primitives::{
    CodesToWiden, RowCount, StringRows, gather_strings, pack_flags, widen_codes,
};

/// A dictionary goes to the device where it has up to this many strings, or as many as there are rows: else the strings of the
/// rows are less.
const SMALL_DICTIONARY: usize = 1 << 12;

/// The columns of an output, one after the other.
struct Columns<'a> {
    frame: &'a Frame<'a>,
    host: &'a Host,
    rows: usize,
    /// Two words a column: rows that are NULL, and values that are false.
    zeros: DeviceBuffer,
}

/// A column, and where the bits of its NULLs are.
struct Laid {
    data: ArrayData,
    validity: Option<Buffer>,
}

/// The output in Arrow's layout: numbers and strings that are known to the device without a copy to the host, others (packed
/// strings, large dictionaries of few rows, other types than the device's) by way of it. Waits for the device.
///
/// Bytes moved: codes and values once; strings twice.
///
/// # Errors
/// [`GpuError::Unsupported`] for rows in a file, [`GpuError::OutOfDeviceMemory`] for the arrays, [`GpuError::Device`].
pub(in crate::exec) fn arrow_on_device(
    frame: &Frame<'_>,
    host: &Host,
    schema: &SchemaRef,
) -> Result<DeviceBatch> {
    if frame.written.is_some() {
        return Err(GpuError::Unsupported(
            "rows in a file among rows that stay on the device".into(),
        ));
    }
    let fields = schema.fields();
    let outputs = &frame.prepared.output;
    if fields.len() != outputs.len() {
        return Err(GpuError::Internal(
            "a fragment's output has other columns than its schema".into(),
        ));
    }
    let rows = usize::try_from(host.rows(frame));
    let rows = rows.map_err(|_| GpuError::Internal("output rows".into()))?;
    let zeros = (outputs.len() * 16).max(16);
    let zeros = frame
        .runtime
        .working_memory(frame.stream, zeros, "counts of NULLs")?;
    zeros.fill(frame.stream, 0)?;
    let columns = Columns {
        frame,
        host,
        rows,
        zeros,
    };
    let laid = outputs.iter().zip(fields).enumerate();
    let laid = laid.map(|(number, (column, field))| columns.lay(number, column, field.data_type()));
    let laid = laid.collect::<Result<Vec<_>>>()?;
    // Waits for all of the above.
    let nulls: Vec<u64> = columns
        .zeros
        .download_values(frame.stream, 0, outputs.len() * 2)?;
    let finished = laid.into_iter().zip(nulls.chunks(2));
    let finished = finished.map(|(laid, nulls)| match laid.validity {
        Some(bits) => {
            let nulls = placed_nulls(bits, rows, nulls[0] as usize);
            // SAFETY: a bit a row, and their number as the device counted it.
            unsafe { laid.data.into_builder().nulls(nulls).build_unchecked() }
        }
        None => laid.data,
    });
    Ok(DeviceBatch::new(
        Arc::clone(frame.runtime),
        schema,
        rows,
        finished.collect(),
    ))
}

impl Columns<'_> {
    fn lay(&self, number: usize, column: &OutputColumn, data_type: &DataType) -> Result<Laid> {
        let layout = &column.layout;
        let text = matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let data = match &layout.meaning {
            _ if column.list.is_some() => return self.by_host(number, data_type),
            _ if column.text.is_some() => match (text, &column.text) {
                (true, Some(base)) => {
                    let base = base_of(base)?;
                    let validity = self.flags(number, column)?;
                    let strings = RowStrings {
                        layout,
                        base: &base,
                        numbers: self.part(Part::Column(number))?,
                        valid: None,
                        rows: self.rows,
                    };
                    let stream = self.frame.stream;
                    let (ends, bytes) =
                        strings.gather_on_device(self.frame.runtime, stream, validity)?;
                    self.texts(data_type, &ends, bytes)?
                }
                _ => return self.by_host(number, data_type),
            },
            Meaning::Code(dictionary)
                if text
                    && !dictionary.is_empty()
                    && dictionary.len() <= self.rows.max(SMALL_DICTIONARY) =>
            {
                self.coded(number, column, data_type, dictionary)?
            }
            Meaning::Number if layout.data_type == *data_type && !is_text(data_type) => {
                match (data_type, data_type.primitive_width()) {
                    (DataType::Boolean, _) => {
                        let (data, _) = self.bits(Part::Column(number), number * 2 + 1)?;
                        self.built(data_type, vec![data])
                    }
                    (DataType::Dictionary(..), _) | (_, None) => {
                        return self.by_host(number, data_type);
                    }
                    (_, Some(width)) => {
                        let bytes = self.rows.saturating_mul(width);
                        let out = room(self.frame.runtime, bytes)?;
                        self.widen(number, column, &out, width)?;
                        self.built(data_type, vec![placed(out, bytes)?])
                    }
                }
            }
            _ => return self.by_host(number, data_type),
        };
        let validity = match layout.nullable {
            true => Some(self.bits(Part::Valid(number), number * 2)?.0),
            false => None,
        };
        Ok(Laid { data, validity })
    }

    fn part(&self, part: Part) -> Result<(&DeviceBuffer, usize)> {
        let (buffer, offset) = self.frame.output_part(part)?;
        Ok((buffer.as_ref(), offset))
    }

    fn address(&self, part: Part) -> Result<DevicePtr> {
        let (buffer, offset) = self.part(part)?;
        buffer.ptr_at(offset)
    }

    /// A byte a row, 0 for NULL.
    fn flags(&self, number: usize, column: &OutputColumn) -> Result<Option<DevicePtr>> {
        match column.layout.nullable {
            true => self.address(Part::Valid(number)).map(Some),
            false => Ok(None),
        }
    }

    fn built(&self, data_type: &DataType, buffers: Vec<Buffer>) -> ArrayData {
        let builder = ArrayData::builder(data_type.clone())
            .len(self.rows)
            .buffers(buffers);
        // SAFETY: a value of the type's width a row, or offsets of strings and their bytes, which the kernels write.
        unsafe { builder.build_unchecked() }
    }

    /// A byte a row as bits; those that are 0 are counted in a word of `zeros`.
    fn bits(&self, part: Part, counter: usize) -> Result<(Buffer, DevicePtr)> {
        let words = self.rows.div_ceil(32) * 4;
        let out = room(self.frame.runtime, words)?;
        let flags = self.address(part)?;
        let zeros = self.zeros.ptr_at(counter * 8)?;
        // SAFETY: the output has a byte a row; the words hold a bit for each.
        unsafe {
            pack_flags(
                self.frame.runtime,
                self.frame.stream,
                flags,
                out.ptr(),
                zeros,
                self.rows as u64,
            )?;
        }
        Ok((placed(out, self.rows.div_ceil(8))?, flags))
    }

    /// The values of a column of numbers in `width` bytes each.
    fn widen(
        &self,
        number: usize,
        column: &OutputColumn,
        out: &DeviceBuffer,
        width: usize,
    ) -> Result<()> {
        let layout = &column.layout;
        if layout.float && usize::from(layout.width) != width {
            return Err(GpuError::Internal("a float of another width".into()));
        }
        let base = match layout.float {
            true => 0,
            false => layout.base,
        };
        let codes = CodesToWiden {
            codes: self.address(Part::Column(number))?,
            width: layout.width,
            base,
            out: out.ptr(),
            out_width: width as u8,
            rows: self.rows as u64,
        };
        // SAFETY: the output has a code a row, and the other range was made for the values.
        unsafe { widen_codes(self.frame.runtime, self.frame.stream, &codes) }
    }

    /// Strings by their codes.
    fn coded(
        &self,
        number: usize,
        column: &OutputColumn,
        data_type: &DataType,
        dictionary: &Dictionary,
    ) -> Result<ArrayData> {
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        let values = cast(&dictionary.values, &DataType::LargeUtf8)?;
        let values = values.as_string::<i64>();
        let purpose = "a dictionary for rows that stay on the device";
        let offsets = runtime.working_memory(stream, (values.len() + 1) * 8, purpose)?;
        offsets.upload_values::<i64>(stream, 0, values.value_offsets())?;
        let bytes = values.value_data();
        let data = runtime.working_memory(stream, bytes.len().max(8), purpose)?;
        data.upload(stream, 0, bytes)?;
        let ids = runtime.working_memory(stream, (self.rows * 4).max(4), purpose)?;
        self.widen(number, column, &ids, 4)?;
        let strings = StringRows {
            offsets: offsets.ptr(),
            data: data.ptr(),
            row_ids: ids.ptr(),
            id_width: 4,
            valid: self.flags(number, column)?,
            rows: RowCount::Known(self.rows as u64),
        };
        // SAFETY: codes of rows that are not NULL are strings of the dictionary, of which there are fewer than 2^32.
        let (ends, bytes) = unsafe { gather_strings(runtime, stream, &strings)? };
        self.texts(data_type, &ends, bytes)
    }

    /// Strings from where each ends and their bytes.
    fn texts(
        &self,
        data_type: &DataType,
        ends: &DeviceBuffer,
        bytes: DeviceBuffer,
    ) -> Result<ArrayData> {
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        let total = bytes.len();
        let large = *data_type == DataType::LargeUtf8 || total > i32::MAX as usize;
        let (data_type, width) = match large {
            true => (DataType::LargeUtf8, 8),
            false => (DataType::Utf8, 4),
        };
        let offset_bytes = (self.rows + 1) * width;
        let offsets = room(runtime, offset_bytes)?;
        let codes = CodesToWiden {
            codes: ends.ptr(),
            width: 8,
            base: 0,
            out: offsets.ptr(),
            out_width: width as u8,
            rows: self.rows as u64 + 1,
        };
        // SAFETY: an offset a row and one more, in both.
        unsafe { widen_codes(runtime, stream, &codes)? };
        // What the gather made is ordered by its stream, and may lie in host memory.
        let data = room(runtime, total)?;
        if total > 0 {
            // SAFETY: both are live and have as many bytes.
            unsafe {
                let device = runtime.device();
                device.copy_on_device(stream, bytes.ptr(), data.ptr(), total)?;
            }
        }
        Ok(self.built(
            &data_type,
            vec![placed(offsets, offset_bytes)?, placed(data, total)?],
        ))
    }

    /// A column by way of the host.
    fn by_host(&self, number: usize, data_type: &DataType) -> Result<Laid> {
        let columns = self
            .host
            .columns(self.frame, number..number + 1, self.rows)?;
        let column = columns.first();
        let column = column.ok_or_else(|| GpuError::Internal("no such column".into()))?;
        let array: ArrayRef = as_type(column.decode(0..self.rows)?, data_type)?;
        debug_assert_eq!(array.len(), self.rows);
        Ok(Laid {
            data: uploaded(self.frame.runtime, self.frame.stream, &array)?,
            validity: None,
        })
    }
}
