//! One run of a prepared fragment: room for results, launches in order, and what to do when room was short.

use std::sync::Arc;

use super::control::Control;
use super::places::{Part, Place};
use super::prepared::{Hint, Prepared, PreparedKernel, PreparedSort, PreparedSource, PreparedStep};
use super::storage::{BlockSizes, IndexShape, Recycler, Shape, Sizes, Store, slots_of_sets};
use crate::codegen::{BLOCK_THREADS, ControlWord};
use crate::device::{DevicePtr, Event, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;
use crate::memory::DeviceBuffer;
use crate::primitives::{self, HashTable, RowCount};
use crate::runtime::Runtime;

/// A first attempt takes room for every row there can be when that is at most this share of the free memory.
const SHARE_OF_MEMORY: usize = 8;
/// Rows of a first attempt at least, when there is not room for all.
const LEAST_ROWS: u64 = 1 << 20;
/// Launches of one pipeline: every one but the last doubles a table or makes exact room.
const MOST_ATTEMPTS: usize = 48;
/// Rows of an index or a sort: their numbers have 32 bits, the last is a mark.
const MOST_NUMBERED: u64 = u32::MAX as u64 - 1;

/// The state of one run; nothing of it outlives the run.
pub(super) struct Run<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) stream: &'a Stream,
    pub(super) prepared: &'a Prepared,
    pub(super) control: Control,
    pub(super) stores: Vec<Option<Store>>,
    pub(super) sizes: Vec<Sizes>,
    /// Rows of each result so far: exact, or with hints an upper bound.
    pub(super) rows: Vec<u64>,
    /// Pairs of each `Matches` result, likewise.
    pairs: Vec<u64>,
    hints: Option<Arc<Vec<Hint>>>,
    recycler: Recycler,
    /// Kernels launched, those behind primitives counted as one each.
    pub(super) kernels: usize,
    /// Before the first step and after each one, when asked for.
    pub(super) events: Vec<Event>,
}

/// Skip and fetch of the sort being launched.
type Cut = (u64, u64);

impl<'a> Run<'a> {
    /// With `hints` nothing is read back before the end, and the results are to be checked with
    /// [`Run::kept_within`]; without, sizes are read after every step.
    pub(super) fn new(
        runtime: &'a Runtime,
        stream: &'a Stream,
        prepared: &'a Prepared,
        hints: Option<Arc<Vec<Hint>>>,
    ) -> Result<Self> {
        let results = prepared.shapes.len();
        let mut sizes = vec![Sizes::default(); results];
        let mut stores: Vec<Option<Store>> = (0..results).map(|_| None).collect();
        let mut recycler = Recycler::new(runtime.pool());
        let output = prepared.graph.output;
        let control_bytes = Control::bytes(results);
        let head = match (&hints, &prepared.shapes[output]) {
            // Control words and output in one buffer return in one copy.
            (Some(hints), shape @ (Shape::Rows(_) | Shape::Sorted(_))) => {
                sizes[output].capacity = with_slack(hints[output].rows);
                let parts: Vec<_> = shape
                    .filling(&sizes[output])
                    .into_iter()
                    .flat_map(|block| block.parts)
                    .collect();
                let bytes = control_bytes + Store::bytes_within(&parts)?;
                let head = Arc::new(recycler.allocate(bytes, "the output")?);
                stores[output] = Some(Store::within(&head, &parts, control_bytes)?);
                head
            }
            _ => Arc::new(recycler.allocate(control_bytes, "control words")?),
        };
        Ok(Self {
            control: Control::new(head, results, stream)?,
            runtime,
            stream,
            prepared,
            stores,
            sizes,
            rows: vec![0; results],
            pairs: vec![0; results],
            hints,
            recycler,
            kernels: 0,
            events: vec![],
        })
    }

