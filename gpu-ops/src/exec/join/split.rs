//! Splitting the sides of a join that is too large for device memory: which sides, and into partitions of how many hash bits.
//!
//! This is the first pass of the Triton join (Lutz et al., SIGMOD 2022): rows are partitioned by the lowest hash bits while
//! they are read, stride by stride. Where the partitions lie until [`crate::exec::join::partitioned`] joins them is for [`crate::exec::join::spill`] to say.

use std::ops::Range;

use crate::codegen::{ControlWord, JoinKeys, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::arrange::{Arrangement, Order};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::join::sides::SplitSide;
use crate::exec::portions::chunks::{Chunk, moves_along};
use crate::exec::portions::each::Turn;
use crate::exec::portions::loops::Loop;
use crate::exec::portions::partitioned::{Partitioned, VECTOR};
use crate::exec::portions::strategy::PortionOf;
use crate::exec::portions::strides::Stride;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedStep};
use crate::exec::prepare::part_sizes::{ColumnShape, side_parts};
use crate::exec::prepare::shapes::{IndexShape, Shape};
use crate::graph::{Parts, ResultId};
use crate::primitives::Digits;

/// Most hash bits of the first pass: one reading of the rows.
const MOST_BITS: u32 = 8;
/// Least hash bits of the first pass where it is asked for.
const LEAST_BITS: u32 = 2;

