//! Rows of a result in partitions that lie in several chunks: how they get there piece by piece, and how some of the
//! partitions are brought back to the device.
//!
//! A piece is as many rows as may lie on the device. It is partitioned there, and its partitions are kept one behind the other:
//! on the device while more than half of that is free, else in host memory, and in files when that is full and the user names a
//! directory. So rows cross the link in whole pieces one way and in runs of a partition the other way, never one by one.

use std::ops::Range;

use crate::codegen::{ControlWord, Part};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::chunks::{Chunk, moves_along, rows_within};
use crate::exec::portions::each::Turn;
use crate::exec::portions::partitioned::{BITS, PartitionBy, Partitioned, Staged};
use crate::exec::portions::strides::Scan;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource};
use crate::exec::prepare::part_sizes::{BlockSizes, PartSize};
use crate::graph::ResultId;
use crate::primitives::{self, Partitioning, Payload, RowCount};

/// Rows stay where they were made with up to this share more room than they take.
const SHARE_UNUSED: usize = 8;

impl Run<'_> {
    /// How a pipeline is run piece by piece whose rows, if all find their way to its result, are too many for a part;
    /// `None` when they are few, or it does not go over a table in order.
    pub(in crate::exec) fn pieces<'k>(
        &self,
        kernel: &'k PreparedKernel,
        into: ResultId,
    ) -> Option<Scan<'k>> {
        let PreparedSource::Exactly(all) = kernel.source else {
            return None;
        };
        let whole = kernel.tree.is_some()
            || self.frame.zero_copy(into).is_some()
            || !kernel.goes_in_strides();
        if whole || !self.frame.exceeds_part(into, all) {
            return None;
        }
        let tiles = kernel.stride_rows();
        let rows = (self.frame.piece_rows(into) / tiles).max(1) * tiles;
        // Rows may be wider than what they are computed from.
        Some(match self.scan(kernel) {
            Some(scan) => scan.of_at_most(rows),
            None => Scan::in_place(all, rows),
        })
    }

    /// Run a pipeline piece by piece, and `each` over the rows of a piece, in memory of their own: its result counts these alone.
    pub(in crate::exec) fn over_pieces(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        mut each: impl FnMut(&mut Self, Store) -> Result<()>,
    ) -> Result<()> {
        let Some(pieces) = self.pieces(kernel, into) else {
            return Err(GpuError::Internal("pieces of rows that are few".into()));
        };
        self.over_strides(kernel, pieces, |run, stride| {
            run.frame.results[into].rows = 0;
            run.frame.results[into].sizes.capacity = stride.rows();
            run.frame.make(into)?;
            let (control, stream) = (&run.frame.control, run.frame.stream);
            control.set(stream, into, ControlWord::Count, 0)?;
            run.fill_stride(kernel, into, stride)?;
            let filled = run.frame.results[into].store.take();
            let filled = filled.ok_or_else(|| GpuError::Internal("a piece without rows".into()))?;
            each(run, filled)?;
            Ok(Turn::Next)
        })
    }

    /// Copy some rows of a result to memory of their own on the device.
    pub(in crate::exec) fn load_piece(
        &mut self,
        result: ResultId,
        rows: Range<u64>,
    ) -> Result<Store> {
        let count = rows.end - rows.start;
        let store = self.frame.room_for_rows(result, count)?;
        self.copy_piece(result, rows, &store)?;
        Ok(store)
    }

    /// Copy some rows of a result to `store`, which has room for as many in each of its parts.
    pub(in crate::exec) fn copy_piece(
        &mut self,
        result: ResultId,
        rows: Range<u64>,
        store: &Store,
    ) -> Result<()> {
        let count = rows.end - rows.start;
        let device = self.frame.runtime.device();
        for size in store.parts() {
            let unit = size.unit as u64;
            if size.rows < count {
                let part = size.part;
                return Err(GpuError::Internal(format!("a piece with less of {part:?}")));
            }
            let from = self.frame.address(result, size.part)?;
            let from = from.offset(rows.start * unit);
            let Some(to) = store.address(size.part) else {
                return Err(lost(size.part));
            };
            // SAFETY: the result has the rows, in its own memory or in a table that the caller of the run holds; the piece
            // has room for them, as was seen.
            unsafe {
                device.copy_on_device(self.frame.stream, from, to, (count * unit) as usize)?;
            }
        }
        Ok(())
    }

    /// Partition the `rows` rows of a piece and keep the partitions.
    pub(in crate::exec) fn partition_piece(
        &mut self,
        result: ResultId,
        piece: &Store,
        rows: u64,
        by: &PartitionBy,
        partitioned: &mut Partitioned,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let moved: Vec<PartSize> = piece
            .parts()
            .filter(|size| size.part.moves())
            .map(|size| PartSize { rows, ..size })
            .collect();
        let keys = PartSize::new(Part::KeyWord(0), by.keys.width as usize, rows);
        let partitions = 1 << BITS;
        let block = |parts: Vec<PartSize>| BlockSizes {
            parts,
            ..Default::default()
        };
        let kept = [moved.clone(), if by.kept { vec![keys] } else { vec![] }].concat();
        let mut rest = vec![PartSize::new(Part::Offsets, 4, partitions + 1)];
        if !by.kept {
            rest.push(keys);
        }
        let name = self.frame.name(result);
        let mut arranged = Store::default();
        let blocks = [block(kept.clone()), block(rest)];
        arranged.extend(&blocks, &mut self.frame.recycler, self.frame.stream, name)?;
        let new = |part: Part| arranged.address(part).ok_or_else(|| lost(part));
        let mut payloads = Vec::new();
        for size in &moved {
            payloads.push(Payload {
                from: Some(piece.address(size.part).ok_or_else(|| lost(size.part))?),
                to: new(size.part)?,
                width: size.unit as u32,
            });
        }
        let of = Partitioning {
            keys: by.keys,
            to: new(Part::KeyWord(0))?,
            payloads: &payloads,
            rows: RowCount::Known(rows),
            digits: by.digits,
            bits: by.shift..by.shift + BITS,
        };
        let offsets = new(Part::Offsets)?;
        self.reports.kernels += 1;
        // SAFETY: the new store has room for the rows of each part and for the offsets; the piece has as many rows, and the
        // caller vouches for the keys beside them.
        unsafe {
            primitives::radix_partition(self.frame.runtime, self.frame.stream, &of, Some(offsets))?
        };
        let Some((buffer, at)) = arranged.location(Part::Offsets) else {
            return Err(lost(Part::Offsets));
        };
        let offsets = buffer.download_values(self.frame.stream, at, partitions as usize + 1)?;
        self.keep_chunk(result, (arranged, offsets), kept, partitioned)
    }

    /// Keep the `rows` rows of a piece as they are.
    pub(in crate::exec) fn keep_piece(
        &mut self,
        result: ResultId,
        piece: Store,
        rows: u64,
        partitioned: &mut Partitioned,
    ) -> Result<()> {
        if rows == 0 {
            piece.release(&mut self.frame.recycler);
            return Ok(());
        }
        let kept: Vec<PartSize> = piece
            .parts()
            .filter(|size| moves_along(size.part))
            .map(|size| PartSize { rows, ..size })
            .collect();
        let end = u32::try_from(rows)
            .map_err(|_| GpuError::Internal(format!("a piece of {rows} rows")))?;
        let bytes = Store::bytes_within(&kept)?;
        let mut made = piece;
        if made.bytes() > bytes + bytes / SHARE_UNUSED && self.frame.recycler.has_plenty() {
            // Few rows passed: the room for the others is not kept.
            let mut dense = Store::default();
            let name = self.frame.name(result);
            dense.extend_on_device(kept.clone(), &mut self.frame.recycler, name)?;
            dense.copy_range(&made, 0..rows, 0, moves_along, self.frame.stream)?;
            made.release(&mut self.frame.recycler);
            made = dense;
        }
        self.keep_chunk(result, (made, vec![0, end]), kept, partitioned)
    }

    /// Keep rows in partitions, these parts of them, where there is room: one chunk more.
    fn keep_chunk(
        &mut self,
        result: ResultId,
        (made, offsets): (Store, Vec<u32>),
        kept: Vec<PartSize>,
        partitioned: &mut Partitioned,
    ) -> Result<()> {
        if self.frame.recycler.has_plenty() {
            partitioned.chunks.push(Chunk::here((made, offsets)));
            return Ok(());
        }
        let rows = offsets.last().copied().map_or(0, u64::from);
        let name = self.frame.name(result);
        let (mut away, there) = self.host_room(&kept, name)?;
        if !there {
            if let Some(file) = self.write_to_file(&made, &kept, &offsets)? {
                made.release(&mut self.frame.recycler);
                partitioned.chunks.push(file);
                // What is at work finds no room elsewhere either: it gets that of the first chunks.
                while !self.frame.recycler.is_nearly_free()
                    && self.chunk_to_file(partitioned, false)?
                {}
                return Ok(());
            }
            // Device memory may still have room; the error says what to set.
            away.extend_on_device(kept, &mut self.frame.recycler, name)?;
        }
        let copies = match &mut partitioned.leaving.stream {
            Some(copies) => copies,
            none => none.insert(self.frame.runtime.lease_stream()?),
        };
        let device = self.frame.runtime.device();
        let made_there = device.record_event(self.frame.stream)?;
        device.wait_event(copies, &made_there)?;
        away.copy_range(&made, 0..rows, 0, moves_along, copies)?;
        let left = device.record_event(copies)?;
        if let Some(before) = partitioned.leaving.last.replace((made, left)) {
            self.has_left(before)?;
        }
        partitioned.chunks.push(Chunk::here((away, offsets)));
        Ok(())
    }

    /// Move one of the chunks that lie in host memory, or else on the device, to a file; false when there is none, or no
    /// directory for files.
    pub(in crate::exec) fn chunk_to_file(
        &mut self,
        partitioned: &mut Partitioned,
        on_host: bool,
    ) -> Result<bool> {
        let lies_there = |store: &Store| store.is_on_host() == on_host;
        let mut chunks = partitioned.chunks.iter();
        let number = chunks.position(|chunk| chunk.store().is_some_and(lies_there));
        let Some(number) = number else {
            return Ok(false);
        };
        let Some(file) = self.chunk_as_file(&partitioned.chunks[number])? else {
            return Ok(false);
        };
        let before = std::mem::replace(&mut partitioned.chunks[number], file);
        before.release(&mut self.frame.recycler);
        Ok(true)
    }

    /// All pieces have been partitioned: what is queued from now on finds their rows.
    pub(in crate::exec) fn settle(&mut self, partitioned: &mut Partitioned) -> Result<()> {
        let leaving = std::mem::take(&mut partitioned.leaving);
        match leaving.last {
            Some(last) => self.has_left(last),
            None => Ok(()),
        }
    }

    /// Queue the copies of all rows of some partitions to the device on `copies`.
    pub(in crate::exec) fn stage_part(
        &mut self,
        result: ResultId,
        partitioned: &Partitioned,
        partitions: &Range<usize>,
        copies: &Stream,
    ) -> Result<Staged> {
        let all = 0..partitioned.rows_of(partitions);
        self.stage_rows(result, partitioned, partitions, all, copies)
    }

    /// The same for these of the rows, counted from the first of the partitions'.
    pub(in crate::exec) fn stage_rows(
        &mut self,
        result: ResultId,
        partitioned: &Partitioned,
        partitions: &Range<usize>,
        wanted: Range<u64>,
        copies: &Stream,
    ) -> Result<Staged> {
        let rows = wanted.end - wanted.start;
        let store = self.frame.room_for_rows(result, rows)?;
        // Memory that is used again may still be read by what was queued before, and what was kept last is still written.
        let device = self.frame.runtime.device();
        let free = device.record_event(self.frame.stream)?;
        device.wait_event(copies, &free)?;
        for (number, range, at) in rows_within(&partitioned.chunks, partitions, wanted) {
            partitioned.chunks[number].copy(range, &store, at, copies)?;
        }
        if partitioned.chunks.iter().any(Chunk::is_away) {
            self.reports.pair_bytes += store.bytes() as u64;
        }
        Ok(Staged {
            store,
            rows,
            come: device.record_event(copies)?,
        })
    }

    /// Queue the copy of all rows of a chunk to the device on `copies`.
    pub(in crate::exec) fn stage_chunk(
        &mut self,
        result: ResultId,
        chunk: &Chunk,
        copies: &Stream,
    ) -> Result<Staged> {
        let has = chunk.rows_of(&chunk.partitions());
        let rows = has.end - has.start;
        let store = self.frame.room_for_rows(result, rows)?;
        let device = self.frame.runtime.device();
        let free = device.record_event(self.frame.stream)?;
        device.wait_event(copies, &free)?;
        chunk.copy(has, &store, 0, copies)?;
        if chunk.is_away() {
            self.reports.pair_bytes += store.bytes() as u64;
        }
        Ok(Staged {
            store,
            rows,
            come: device.record_event(copies)?,
        })
    }

    /// The memory of staged rows, once they are there for what is queued from now on.
    pub(in crate::exec) fn staged(&self, part: Staged) -> Result<Store> {
        self.frame
            .runtime
            .device()
            .wait_event(self.frame.stream, &part.come)?;
        Ok(part.store)
    }

    /// Let staged rows stand for all rows of their result.
    pub(in crate::exec) fn take_part(&mut self, result: ResultId, part: Staged) -> Result<()> {
        let rows = part.rows;
        self.frame.results[result].rows = rows;
        self.frame.results[result].sizes.capacity = rows;
        self.frame.results[result].store = Some(self.staged(part)?);
        let control = &self.frame.control;
        control.set(self.frame.stream, result, ControlWord::Count, rows)?;
        control.set(self.frame.stream, result, ControlWord::Pairs, 0)
    }

    /// Nobody needs the rows any more.
    pub(in crate::exec) fn drop_partitioned(&mut self, partitioned: Partitioned) {
        for chunk in partitioned.chunks {
            chunk.release(&mut self.frame.recycler);
        }
    }
}

fn lost(part: Part) -> GpuError {
    GpuError::Internal(format!("rows in pieces have no {part:?}"))
}
