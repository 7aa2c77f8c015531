//! What a run holds: its results, their memory, and the device that it works on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::codegen::{ControlWord, Part};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::head::Head;
use crate::exec::frame::kept_indexes::{self, FinishedIndex};
use crate::exec::frame::storage::{Recycler, Store};
use crate::exec::frame::trees::TreeMemory;
use crate::exec::join::sides::SplitSide;
use crate::exec::portions::partitioned::{Partitioned, VECTOR};
use crate::exec::portions::strides::{STRIDE_BYTES, Strides};
use crate::exec::prepare::covering::Covering;
use crate::exec::prepare::hints::{Hint, sizes_by, slots_of_found};
use crate::exec::prepare::kernel::{PreparedSort, PreparedSource, PreparedStep};
use crate::exec::prepare::part_sizes::{BlockSizes, PartSize};
use crate::exec::prepare::prepared::{Prepared, ZeroCopy};
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::graph::ResultId;
use crate::memory::{BatchFile, DeviceBuffer};
use crate::primitives::{RowCount, TakenWords, count_groups};
use crate::query::Query;
use crate::runtime::Runtime;

/// Launches of one pipeline: every one but the last doubles a table or makes exact room.
pub(in crate::exec) const MOST_ATTEMPTS: usize = 48;

/// A result of a run.
#[derive(Default)]
pub(in crate::exec) struct ResultState {
    /// Where its rows or its table lie.
    pub(in crate::exec) store: Option<Store>,
    /// What there is room for.
    pub(in crate::exec) sizes: Sizes,
    /// Rows so far: exact, or with hints an upper bound.
    pub(in crate::exec) rows: u64,
    /// Pairs of a `Matches` result, likewise.
    pub(in crate::exec) pairs: u64,
    /// The rows of a join's side in partitions.
    pub(in crate::exec) split: Option<SplitSide>,
    /// Its rows as they came, where they are too many to lie together.
    pub(in crate::exec) heap: Option<Partitioned>,
    /// The rows of all parts, of which it has one at a time.
    pub(in crate::exec) all_rows: u64,
    /// Rows of an earlier part are in it, and cannot be had again.
    pub(in crate::exec) added: bool,
}

/// The results of a run, and what they are made with.
pub(in crate::exec) struct Frame<'a> {
    pub(in crate::exec) runtime: &'a Arc<Runtime>,
    pub(in crate::exec) stream: &'a Stream,
    pub(in crate::exec) prepared: &'a Prepared,
    pub(in crate::exec) control: Control,
    pub(in crate::exec) head: Head,
    /// What an earlier run found, when this one goes by it.
    hints: Option<Arc<Vec<Hint>>>,
    pub(in crate::exec) recycler: Recycler,
    /// Where columns in host memory come in strides.
    pub(in crate::exec) strides: Option<Strides>,
    /// By number.
    pub(in crate::exec) results: Vec<ResultState>,
    /// Indexes that were built and may be kept, by result.
    pub(in crate::exec) built: Vec<(ResultId, Covering, Store)>,
    /// The output, where it is in a file.
    pub(in crate::exec) written: Option<Arc<BatchFile>>,
}

impl<'a> Frame<'a> {
    pub(in crate::exec) fn new(
        runtime: &'a Arc<Runtime>,
        stream: &'a Stream,
        prepared: &'a Prepared,
        hints: Option<Arc<Vec<Hint>>>,
    ) -> Result<Self> {
        let shapes = &prepared.shapes;
        let mut results: Vec<ResultState> = shapes.iter().map(|_| Default::default()).collect();
        let mut recycler = Recycler::new(runtime.pool(), stream);
        if prepared.graph.parts.allowed() {
            recycler = recycler.spilling_to(
                Arc::clone(runtime.host_pool()),
                runtime.peer_pool().map(Arc::clone),
            );
        }
        let strides = Strides::new(prepared, runtime)?;
        if let Some(query) = Query::current() {
            query.begin_results();
        }
        let head = Head::new(prepared, hints.as_deref(), &mut recycler, stream)?;
        let output = prepared.graph.output;
        if let (Some(hints), Some(store)) = (&hints, head.output()?) {
            results[output].sizes = sizes_by(&shapes[output], &hints[output]);
            results[output].store = Some(store);
        }
        Ok(Self {
            control: head.control(results.len()),
            head,
            runtime,
            stream,
            prepared,
            hints,
            recycler,
            strides,
            results,
            built: vec![],
            written: None,
        })
    }

