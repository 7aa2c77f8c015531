//! Group-bys whose states are too many for device memory: rows are written down in partitions of equal hash bits, and each
//! partition, which has all rows of its groups, is aggregated on its own (hash partitioning, after Graefe, "Query Evaluation
//! Techniques for Large Databases", ACM Computing Surveys 1993).
//!
//! Rows are split by the highest hash bits, so that the lower ones still tell those of a part apart when these are partitioned
//! or sorted in turn (`collected`). What reads the groups runs before those of the next part replace them. A partition that
//! is too large is split again by the next bits, unless one key makes it so: its groups are few, but its rows have to find room
//! together.
//!
//! A row of `w` bytes, key and arguments, crosses the link twice: `2^30` rows of a key of 4 and an argument of 4 bytes are 8.6 GB
//! each way, 0.31 s at 55 GB/s. A table in host memory would take a read and a write of a sector of 32 bytes a row at random.

use std::ops::Range;

use crate::codegen::{ControlWord, Part};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::each::{Turn, over_portions};
use crate::exec::portions::loops::Loop;
use crate::exec::portions::partitioned::{BITS, PartitionBy, Partitioned};
use crate::exec::portions::strategy::{Finishing, PortionOf};
use crate::exec::prepare::kernel::PreparedKernel;
use crate::exec::prepare::shapes::{CollectedShape, Shape};
use crate::graph::ResultId;
use crate::primitives::{Digits, Keys};

/// A partition of more than so many times the rows of a part is split again.
const OVERSIZE: u64 = 2;

/// Rows of a part at least.
const LEAST_ROWS: u64 = 256;

/// Where collected rows go on: the loop over their parts, and what is made in it.
struct Groups<'l> {
    rows: ResultId,
    states: ResultId,
    plan: &'l Loop,
}

