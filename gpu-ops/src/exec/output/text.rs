//! Strings that a result refers to by row, fetched from their resident column.

use std::sync::{Arc, Weak};

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;

use crate::codegen::ColumnLayout;
use crate::column::{Column, Encoding, decode_bytes};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::output::decode::numbers;
use crate::memory::DeviceBuffer;
use crate::primitives::{RowCount, StringRows, gather_strings};
use crate::runtime::Runtime;

/// Some rows of a column of strings by row.
pub(in crate::exec) struct RowStrings<'a> {
    /// How their row numbers lie.
    pub(in crate::exec) layout: &'a ColumnLayout,
    /// The column that has the strings.
    pub(in crate::exec) base: &'a Column,
    /// The row numbers: a buffer, and the first byte there.
    pub(in crate::exec) numbers: (&'a DeviceBuffer, usize),
    /// A byte a row, 0 for NULL: for kernels, and on the host.
    pub(in crate::exec) valid: Option<(DevicePtr, &'a [u8])>,
    /// How many.
    pub(in crate::exec) rows: usize,
}

/// The column that has the strings.
///
/// # Errors
/// [`GpuError::Internal`] when it is gone.
pub(in crate::exec) fn base_of(base: &Weak<Column>) -> Result<Arc<Column>> {
    let gone = || GpuError::Internal("a string column was evicted during a run".into());
    base.upgrade().ok_or_else(gone)
}

impl RowStrings<'_> {
    /// The strings. Waits for the device.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] for the gathered strings, [`GpuError::Device`], [`GpuError::Internal`] for a base without
    /// strings.
    pub(in crate::exec) fn gather(&self, runtime: &Runtime, stream: &Stream) -> Result<ArrayRef> {
        let rows = self.rows;
        let valid = self.valid.map(|(address, _)| address);
        let (ends, data) = self.gather_on_device(runtime, stream, valid)?;
        let ends = ends.download_values::<u64>(stream, 0, rows + 1)?;
        let total = ends.last().copied().unwrap_or(0);
        let total =
            usize::try_from(total).map_err(|_| GpuError::Internal("gathered bytes".into()))?;
        let bytes = data.download_values::<u8>(stream, 0, total)?;
        let bits = self.valid.map(|(_, valid)| valid);
        let bits = bits.map(|v| BooleanBuffer::collect_bool(rows, |row| v[row] != 0));
        let bits = bits.as_ref().map(BooleanBuffer::values);
        decode_bytes(&self.layout.data_type, &ends, bytes, bits)
    }

    /// The strings as they lie on the device: where each begins, and the end of the last (`u64`), and their bytes. `valid` is a byte
    /// a row, 0 for NULL.
    ///
    /// # Errors
    /// As [`RowStrings::gather`].
    pub(in crate::exec) fn gather_on_device(
        &self,
        runtime: &Runtime,
        stream: &Stream,
        valid: Option<DevicePtr>,
    ) -> Result<(DeviceBuffer, DeviceBuffer)> {
        let Encoding::Bytes { offsets } = &self.base.encoding else {
            return Err(GpuError::Internal(
                "strings by row of a column that holds codes".into(),
            ));
        };
        let (layout, rows) = (self.layout, self.rows);
        let (buffer, offset) = self.numbers;
        let mut ids = buffer.ptr_at(offset)?;
        let mut id_width = layout.width;
        // Small tables have narrow row numbers, and codes may count from a base: widened on the host.
        let mut widened = None;
        if !matches!(id_width, 4 | 8) || layout.base != 0 {
            let bytes = rows.saturating_mul(usize::from(layout.width));
            let codes = buffer.download_values::<u8>(stream, offset, bytes)?;
            let wide = numbers(&codes, layout)?;
            let bytes = (wide.len() * 8).max(8);
            let buffer = runtime.working_memory(stream, bytes, "row numbers of strings")?;
            buffer.upload_values(stream, 0, &wide)?;
            ids = buffer.ptr();
            id_width = 8;
            widened = Some(buffer);
        }
        let strings = StringRows {
            offsets: offsets.ptr(),
            data: self.base.data.ptr(),
            row_ids: ids,
            id_width,
            valid,
            rows: RowCount::Known(rows as u64),
        };
        // SAFETY: the base is held here; numbers and validity have `rows` elements, and rows that are not NULL have numbers of
        // rows of the base.
        let gathered = unsafe { gather_strings(runtime, stream, &strings)? };
        drop(widened);
        Ok(gathered)
    }
}
