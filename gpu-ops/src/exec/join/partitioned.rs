//! Joins whose rows are too many for device memory, part by part: a large probing side in strides against an index that
//! stays, and two large sides in partitions of equal hash bits.
//!
//! The second is the Triton join (Lutz et al., SIGMOD 2022): a first pass partitions both sides by the lowest hash bits while
//! they are read ([`crate::exec::join::split`]), and where they lie until then is for [`crate::exec::join::spill`] to say; then each pair of partitions
//! is brought to the device and joined there as if it were all, and what reads the pairs runs before the next pair comes. No
//! hash bits tell rows of one key apart, nor those without a key: of a pair with many probing rows these come in pieces. The
//! entries of one key have to find room together.

use std::ops::Range;

use crate::device::{Event, Stream};
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::join::sides::{SplitSide, room_for};
use crate::exec::portions::chunks::{Runs, rows_within};
use crate::exec::portions::each::{Turn, over_portions};
use crate::exec::portions::loops::{Loop, reads_of};
use crate::exec::portions::partitioned::Partitioned;
use crate::exec::portions::strategy::PortionOf;
use crate::exec::prepare::join_bits::JoinBits;
use crate::exec::prepare::kernel::PreparedKernel;
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::graph::ResultId;

/// Fewest rows of a piece of a partition's probing rows.
const LEAST_PIECE: u64 = 1024;
/// So many pairs of partitions are queued before the host looks for faults.
const PAIRS_AHEAD: usize = 8;
/// A partition's probing rows come in pieces when they are more than so many times the rows of a piece.
const OVERSIZE: u64 = 2;

/// A pair of partitions, or some of the probing rows of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    partition: usize,
    /// Of the partition's probing rows, these.
    probing: Range<u64>,
    /// Whether others of the same partition come before and behind.
    first: bool,
    last: bool,
}

/// Rows of a side on their way to the device.
struct StagedSide {
    store: Store,
    rows: u64,
    /// Rows that there is room for.
    capacity: u64,
}

/// A pair on its way to the device: the entries, unless they are there, and probing rows.
struct Staged {
    build: Option<StagedSide>,
    probe: StagedSide,
    come: Event,
}

/// A pair for each of `partitions` partitions, which have `rows` probing rows: several where these are many more than `most`.
fn pairs_of(partitions: usize, rows: impl Fn(usize) -> u64, most: u64) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(partitions);
    for partition in 0..partitions {
        let all = rows(partition);
        let step = match all > OVERSIZE.saturating_mul(most) {
            true => most,
            false => all.max(1),
        };
        let mut begin = 0;
        loop {
            let end = (begin + step).min(all);
            pairs.push(Pair {
                partition,
                probing: begin..end,
                first: begin == 0,
                last: end == all,
            });
            if end == all {
                break;
            }
            begin = end;
        }
    }
    pairs
}