    /// What this run found out, for the next one over the same columns. `control` are the words at the end.
    pub(in crate::exec) fn learned(&self, control: &[u64]) -> Vec<Hint> {
        self.results
            .iter()
            .enumerate()
            .map(|(result, state)| Hint {
                rows: Control::word(control, result, ControlWord::Count),
                pairs: if self.prepared.shapes[result].lists_pairs() {
                    Control::word(control, result, ControlWord::Pairs)
                } else {
                    state.pairs
                },
                slots: match self.counts_groups(result) {
                    true => slots_of_found(
                        state.sizes.slots,
                        Control::word(control, result, ControlWord::Count),
                    ),
                    false => state.sizes.slots,
                },
                distinct_slots: state.sizes.distinct_slots.clone(),
                bits: state.sizes.bits,
                largest: Control::largest(control, result),
            })
            .collect()
    }

    /// Are the groups of a result counted where sizes are read? Not where a table of the size that such a count said had no room.
    fn counts_groups(&self, result: ResultId) -> bool {
        let slots = self.results[result].sizes.slots;
        self.prepared.shapes[result].counts_groups(slots)
            && !self.prepared.keeps_slots.load(Ordering::Relaxed)
    }

    /// Count the groups of a complete hash table, for the size of the next run's.
    pub(in crate::exec) fn count_groups(&self, result: ResultId) -> Result<()> {
        let Shape::Groups {
            slot_bytes,
            key_words,
            key_at: (offset, width),
            ..
        } = &self.prepared.shapes[result]
        else {
            return Ok(());
        };
        if !self.counts_groups(result) {
            return Ok(());
        }
        let taken = match key_words {
            0 => TakenWords {
                words: self.address(result, Part::State)?.offset(*offset as u64),
                stride: *slot_bytes as u64,
                width: *width as u32,
            },
            _ => TakenWords {
                words: self.address(result, Part::States)?,
                stride: 4,
                width: 4,
            },
        };
        let count = self.control.word_address(result, ControlWord::Count);
        let slots = self.results[result].sizes.slots;
        // SAFETY: the table has so many slots.
        unsafe { count_groups(self.runtime, self.stream, taken, slots, count) }
    }

    /// Did everything fit into the room that the hints gave? If not, the answer is worth nothing.
    pub(in crate::exec) fn kept_within(&self, control: &[u64]) -> bool {
        let word = |result, word| Control::word(control, result, word);
        let fitted = self.prepared.shapes.iter().enumerate().all(|(r, shape)| {
            word(r, ControlWord::Overflow) == 0
                && (!shape.appends()
                    || word(r, ControlWord::Count) <= self.results[r].sizes.capacity)
                && (!shape.lists_pairs()
                    || word(r, ControlWord::Pairs) <= self.results[r].sizes.pairs)
        });
        fitted
            && self.prepared.steps.iter().all(|step| match step {
                PreparedStep::Sort(sort) => {
                    let rows = word(sort.rows, ControlWord::Count);
                    let ordered = match sort.window.as_ref().and_then(|window| window.rows) {
                        Some(_) => word(sort.into, ControlWord::Pairs),
                        None => rows,
                    };
                    word(sort.into, ControlWord::Count) == cut(ordered, sort)
                }
                PreparedStep::Pipeline(_) | PreparedStep::Borrow { .. } => true,
            })
    }

    pub(in crate::exec) fn reads_sizes(&self) -> bool {
        self.hints.is_none()
    }

