//! Growth of a column: rows of new files behind those that are resident, in a larger buffer.
//!
//! Nothing of the old rows is read from files again. Where width and base of the codes stay, they are copied on the device; else
//! kernels rewrite them there. A column can grow when
//!
//! - both parts have the same logical type and the same kind of encoding, with codes of at most eight bytes;
//! - of strings with dictionaries, the strings still repeat as the policy asks for. New strings go where they sort in the dictionary,
//!   and codes behind them are translated on the device;
//! - of strings as bytes, the new ones lie as bytes as well.
//!
//! What is known of the values is found out again over all rows ([`finish_statistics`]), or follows exactly from both parts: least and
//! greatest value, the number of NULLs, whether all strings are ASCII, the size of a dictionary. Nothing else of the old column is
//! taken over, so that no order or uniqueness is claimed that the new rows may have ended.

use std::cell::RefCell;
use std::sync::Arc;

use warpline_cuda::kernels::{
    ParquetNarrowArgs, ParquetRemapArgs, ParquetShiftArgs, ParquetSpan, ParquetValidityArgs,
};

use super::StringPolicy;
use super::dictionary::merge_dictionaries;
use super::facts::{Finished, finish_statistics, sample_strings};
use super::native::{frame, unsigned_width};
use super::on_device::{FinishKernels, dictionary_statistics, launch};
use super::on_device_text::spans_table;
use super::pools::ColumnPools;
use super::preallocated::PreallocatedBuffer;
use super::types::{Column, ColumnStatistics, Dictionary, Encoding};
use crate::device::{DevicePtr, Stream};
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// Rows whose codes are translated at a time: they take four bytes each meanwhile.
const TRANSLATED_ROWS: usize = 1 << 22;

/// Grows one column.
pub(crate) struct Append<'a> {
    /// The purpose of its memory, for errors.
    pub(crate) name: &'a str,
    /// How its strings lie.
    pub(crate) policy: StringPolicy,
    pub(crate) home: &'a ColumnPools<'a>,
    pub(crate) kernels: &'a FinishKernels,
    pub(crate) stream: &'a Stream,
    /// What queued work writes: it stays until the stream has been waited for, also where something fails meanwhile.
    pub(crate) held: RefCell<Vec<Arc<DeviceBuffer>>>,
}

/// Data in place, and its encoding.
type Laid = (Encoding, PreallocatedBuffer);

impl Column {
    /// Can it grow, as far as it alone tells?
    pub(crate) fn may_grow(&self) -> bool {
        match self.encoding {
            Encoding::Integer { width, base } => width <= 8 && i64::try_from(base).is_ok(),
            _ => true,
        }
    }

    fn validity(&self) -> DevicePtr {
        let validity = self.validity.as_ref();
        validity.map_or(DevicePtr::NULL, |bitmap| bitmap.ptr())
    }
}

