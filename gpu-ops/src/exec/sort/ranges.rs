//! Sorts of more rows than device memory holds: rows are partitioned by range of their keys, and each range is sorted on its
//! own, in order (sample sort: Frazer and McKellar, "Samplesort: A Sampling Approach to Minimal Storage Tree Sorting", Journal
//! of the ACM 1970). Where only the first rows are wanted, every piece of the rows leaves no more than those behind.
//!
//! Ranges lie between keys of a sample, which all differ; rows that have one of these keys are a range of their own, which needs
//! no order. So a key that many rows have does not make a range too large to be sorted, however many they are.
//!
//! Ranges are known when all rows are: until then these are written down as they come, piece by piece, where one pipeline over a
//! table makes them, else in one block of host memory.
//!
//! A row of `w` bytes crosses the link three times, behind the pipeline that wrote it down: it is read, its range is
//! written and read; with what is written of the output a fourth time. `2^30` rows of 16 bytes are 17 GB, 0.31 s a crossing at 55 GB/s.
//! Where memory has no room, all of that may lie in files, also the output (`sort_output`).

use std::ops::Range;

use crate::codegen::{ControlWord, Part};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::cut;
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::each::{Turn, over_portions};
use crate::exec::portions::loops::reads_of;
use crate::exec::portions::partitioned::{PartitionBy, Partitioned};
use crate::exec::portions::strategy::PortionOf;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSort, PreparedStep};
use crate::exec::prepare::shapes::Shape;
use crate::exec::sort::output::Output;
use crate::exec::sort::sample::Splitters;
use crate::graph::ResultId;
use crate::primitives::{self, Digits, Keys, RangeKeys, RowCount};

/// A range of more than so many times the rows of a part is split again.
const OVERSIZE: u64 = 2;

/// The output of a sort while it is written range by range.
struct Sorted<'s> {
    sort: &'s PreparedSort,
    output: Output,
    /// Rows of the ranges before, left out or written.
    before: u64,
}

impl<'a> Run<'a> {
    /// Sort rows that lie together, but are too many, range by range.
    pub(in crate::exec) fn sort_in_ranges(&mut self, sort: &PreparedSort) -> Result<()> {
        self.schedule.in_parts = true;
        let (mut input, rows, capacity) = self.input_of(sort)?;
        let most = self.frame.piece_rows(sort.rows);
        let mut sample = self.begin_sample(sort, rows)?;
        self.add_to_sample(&mut sample, &input, 0..rows)?;
        let splitters = self.splitters(sort, sample)?;
        let mut partitioned = Partitioned::default();
        for begin in (0..rows).step_by(most as usize) {
            let end = (begin + most).min(rows);
            self.frame.results[sort.rows].store = Some(input.clone());
            let piece = self.load_piece(sort.rows, begin..end)?;
            self.partition_ranges(sort, piece, end - begin, &splitters, &mut partitioned)?;
        }
        self.frame.let_go(sort.rows);
        if self.frame.prepared.dead_after[self.schedule.step].contains(&sort.rows) {
            // Host memory for the output, and no copy of the rows that nobody reads.
            input.release(&mut self.frame.recycler);
            input = Store::default();
        }
        self.write_ranges(sort, partitioned)?;
        self.frame.results[sort.rows].store = Some(input);
        self.sorted(sort, (rows, capacity), cut(rows, sort))
    }

    /// The rows of a sort, which somebody else may read as they were, how many they are, and for how many there is room.
    pub(in crate::exec) fn input_of(&self, sort: &PreparedSort) -> Result<(Store, u64, u64)> {
        let input = &self.frame.results[sort.rows];
        let Some(store) = input.store.clone() else {
            return Err(GpuError::Internal("a sort without rows".into()));
        };
        Ok((store, input.rows, input.sizes.capacity))
    }