    pub(in crate::exec) fn hint(&self, result: ResultId) -> Option<&Hint> {
        self.hints.as_ref().and_then(|h| h.get(result))
    }

    /// Upper bound of the rows that a kernel goes over.
    pub(in crate::exec) fn bound(&self, source: PreparedSource) -> u64 {
        match source {
            PreparedSource::Exactly(rows) => rows,
            PreparedSource::Rows(result) => self.results[result].rows,
            PreparedSource::Slots(result) => self.results[result].sizes.slots,
            PreparedSource::Pairs(result) => self.results[result].pairs,
        }
    }

    /// Keep the indexes that this run built for those that come; it is over, and found `control`.
    pub(in crate::exec) fn keep_indexes(&mut self, control: &[u64]) {
        let budget = self.recycler.pool().budget();
        for (into, what, store) in std::mem::take(&mut self.built) {
            if let Some(store) = &mut self.results[into].store {
                store.share();
            }
            let index = FinishedIndex {
                store,
                sizes: self.results[into].sizes.clone(),
                count: Control::word(control, into, ControlWord::Count),
                null_key: Control::word(control, into, ControlWord::NullKey) != 0,
            };
            kept_indexes::keep(self.runtime.indexes(), what, index, budget);
        }
    }

    /// The run has ended and was waited for, and all of its work was on its stream: others may have its memory at once.
    pub(in crate::exec) fn release(self, trees: impl Iterator<Item = TreeMemory>) {
        let Self {
            results,
            control,
            head,
            mut recycler,
            ..
        } = self;
        for store in results.into_iter().filter_map(|result| result.store) {
            store.release(&mut recycler);
        }
        for memory in trees {
            memory.release(&mut recycler);
        }
        drop(control);
        head.release(&mut recycler);
    }

