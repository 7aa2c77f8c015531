//! String columns whose rows came as bytes: chunks of strings, and all of them one after the other.

use warpline_cuda::kernels::ParquetShiftArgs;

use super::assemble::Rows;
use super::bytes::Strings;
use super::chunk::Segment;
use super::on_device::{DeviceColumn, FinishKernels, launch};
use super::pools::ColumnPools;
use super::preallocated::PreallocatedBuffer;
use crate::device::Stream;
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// The strings of a chunk, one after the other; where they end is in the column already, counted from the first.
#[derive(Debug)]
pub(crate) struct PlacedStrings {
    pub(crate) bytes: DeviceBuffer,
    /// How many of `bytes`.
    pub(crate) length: usize,
    /// All of them are ASCII.
    pub(crate) ascii: bool,
}

impl DeviceColumn {
    /// [`DeviceColumn::place`] of strings that come as bytes.
    pub(super) fn place_bytes(
        &self,
        first: usize,
        segment: &Segment,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        stream: &Stream,
    ) -> Result<()> {
        let rows = segment.rows();
        let nulls: usize = segment.chunks.iter().map(|chunk| chunk.null_count).sum();
        if (nulls > 0 && self.validity.is_none()) || first + rows > self.rows {
            self.seen.lock().refused = true;
            return Ok(());
        }
        let segments = std::slice::from_ref(segment);
        let all = Rows::new(segments);
        let strings = Strings::new(&all, segments)?;
        let length = strings.total;
        let mut ends = vec![0; (rows + 1) * 8];
        strings.write_offsets(0..ends.len(), &mut ends);
        let ends = ends.get(8..).unwrap_or_default();
        self.place.buffer().upload(stream, (first + 1) * 8, ends)?;
        let mut host = vec![0; length];
        strings.write_bytes(0..length, &mut host);
        let bytes = home.device.allocate(length.max(1), &self.name)?;
        bytes.upload(stream, 0, &host)?;
        self.place_validity(first..first + rows, &all, nulls, home, kernels, stream)?;
        let ascii = segment.ascii;
        let placed = PlacedStrings {
            bytes,
            length,
            ascii,
        };
        let mut seen = self.seen.lock();
        seen.rows += rows;
        seen.nulls += nulls as u64;
        seen.placed.push((first, rows, placed));
        Ok(())
    }
}

/// The strings of all chunks one after the other, and their ends counted from the first of them.
pub(super) fn concatenated(
    name: &str,
    offsets: &DeviceBuffer,
    chunks: Vec<(usize, usize, PlacedStrings)>,
    home: &ColumnPools<'_>,
    kernels: &FinishKernels,
    stream: &Stream,
) -> Result<PreallocatedBuffer> {
    let total = chunks.iter().map(|(.., placed)| placed.length).sum();
    let data = PreallocatedBuffer::new(total, name, home, stream)?;
    let mut before = 0;
    for (first, rows, PlacedStrings { bytes, length, .. }) in chunks {
        data.buffer().copy_from(stream, before, &bytes, 0, length)?;
        // What is queued on this stream alone uses it now.
        drop(bytes.ordered_by(stream));
        let args = ParquetShiftArgs {
            ends: offsets.ptr(),
            first_row: first as u64,
            rows: rows as u64,
            before: before as u64,
        };
        if before > 0 {
            // SAFETY: there is an end for every row of the column, and a first 0.
            unsafe { launch(home, stream, &kernels.shift, rows, &args)? };
        }
        before += length;
    }
    Ok(data)
}
