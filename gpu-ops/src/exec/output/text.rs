//! Strings that a result refers to by row, fetched from their resident column.

use std::sync::{Arc, Weak};

use arrow::array::ArrayRef;
use arrow::buffer::{BooleanBuffer, Buffer};

use crate::codegen::ColumnLayout;
use crate::column::{Column, Encoding, decode_bytes, map};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::output::decode::numbers;
use crate::memory::DeviceBuffer;
use crate::primitives::{RowCount, StringRows, copy_strings, gather_strings, string_offsets};
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

/// Strings from which on several columns are decoded on a thread each.
const PARALLEL_STRINGS: usize = 1 << 14;
/// Bytes in one block of several columns begin at multiples of this.
const ALIGNMENT: u64 = 16;

/// The strings of several columns. Waits for the device twice, however many they are: for where strings end, and for their bytes.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`] for the gathered strings, [`GpuError::Device`], [`GpuError::Internal`] for a base without strings.
pub(in crate::exec) fn gather_texts(
    texts: &[RowStrings<'_>],
    runtime: &Runtime,
    stream: &Stream,
) -> Result<Vec<ArrayRef>> {
    let mut chosen = Vec::with_capacity(texts.len());
    let mut count: usize = 0;
    for text in texts {
        // Sums are written two at a time.
        let first = count.next_multiple_of(2);
        count = first + text.rows + 1;
        let valid = text.valid.map(|(address, _)| address);
        chosen.push((text.chosen(runtime, stream, valid)?, first..count));
    }
    let offsets = runtime.working_memory(stream, count * 8, "offsets of strings")?;
    for (chosen, ends) in &chosen {
        // SAFETY: the base is held; the numbers are those of its rows; the offsets have a place a row and one more.
        unsafe {
            string_offsets(
                runtime,
                stream,
                &chosen.rows,
                offsets.ptr_at(ends.start * 8)?,
            )?
        };
    }
    let ends = offsets.download_values::<u64>(stream, 0, count)?;
    let mut places = Vec::with_capacity(texts.len());
    let mut total = 0;
    for (_, range) in &chosen {
        let bytes = ends[range.clone()].last().copied().unwrap_or(0);
        places.push((total, bytes));
        total = (total + bytes).next_multiple_of(ALIGNMENT);
    }
    let room = usize::try_from(total).map_err(|_| GpuError::Internal("gathered bytes".into()))?;
    let data = runtime.working_memory(stream, room.max(8), "bytes of strings")?;
    for ((chosen, range), (at, bytes)) in chosen.iter().zip(&places) {
        let from = offsets.ptr_at(range.start * 8)?;
        let into = data.ptr_at(*at as usize)?;
        // SAFETY: as above; there are as many bytes as the offsets say.
        unsafe { copy_strings(runtime, stream, &chosen.rows, (from, into), *bytes)? };
    }
    let data = Buffer::from_vec(data.download_values::<u8>(stream, 0, room)?);
    let decode = |((text, ends), (at, bytes)): ((&RowStrings<'_>, &[u64]), &(u64, u64))| {
        let (at, bytes) = (*at as usize, *bytes as usize);
        // A column that is sent or kept takes no other along.
        let data = match texts.len() {
            1 => data.slice_with_length(at, bytes),
            _ => Buffer::from(&data[at..at + bytes]),
        };
        let bits = text
            .valid
            .map(|(_, valid)| BooleanBuffer::collect_bool(text.rows, |row| valid[row] != 0));
        let bits = bits.as_ref().map(BooleanBuffer::values);
        decode_bytes(&text.layout.data_type, ends, data, bits)
    };
    let ends = chosen.iter().map(|(_, range)| &ends[range.clone()]);
    let columns = texts.iter().zip(ends).zip(&places);
    match count < PARALLEL_STRINGS {
        true => columns.map(decode).collect(),
        false => map(columns.collect(), decode)?.into_iter().collect(),
    }
}

/// Chosen rows, and what holds their numbers.
struct Chosen {
    rows: StringRows,
    _widened: Option<DeviceBuffer>,
}

impl RowStrings<'_> {
    /// The strings. Waits for the device.
    ///
    /// # Errors
    /// As [`gather_texts`].
    pub(in crate::exec) fn gather(self, runtime: &Runtime, stream: &Stream) -> Result<ArrayRef> {
        let gathered = gather_texts(&[self], runtime, stream)?.pop();
        gathered.ok_or_else(|| GpuError::Internal("a column of strings was lost".into()))
    }

    /// The strings as they lie on the device: where each begins, and the end of the last (`u64`), and their bytes. `valid` is a byte
    /// a row, 0 for NULL.
    ///
    /// # Errors
    /// As [`gather_texts`].
    pub(in crate::exec) fn gather_on_device(
        &self,
        runtime: &Runtime,
        stream: &Stream,
        valid: Option<DevicePtr>,
    ) -> Result<(DeviceBuffer, DeviceBuffer)> {
        let chosen = self.chosen(runtime, stream, valid)?;
        // SAFETY: the base is held here; numbers and validity have `rows` elements, and rows that are not NULL have numbers of
        // rows of the base.
        unsafe { gather_strings(runtime, stream, &chosen.rows) }
    }

    fn chosen(
        &self,
        runtime: &Runtime,
        stream: &Stream,
        valid: Option<DevicePtr>,
    ) -> Result<Chosen> {
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
        Ok(Chosen {
            rows: StringRows {
                offsets: offsets.ptr(),
                data: self.base.data.ptr(),
                row_ids: ids,
                id_width,
                valid,
                rows: RowCount::Known(rows as u64),
            },
            _widened: widened,
        })
    }
}
