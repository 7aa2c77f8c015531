//! Scans of tables that device memory does not hold: columns come from host memory in strides, while kernels run over the
//! stride before (Karnagel, Müller and Lohman, DaMoN 2015).
//!
//! A kernel goes over the rows of a stride under their numbers in the table. So that these lead to the right bytes, the
//! address that it gets of a column is that of the stride's copy less the bytes of the rows before the stride.

use std::ops::Range;

use crate::device::{Device, DevicePtr, Event, Stream, StreamLease};
use crate::error::Result;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource, PreparedStep};
use crate::exec::prepare::prepared::Prepared;
use crate::exec::prepare::streamed::{ALIGNMENT, StreamedPart};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;
use crate::tables::LoadProgress;

/// Strides on the device at a time, where memory is plenty: one is read, one has come, one is on its way.
const SLOTS: u64 = 3;
/// Bytes of a stride, where memory is plenty: enough for a copy to reach the bandwidth of the link, …
pub(in crate::exec) const STRIDE_BYTES: u64 = 64 << 20;
/// … and in scans of this many strides and more up to twice as many, so that their partitions, which are copied one by one,
/// are not small.
const MANY_STRIDES: u64 = 16;
/// Blocks of more bytes are whole pages of the device.
const PAGE: u64 = 2 << 20;

/// Rows that one launch goes over, and the addresses of the streamed columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct Span {
    /// First row.
    pub(in crate::exec) first: u64,
    /// The row behind the last.
    pub(in crate::exec) end: u64,
    addresses: Vec<u64>,
}

impl Span {
    /// All `rows` rows of a source where it lies, columns in host memory included.
    pub(in crate::exec) fn whole(kernel: &PreparedKernel, rows: u64) -> Self {
        Self {
            first: 0,
            end: rows,
            addresses: kernel.streamed.iter().map(|part| part.source.0).collect(),
        }
    }

    /// Some rows of a source where it lies.
    pub(in crate::exec) fn some(kernel: &PreparedKernel, rows: Range<u64>) -> Self {
        Self {
            first: rows.start,
            ..Self::whole(kernel, rows.end)
        }
    }

    /// Number of rows.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.end - self.first
    }

    /// Addresses of the kernel's streamed column parts.
    pub(in crate::exec) fn addresses(&self) -> &[u64] {
        &self.addresses
    }
}

/// Some rows of a scan: on their way, or where they lie.
pub(in crate::exec) struct Stride {
    pub(in crate::exec) number: u64,
    pub(in crate::exec) span: Span,
    /// When its copies will have come.
    pub(in crate::exec) come: Option<Event>,
}

impl Stride {
    /// Number of rows.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.span.rows()
    }
}

/// One slot: when nothing reads its bytes any more.
#[derive(Default)]
struct Slot {
    read: Option<Event>,
}

/// Slots on the device and the stream that fills them; for all streamed scans of a run, one after the other.
pub(in crate::exec) struct Strides {
    buffer: DeviceBuffer,
    slot_bytes: u64,
    slots: Vec<Slot>,
    copies: StreamLease,
    /// Bytes that have crossed the link.
    pub(in crate::exec) bytes: u64,
}

/// A scan on its way.
pub(in crate::exec) struct Scan<'k> {
    parts: &'k [StreamedPart],
    rows: u64,
    stride: u64,
    /// Rows that are still to come.
    arrival: Option<&'k LoadProgress>,
}

/// Bytes of a slot for `rows` rows.
fn slot_bytes(parts: &[StreamedPart], rows: u64) -> u64 {
    parts.iter().map(|part| part.room(rows)).sum()
}

impl Strides {
    /// Slots for the streamed scans of a fragment; `None` when it has none, or no memory for them: kernels read across the
    /// link then.
    pub(in crate::exec) fn new(prepared: &Prepared, runtime: &Runtime) -> Result<Option<Self>> {
        let kernels = prepared.steps.iter().filter_map(|step| match step {
            PreparedStep::Pipeline(kernel) if !kernel.streamed.is_empty() => Some(kernel),
            _ => None,
        });
        let (mut least, mut most) = (0, 0);
        for kernel in kernels {
            least = least.max(slot_bytes(&kernel.streamed, kernel.stride_rows()));
            most = most.max(slot_bytes(&kernel.streamed, kernel.source_rows()));
        }
        if most == 0 {
            return Ok(None);
        }
        // What is kept for later queries makes room.
        let room = runtime.attainable_memory();
        let room = room.strides(prepared.results_bytes());
        let room = match room > PAGE {
            true => room / PAGE * PAGE,
            false => room,
        };
        let least = least.next_multiple_of(ALIGNMENT);
        let slots = (room / least).clamp(1, SLOTS);
        let stride = (most / MANY_STRIDES).clamp(STRIDE_BYTES, 2 * STRIDE_BYTES);
        let wanted = most.min(stride).min(room / slots);
        let slot_bytes = (wanted / ALIGNMENT * ALIGNMENT).max(least);
        let bytes = (slot_bytes * slots) as usize;
        let purpose = "strides of columns in host memory";
        let allocated = runtime.pool().allocate(bytes, purpose);
        let buffer = match allocated {
            Ok(buffer) => buffer,
            Err(error) => {
                log::warn!("columns are read across the link row by row: {error}");
                return Ok(None);
            }
        };
        Ok(Some(Self {
            buffer,
            slot_bytes,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            copies: runtime.lease_stream()?,
            bytes: 0,
        }))
    }