    /// Run every step; `profile` asks for an event after each one.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`] and [`GpuError::DuplicateKeys`] as soon as they are known, which with hints is
    /// after [`Run::kept_within`]; [`GpuError::OutOfDeviceMemory`]; [`GpuError::Unsupported`] for
    /// more rows than can be numbered.
    pub(super) fn steps(&mut self, profile: bool) -> Result<()> {
        let prepared = self.prepared;
        let device = self.runtime.device();
        self.events.push(device.record_event(self.stream)?);
        for (number, step) in prepared.steps.iter().enumerate() {
            match step {
                PreparedStep::Pipeline(kernel) => self.pipeline(kernel)?,
                PreparedStep::Sort(sort) => self.sort(sort)?,
            }
            for result in &prepared.dead_after[number] {
                if let Some(store) = self.stores[*result].take() {
                    store.release(&mut self.recycler);
                }
            }
            if profile || number + 1 == prepared.steps.len() {
                self.events.push(device.record_event(self.stream)?);
            }
        }
        Ok(())
    }

    /// What this run found out, for the next one over the same columns. `control` are the words at the end.
    pub(super) fn learned(&self, control: &[u64]) -> Vec<Hint> {
        self.sizes
            .iter()
            .enumerate()
            .map(|(result, sizes)| Hint {
                rows: Control::word(control, result, ControlWord::Count),
                pairs: self.pairs[result],
                slots: sizes.slots,
                distinct_slots: sizes.distinct_slots.clone(),
            })
            .collect()
    }

    /// Did everything fit into the room that the hints gave? If not, the answer is worth nothing.
    pub(super) fn kept_within(&self, control: &[u64]) -> bool {
        let word = |result, word| Control::word(control, result, word);
        let fitted = self.prepared.shapes.iter().enumerate().all(|(r, shape)| {
            word(r, ControlWord::Overflow) == 0
                && (!shape.appends() || word(r, ControlWord::Count) <= self.sizes[r].capacity)
        });
        fitted
            && self.prepared.steps.iter().all(|step| match step {
                PreparedStep::Sort(sort) => {
                    let rows = word(sort.rows, ControlWord::Count);
                    word(sort.into, ControlWord::Count) == cut(rows, sort)
                }
                PreparedStep::Pipeline(_) => true,
            })
    }

    fn careful(&self) -> bool {
        self.hints.is_none()
    }

    fn hint(&self, result: ResultId) -> Option<&Hint> {
        self.hints.as_ref().and_then(|h| h.get(result))
    }

    /// Upper bound of the rows that a kernel goes over.
    fn bound(&self, source: PreparedSource) -> u64 {
        match source {
            PreparedSource::Exactly(rows) => rows,
            PreparedSource::Rows(result) => self.rows[result],
            PreparedSource::Slots(result) => self.sizes[result].slots,
            PreparedSource::Pairs(result) => self.pairs[result],
        }
    }

    fn launch(&mut self, kernel: &PreparedKernel, rows: u64, (skip, fetch): Cut) -> Result<()> {
        let arguments = kernel.template.bytes(|place| match place {
            Place::Control => Some(self.control.address().0),
            Place::SourceRows => Some(rows),
            Place::Skip => Some(skip),
            Place::Fetch => Some(fetch),
            Place::Capacity(result) => self.sizes.get(result).map(|s| s.capacity),
            Place::Slots(result) => self.sizes.get(result).map(|s| s.slots),
            Place::DistinctSlots(result, set) => {
                self.sizes.get(result)?.distinct_slots.get(set).copied()
            }
            Place::Of(result, part) => {
                let store = self.stores.get(result)?.as_ref()?;
                store.address(part).map(|address| address.0)
            }
        })?;
        let blocks = rows.div_ceil(kernel.tile_rows).clamp(1, kernel.most_blocks);
        let config = LaunchConfig {
            grid: u32::try_from(blocks).unwrap_or(u32::MAX),
            block: BLOCK_THREADS,
            shared_bytes: kernel.shared_bytes,
        };
        self.kernels += 1;
        // SAFETY: the bytes were laid out for this kernel; what they point to are results of this run with
        // the sizes that their layouts ask for, and columns and tables that the caller of the run holds. The
        // pool and the recycler hand out memory again only behind this launch.
        unsafe {
            self.runtime
                .device()
                .launch(self.stream, &kernel.kernel, config, &arguments)
        }
    }