impl Run<'_> {
    /// Join the rows of a `Matches` result with an index that is split, pair of partitions by pair.
    pub(in crate::exec) fn join_partitions(&mut self, into: ResultId) -> Result<()> {
        let prepared = self.frame.prepared;
        let Shape::Matches(columns, Some(join)) = &prepared.shapes[into] else {
            return Err(GpuError::Internal("a join of no matches".into()));
        };
        let Shape::Index(index) = &prepared.shapes[join.index] else {
            return Err(GpuError::Internal("a join with no index".into()));
        };
        let lost = || GpuError::Internal("a split side was lost".into());
        let SplitSide { rows: build, kept } = self.frame.results[join.index]
            .split
            .take()
            .ok_or_else(lost)?;
        let probe = match self.frame.results[into].split.take() {
            Some(split) => split.rows,
            None => {
                let side = (&columns[..], join.matches.keys);
                self.split_probing(into, side, (build.bits, kept))?
            }
        };
        self.mark("transform")?;
        let keys = index.join.ok_or_else(lost)?;
        let device = self.frame.runtime.device().info();
        let largest = build.largest();
        let bits = JoinBits::of_rows(largest, keys, build.bits, device);
        let plan = self.begin_loop(&[join.index, into])?;
        let sides = [(join.index, &build), (into, &probe)];
        let copies = self.frame.runtime.lease_stream()?;
        // Rows without a match and rows of a frequent key lie in one partition, however many they are.
        let most = self.frame.recycler.pool().budget().probing_rows();
        let most = (most / self.frame.bytes_of(into, 1).max(1)).max(LEAST_PIECE);
        let by_entries = self.reads_entries_alone(&plan, into);
        let probing = |number| probe.rows_of_one(number);
        let pairs = pairs_of(build.count(), probing, most);
        let probing = pairs
            .iter()
            .map(|pair| pair.probing.end - pair.probing.start);
        let largest = [largest, probing.max().unwrap_or(0)];
        self.schedule.ahead = true;
        let stage = |run: &mut Run<'_>, number: u64, _| {
            let pair = &pairs[number as usize];
            run.stage(sides, largest, pair, &copies).map(Some)
        };
        let last = pairs.len();
        over_portions(self, (last as u64, 1), stage, |run, number, staged| {
            let (pair, number) = (&pairs[number as usize], number as usize + 1);
            run.take_up([join.index, into], staged.ok_or_else(lost)?)?;
            if pair.first {
                run.arrange_side(join.index, &index.columns, keys, bits, None)?;
            }
            run.list_pairs(into, columns, join)?;
            // Marks are complete when all probing rows have come.
            let later: &[usize] = if pair.last { &[] } else { &by_entries };
            run.run_inside_but(&plan, later)?;
            run.count_portion(PortionOf::Join);
            run.frame.let_go(into);
            if pair.last {
                run.frame.let_go(join.index);
            }
            if number.is_multiple_of(PAIRS_AHEAD) || number == last {
                let words = run.frame.control.read(run.frame.stream)?;
                run.frame.check_unique(&words, join.index)?;
            }
            Ok(Turn::Next)
        })?;
        self.schedule.ahead = false;
        for chunk in build.chunks.into_iter().chain(probe.chunks) {
            chunk.release(&mut self.frame.recycler);
        }
        self.end_loop(&plan)
    }

    /// The steps of a loop that read the entries of a part and not its probing rows.
    fn reads_entries_alone(&self, plan: &Loop, into: ResultId) -> Vec<usize> {
        let (steps, shapes) = (&self.frame.prepared.steps, &self.frame.prepared.shapes);
        let reads = |step: &&usize| !reads_of(&steps[**step], shapes).contains(&into);
        plan.inside.iter().filter(reads).copied().collect()
    }

    /// Queue the copies of a pair to the device: of the build and of the probing side, whose largest have `largest` rows.
    fn stage(
        &mut self,
        sides: [(ResultId, &Partitioned); 2],
        largest: [u64; 2],
        pair: &Pair,
        copies: &Stream,
    ) -> Result<Staged> {
        let [(index, build), (into, probe)] = sides;
        let entries = build.rows_of_one(pair.partition);
        let made = match pair.first {
            true => Some(self.room_for_side(index, entries, largest[0])?),
            false => None,
        };
        let rows = pair.probing.end - pair.probing.start;
        let probing = self.room_for_side(into, rows, largest[1])?;
        // Memory that is used again may still be read by what was queued before.
        let device = self.frame.runtime.device();
        let free = device.record_event(self.frame.stream)?;
        device.wait_event(copies, &free)?;
        let mut runs = Runs::default();
        if let Some(side) = &made {
            self.bring_side(
                (index, build),
                pair.partition,
                0..entries,
                side,
                copies,
                &mut runs,
            )?;
        }
        let wanted = pair.probing.clone();
        self.bring_side(
            (into, probe),
            pair.partition,
            wanted,
            &probing,
            copies,
            &mut runs,
        )?;
        // SAFETY: the chunks have the rows, the new stores room for them; both live until the loop over the pairs has waited
        // for the copies.
        unsafe { runs.copy(self.frame.runtime, copies)? };
        Ok(Staged {
            build: made,
            probe: probing,
            come: device.record_event(copies)?,
        })
    }

    /// Memory for `rows` rows of a side, of which at most `largest` lie on the device.
    fn room_for_side(&mut self, result: ResultId, rows: u64, largest: u64) -> Result<StagedSide> {
        let capacity = room_for(rows, largest);
        let sizes = Sizes {
            capacity,
            ..self.frame.results[result].sizes.clone()
        };
        let blocks = self.frame.prepared.shapes[result].filling(&sizes);
        let name = self.frame.name(result);
        let mut store = Store::default();
        store.extend(&blocks, &mut self.frame.recycler, self.frame.stream, name)?;
        Ok(StagedSide {
            store,
            rows,
            capacity,
        })
    }

    /// Bring some rows of a side's partition to the device: copies are queued or noted.
    fn bring_side(
        &mut self,
        (result, rows): (ResultId, &Partitioned),
        partition: usize,
        wanted: Range<u64>,
        to: &StagedSide,
        copies: &Stream,
        runs: &mut Runs,
    ) -> Result<()> {
        let partition = partition..partition + 1;
        for (number, range, at) in rows_within(&rows.chunks, &partition, wanted) {
            let chunk = &rows.chunks[number];
            if chunk.is_away() {
                self.reports.pair_bytes += self.frame.bytes_of(result, range.end - range.start);
            }
            chunk.bring(range, &to.store, at, copies, runs)?;
        }
        Ok(())
    }

    /// Let a pair stand for all rows of its results, [index, matches].
    fn take_up(&mut self, [index, into]: [ResultId; 2], pair: Staged) -> Result<()> {
        self.frame
            .runtime
            .device()
            .wait_event(self.frame.stream, &pair.come)?;
        let sides = pair.build.map(|side| (index, side));
        for (result, side) in sides.into_iter().chain([(into, pair.probe)]) {
            self.frame.stand_for(result, side.store, side.rows)?;
            self.frame.results[result].sizes.capacity = side.capacity;
        }
        Ok(())
    }

    /// Are strides of a scan to be probed one by one, because the rows of all would be too many?
    pub(in crate::exec) fn comes_in_strides(
        &self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> bool {
        matches!(self.frame.prepared.shapes[into], Shape::Matches(..))
            && kernel.tree.is_none()
            && !self.probes_split(into)
            // Rows that stay in their table have places there.
            && self.frame.prepared.borrowed[into].is_none()
            && self.split_bits(into, self.expected(kernel, into)).is_some()
            && self.side_strides(kernel, into).is_some()
            && Loop::over(self.frame.prepared, self.schedule.step, &[into]).is_some()
    }

    /// Probe stride by stride: what reads the matches of one runs before those of the next replace them.
    pub(in crate::exec) fn probe_strides(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> Result<()> {
        let plan = self.begin_loop(&[into])?;
        let Some(scan) = self.side_strides(kernel, into) else {
            return Err(GpuError::Internal("probing rows in one stride".into()));
        };
        self.over_strides(kernel, scan, |run, stride| {
            run.begin_stride(into, stride)?;
            run.fill_stride(kernel, into, stride)?;
            run.finish(into)?;
            run.run_inside(&plan)?;
            run.count_portion(PortionOf::Join);
            run.frame.let_go(into);
            Ok(Turn::Next)
        })?;
        self.end_loop(&plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_probing_rows_of_a_partition_come_in_pieces() {
        let rows = [3, 0, 25, 20];
        let pairs = pairs_of(rows.len(), |partition| rows[partition], 10);
        let spans: Vec<_> = pairs
            .iter()
            .map(|pair| (pair.partition, pair.probing.clone()))
            .collect();
        let expected = [
            (0, 0..3),
            (1, 0..0),
            (2, 0..10),
            (2, 10..20),
            (2, 20..25),
            (3, 0..20),
        ];
        assert_eq!(spans, expected);
        let ends: Vec<_> = pairs.iter().map(|pair| (pair.first, pair.last)).collect();
        let alone = (true, true);
        let several = [(true, false), (false, false), (false, true)];
        assert_eq!(ends[..2], [alone; 2]);
        assert_eq!(ends[2..5], several);
        assert_eq!(ends[5], alone);
        assert_eq!(pairs_of(4, |partition| rows[partition], u64::MAX).len(), 4);
    }
}