    /// Begin a scan; `None` when a slot does not hold the least stride of this kernel.
    pub(in crate::exec) fn scan<'k>(&self, kernel: &'k PreparedKernel) -> Option<Scan<'k>> {
        let (parts, least) = (&kernel.streamed[..], kernel.stride_rows());
        let fits = |rows: u64| slot_bytes(parts, rows) <= self.slot_bytes;
        if !fits(least) {
            return None;
        }
        // The largest number of least strides that fits.
        let (mut fit, mut too_many) = (1, kernel.source_rows().div_ceil(least).max(1) + 1);
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if fits(middle * least) {
                fit = middle;
            } else {
                too_many = middle;
            }
        }
        let mut stride = fit * least;
        if kernel.arrival.is_some() {
            stride = stride.min(kernel.early_stride(kernel.source_rows()));
        }
        Some(Scan {
            parts,
            rows: kernel.source_rows(),
            stride,
            arrival: kernel.arrival.as_deref(),
        })
    }

    /// Strides that may come while one is read.
    pub(in crate::exec) fn depth(&self) -> usize {
        self.slots.len() - 1
    }

    /// Queue the copies of stride `number`, whose rows have come.
    pub(in crate::exec) fn stage(
        &mut self,
        scan: &Scan<'_>,
        number: u64,
        device: &dyn Device,
    ) -> Result<Stride> {
        let come = self.copy(scan, number, device)?;
        let (first, end) = scan.bounds(number);
        let mut at = self.slot_address(number);
        let mut addresses = Vec::with_capacity(scan.parts.len());
        for part in scan.parts {
            let (from, to) = part.range(first, end);
            let room = part.room(scan.stride);
            addresses.push(match to - from <= room {
                // The rows' own offsets bring a wrapped address back.
                true => at.wrapping_sub(from),
                // Strings that are much longer than others stay where they are.
                false => part.source.0,
            });
            at += room;
        }
        Ok(Stride {
            number,
            span: Span {
                first,
                end,
                addresses,
            },
            come: Some(come),
        })
    }

    /// Everything that reads stride `number` has been queued on `stream`.
    pub(in crate::exec) fn done(
        &mut self,
        number: u64,
        runtime: &Runtime,
        stream: &Stream,
    ) -> Result<()> {
        let read = runtime.device().record_event(stream)?;
        let slot = self.slot(number);
        self.slots[slot].read = Some(read);
        Ok(())
    }

    /// Where stride `number` goes.
    fn slot(&self, number: u64) -> usize {
        number as usize % self.slots.len()
    }

    fn slot_address(&self, number: u64) -> u64 {
        self.buffer.ptr().0 + self.slot(number) as u64 * self.slot_bytes
    }

    fn copy(&mut self, scan: &Scan<'_>, number: u64, device: &dyn Device) -> Result<Event> {
        let (first, end) = scan.bounds(number);
        let mut at = self.slot_address(number);
        let slot = self.slot(number);
        let slot = &mut self.slots[slot];
        if let Some(read) = &slot.read {
            device.wait_event(&self.copies, read)?;
        }
        for part in scan.parts {
            let (from, to) = part.range(first, end);
            let room = part.room(scan.stride);
            if to - from <= room {
                let source = DevicePtr(part.source.0 + from);
                let bytes = (to - from) as usize;
                // SAFETY: the range lies in a column that the caller of the run holds, and in the part's room in a slot;
                // what read the slot before has been waited for.
                unsafe { device.copy_on_device(&self.copies, source, DevicePtr(at), bytes)? };
            }
            self.bytes += to - from;
            at += room;
        }
        device.record_event(&self.copies)
    }
}

impl Scan<'_> {
    /// All rows in one stride, columns where they lie.
    pub(in crate::exec) fn whole(rows: u64) -> Self {
        Self::in_place(rows, rows)
    }

    /// A scan in strides of columns where they lie.
    pub(in crate::exec) fn in_place(rows: u64, stride: u64) -> Self {
        Self {
            parts: &[],
            rows,
            stride: stride.max(1),
            arrival: None,
        }
    }

    /// Are its columns where they lie, not copied?
    pub(in crate::exec) fn is_in_place(&self) -> bool {
        self.parts.is_empty()
    }

    /// Have the rows of a stride come?
    pub(in crate::exec) fn has_come(&self, number: u64) -> bool {
        let (_, end) = self.bounds(number);
        self.arrival.is_none_or(|arrival| arrival.has(end))
    }

    /// The same in strides of at most `rows` rows, whole least strides.
    pub(in crate::exec) fn of_at_most(self, rows: u64) -> Self {
        Self {
            stride: self.stride.min(rows),
            ..self
        }
    }

    /// Number of strides, at least one.
    pub(in crate::exec) fn count(&self) -> u64 {
        self.rows.div_ceil(self.stride).max(1)
    }

    /// Number of rows of a stride.
    pub(in crate::exec) fn rows_of(&self, number: u64) -> u64 {
        let (first, end) = self.bounds(number);
        end - first
    }

    /// Rows of a stride.
    pub(in crate::exec) fn bounds(&self, number: u64) -> (u64, u64) {
        let first = number * self.stride;
        (first, (first + self.stride).min(self.rows))
    }
}

impl PreparedKernel {
    /// The strides of a table that is still coming, as far as this kernel goes over one in strides.
    pub(in crate::exec) fn coming(&self) -> Option<Scan<'_>> {
        let (Some(arrival), PreparedSource::Exactly(rows)) = (&self.arrival, self.source) else {
            return None;
        };
        if !self.goes_in_strides() || arrival.has(rows) {
            return None;
        }
        Some(Scan::in_place(rows, self.early_stride(rows)))
    }
}