    /// Sort rows that lie in pieces, as they came.
    pub(in crate::exec) fn sort_pieces(&mut self, sort: &PreparedSort) -> Result<()> {
        let Some(heap) = self.frame.results[sort.rows].heap.take() else {
            return Err(GpuError::Internal("a sort without pieces".into()));
        };
        let rows = heap.rows();
        let splitters = self.splitters_of(sort, heap.chunks(), rows)?;
        let copies = self.frame.runtime.lease_stream()?;
        let mut partitioned = Partitioned::default();
        let chunks = heap.into_chunks();
        let count = chunks.len() as u64;
        let mut chunks = chunks.into_iter();
        // Chunks come in order, each once.
        let stage = |run: &mut Run<'_>, _, _| match chunks.next() {
            Some(chunk) => {
                let staged = run.stage_chunk(sort.rows, &chunk, &copies)?;
                Ok(Some((staged, chunk)))
            }
            None => Ok(None),
        };
        over_portions(self, (count, 1), stage, |run, _, staged| {
            let Some((staged, chunk)) = staged else {
                return Ok(Turn::Next);
            };
            let count = staged.rows();
            let piece = run.staged(staged)?;
            chunk.release(&mut run.frame.recycler);
            run.partition_ranges(sort, piece, count, &splitters, &mut partitioned)?;
            Ok(Turn::Next)
        })?;
        self.write_ranges(sort, partitioned)?;
        self.sorted(sort, (rows, rows), cut(rows, sort))
    }

    /// Make the output of a sort of rows in ranges.
    fn write_ranges(&mut self, sort: &PreparedSort, mut partitioned: Partitioned) -> Result<()> {
        self.settle(&mut partitioned)?;
        self.mark("transform")?;
        self.frame.let_go(sort.into);
        self.frame.results[sort.into].sizes.capacity = cut(partitioned.rows(), sort);
        let output = self.output_of(sort, &mut partitioned)?;
        let mut sorted = Sorted {
            sort,
            output,
            before: 0,
        };
        let copies = self.frame.runtime.lease_stream()?;
        self.sort_ranges(&mut sorted, &partitioned, &copies)?;
        self.drop_partitioned(partitioned);
        self.end_output(sort.into, sorted.output)
    }

    /// A sort in parts is over: of so many rows, for which there was so much room, these are in its output.
    pub(in crate::exec) fn sorted(
        &mut self,
        sort: &PreparedSort,
        input: (u64, u64),
        fetch: u64,
    ) -> Result<()> {
        let (rows, capacity) = input;
        self.frame.results[sort.rows].rows = rows;
        self.frame.results[sort.rows].sizes.capacity = capacity;
        self.frame.results[sort.into].rows = fetch;
        self.frame.results[sort.into].sizes.capacity = fetch;
        let counts = [(sort.rows, rows), (sort.into, fetch)];
        for (result, count) in counts {
            self.frame
                .control
                .set(self.frame.stream, result, ControlWord::Count, count)?;
        }
        Ok(())
    }

    /// Run a pipeline whose rows nobody reads but a sort piece by piece, and write the rows down as they come, since they may be
    /// too many to lie on the device together.
    pub(in crate::exec) fn write_pieces(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> Result<()> {
        self.schedule.in_parts = true;
        let mut heap = Partitioned::default();
        self.over_pieces(kernel, into, |run, piece| {
            run.count_portion(PortionOf::Input);
            let rows = run.frame.results[into].rows;
            run.keep_piece(into, piece, rows, &mut heap)
        })?;
        self.settle(&mut heap)?;
        self.mark("write")?;
        let rows = heap.rows();
        if self.frame.exceeds_part(into, rows) {
            self.frame.results[into].rows = rows;
            self.frame.results[into].sizes.capacity = rows;
            self.frame
                .control
                .set(self.frame.stream, into, ControlWord::Count, rows)?;
            self.frame.results[into].heap = Some(heap);
            return Ok(());
        }
        let copies = self.frame.runtime.lease_stream()?;
        let staged = self.stage_part(into, &heap, &(0..1), &copies)?;
        let store = self.staged(staged)?;
        self.drop_partitioned(heap);
        self.frame.stand_for(into, store, rows)
    }

    /// The sort that reads the rows of a result, when that alone does and one pipeline alone makes them.
    pub(in crate::exec) fn only_sort(&self, rows: ResultId) -> Option<&'a PreparedSort> {
        let prepared = self.frame.prepared;
        if !matches!(self.frame.prepared.shapes[rows], Shape::Rows(_)) {
            return None;
        }
        let steps = &prepared.steps;
        let makes = |step: &&PreparedStep| PreparedStep::into(step) == Some(rows);
        let makers = steps.iter().filter(makes);
        let mut found = None;
        for step in steps {
            match step {
                PreparedStep::Sort(sort) if sort.rows == rows && found.is_none() => {
                    found = Some(sort.as_ref());
                }
                other if reads_of(other, &prepared.shapes).contains(&rows) => return None,
                _ => {}
            }
        }
        found.filter(|sort| sort.window.is_none() && makers.count() == 1)
    }

    /// Partition the rows of a piece by range.
    fn partition_ranges(
        &mut self,
        sort: &PreparedSort,
        piece: Store,
        rows: u64,
        splitters: &Splitters,
        partitioned: &mut Partitioned,
    ) -> Result<()> {
        self.frame.stand_for(sort.rows, piece, rows)?;
        self.frame.let_go(sort.into);
        self.key_words(sort, rows)?;
        // The order is not needed: its place is as large.
        let numbers = self.frame.address(sort.into, Part::Order)?;
        let words = self.words(sort)?;
        self.reports.kernels += 1;
        // SAFETY: the words and the order have room for the rows, the splitters for their words.
        unsafe {
            let keys = RangeKeys {
                words: &words,
                bits: &sort.word_bits,
                rows: RowCount::Known(rows),
                splitters: splitters.words.ptr(),
                count: splitters.count,
            };
            primitives::number_ranges(self.frame.runtime, self.frame.stream, &keys, numbers)?;
        }
        let by = PartitionBy {
            keys: Keys {
                ptr: numbers,
                width: 4,
            },
            digits: Digits::Key,
            shift: 0,
            kept: false,
        };
        if let Some(piece) = self.frame.results[sort.rows].store.take() {
            self.partition_piece(sort.rows, &piece, rows, &by, partitioned)?;
            piece.release(&mut self.frame.recycler);
        }
        self.frame.let_go(sort.into);
        Ok(())
    }

    /// Sort range after range and append each to the output.
    fn sort_ranges(
        &mut self,
        sorted: &mut Sorted<'_>,
        partitioned: &Partitioned,
        copies: &Stream,
    ) -> Result<()> {
        let rows = sorted.sort.rows;
        let most = self.frame.piece_rows(rows);
        let behind = sorted.before + partitioned.rows();
        // What is left out is not brought to the device: ranges before the first and behind the last row that is wanted.
        let (skipped, parts) = sorted.wanted_parts(partitioned, most);
        sorted.before += skipped;
        let oversize = |part: &Range<usize>| partitioned.rows_of(part) > OVERSIZE * most;
        let stage = |run: &mut Run<'_>, number: u64, _| {
            let part = &parts[number as usize];
            match oversize(part) {
                true => Ok(None),
                false => run.stage_part(rows, partitioned, part, copies).map(Some),
            }
        };
        over_portions(
            self,
            (parts.len() as u64, 1),
            stage,
            |run, number, staged| {
                match staged {
                    Some(staged) => {
                        let count = staged.rows();
                        let store = run.staged(staged)?;
                        run.append_sorted(sorted, store, count)?;
                    }
                    None => {
                        run.sort_large_range(sorted, partitioned, &parts[number as usize], copies)?
                    }
                }
                Ok(Turn::Next)
            },
        )?;
        sorted.before = behind;
        Ok(())
    }

    /// A range of too many rows: equal ones go to the output as they come, others are split again.
    fn sort_large_range(
        &mut self,
        sorted: &mut Sorted<'_>,
        partitioned: &Partitioned,
        part: &Range<usize>,
        copies: &Stream,
    ) -> Result<()> {
        let sort = sorted.sort;
        let equal = part.start % 2 == 1;
        let all = partitioned.rows_of(part);
        let most = self.frame.piece_rows(sort.rows) as usize;
        let splitters = match equal {
            true => None,
            false => Some(self.splitters_within(sort, partitioned.chunks(), part, all)?),
        };
        let mut finer = Partitioned::default();
        for first in (0..all).step_by(most) {
            let end = (first + most as u64).min(all);
            let staged = self.stage_rows(sort.rows, partitioned, part, first..end, copies)?;
            let piece = self.staged(staged)?;
            match &splitters {
                Some(splitters) => {
                    self.partition_ranges(sort, piece, end - first, splitters, &mut finer)?;
                }
                None => self.append_sorted(sorted, piece, end - first)?,
            }
        }
        if splitters.is_some() {
            self.settle(&mut finer)?;
            self.sort_ranges(sorted, &finer, copies)?;
        }
        self.drop_partitioned(finer);
        Ok(())
    }

    /// Sort rows that come next in the order, and append what is wanted of them to the output.
    fn append_sorted(&mut self, sorted: &mut Sorted<'_>, store: Store, rows: u64) -> Result<()> {
        let sort = sorted.sort;
        let wanted = sorted.wanted(rows);
        let at = (sorted.before + wanted.start).saturating_sub(sort.skip);
        sorted.before += rows;
        let fetch = wanted.end - wanted.start;
        if fetch == 0 {
            store.release(&mut self.frame.recycler);
            return Ok(());
        }
        self.frame.stand_for(sort.rows, store, rows)?;
        self.frame.let_go(sort.into);
        self.sort_here(sort, (wanted.start, fetch))?;
        self.append_to_output(sort.into, &mut sorted.output, fetch, at)?;
        self.count_portion(PortionOf::Sort);
        self.frame.let_go(sort.rows);
        self.frame.let_go(sort.into);
        Ok(())
    }
}