impl Run<'_> {
    /// Bytes that the rows of a join's side may take together.
    pub(in crate::exec) fn side_room(&self) -> u64 {
        self.frame.recycler.pool().budget().portion()
    }

    /// Bytes of the rows that are thought to probe an index.
    fn probing_bytes(&self, index: ResultId) -> u64 {
        let step = self.probing_step(index);
        match step.map(|step| &self.frame.prepared.steps[step]) {
            Some(PreparedStep::Pipeline(kernel)) => kernel.into.map_or(0, |into| {
                self.frame.bytes_of(into, self.expected(kernel, into))
            }),
            Some(PreparedStep::Borrow { into, .. }) => self.frame.bytes_of(
                *into,
                self.frame
                    .zero_copy(*into)
                    .map_or(0, |in_table| in_table.rows),
            ),
            _ => 0,
        }
    }

    /// The hash bits of partitions of a side of `rows` rows, where it is to be joined in parts.
    pub(in crate::exec) fn split_bits(&self, result: ResultId, rows: u64) -> Option<u32> {
        if !self.frame.recycler.spills() || !self.frame.reads_sizes() {
            return None;
        }
        let bytes = self.frame.bytes_of(result, rows);
        let forced = self.frame.prepared.graph.parts == Parts::Always;
        let partition = self.frame.recycler.pool().budget().join_partition();
        let parts = bytes.div_ceil(partition.max(1));
        let bits = parts.max(1).next_power_of_two().ilog2();
        (bytes > self.side_room() || forced)
            .then(|| bits.clamp(if forced { LEAST_BITS } else { 1 }, MOST_BITS))
    }

    /// Rows that a pipeline is thought to give: twice the estimate, at most all that it goes over.
    pub(in crate::exec) fn expected(&self, kernel: &PreparedKernel, into: ResultId) -> u64 {
        let estimate = self
            .frame
            .prepared
            .graph
            .results
            .get(into)
            .map_or(u64::MAX, |r| r.estimate);
        self.frame
            .bound(kernel.source)
            .min(estimate.saturating_mul(2))
    }

    /// The step that probes an index, when it is the only one.
    fn probing_step(&self, index: ResultId) -> Option<usize> {
        let probes = |step: &PreparedStep| match step.into().map(|r| &self.frame.prepared.shapes[r])
        {
            Some(Shape::Matches(_, Some(join))) => join.index == index,
            _ => false,
        };
        let mut found =
            (0..self.frame.prepared.steps.len()).filter(|s| probes(&self.frame.prepared.steps[*s]));
        match (found.next(), found.next()) {
            (Some(step), None) => Some(step),
            _ => None,
        }
    }

    /// Can an index be joined in partitions? One that is sorted keeps its order.
    pub(in crate::exec) fn can_split(&self, result: ResultId, index: &IndexShape) -> bool {
        let joinable = |step: usize| {
            let into = PreparedStep::into(&self.frame.prepared.steps[step]);
            into.is_some_and(|into| {
                Loop::over(self.frame.prepared, step, &[result, into]).is_some()
            })
        };
        index.join.is_some_and(|keys| !keys.join.sorts())
            && self.probing_step(result).is_some_and(joinable)
    }

    /// Split the entries of an index, which are too many.
    pub(in crate::exec) fn split_index(&mut self, result: ResultId, bits: u32) -> Result<()> {
        let Shape::Index(IndexShape {
            columns,
            join: Some(keys),
            ..
        }) = &self.frame.prepared.shapes[result]
        else {
            return Err(GpuError::Internal("a split of no side".into()));
        };
        let probing = self.probing_bytes(result);
        let (chunks, kept) = match self.in_pieces(result) {
            Some(piece) => {
                let rows = self.frame.results[result].rows;
                let both = self.frame.bytes_of(result, rows) + probing;
                let chunk = self.frame.bytes_of(result, piece);
                let kept = self.kept_share(both, chunk, 1 << bits);
                let chunks = self.split_pieces(result, (columns, *keys), (bits, kept), piece)?;
                (chunks, kept)
            }
            None => {
                let chunk = self.split_rows(result, columns, *keys, bits)?;
                // What is there already takes room.
                let kept = self.kept_share(probing, 0, 1 << bits);
                (vec![Chunk::here(chunk)], kept)
            }
        };
        let rows = Partitioned::of(bits, chunks);
        self.frame.results[result].split = Some(SplitSide { rows, kept });
        for _ in 0..1 << bits {
            self.count_portion(PortionOf::Input);
        }
        Ok(())
    }

    /// Rows of a piece of a side that lies in a table and is too large to be partitioned at once; `None` for any other.
    fn in_pieces(&self, result: ResultId) -> Option<u64> {
        let in_table = self.frame.zero_copy(result)?;
        let piece = self.frame.side_stride_rows(result) / VECTOR * VECTOR;
        let bytes = self.frame.bytes_of(result, in_table.rows);
        (bytes > self.side_room()).then_some(piece.max(VECTOR))
    }

    /// Partition the rows of the probing side of a split index.
    pub(in crate::exec) fn split_probing(
        &mut self,
        result: ResultId,
        (columns, keys): (&[ColumnShape], JoinKeys),
        (bits, kept): (u32, f64),
    ) -> Result<Partitioned> {
        let chunks = match self.in_pieces(result) {
            Some(piece) => self.split_pieces(result, (columns, keys), (bits, kept), piece)?,
            None => vec![Chunk::here(self.split_rows(result, columns, keys, bits)?)],
        };
        Ok(Partitioned::of(bits, chunks))
    }

    /// Partition the rows of a side that lies in a table piece by piece, of `piece` rows each; the share `kept` of the chunks stays on
    /// the device.
    fn split_pieces(
        &mut self,
        result: ResultId,
        side: (&[ColumnShape], JoinKeys),
        (bits, kept): (u32, f64),
        piece: u64,
    ) -> Result<Vec<Chunk>> {
        let table = self.frame.results[result].store.take();
        let table =
            table.ok_or_else(|| GpuError::Internal("a side of a join without rows".into()))?;
        let (all, capacity) = {
            let state = &self.frame.results[result];
            (state.rows, state.sizes.capacity)
        };
        let mut spill = self.begin_spill(kept)?;
        let mut chunks = Vec::new();
        let mut begin = 0;
        while begin < all {
            let rows = piece.min(all - begin);
            self.frame.results[result].store = Some(table.clone());
            let store = self.load_side(result, side, begin..begin + rows)?;
            let state = &mut self.frame.results[result];
            state.store = Some(store);
            state.rows = rows;
            state.sizes.capacity = rows;
            let (control, stream) = (&self.frame.control, self.frame.stream);
            control.set(stream, result, ControlWord::Count, rows)?;
            let made = self.split_rows(result, side.0, side.1, bits)?;
            chunks.push(self.put_away(result, side, made, rows, &mut spill)?);
            begin += rows;
        }
        self.end_spill(spill)?;
        table.release(&mut self.frame.recycler);
        let state = &mut self.frame.results[result];
        (state.rows, state.sizes.capacity) = (all, capacity);
        let (control, stream) = (&self.frame.control, self.frame.stream);
        control.set(stream, result, ControlWord::Count, all)?;
        Ok(chunks)
    }

    /// Copy keys and columns of some rows of a side to memory of their own on the device.
    fn load_side(
        &mut self,
        result: ResultId,
        (columns, keys): (&[ColumnShape], JoinKeys),
        rows: Range<u64>,
    ) -> Result<Store> {
        let parts = side_parts(columns, keys, 0, rows.end - rows.start).into_iter();
        let parts = parts.filter(|size| moves_along(size.part)).collect();
        let name = self.frame.name(result);
        let mut store = Store::default();
        store.extend_on_device(parts, &mut self.frame.recycler, name)?;
        self.copy_piece(result, rows, &store)?;
        Ok(store)
    }

    /// Partition the rows of a side by their lowest hash bits, columns and all.
    pub(in crate::exec) fn split_rows(
        &mut self,
        result: ResultId,
        columns: &[ColumnShape],
        keys: JoinKeys,
        bits: u32,
    ) -> Result<(Store, Vec<u32>)> {
        let how = Arrangement {
            parts: side_parts(
                columns,
                keys,
                bits,
                self.frame.results[result].sizes.capacity,
            ),
            by: Part::KeyWord(0),
            digits: Digits::Hash,
            bits: 0..bits,
            order: Order::Any,
        };
        self.arrange(result, how)?;
        let Some(rows) = self.frame.results[result].store.take() else {
            return Err(GpuError::Internal("a side of a join without rows".into()));
        };
        let Some((buffer, at)) = rows.location(Part::Offsets) else {
            return Err(GpuError::Internal("partitions without offsets".into()));
        };
        let offsets = buffer.download_values(self.frame.stream, at, (1 << bits) + 1)?;
        self.schedule.in_parts = true;
        Ok((rows, offsets))
    }

    /// The hash bits by which a side is split stride by stride, while it is read.
    pub(in crate::exec) fn splits_in_strides(
        &self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> Option<u32> {
        let scanned = kernel.tree.is_none()
            && self.frame.prepared.borrowed[into].is_none()
            && self.side_strides(kernel, into).is_some();
        match &self.frame.prepared.shapes[into] {
            _ if !scanned => None,
            Shape::Matches(_, Some(join)) => {
                Some(self.frame.results[join.index].split.as_ref()?.rows.bits)
            }
            Shape::Index(index) => {
                let bits = self.split_bits(into, self.expected(kernel, into))?;
                self.can_split(into, index).then_some(bits)
            }
            _ => None,
        }
    }

    /// Split a side stride by stride: each is partitioned on the device before it goes to host memory.
    pub(in crate::exec) fn split_strides(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        bits: u32,
    ) -> Result<()> {
        let prepared = self.frame.prepared;
        let (columns, keys) = match &prepared.shapes[into] {
            Shape::Matches(columns, Some(join)) => (columns, Some(join.matches.keys)),
            Shape::Index(index) => (&index.columns, index.join),
            _ => return Err(GpuError::Internal("a split of no side".into())),
        };
        let keys = keys.ok_or_else(|| GpuError::Internal("a side without keys".into()))?;
        let Some(scan) = self.side_strides(kernel, into) else {
            return Err(GpuError::Internal("a side in one stride".into()));
        };
        let kept = match &prepared.shapes[into] {
            Shape::Matches(_, Some(join)) => self.frame.results[join.index]
                .split
                .as_ref()
                .map_or(0.0, |s| s.kept),
            _ => {
                let both = self.frame.bytes_of(into, self.expected(kernel, into))
                    + self.probing_bytes(into);
                let stride = scan.rows_of(0);
                let probing = self.probing_step(into);
                let probing = probing.and_then(|step| PreparedStep::into(&prepared.steps[step]));
                let probing = probing.map_or(0, |result| self.frame.bytes_of(result, stride));
                let chunk = self.frame.bytes_of(into, stride).max(probing);
                self.kept_share(both, chunk, 1 << bits)
            }
        };
        let mut spill = self.begin_spill(kept)?;
        let mut chunks = Vec::new();
        let mut all = 0;
        self.over_strides(kernel, scan, |run, stride| {
            run.begin_stride(into, stride)?;
            run.fill_stride(kernel, into, stride)?;
            let rows = run.frame.results[into].rows;
            all += rows;
            run.count_portion(PortionOf::Input);
            if rows == 0 {
                run.frame.let_go(into);
                return Ok(Turn::Next);
            }
            let made = run.split_rows(into, columns, keys, bits)?;
            let chunk = run.put_away(into, (columns, keys), made, rows, &mut spill)?;
            chunks.push(chunk);
            Ok(Turn::Next)
        })?;
        self.end_spill(spill)?;
        self.frame.results[into].rows = all;
        self.frame.check_numbered(into, all)?;
        self.frame.results[into].split = Some(SplitSide {
            rows: Partitioned::of(bits, chunks),
            kept,
        });
        self.mark("transform")
    }

    /// Room for the rows of one stride.
    pub(in crate::exec) fn begin_stride(&mut self, into: ResultId, stride: &Stride) -> Result<()> {
        self.frame.results[into].rows = 0;
        self.frame.results[into].sizes.capacity = stride.rows();
        self.frame.make(into)?;
        for word in [ControlWord::Count, ControlWord::Pairs] {
            let stream = self.frame.stream;
            self.frame.control.set(stream, into, word, 0)?;
        }
        Ok(())
    }

    /// Is the index that a `Matches` result probes split?
    pub(in crate::exec) fn probes_split(&self, into: ResultId) -> bool {
        match &self.frame.prepared.shapes[into] {
            Shape::Matches(_, Some(join)) => self.frame.results[join.index].split.is_some(),
            _ => false,
        }
    }
}