    fn pipeline(&mut self, kernel: &PreparedKernel) -> Result<()> {
        let rows = self.bound(kernel.source);
        let Some(into) = kernel.into else {
            return self.launch(kernel, rows, (0, 0));
        };
        let before = self.rows[into];
        self.provide(into, rows)?;
        if self.careful() {
            self.attempt(kernel, into, rows, before)?;
        } else {
            self.launch(kernel, rows, (0, 0))?;
            self.rows[into] = self.sizes[into].capacity;
        }
        self.finish(into)
    }

    /// Launch until there is room for what comes out; `before` rows are there already.
    fn attempt(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        rows: u64,
        before: u64,
    ) -> Result<()> {
        let shape = &self.prepared.shapes[into];
        for _ in 0..MOST_ATTEMPTS {
            self.launch(kernel, rows, (0, 0))?;
            let words = self.control.read(self.stream)?;
            if Control::word(&words, into, ControlWord::Overflow) != 0 {
                self.grow_groups(into)?;
                continue;
            }
            let count = Control::word(&words, into, ControlWord::Count);
            if !shape.appends() {
                self.rows[into] = self.sizes[into].capacity;
                return self.check_unique(&words, into);
            }
            if count <= self.sizes[into].capacity {
                self.rows[into] = count;
                return Ok(());
            }
            self.resize(into, count, before)?;
            self.control
                .set(self.stream, into, ControlWord::Count, before)?;
        }
        Err(self.hopeless(into))
    }

    fn hopeless(&self, result: ResultId) -> GpuError {
        GpuError::Internal(format!(
            "{} found no room after {MOST_ATTEMPTS} attempts",
            self.prepared.graph.results[result].name
        ))
    }

    /// A build that was assumed to be unique must be.
    fn check_unique(&self, words: &[u64], result: ResultId) -> Result<()> {
        if Control::word(words, result, ControlWord::Duplicate) == 0 {
            return Ok(());
        }
        Err(GpuError::DuplicateKeys(
            self.prepared.graph.results[result].name.clone(),
        ))
    }

    /// Make room for up to `rows` more rows of a result, or for its table.
    fn provide(&mut self, into: ResultId, rows: u64) -> Result<()> {
        let shape = &self.prepared.shapes[into];
        let present = self.stores[into].is_some();
        if let Shape::Groups {
            slots,
            distinct_words,
            ..
        } = shape
        {
            if present {
                return Ok(());
            }
            self.sizes[into] = match self.hint(into) {
                Some(hint) => Sizes {
                    capacity: 0,
                    slots: hint.slots,
                    distinct_slots: hint.distinct_slots.clone(),
                },
                None => Sizes {
                    capacity: 0,
                    slots: *slots,
                    distinct_slots: slots_of_sets(
                        distinct_words,
                        rows,
                        self.prepared.graph.results[into].estimate,
                        self.recycler.pool().available(),
                    ),
                },
            };
            return self.make(into);
        }
        if let (Shape::Index(index), false) = (shape, shape.appends()) {
            if present {
                return Ok(());
            }
            self.sizes[into].capacity = index.domain;
            return self.make(into);
        }
        if let Some(hint) = self.hint(into) {
            if present {
                return Ok(());
            }
            self.sizes[into].capacity = with_slack(hint.rows);
            self.check_numbered(into, self.sizes[into].capacity)?;
            return self.make(into);
        }
        let before = self.rows[into];
        let all = before.saturating_add(rows);
        let generous = usize::try_from(all)
            .ok()
            .and_then(|rows| rows.checked_mul(shape.row_bytes()))
            .is_some_and(|bytes| bytes <= self.recycler.pool().available() / SHARE_OF_MEMORY);
        let mut wanted = if generous {
            all
        } else {
            let estimate = self.prepared.graph.results[into].estimate;
            all.min((estimate.saturating_add(estimate / 2)).max(LEAST_ROWS))
        };
        if shape.numbers_rows() {
            wanted = wanted.min(MOST_NUMBERED);
        }
        if !present {
            self.sizes[into].capacity = wanted;
            self.make(into)
        } else if wanted > self.sizes[into].capacity {
            self.resize(into, wanted, before)
        } else {
            Ok(())
        }
    }

