//! Strings that a result refers to by row, fetched from their resident column.

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;

use crate::codegen::{ColumnLayout, Part};
use crate::column::{Column, Encoding, decode_bytes};
use crate::device::DevicePtr;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::output::decode::numbers;
use crate::primitives::{RowCount, gather_strings};

/// The strings of output column `index` of `rows` rows: their row numbers in `base` lie on the device as `layout`
/// says; `valid` is a byte a row on the host. Waits for the device.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`] for the gathered strings, [`GpuError::Device`], [`GpuError::Internal`] for a base without strings.
pub(in crate::exec) fn gather(
    frame: &Frame<'_>,
    index: usize,
    layout: &ColumnLayout,
    base: &Column,
    valid: Option<&[u8]>,
    rows: usize,
) -> Result<ArrayRef> {
    let Encoding::Bytes { offsets } = &base.encoding else {
        return Err(GpuError::Internal(
            "strings by row of a column that holds codes".into(),
        ));
    };
    let address = |part: Part| -> Result<DevicePtr> {
        let (buffer, offset) = frame.output_part(part)?;
        buffer.ptr_at(offset)
    };
    let mut ids = address(Part::Column(index))?;
    let mut id_width = layout.width;
    // Small tables have narrow row numbers, and codes may count from a base: widened on the host.
    let mut widened = None;
    if !matches!(id_width, 4 | 8) || layout.base != 0 {
        let (buffer, offset) = frame.output_part(Part::Column(index))?;
        let bytes = rows.saturating_mul(usize::from(layout.width));
        let codes = buffer.download_values::<u8>(frame.stream, offset, bytes)?;
        let wide = numbers(&codes, layout)?;
        let bytes = (wide.len() * 8).max(8);
        let purpose = "row numbers of strings";
        let buffer = frame.runtime.working_memory(frame.stream, bytes, purpose)?;
        buffer.upload_values(frame.stream, 0, &wide)?;
        ids = buffer.ptr();
        id_width = 8;
        widened = Some(buffer);
    }
    let validity = match valid {
        Some(_) => Some(address(Part::Valid(index))?),
        None => None,
    };
    // SAFETY: the base is held by the caller of the run; numbers and validity have `rows` elements, and rows that
    // are not NULL have numbers of rows of the base.
    let (ends, data) = unsafe {
        gather_strings(
            frame.runtime,
            frame.stream,
            offsets.ptr(),
            base.data.ptr(),
            ids,
            id_width,
            validity,
            RowCount::Known(rows as u64),
        )?
    };
    let ends = ends.download_values::<u64>(frame.stream, 0, rows + 1)?;
    let total = ends.last().copied().unwrap_or(0);
    let total = usize::try_from(total).map_err(|_| GpuError::Internal("gathered bytes".into()))?;
    let bytes = data.download_values::<u8>(frame.stream, 0, total)?;
    drop(widened);
    let bits = valid.map(|v| BooleanBuffer::collect_bool(rows, |row| v[row] != 0));
    let bits = bits.as_ref().map(BooleanBuffer::values);
    decode_bytes(&layout.data_type, &ends, bytes, bits)
}