    /// What a result has of a table.
    pub(in crate::exec) fn zero_copy(&self, result: ResultId) -> Option<&'a ZeroCopy> {
        self.prepared.borrowed.get(result)?.as_ref()
    }

    pub(in crate::exec) fn hopeless(&self, result: ResultId) -> GpuError {
        GpuError::Internal(format!(
            "{} found no room after {MOST_ATTEMPTS} attempts",
            self.prepared.graph.results[result].name
        ))
    }

    /// A build that was assumed to be unique must be.
    pub(in crate::exec) fn check_unique(&self, words: &[u64], result: ResultId) -> Result<()> {
        if Control::word(words, result, ControlWord::Duplicate) == 0 {
            return Ok(());
        }
        Err(GpuError::DuplicateKeys(
            self.prepared.graph.results[result].name.clone(),
        ))
    }

    pub(in crate::exec) fn name(&self, result: ResultId) -> &'a str {
        &self.prepared.graph.results[result].name
    }

    /// The output's memory.
    pub(in crate::exec) fn output(&self) -> Result<&Store> {
        self.results[self.prepared.graph.output]
            .store
            .as_ref()
            .ok_or_else(|| GpuError::Internal("no step filled the output".into()))
    }

    /// The buffer of a part of the output and its first byte there.
    pub(in crate::exec) fn output_part(&self, part: Part) -> Result<(&Arc<DeviceBuffer>, usize)> {
        self.output()?
            .location(part)
            .ok_or_else(|| GpuError::Internal(format!("the output has no {part:?}")))
    }

    /// How many rows a result has: known, or on the device.
    pub(in crate::exec) fn count(&self, result: ResultId) -> RowCount {
        if self.reads_sizes() {
            RowCount::Known(self.results[result].rows)
        } else {
            RowCount::Device {
                count: self.control.word_address(result, ControlWord::Count),
                most: self.results[result].sizes.capacity,
            }
        }
    }

    pub(in crate::exec) fn address(&self, result: ResultId, part: Part) -> Result<DevicePtr> {
        self.find(result, part)
            .ok_or_else(|| GpuError::Internal(format!("{} has no {part:?}", self.name(result))))
    }

    /// Where a part of a result lies by now, if it has it.
    pub(in crate::exec) fn find(&self, result: ResultId, part: Part) -> Option<DevicePtr> {
        let part = match self.prepared.shapes.get(result)?.is_key_alias(part) {
            true => Part::KeyWord(0),
            false => part,
        };
        self.results.get(result)?.store.as_ref()?.address(part)
    }

    /// Memory for parts of a result.
    pub(in crate::exec) fn extra(
        &mut self,
        result: ResultId,
        parts: Vec<PartSize>,
        temporary: bool,
    ) -> Result<Store> {
        let name = self.name(result);
        let blocks = [BlockSizes {
            parts,
            fill: None,
            temporary,
        }];
        let mut store = Store::default();
        store.extend_rows(&blocks, &mut self.recycler, self.stream, name)?;
        Ok(store)
    }

    /// Bytes of a row of a part.
    pub(in crate::exec) fn unit(&self, result: ResultId, part: Part) -> Option<u64> {
        let mut sizes = self.results.get(result)?.store.as_ref()?.parts();
        sizes
            .find(|size| size.part == part)
            .map(|size| size.unit as u64)
    }

    /// Bytes of a piece, and of the rows of a part.
    pub(in crate::exec) fn part_room(&self) -> u64 {
        self.recycler.pool().budget().portion()
    }

    /// Rows of a result in a piece or a part.
    pub(in crate::exec) fn piece_rows(&self, result: ResultId) -> u64 {
        let bytes = self.prepared.shapes[result].row_bytes().max(1) as u64;
        (self.part_room() / bytes).max(VECTOR) / VECTOR * VECTOR
    }

    /// Rows of a stride of a join's side whose columns are read where they lie: as many bytes as one of streamed columns brings, and
    /// less where several chunks of them would take much of the room.
    pub(in crate::exec) fn side_stride_rows(&self, result: ResultId) -> u64 {
        let bytes = self.prepared.shapes[result].row_bytes().max(1) as u64;
        (self.part_room() / 2).min(STRIDE_BYTES) / bytes
    }

    /// Are so many rows of a result more than a part may have, and can they be done in parts?
    pub(in crate::exec) fn exceeds_part(&self, result: ResultId, rows: u64) -> bool {
        self.recycler.spills() && self.reads_sizes() && rows > self.piece_rows(result)
    }

    /// Memory for rows of a result as its pipeline writes them.
    pub(in crate::exec) fn room_for_rows(&mut self, result: ResultId, rows: u64) -> Result<Store> {
        let sizes = Sizes {
            capacity: rows,
            ..Sizes::default()
        };
        let blocks = self.prepared.shapes[result].filling(&sizes);
        let name = self.name(result);
        let mut store = Store::default();
        store.extend(&blocks, &mut self.recycler, self.stream, name)?;
        Ok(store)
    }

    /// Let go of what a result has.
    pub(in crate::exec) fn let_go(&mut self, result: ResultId) {
        if let Some(store) = self.results[result].store.take() {
            store.release(&mut self.recycler);
        }
    }

    /// Let rows in memory of their own stand for all rows of a result.
    pub(in crate::exec) fn stand_for(
        &mut self,
        result: ResultId,
        store: Store,
        rows: u64,
    ) -> Result<()> {
        self.results[result].store = Some(store);
        self.results[result].rows = rows;
        self.results[result].sizes.capacity = rows;
        self.control
            .set(self.stream, result, ControlWord::Count, rows)
    }

    /// Bytes of so many rows of a join's side.
    pub(in crate::exec) fn bytes_of(&self, result: ResultId, rows: u64) -> u64 {
        rows.saturating_mul(self.prepared.shapes[result].row_bytes() as u64)
    }
}

/// Rows that a sort keeps of `rows`.
pub(in crate::exec) fn cut(rows: u64, sort: &PreparedSort) -> u64 {
    rows.saturating_sub(sort.skip)
        .min(sort.fetch.unwrap_or(u64::MAX))
}
