//! Rows of a result in partitions, wherever they lie: on the device, in host memory, or in a file when neither has room and the
//! user names a directory.
//!
//! Partitions of a chunk lie one behind the other, and come back alone or with their neighbours. What is written to a file
//! waits for the disk; what is read of it goes to the device through memory that is copied from at once.

use std::ops::Range;

use crate::codegen::Part;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::storage::{Recycler, Store};
use crate::exec::prepare::part_sizes::PartSize;
use crate::memory::SpillFile;
use crate::primitives::{self, ByteRun};
use crate::runtime::Runtime;

/// From so many bytes on, on average, runs come across the link by the copy engine, which carries 55.4 GB/s and loses about
/// 2.6 microseconds a run; a kernel carries 51.2 in runs of 128 KiB and more (measured on an H200: at 1 MiB 48.2 and 51.2, at
/// 4 MiB 53.3 and 51.3).
const LONG_RUN: u64 = 2 << 20;

/// Some rows in partitions.
pub(in crate::exec) struct Chunk {
    rows: Rows,
    /// The first row of each partition, and the number of rows.
    offsets: Vec<u32>,
}

/// Where they lie.
enum Rows {
    /// In device or host memory.
    Here(Store),
    /// In a file, whose columns are these parts.
    File(Box<SpillFile>, Vec<PartSize>),
}

impl Chunk {
    /// Rows in memory, and where their partitions begin.
    pub(in crate::exec) fn here((rows, offsets): (Store, Vec<u32>)) -> Self {
        Self {
            rows: Rows::Here(rows),
            offsets,
        }
    }

    /// Rows in a file, whose columns are these parts, and where their partitions begin.
    pub(in crate::exec) fn in_file(
        file: SpillFile,
        parts: Vec<PartSize>,
        offsets: Vec<u32>,
    ) -> Self {
        Self {
            rows: Rows::File(Box::new(file), parts),
            offsets,
        }
    }

    /// The first row of each partition, and the number of rows.
    pub(in crate::exec) fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Rows of some neighbouring partitions.
    pub(in crate::exec) fn rows_of(&self, partitions: &Range<usize>) -> Range<u64> {
        let last = self.offsets.len().saturating_sub(1);
        let offset = |at: usize| self.offsets.get(at.min(last)).copied().map_or(0, u64::from);
        offset(partitions.start)..offset(partitions.end)
    }

    /// All partitions.
    pub(in crate::exec) fn partitions(&self) -> Range<usize> {
        0..self.offsets.len().saturating_sub(1)
    }

    /// The memory that all rows lie in, unless they are in a file.
    pub(in crate::exec) fn store(&self) -> Option<&Store> {
        match &self.rows {
            Rows::Here(store) => Some(store),
            Rows::File(..) => None,
        }
    }

    /// Does a partition come across the link?
    pub(in crate::exec) fn is_away(&self) -> bool {
        match &self.rows {
            Rows::Here(rows) => rows.is_on_host(),
            Rows::File(..) => true,
        }
    }

    /// Queue the copy of these of its rows to row `at` of `to` and those behind it, in every column that both have.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when a file cannot be read, [`GpuError::Device`].
    pub(in crate::exec) fn copy(
        &self,
        wanted: Range<u64>,
        to: &Store,
        at: u64,
        by: &Stream,
    ) -> Result<()> {
        match &self.rows {
            Rows::Here(rows) => to.copy_range(rows, wanted, at, moves_along, by),
            Rows::File(file, parts) => self.copy_from_file(file, parts, wanted, to, at, by),
        }
    }

    /// The same, but what lies in memory is only noted in `runs`, to be copied with other runs.
    ///
    /// # Errors
    /// As [`Chunk::copy`].
    pub(in crate::exec) fn bring(
        &self,
        wanted: Range<u64>,
        to: &Store,
        at: u64,
        by: &Stream,
        runs: &mut Runs,
    ) -> Result<()> {
        match &self.rows {
            Rows::Here(rows) => {
                let found = to.runs(rows, wanted, at, moves_along)?;
                match rows.is_on_host() {
                    true => runs.far.extend(found),
                    false => runs.near.extend(found),
                }
                Ok(())
            }
            Rows::File(file, parts) => self.copy_from_file(file, parts, wanted, to, at, by),
        }
    }

    /// Partitions of a file are read whole.
    fn copy_from_file(
        &self,
        file: &SpillFile,
        parts: &[PartSize],
        wanted: Range<u64>,
        to: &Store,
        at: u64,
        by: &Stream,
    ) -> Result<()> {
        for number in self.partitions() {
            let has = self.rows_of(&(number..number + 1));
            let (first, end) = (wanted.start.max(has.start), wanted.end.min(has.end));
            if first >= end {
                continue;
            }
            let there = at + (first - wanted.start);
            for (part, values) in parts.iter().zip(file.read(number)?) {
                let Some((buffer, start)) = to.location(part.part) else {
                    continue;
                };
                let unit = part.unit;
                let within = (first - has.start) as usize * unit..(end - has.start) as usize * unit;
                let values = values
                    .get(within)
                    .ok_or_else(|| GpuError::Internal("a file lacks rows of a chunk".into()))?;
                buffer.upload(by, start + there as usize * unit, values)?;
            }
        }
        Ok(())
    }

    /// Let its memory be used again; a file goes.
    pub(in crate::exec) fn release(self, recycler: &mut Recycler) {
        if let Rows::Here(rows) = self.rows {
            rows.release(recycler);
        }
    }
}

/// Runs of rows that are to be copied to the device.
#[derive(Default)]
pub(in crate::exec) struct Runs {
    /// They lie there already.
    near: Vec<ByteRun>,
    /// They come across the link.
    far: Vec<ByteRun>,
}

impl Runs {
    /// Queue their copies.
    ///
    /// # Safety
    /// As [`primitives::copy_runs`].
    pub(in crate::exec) unsafe fn copy(&self, runtime: &Runtime, stream: &Stream) -> Result<()> {
        let bytes: u64 = self.far.iter().map(|run| run.bytes).sum();
        // SAFETY: passed on to the caller.
        unsafe {
            if bytes >= LONG_RUN * self.far.len() as u64 {
                for run in &self.far {
                    let device = runtime.device();
                    device.copy_on_device(stream, run.from, run.to, run.bytes as usize)?;
                }
            } else {
                primitives::copy_runs(runtime, stream, &self.far, true)?;
            }
            primitives::copy_runs(runtime, stream, &self.near, false)
        }
    }
}

/// Of the rows that chunks have of some partitions, counted through all chunks, those in `wanted`: by chunk its own rows,
/// and how many of the wanted ones come before them.
pub(in crate::exec) fn rows_within(
    chunks: &[Chunk],
    partitions: &Range<usize>,
    wanted: Range<u64>,
) -> Vec<(usize, Range<u64>, u64)> {
    let mut before = 0;
    let mut found = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let has = chunk.rows_of(partitions);
        let all = before..before + (has.end - has.start);
        before = all.end;
        let (from, to) = (wanted.start.max(all.start), wanted.end.min(all.end));
        if from < to {
            let rows = has.start + from - all.start..has.start + to - all.start;
            found.push((number, rows, from - wanted.start));
        }
    }
    found
}

/// Does a part of a result go with its rows into partitions?
pub(in crate::exec) fn moves_along(part: Part) -> bool {
    part.moves() || part == Part::KeyWord(0)
}