impl Sorted<'_> {
    /// Which of the next `rows` rows are wanted, counted from the first of them.
    fn wanted(&self, rows: u64) -> Range<u64> {
        wanted_of(self.sort, self.before, rows)
    }

    /// Parts of at most about `most` rows that have rows that are wanted, and how many rows come before the first of them.
    fn wanted_parts(&self, partitioned: &Partitioned, most: u64) -> (u64, Vec<Range<usize>>) {
        let (mut before, mut skipped) = (self.before, 0);
        let mut wanted = Vec::new();
        for part in partitioned.parts(most) {
            let rows = partitioned.rows_of(&part);
            if !wanted_of(self.sort, before, rows).is_empty() {
                wanted.push(part);
            } else if wanted.is_empty() {
                skipped += rows;
            }
            before += rows;
        }
        (skipped, wanted)
    }
}

/// Which of `rows` rows, before which `before` come in the order, a sort keeps, counted from the first of them.
fn wanted_of(sort: &PreparedSort, before: u64, rows: u64) -> Range<u64> {
    let (skip, fetch) = (sort.skip, sort.fetch.unwrap_or(u64::MAX));
    let within = |row: u64| row.saturating_sub(before).min(rows);
    within(skip)..within(skip.saturating_add(fetch)).max(within(skip))
}