impl Append<'_> {
    /// The rows of `old` and, behind them, those of `new`; `None` where they do not go together, so that all of them have to be
    /// loaded. Blocks. Both columns, and this, must stay until the stream has been waited for.
    ///
    /// # Errors
    /// [`crate::GpuError::OutOfDeviceMemory`]; [`crate::GpuError::Device`];
    /// [`crate::GpuError::Unsupported`] when a dictionary outgrows its Arrow type.
    pub(crate) fn append(&self, old: &Column, new: &Column) -> Result<Option<Column>> {
        if old.data_type != new.data_type || !old.may_grow() || !new.may_grow() {
            return Ok(None);
        }
        let rows = old.rows + new.rows;
        let (before, added) = (&old.statistics, &new.statistics);
        let mut statistics = ColumnStatistics {
            null_count: before.null_count + added.null_count,
            ..ColumnStatistics::default()
        };
        let range = match (before.range, added.range) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (one, other) => one.or(other),
        };
        // Codes are values less this, …
        let mut base = 0;
        // … and these are the values that a bitmap of them has room for.
        let mut counted = None;
        let laid = match (&old.encoding, &new.encoding) {
            (Encoding::Bits, Encoding::Bits) => {
                (statistics.range, counted) = (range, range);
                let bits = self.bitmap(old.rows, Some(&old.data), new.rows, Some(&new.data))?;
                Some((Encoding::Bits, bits))
            }
            (Encoding::Float { width }, Encoding::Float { width: other }) if width == other => {
                let encoding = Encoding::Float { width: *width };
                Some((encoding, self.copied(old, new, usize::from(*width))?))
            }
            (Encoding::Integer { .. }, Encoding::Integer { .. }) => {
                let (width, to) = frame(range);
                let fits = |value: i128| i64::try_from(value).is_ok();
                if width > 8 || !range.is_none_or(|(low, high)| fits(low) && fits(high)) {
                    return Ok(None);
                }
                let Ok(frame_base) = i64::try_from(to) else {
                    return Ok(None);
                };
                (statistics.range, counted, base) = (range, range, frame_base);
                Some(self.integers(old, new, width, frame_base)?)
            }
            (
                Encoding::Dictionary { dictionary: a, .. },
                Encoding::Dictionary { dictionary: b, .. },
            ) => self.codes((old, a), (new, b), &mut statistics)?,
            (Encoding::Bytes { offsets: a }, Encoding::Bytes { offsets: b }) => {
                Some(self.strings((old, a), (new, b))?)
            }
            _ => None,
        };
        let Some((encoding, data)) = laid else {
            return Ok(None);
        };
        let validity = match (&old.validity, &new.validity) {
            (None, None) => None,
            (a, b) => Some(self.bitmap(old.rows, a.as_deref(), new.rows, b.as_deref())?),
        };
        let width = match &encoding {
            Encoding::Integer { width, .. }
            | Encoding::Float { width }
            | Encoding::Dictionary { width, .. } => usize::from(*width),
            Encoding::Bits | Encoding::Bytes { .. } => 0,
        };
        if matches!(
            encoding,
            Encoding::Bytes { .. } | Encoding::Dictionary { .. }
        ) {
            statistics.ascii = before.ascii && added.ascii;
        }
        let finished = |data, width| Finished {
            data,
            validity: validity.as_ref().map(PreallocatedBuffer::buffer),
            rows,
            width,
            base,
            kernels: &self.kernels.facts,
            pool: self.home.device,
            stream: self.stream,
        };
        match &encoding {
            Encoding::Bytes { offsets } => {
                let offsets = finished(offsets, 8);
                let sample = sample_strings(&offsets, data.buffer(), &old.data_type)?;
                statistics.sample = sample.map(Arc::new);
            }
            _ => {
                let finished = finished(data.buffer(), width);
                finish_statistics(&finished, &encoding, counted, &mut statistics)?;
            }
        }
        Ok(Some(Column {
            data_type: old.data_type.clone(),
            rows,
            encoding,
            data: data.keep(),
            validity: validity.map(PreallocatedBuffer::keep),
            statistics,
        }))
    }

    /// Memory for `bytes` bytes of the column.
    fn room(&self, bytes: usize) -> Result<PreallocatedBuffer> {
        let buffer = PreallocatedBuffer::new(bytes, self.name, self.home, self.stream)?;
        self.held.borrow_mut().push(buffer.shared());
        Ok(buffer)
    }

    /// Codes of the same meaning, one part behind the other.
    fn copied(&self, old: &Column, new: &Column, width: usize) -> Result<PreallocatedBuffer> {
        let (first, second) = (old.rows * width, new.rows * width);
        let data = self.room(first + second)?;
        let buffer = data.buffer();
        buffer.copy_from(self.stream, 0, &old.data, 0, first)?;
        buffer.copy_from(self.stream, first, &new.data, 0, second)?;
        Ok(data)
    }

    /// Integers, in the frame of reference of all of them.
    fn integers(&self, old: &Column, new: &Column, width: u8, base: i64) -> Result<Laid> {
        let size = usize::from(width);
        let data = self.room((old.rows + new.rows) * size)?;
        for (part, first) in [(old, 0), (new, old.rows)] {
            let Encoding::Integer {
                width: from,
                base: own,
            } = part.encoding
            else {
                continue;
            };
            if (from, own) == (width, i128::from(base)) {
                let (at, bytes) = (first * size, part.rows * size);
                data.buffer()
                    .copy_from(self.stream, at, &part.data, 0, bytes)?;
                continue;
            }
            // Both bases have room in 64 bits, where differences wrap as codes do.
            let shift = (own as i64).wrapping_sub(base) as u64;
            self.rewrite(part, part.rows, from, shift, (&data, first * size, width))?;
        }
        let base = i128::from(base);
        Ok((Encoding::Integer { width, base }, data))
    }

    /// The codes of a part of a column, of `from` bytes, with `shift` added, at an offset of a buffer and of another width.
    fn rewrite(
        &self,
        part: &Column,
        rows: usize,
        from: u8,
        shift: u64,
        (out, offset, width): (&PreallocatedBuffer, usize, u8),
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let args = ParquetNarrowArgs {
            codes: part.data.ptr(),
            out: out.buffer().ptr_at(offset)?,
            validity: part.validity(),
            rows: rows as u64,
            shift,
            from_width: from.into(),
            width: width.into(),
        };
        // SAFETY: the part has a code for each row, and its bitmap a bit; the output has room for them behind the offset.
        unsafe { launch(self.home, self.stream, &self.kernels.narrow, rows, &args) }
    }

    /// Codes in the dictionary of both; `None` where the policy wants bytes.
    fn codes(
        &self,
        (old, a): (&Column, &Arc<Dictionary>),
        (new, b): (&Column, &Arc<Dictionary>),
        statistics: &mut ColumnStatistics,
    ) -> Result<Option<Laid>> {
        let (dictionary, of_old, of_new) = merge_dictionaries(a, b)?;
        let rows = old.rows + new.rows;
        let (distinct, valid) = (dictionary.len(), rows - statistics.null_count);
        if !self.policy.repeats(distinct, valid) {
            return Ok(None);
        }
        dictionary_statistics(statistics, distinct, valid);
        let width = unsigned_width(distinct.saturating_sub(1) as u128);
        let size = usize::from(width);
        let data = self.room(rows * size)?;
        for (part, first, codes) in [(old, 0, of_old), (new, old.rows, of_new)] {
            let Encoding::Dictionary { width: from, .. } = part.encoding else {
                continue;
            };
            let kept = (0..).zip(&codes).all(|(own, code): (i32, _)| own == *code);
            let (at, bytes) = (first * size, part.rows * size);
            match (kept, from == width) {
                (true, true) => data
                    .buffer()
                    .copy_from(self.stream, at, &part.data, 0, bytes)?,
                (true, false) => self.rewrite(part, part.rows, from, 0, (&data, at, width))?,
                (false, _) => self.translate(part, from, &codes, (&data, at, width))?,
            }
        }
        Ok(Some((Encoding::Dictionary { width, dictionary }, data)))
    }

    /// The codes of a part, each replaced, at an offset of a buffer.
    fn translate(
        &self,
        part: &Column,
        from: u8,
        codes: &[i32],
        (out, offset, width): (&PreallocatedBuffer, usize, u8),
    ) -> Result<()> {
        let codes: Vec<u32> = codes.iter().map(|code| *code as u32).collect();
        let table = self.scratch(codes.len().max(1) * 4)?;
        table.upload_values(self.stream, 0, &codes)?;
        let all = ParquetSpan {
            first: 0,
            end: u64::MAX,
            remap: 0,
        };
        let spans = spans_table(&[all], self.home, self.stream)?;
        for first in (0..part.rows).step_by(TRANSLATED_ROWS) {
            let rows = TRANSLATED_ROWS.min(part.rows - first);
            let wide = self.scratch(rows * 4)?;
            // The rows before are a multiple of those that a word of a bitmap has.
            let validity = match &part.validity {
                Some(bitmap) => bitmap.ptr_at(first / 8)?,
                None => DevicePtr::NULL,
            };
            let widen = ParquetNarrowArgs {
                codes: part.data.ptr_at(first * usize::from(from))?,
                out: wide.ptr(),
                validity,
                rows: rows as u64,
                shift: 0,
                from_width: from.into(),
                width: 4,
            };
            let remap = ParquetRemapArgs {
                codes: wide.ptr(),
                remap: table.ptr(),
                spans: spans.ptr(),
                out: out.buffer().ptr_at(offset + first * usize::from(width))?,
                validity,
                rows: rows as u64,
                span_count: 1,
                width: width.into(),
            };
            // SAFETY: the part has these rows, `wide` a code for each and the output room for them behind its offset; codes of
            // rows that are not NULL are below the size of the part's dictionary, which the table covers.
            unsafe {
                launch(self.home, self.stream, &self.kernels.narrow, rows, &widen)?;
                launch(self.home, self.stream, &self.kernels.remap, rows, &remap)?;
            }
        }
        Ok(())
    }

    /// Strings as bytes, one part behind the other.
    fn strings(
        &self,
        (old, a): (&Column, &Arc<DeviceBuffer>),
        (new, b): (&Column, &Arc<DeviceBuffer>),
    ) -> Result<Laid> {
        let stream = self.stream;
        let end = |offsets: &DeviceBuffer, rows: usize| -> Result<usize> {
            Ok(offsets.download_values::<u64>(stream, rows * 8, 1)?[0] as usize)
        };
        let (before, added) = (end(a, old.rows)?, end(b, new.rows)?);
        let data = self.room(before + added)?;
        let buffer = data.buffer();
        buffer.copy_from(stream, 0, &old.data, 0, before)?;
        buffer.copy_from(stream, before, &new.data, 0, added)?;
        let offsets = self.room((old.rows + new.rows + 1) * 8)?;
        let behind = (old.rows + 1) * 8;
        offsets.buffer().copy_from(stream, 0, a, 0, behind)?;
        offsets
            .buffer()
            .copy_from(stream, behind, b, 8, new.rows * 8)?;
        let args = ParquetShiftArgs {
            ends: offsets.buffer().ptr(),
            first_row: old.rows as u64,
            rows: new.rows as u64,
            before: before as u64,
        };
        // SAFETY: there is an end for every row of both, and a first 0.
        unsafe { launch(self.home, stream, &self.kernels.shift, new.rows, &args)? };
        let offsets = offsets.keep();
        Ok((Encoding::Bytes { offsets }, data))
    }

    /// A bit for each row of both parts; those of a part without bits are set.
    fn bitmap(
        &self,
        first: usize,
        before: Option<&DeviceBuffer>,
        second: usize,
        added: Option<&DeviceBuffer>,
    ) -> Result<PreallocatedBuffer> {
        let bitmap = self.room((first + second).div_ceil(32) * 4)?;
        let buffer = bitmap.buffer();
        buffer.fill(self.stream, 0)?;
        let whole = first / 8;
        match before {
            Some(bits) => buffer.copy_from(self.stream, 0, bits, 0, whole)?,
            None => buffer.fill_range(self.stream, 0, whole, 0xff)?,
        }
        // What lies behind the last row of a bitmap is not told: the rest of its rows are set one by one.
        let rest = match before {
            Some(bits) if !first.is_multiple_of(8) => bits.ptr_at(whole)?,
            _ => DevicePtr::NULL,
        };
        self.set_bits(buffer, whole * 8, first % 8, rest)?;
        let added = added.map_or(DevicePtr::NULL, DeviceBuffer::ptr);
        self.set_bits(buffer, first, second, added)?;
        Ok(bitmap)
    }

    /// Sets the bits of these rows that are set in `bits`, or all of them.
    fn set_bits(
        &self,
        bitmap: &DeviceBuffer,
        first: usize,
        rows: usize,
        bits: DevicePtr,
    ) -> Result<()> {
        let args = ParquetValidityArgs {
            bits,
            validity: bitmap.ptr(),
            first_row: first as u64,
            rows: rows as u64,
        };
        // SAFETY: the bitmap has a bit for every row of both parts, and `bits` one for each of these.
        unsafe { launch(self.home, self.stream, &self.kernels.validity, rows, &args) }
    }

    /// Memory that is used by what is queued here alone.
    fn scratch(&self, bytes: usize) -> Result<DeviceBuffer> {
        let pool = self.home.device;
        let buffer = pool.allocate_for(self.stream, bytes, self.name)?;
        Ok(buffer.ordered_by(self.stream))
    }
}
