//! What follows a pipeline so that later steps can read its result: sums of matches, indexes, orders.

use crate::codegen::{ControlWord, Part, RangeEntries};
use crate::device::DevicePtr;
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::results::cut;
use crate::exec::frame::run::{Cut, MOST_ATTEMPTS, Run};
use crate::exec::frame::storage::Store;
use crate::exec::portions::strategy::Sorting;
use crate::exec::prepare::hints::with_slack;
use crate::exec::prepare::kernel::PreparedSort;
use crate::exec::prepare::part_sizes::{BlockSizes, column_parts, sort_parts};
use crate::exec::prepare::shapes::{IndexShape, Shape};
use crate::graph::ResultId;
use crate::primitives::{self, HashTable, KeyedRows, RankedRanges, RowCount, WordKeys};

impl Run<'_> {
    /// What follows a pipeline so that others can read its result.
    pub(in crate::exec) fn finish(&mut self, result: ResultId) -> Result<()> {
        match &self.frame.prepared.shapes[result] {
            Shape::Matches(_, None) => self.sum_pairs(result)?,
            Shape::Matches(columns, Some(join)) => self.list_pairs(result, columns, join)?,
            Shape::Collected(rows) => self.regroup(result, rows)?,
            Shape::Index(index) if index.join.is_some() => self.arrange_index(result, index)?,
            Shape::Index(index) if index.appends() && index.key_words > 0 => {
                self.finish_index(result, index)?;
            }
            _ => {}
        }
        if let Some(store) = &mut self.frame.results[result].store {
            store.drop_temporary(&mut self.frame.recycler);
        }
        Ok(())
    }

    fn sum_pairs(&mut self, result: ResultId) -> Result<()> {
        let lengths = self.frame.address(result, Part::Length)?;
        let pairs = self.frame.address(result, Part::Pairs)?;
        let rows = self.frame.count(result);
        self.reports.kernels += 1;
        // SAFETY: the store has a length a row of the capacity and one sum more.
        unsafe {
            primitives::exclusive_sum(
                self.frame.runtime,
                self.frame.stream,
                lengths,
                pairs,
                rows,
                true,
            )?;
        }
        self.frame.results[result].pairs = match self.frame.hint(result) {
            Some(hint) => with_slack(hint.pairs),
            None => {
                let store = self.frame.results[result].store.as_ref();
                let Some((buffer, offset)) = store.and_then(|s| s.location(Part::Pairs)) else {
                    return Err(GpuError::Internal("matches without sums".into()));
                };
                let last = offset + self.frame.results[result].rows as usize * 8;
                let total = buffer.download_values::<u64>(self.frame.stream, last, 1)?;
                total.first().copied().unwrap_or(0)
            }
        };
        Ok(())
    }

    fn finish_index(&mut self, result: ResultId, index: &IndexShape) -> Result<()> {
        let shape = &self.frame.prepared.shapes[result];
        if index.is_hash() {
            self.frame.results[result].sizes.slots = match self.frame.hint(result) {
                Some(hint) => hint.slots,
                None => primitives::slots_for(self.frame.results[result].rows),
            };
        } else if !index.has_ranges() && !index.is_sorted() {
            return Ok(());
        }
        for _ in 0..MOST_ATTEMPTS {
            let blocks = shape.finishing(&self.frame.results[result].sizes);
            let name = self.frame.name(result);
            let mut extra = Store::default();
            extra.extend(&blocks, &mut self.frame.recycler, self.frame.stream, name)?;
            self.enter(result, index, &extra)?;
            if index.entries == RangeEntries::Gathered {
                self.cluster(result, index, &extra)?;
            }
            self.mark("build")?;
            let fitted = if self.frame.reads_sizes() && index.is_hash() {
                let words = self.frame.control.read(self.frame.stream)?;
                self.frame.check_unique(&words, result)?;
                Control::word(&words, result, ControlWord::Overflow) == 0
            } else {
                true
            };
            if fitted {
                if let Some(store) = &mut self.frame.results[result].store {
                    store.join(extra);
                }
                return Ok(());
            }
            extra.release(&mut self.frame.recycler);
            self.frame.results[result].sizes.slots *= 2;
            self.frame
                .control
                .set(self.frame.stream, result, ControlWord::Overflow, 0)?;
        }
        Err(self.frame.hopeless(result))
    }

    /// Enter the materialised rows of an index into its table or ranges, which lie in `extra`.
    fn enter(&mut self, result: ResultId, index: &IndexShape, extra: &Store) -> Result<()> {
        let words = (0..index.key_words)
            .map(|w| self.frame.address(result, Part::KeyWord(w)))
            .collect::<Result<Vec<_>>>()?;
        let new = |part: Part| {
            extra
                .address(part)
                .ok_or_else(|| GpuError::Internal(format!("an index has no {part:?}")))
        };
        let rows = self.frame.count(result);
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        let duplicate = self
            .frame
            .control
            .word_address(result, ControlWord::Duplicate);
        let overflow = self
            .frame
            .control
            .word_address(result, ControlWord::Overflow);
        self.reports.kernels += 1;
        if index.is_sorted() {
            let entries = new(Part::Entries)?;
            let sorted = (0..words.len())
                .map(|w| new(Part::SortedWord(w)))
                .collect::<Result<Vec<_>>>()?;
            self.reports.kernels += words.len();
            // SAFETY: the store has a word for every row of the capacity, and `extra` was made for as many.
            return unsafe {
                let keys = WordKeys {
                    words: &words,
                    bits: &index.order_bits,
                };
                primitives::build_sorted(runtime, stream, keys, rows, (&sorted, entries))
            };
        }
        if !index.is_hash() {
            let [word] = words[..] else {
                return Err(GpuError::Internal(
                    "a perfect index with keys of several words".into(),
                ));
            };
            let offsets = new(Part::Offsets)?;
            let entries = match index.entries {
                RangeEntries::InTable => None,
                _ => Some(new(Part::Entries)?),
            };
            self.reports.kernels += 2;
            if index.ranked {
                self.reports.kernels += 4;
                let ranked = RankedRanges {
                    domain: index.domain,
                    ranks: new(Part::Ranks)?,
                    offsets,
                    entries,
                };
                // SAFETY: the store has a word for every row of the capacity; the others were made for this domain and
                // capacity.
                return unsafe {
                    primitives::build_ranked_ranges(runtime, stream, word, rows, ranked)
                };
            }
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
            slots: self.frame.results[result].sizes.slots,
            keys: new(Part::Keys)?,
            states: extra.address(Part::States).unwrap_or(DevicePtr::NULL),
        };
        let rows = KeyedRows {
            words: &words,
            rows,
            table,
            overflow,
        };
        // SAFETY: as above; the table was made for these slots and words, and the control words live
        // as long as the run.
        unsafe {
            if index.existence {
                primitives::insert_set(runtime, stream, &rows)
            } else if index.unique {
                let entry = new(Part::Entry)?;
                primitives::insert_unique(runtime, stream, &rows, entry, duplicate)
            } else {
                let (offsets, entries) = (new(Part::Offsets)?, new(Part::Entries)?);
                self.reports.kernels += 2;
                primitives::build_ranges(runtime, stream, &rows, offsets, entries)
            }
        }
    }

    /// Bring the payload of an index into the order of its ranges, from the order of the table's rows.
    ///
    /// Probes then read the entries of a key as neighbours: 32 bytes for each column of a row become as many as a value has.
    /// Moved here, for each column: 4 bytes of the entry, a 32-byte sector and the value itself a row.
    fn cluster(&mut self, result: ResultId, index: &IndexShape, extra: &Store) -> Result<()> {
        let new = |part: Part| {
            extra
                .address(part)
                .ok_or_else(|| GpuError::Internal(format!("a clustered index has no {part:?}")))
        };
        let entries = new(Part::Entries)?;
        let rows = self.frame.count(result);
        for size in column_parts(&index.columns, 0) {
            let from = self.frame.address(result, size.part)?;
            let into = new(size.part)?;
            self.reports.kernels += 1;
            // SAFETY: entries are numbers of rows, those behind the last one with a key are 0; both columns have a value for
            // every row of the capacity.
            unsafe {
                primitives::gather(
                    self.frame.runtime,
                    self.frame.stream,
                    from,
                    entries,
                    into,
                    size.unit as u32,
                    rows,
                )?;
            }
        }
        Ok(())
    }

    pub(in crate::exec) fn sort(&mut self, sort: &PreparedSort) -> Result<()> {
        let store = self.frame.results[sort.rows].store.as_ref();
        if sort.window.is_some() && store.is_some_and(Store::is_on_host) {
            return Err(GpuError::Unsupported(
                "a window over more rows than device memory holds".into(),
            ));
        }
        let sorting = self.sorting(sort);
        self.note_strategy(sorting.portions());
        match sorting {
            Sorting::InCore => {
                let fetch = cut(self.frame.results[sort.rows].rows, sort);
                self.sort_here(sort, (sort.skip, fetch))
            }
            Sorting::Pieces => self.sort_pieces(sort),
            Sorting::Ranges => self.sort_in_ranges(sort),
            Sorting::FirstOfPieces => self.sort_first(sort),
        }
    }

    /// Sort the rows of a result where they lie; the output gets those of `cut`, skip and fetch.
    pub(in crate::exec) fn sort_here(&mut self, sort: &PreparedSort, cut: Cut) -> Result<()> {
        let (skip, fetch) = cut;
        let input = self.frame.results[sort.rows].rows;
        self.frame.check_numbered(sort.into, input)?;
        let store = self.frame.results[sort.rows].store.as_ref();
        if sort.window.is_some() && store.is_some_and(Store::is_on_host) {
            return Err(GpuError::Unsupported(
                "a window over more rows than device memory holds".into(),
            ));
        }
        if self.frame.results[sort.into].store.is_none() {
            self.frame.results[sort.into].sizes.capacity = fetch;
            self.frame.make(sort.into)?;
        }
        let mut fetch = fetch.min(self.frame.results[sort.into].sizes.capacity);
        if sort.keys.is_some() {
            self.key_words(sort, input)?;
            let first = match sort.window {
                Some(_) => u64::MAX,
                None => skip.saturating_add(fetch),
            };
            match sort.window.as_ref().and_then(|window| window.rows) {
                Some(rows) => fetch = fetch.min(self.order_first_rows(sort, input, rows)?),
                None => self.order_rows(sort, input, first)?,
            }
        }
        self.frame.results[sort.into].rows = fetch;
        let bound = self.frame.bound(sort.gather.source);
        self.launch(&sort.gather, bound, (skip, fetch))?;
        if let Some(window) = &sort.window {
            self.window(sort, window, fetch)?;
        }
        if let Some(store) = &mut self.frame.results[sort.into].store {
            store.drop_temporary(&mut self.frame.recycler);
        }
        Ok(())
    }

    /// Write the key words of `input` rows, beside what their output has already.
    pub(in crate::exec) fn key_words(&mut self, sort: &PreparedSort, input: u64) -> Result<()> {
        let Some(keys) = &sort.keys else {
            return Err(GpuError::Internal("an order by nothing".into()));
        };
        let parts = sort_parts(sort.word_bits.len(), input);
        let blocks = [BlockSizes {
            parts,
            fill: None,
            temporary: true,
        }];
        let purpose = self.frame.name(sort.into);
        let store = self.frame.results[sort.into].store.get_or_insert_default();
        store.extend(
            &blocks,
            &mut self.frame.recycler,
            self.frame.stream,
            purpose,
        )?;
        self.launch(keys, input, (0, 0))
    }

    /// The addresses of the key words.
    pub(in crate::exec) fn words(&self, sort: &PreparedSort) -> Result<Vec<DevicePtr>> {
        let words = 0..sort.word_bits.len();
        words
            .map(|w| self.frame.address(sort.into, Part::KeyWord(w)))
            .collect()
    }

    /// How many rows a sort of `input` rows at most orders.
    pub(in crate::exec) fn input_rows(&self, sort: &PreparedSort, input: u64) -> RowCount {
        match self.frame.count(sort.rows) {
            // The input may have been sized for more rows than were promised to this sort.
            RowCount::Device { count, most } => RowCount::Device {
                count,
                most: most.min(input),
            },
            known => known,
        }
    }

    /// Order `input` rows by their key words; of the order only the `first` places are asked for.
    pub(in crate::exec) fn order_rows(
        &mut self,
        sort: &PreparedSort,
        input: u64,
        first: u64,
    ) -> Result<()> {
        let order = self.frame.address(sort.into, Part::Order)?;
        self.order_rows_at(sort, input, first, order)
    }

    /// The same at a place of `input` numbers.
    pub(in crate::exec) fn order_rows_at(
        &mut self,
        sort: &PreparedSort,
        input: u64,
        first: u64,
        order: DevicePtr,
    ) -> Result<()> {
        let words = self.words(sort)?;
        let rows = self.input_rows(sort, input);
        self.reports.kernels += 1;
        // SAFETY: every word array and the order have room for `input` rows.
        unsafe {
            primitives::sort_first_rows(
                self.frame.runtime,
                self.frame.stream,
                &words,
                &sort.word_bits,
                rows,
                first,
                order,
            )
        }
    }
}