    fn check_numbered(&self, result: ResultId, rows: u64) -> Result<()> {
        if rows <= MOST_NUMBERED || !self.prepared.shapes[result].numbers_rows() {
            return Ok(());
        }
        Err(GpuError::Unsupported(format!(
            "{} rows in {}: more than 2^32 cannot be joined or ordered",
            rows, self.prepared.graph.results[result].name
        )))
    }

    /// Allocate what a result needs before its pipeline.
    fn make(&mut self, result: ResultId) -> Result<()> {
        let blocks = self.prepared.shapes[result].filling(&self.sizes[result]);
        let name = self.name(result);
        let mut store = Store::default();
        store.extend(&blocks, &mut self.recycler, self.stream, name)?;
        self.stores[result] = Some(store);
        Ok(())
    }

    fn name(&self, result: ResultId) -> &'a str {
        &self.prepared.graph.results[result].name
    }

    /// Room for exactly `capacity` rows; the first `keep` rows stay.
    fn resize(&mut self, result: ResultId, capacity: u64, keep: u64) -> Result<()> {
        self.check_numbered(result, capacity)?;
        let old = self.stores[result].take();
        self.sizes[result].capacity = capacity;
        match old {
            Some(old) if keep > 0 => {
                self.make(result)?;
                if let Some(new) = &self.stores[result] {
                    new.copy_rows(&old, keep, self.stream)?;
                }
                old.release(&mut self.recycler);
                Ok(())
            }
            old => {
                if let Some(old) = old {
                    old.release(&mut self.recycler);
                }
                self.make(result)
            }
        }
    }

    /// Twice the slots for groups (SEEDS C6), four times for the sets of DISTINCT calls; empty.
    fn grow_groups(&mut self, result: ResultId) -> Result<()> {
        let Shape::Groups {
            key_words,
            distinct_words,
            ..
        } = &self.prepared.shapes[result]
        else {
            return Err(GpuError::Internal("rows that overflow a table".into()));
        };
        if *key_words == 0 && distinct_words.is_empty() {
            return Err(GpuError::Internal("a dense group table overflowed".into()));
        }
        let sizes = &mut self.sizes[result];
        if *key_words > 0 {
            sizes.slots = sizes.slots.saturating_mul(2);
        }
        for slots in &mut sizes.distinct_slots {
            *slots = slots.saturating_mul(4);
        }
        if let Some(old) = self.stores[result].take() {
            old.release(&mut self.recycler);
        }
        self.make(result)?;
        for word in [ControlWord::Overflow, ControlWord::Count] {
            self.control.set(self.stream, result, word, 0)?;
        }
        Ok(())
    }

    /// What follows a pipeline so that others can read its result.
    fn finish(&mut self, result: ResultId) -> Result<()> {
        match &self.prepared.shapes[result] {
            Shape::Matches(_) => self.sum_pairs(result)?,
            Shape::Index(index) if index.appends() && index.key_words > 0 => {
                self.finish_index(result, index)?;
            }
            _ => {}
        }
        if let Some(store) = &mut self.stores[result] {
            store.drop_temporary(&mut self.recycler);
        }
        Ok(())
    }

    /// How many rows a result has: known, or on the device.
    fn count(&self, result: ResultId) -> RowCount {
        if self.careful() {
            RowCount::Known(self.rows[result])
        } else {
            RowCount::Device {
                count: self.control.word_address(result, ControlWord::Count),
                most: self.sizes[result].capacity,
            }
        }
    }

    fn address(&self, result: ResultId, part: Part) -> Result<DevicePtr> {
        self.stores[result]
            .as_ref()
            .and_then(|s| s.address(part))
            .ok_or_else(|| GpuError::Internal(format!("{} has no {part:?}", self.name(result))))
    }

    fn sum_pairs(&mut self, result: ResultId) -> Result<()> {
        let lengths = self.address(result, Part::Length)?;
        let pairs = self.address(result, Part::Pairs)?;
        let rows = self.count(result);
        self.kernels += 1;
        // SAFETY: the store has a length a row of the capacity and one sum more.
        unsafe {
            primitives::exclusive_sum(self.runtime, self.stream, lengths, pairs, rows, true)?;
        }
        self.pairs[result] = match self.hint(result) {
            Some(hint) => with_slack(hint.pairs),
            None => {
                let store = self.stores[result].as_ref();
                let Some((buffer, offset)) = store.and_then(|s| s.location(Part::Pairs)) else {
                    return Err(GpuError::Internal("matches without sums".into()));
                };
                let last = offset + self.rows[result] as usize * 8;
                let total = buffer.download_values::<u64>(self.stream, last, 1)?;
                total.first().copied().unwrap_or(0)
            }
        };
        Ok(())
    }

    fn finish_index(&mut self, result: ResultId, index: &IndexShape) -> Result<()> {
        let shape = &self.prepared.shapes[result];
        if index.is_hash() {
            self.sizes[result].slots = match self.hint(result) {
                Some(hint) => hint.slots,
                None => primitives::slots_for(self.rows[result]),
            };
        } else if !index.has_ranges() {
            return Ok(());
        }
        for _ in 0..MOST_ATTEMPTS {
            let blocks = shape.finishing(&self.sizes[result]);
            let name = self.name(result);
            let mut extra = Store::default();
            extra.extend(&blocks, &mut self.recycler, self.stream, name)?;
            self.enter(result, index, &extra)?;
            let fitted = if self.careful() && index.is_hash() {
                let words = self.control.read(self.stream)?;
                self.check_unique(&words, result)?;
                Control::word(&words, result, ControlWord::Overflow) == 0
            } else {
                true
            };
            if fitted {
                if let Some(store) = &mut self.stores[result] {
                    store.join(extra);
                }
                return Ok(());
            }
            extra.release(&mut self.recycler);
            self.sizes[result].slots *= 2;
            self.control
                .set(self.stream, result, ControlWord::Overflow, 0)?;
        }
        Err(self.hopeless(result))
    }

    /// Enter the materialised rows of an index into its table or ranges, which lie in `extra`.
    fn enter(&mut self, result: ResultId, index: &IndexShape, extra: &Store) -> Result<()> {
        let words = (0..index.key_words)
            .map(|w| self.address(result, Part::KeyWord(w)))
            .collect::<Result<Vec<_>>>()?;
        let new = |part: Part| {
            extra
                .address(part)
                .ok_or_else(|| GpuError::Internal(format!("an index has no {part:?}")))
        };
        let rows = self.count(result);
        let (runtime, stream) = (self.runtime, self.stream);
        let duplicate = self.control.word_address(result, ControlWord::Duplicate);
        let overflow = self.control.word_address(result, ControlWord::Overflow);
        self.kernels += 1;
        if !index.is_hash() {
            let [word] = words[..] else {
                return Err(GpuError::Internal(
                    "a perfect index with keys of several words".into(),
                ));
            };
            let (offsets, entries) = (new(Part::Offsets)?, new(Part::Entries)?);
            self.kernels += 2;
            // SAFETY: the store has a word for every row of the capacity; offsets and entries were made
            // for this domain and capacity.
            return unsafe {
                primitives::build_dense_ranges(
                    runtime,
                    stream,
                    word,
                    rows,
                    index.domain,
                    offsets,
                    entries,
                )
            };
        }
        let table = HashTable {
            slots: self.sizes[result].slots,
            keys: new(Part::Keys)?,
            states: extra.address(Part::States).unwrap_or(DevicePtr::NULL),
        };
        // SAFETY: as above; the table was made for these slots and words, and the control words live
        // as long as the run.
        unsafe {
            if index.existence {
                primitives::insert_set(runtime, stream, &words, rows, table, overflow)
            } else if index.unique {
                let entry = new(Part::Entry)?;
                primitives::insert_unique(
                    runtime, stream, &words, rows, table, entry, duplicate, overflow,
                )
            } else {
                let (offsets, entries) = (new(Part::Offsets)?, new(Part::Entries)?);
                self.kernels += 2;
                primitives::build_ranges(
                    runtime, stream, &words, rows, table, offsets, entries, overflow,
                )
            }
        }
    }

    fn sort(&mut self, sort: &PreparedSort) -> Result<()> {
        let input = self.rows[sort.rows];
        let fetch = cut(input, sort);
        self.check_numbered(sort.into, input)?;
        if self.stores[sort.into].is_none() {
            self.sizes[sort.into].capacity = fetch;
            self.make(sort.into)?;
        }
        let fetch = fetch.min(self.sizes[sort.into].capacity);
        if let Some(keys) = &sort.keys {
            let parts = super::storage::sort_parts(sort.word_bits.len(), input);
            let blocks = [BlockSizes {
                parts,
                fill: None,
                temporary: true,
            }];
            let purpose = self.name(sort.into);
            if let Some(store) = &mut self.stores[sort.into] {
                store.extend(&blocks, &mut self.recycler, self.stream, purpose)?;
            }
            self.launch(keys, input, (sort.skip, fetch))?;
            let words = (0..sort.word_bits.len())
                .map(|w| self.address(sort.into, Part::KeyWord(w)))
                .collect::<Result<Vec<_>>>()?;
            let order = self.address(sort.into, Part::Order)?;
            let rows = match self.count(sort.rows) {
                // The input may have been sized for more rows than were promised to this sort.
                RowCount::Device { count, most } => RowCount::Device {
                    count,
                    most: most.min(input),
                },
                known => known,
            };
            self.kernels += 1;
            // SAFETY: every word array and the order have room for `input` rows.
            unsafe {
                primitives::sort_rows(
                    self.runtime,
                    self.stream,
                    &words,
                    &sort.word_bits,
                    rows,
                    order,
                )?;
            }
        }
        self.rows[sort.into] = fetch;
        let bound = self.bound(sort.gather.source);
        self.launch(&sort.gather, bound, (sort.skip, fetch))?;
        if let Some(store) = &mut self.stores[sort.into] {
            store.drop_temporary(&mut self.recycler);
        }
        Ok(())
    }

    /// The output's memory.
    pub(super) fn output(&self) -> Result<&Store> {
        self.stores[self.prepared.graph.output]
            .as_ref()
            .ok_or_else(|| GpuError::Internal("no step filled the output".into()))
    }

    /// The buffer of a part of the output and its first byte there.
    pub(super) fn output_part(&self, part: Part) -> Result<(&DeviceBuffer, usize)> {
        self.output()?
            .location(part)
            .ok_or_else(|| GpuError::Internal(format!("the output has no {part:?}")))
    }
}

/// Rows that a sort keeps of `rows`.
fn cut(rows: u64, sort: &PreparedSort) -> u64 {
    rows.saturating_sub(sort.skip)
        .min(sort.fetch.unwrap_or(u64::MAX))
}

/// A little more than last time; counts cannot change over the same columns, but nothing relies on it.
fn with_slack(rows: u64) -> u64 {
    rows.saturating_add(rows / 8).saturating_add(64)
}