impl Run<'_> {
    /// The collected rows' shape and their groups, when these can be made part by part, and the loop that does it.
    pub(in crate::exec) fn grouping(
        &self,
        rows: ResultId,
    ) -> Option<(&CollectedShape, ResultId, Loop)> {
        let shapes = &self.frame.prepared.shapes;
        let Shape::Collected(collected) = &shapes[rows] else {
            return None;
        };
        let adds_up = |shape: &Shape| match shape {
            Shape::Groups {
                regrouped,
                collected,
                ..
            } => regrouped.and_then(|of| of.rows).or(*collected) == Some(rows),
            _ => false,
        };
        let states = shapes.iter().position(adds_up)?;
        let plan = Loop::over(self.frame.prepared, self.schedule.step, &[rows, states])?;
        Some((collected, states, plan))
    }

    /// Write the rows that a pipeline collects down in parts from the beginning, and aggregate these.
    pub(in crate::exec) fn collect_pieces(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> Result<()> {
        let mut partitioned = Partitioned::default();
        self.over_pieces(kernel, into, |run, filled| {
            let by = run.by_hash(into, &filled, 0)?;
            let rows = run.frame.results[into].rows;
            run.partition_piece(into, &filled, rows, &by, &mut partitioned)?;
            filled.release(&mut run.frame.recycler);
            run.count_portion(PortionOf::Input);
            Ok(())
        })?;
        self.mark("transform")?;
        self.note_strategy(Finishing::AggregateParts.portions());
        self.aggregate_partitioned(into, partitioned)
    }

    /// Aggregate rows in parts that have been collected together, but are too many.
    pub(in crate::exec) fn regroup_in_parts(&mut self, into: ResultId) -> Result<()> {
        let rows = self.frame.results[into].rows;
        let mut partitioned = Partitioned::default();
        let most = self.frame.piece_rows(into);
        let mut first = 0;
        while first < rows {
            let end = (first + most).min(rows);
            let piece = self.load_piece(into, first..end)?;
            let by = self.by_hash(into, &piece, 0)?;
            self.partition_piece(into, &piece, end - first, &by, &mut partitioned)?;
            piece.release(&mut self.frame.recycler);
            first = end;
        }
        self.frame.let_go(into);
        self.mark("transform")?;
        self.aggregate_partitioned(into, partitioned)
    }

    /// By the hash bits of a piece's keys: the highest at level 0.
    fn by_hash(&self, rows: ResultId, piece: &Store, level: u32) -> Result<PartitionBy> {
        let Shape::Collected(collected) = &self.frame.prepared.shapes[rows] else {
            return Err(GpuError::Internal("parts of no collected rows".into()));
        };
        let width = collected.key_bytes;
        let keys = piece.address(Part::KeyWord(0));
        let ptr = keys.ok_or_else(|| GpuError::Internal("collected rows without keys".into()))?;
        Ok(PartitionBy {
            keys: Keys { ptr, width },
            digits: Digits::Hash,
            shift: hash_bits(width) - (level + 1) * BITS,
            kept: true,
        })
    }

    /// Aggregate all parts, and run what reads their groups.
    fn aggregate_partitioned(
        &mut self,
        rows: ResultId,
        mut partitioned: Partitioned,
    ) -> Result<()> {
        self.settle(&mut partitioned)?;
        let Some((_, states, _)) = self.grouping(rows) else {
            return Err(GpuError::Internal(
                "groups that are not made in parts".into(),
            ));
        };
        let plan = self.begin_loop(&[rows, states])?;
        self.frame.results[rows].all_rows = partitioned.rows();
        let copies = self.frame.runtime.lease_stream()?;
        let groups = Groups {
            rows,
            states,
            plan: &plan,
        };
        self.aggregate_parts(&groups, &partitioned, 0, true, &copies)?;
        self.drop_partitioned(partitioned);
        self.end_loop(&plan)
    }

    /// Aggregate the parts of rows that were split at `level`; `again`: what is too large is split further.
    fn aggregate_parts(
        &mut self,
        groups: &Groups<'_>,
        partitioned: &Partitioned,
        level: u32,
        again: bool,
        copies: &Stream,
    ) -> Result<()> {
        let most = self.part_rows(groups);
        let parts = partitioned.parts(most);
        let deeper = again && self.has_level(groups.rows, level + 1);
        let oversize = |part: &Range<usize>| deeper && partitioned.rows_of(part) > OVERSIZE * most;
        let stage = |run: &mut Run<'_>, number: u64, _| {
            let part = &parts[number as usize];
            match oversize(part) {
                true => Ok(None),
                false => run
                    .stage_part(groups.rows, partitioned, part, copies)
                    .map(Some),
            }
        };
        over_portions(
            self,
            (parts.len() as u64, 1),
            stage,
            |run, number, staged| {
                let part = &parts[number as usize];
                let Some(staged) = staged else {
                    let finer =
                        run.split_again(groups.rows, partitioned, part.start, level + 1, copies)?;
                    // One key has most of the rows: no bits tell them apart.
                    let helps = finer.largest() * 2 < finer.rows();
                    run.aggregate_parts(groups, &finer, level + 1, helps, copies)?;
                    run.drop_partitioned(finer);
                    return Ok(Turn::Next);
                };
                run.take_part(groups.rows, staged)?;
                run.finish(groups.rows)?;
                for word in [ControlWord::Count, ControlWord::Overflow] {
                    let stream = run.frame.stream;
                    run.frame.control.set(stream, groups.states, word, 0)?;
                }
                run.frame.results[groups.states].rows = 0;
                run.run_inside(groups.plan)?;
                run.count_portion(PortionOf::Groups);
                run.frame.let_go(groups.rows);
                run.frame.let_go(groups.states);
                Ok(Turn::Next)
            },
        )
    }

    /// Rows of a part: where a hash table has their groups, no more than its table may have room for.
    fn part_rows(&self, groups: &Groups<'_>) -> u64 {
        let most = self.frame.piece_rows(groups.rows);
        match &self.frame.prepared.shapes[groups.states] {
            Shape::Groups {
                collected: Some(_),
                slot_bytes,
                key_words,
                ..
            } => {
                let slot = (slot_bytes + key_words * 8 + 4) as u64;
                let table = self.frame.recycler.pool().budget().part_table();
                // Between two and four slots a row.
                most.min(table / (4 * slot)).max(LEAST_ROWS)
            }
            _ => most,
        }
    }

    /// Has the keys' hash bits for another level?
    fn has_level(&self, rows: ResultId, level: u32) -> bool {
        match &self.frame.prepared.shapes[rows] {
            Shape::Collected(collected) => hash_bits(collected.key_bytes) >= (level + 1) * BITS,
            _ => false,
        }
    }

    /// Split one partition by further bits.
    fn split_again(
        &mut self,
        rows: ResultId,
        partitioned: &Partitioned,
        partition: usize,
        level: u32,
        copies: &Stream,
    ) -> Result<Partitioned> {
        let mut finer = Partitioned::default();
        let partition = partition..partition + 1;
        let (all, most) = (partitioned.rows_of(&partition), self.frame.piece_rows(rows));
        let mut first = 0;
        while first < all {
            let end = (first + most).min(all);
            let staged = self.stage_rows(rows, partitioned, &partition, first..end, copies)?;
            let piece = self.staged(staged)?;
            let by = self.by_hash(rows, &piece, level)?;
            self.partition_piece(rows, &piece, end - first, &by, &mut finer)?;
            piece.release(&mut self.frame.recycler);
            first = end;
        }
        self.settle(&mut finer)?;
        Ok(finer)
    }
}

/// Bits of the hash of keys of so many bytes.
fn hash_bits(width: u32) -> u32 {
    (width * 8).min(64)
}
