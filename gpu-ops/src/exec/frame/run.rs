//! One run of a prepared fragment: room for results, launches in order, and what to do when room was short.

use std::sync::Arc;
use std::time::Duration;

use crate::codegen::{ControlWord, Part};
use crate::device::{Event, Stream};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::head::Head;
use crate::exec::frame::kept_indexes::{self, FinishedIndex};
use crate::exec::frame::storage::{Recycler, Store};
use crate::exec::frame::trees::TreeMemory;
use crate::exec::join::sides::Split;
use crate::exec::portions::spread::Spread;
use crate::exec::portions::strides::Strides;
use crate::exec::prepare::covering::Covering;
use crate::exec::prepare::hints::{Hint, sizes_by};
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSort, PreparedSource, PreparedStep};
use crate::exec::prepare::prepared::{Lent, Prepared};
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::graph::ResultId;
use crate::memory::{BatchFile, DeviceBuffer};
use crate::query::Query;
use crate::runtime::Runtime;

/// Launches of one pipeline: every one but the last doubles a table or makes exact room.
pub(in crate::exec) const MOST_ATTEMPTS: usize = 48;

/// The state of one run; nothing of it outlives the run.
pub(in crate::exec) struct Run<'a> {
    pub(in crate::exec) runtime: &'a Runtime,
    pub(in crate::exec) stream: &'a Stream,
    pub(in crate::exec) prepared: &'a Prepared,
    pub(in crate::exec) control: Control,
    pub(in crate::exec) head: Head,
    pub(in crate::exec) stores: Vec<Option<Store>>,
    pub(in crate::exec) sizes: Vec<Sizes>,
    /// Rows of each result so far: exact, or with hints an upper bound.
    pub(in crate::exec) rows: Vec<u64>,
    /// Pairs of each `Matches` result, likewise.
    pub(in crate::exec) pairs: Vec<u64>,
    hints: Option<Arc<Vec<Hint>>>,
    pub(in crate::exec) recycler: Recycler,
    /// Kernels launched, those behind primitives counted as one each.
    pub(in crate::exec) kernels: usize,
    /// Before the first step and after each one, when asked for.
    pub(in crate::exec) events: Vec<Event>,
    /// Indexes that were built and may be kept, by result.
    built: Vec<(ResultId, Covering, Store)>,
    /// Ends of kinds of work within steps, when asked for.
    pub(in crate::exec) marks: Vec<(&'static str, Event)>,
    profile: bool,
    /// The step at hand.
    pub(in crate::exec) step: usize,
    /// Memory of tree-shaped kernels, with the step that launched them.
    pub(in crate::exec) trees: Vec<(usize, TreeMemory)>,
    /// Where columns in host memory come in strides.
    pub(in crate::exec) strides: Option<Strides>,
    /// By result: the rows of a join's side in partitions.
    pub(in crate::exec) splits: Vec<Option<Split>>,
    /// By result: its rows as they came, where they are too many to lie together.
    pub(in crate::exec) heaps: Vec<Option<Spread>>,
    /// Steps that ran before their turn.
    pub(in crate::exec) ran: Vec<usize>,
    /// Rows came in parts: the sizes at the end are those of the last one.
    pub(in crate::exec) in_parts: bool,
    /// Parts of joins: pairs of partitions, and strides that were probed one by one.
    pub(in crate::exec) parts: u64,
    /// Results get the rows of a piece alone.
    pub(in crate::exec) piecewise: bool,
    /// Sides of joins whose partitions had room of their own.
    pub(in crate::exec) sides_apart: u64,
    /// Parts of group-bys.
    pub(in crate::exec) group_parts: u64,
    /// Parts of sorts.
    pub(in crate::exec) sort_parts: u64,
    /// Launches over rows of a table of which others were still to come, …
    pub(in crate::exec) early_strides: u64,
    /// … and the time spent waiting for those.
    pub(in crate::exec) waited: Duration,
    /// Bytes of partitions that came from host memory.
    pub(in crate::exec) pair_bytes: u64,
    /// By result: the rows of all parts, of which it has one at a time.
    pub(in crate::exec) spread_rows: Vec<u64>,
    /// By result: rows of an earlier part are in it, and cannot be had again.
    pub(in crate::exec) added: Vec<bool>,
    /// Work is queued for many parts ahead: what is known to fit is not waited for.
    pub(in crate::exec) ahead: bool,
    /// The output, where it is in a file.
    pub(in crate::exec) written: Option<Arc<BatchFile>>,
}

/// Skip and fetch of the sort being launched.
pub(in crate::exec) type Cut = (u64, u64);

impl<'a> Run<'a> {
    /// With `hints` nothing is read back before the end, and the results are to be checked with
    /// [`Run::kept_within`]; without, sizes are read after every step.
    pub(in crate::exec) fn new(
        runtime: &'a Runtime,
        stream: &'a Stream,
        prepared: &'a Prepared,
        hints: Option<Arc<Vec<Hint>>>,
    ) -> Result<Self> {
        let results = prepared.shapes.len();
        let mut sizes = vec![Sizes::default(); results];
        let mut stores: Vec<Option<Store>> = (0..results).map(|_| None).collect();
        let mut recycler = Recycler::new(runtime.pool(), stream);
        if prepared.graph.parts.allowed() {
            recycler = recycler.spilling_to(Arc::clone(runtime.host_pool()));
        }
        let strides = Strides::new(prepared, runtime)?;
        if let Some(query) = Query::current() {
            query.begin_results();
        }
        let head = Head::new(prepared, hints.as_deref(), &mut recycler, stream)?;
        let output = prepared.graph.output;
        if let (Some(hints), Some(store)) = (&hints, head.output()?) {
            sizes[output] = sizes_by(&prepared.shapes[output], &hints[output]);
            stores[output] = Some(store);
        }
        Ok(Self {
            control: head.control(results),
            head,
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
            built: vec![],
            marks: vec![],
            profile: false,
            step: 0,
            trees: vec![],
            strides,
            splits: (0..results).map(|_| None).collect(),
            heaps: (0..results).map(|_| None).collect(),
            ran: vec![],
            in_parts: false,
            parts: 0,
            piecewise: false,
            sides_apart: 0,
            group_parts: 0,
            sort_parts: 0,
            early_strides: 0,
            waited: Duration::ZERO,
            pair_bytes: 0,
            spread_rows: vec![0; results],
            added: vec![false; results],
            ahead: false,
            written: None,
        })
    }

    /// Bytes that came from host memory in strides, and bytes of results that lie there.
    pub(in crate::exec) fn link_bytes(&self) -> (u64, u64) {
        let streamed = self.strides.as_ref().map_or(0, |s| s.bytes);
        (streamed + self.pair_bytes, self.recycler.spilled())
    }

    /// What was launched since the last mark was this kind of work.
    pub(in crate::exec) fn mark(&mut self, work: &'static str) -> Result<()> {
        if self.profile {
            let event = self.runtime.device().record_event(self.stream)?;
            self.marks.push((work, event));
        }
        Ok(())
    }

    /// Run every step; `profile` asks for an event after each one.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`] and [`GpuError::DuplicateKeys`] as soon as they are known, which with hints is
    /// after [`Run::kept_within`]; [`GpuError::OutOfDeviceMemory`]; [`GpuError::Unsupported`] for
    /// more rows than can be numbered.
    pub(in crate::exec) fn steps(&mut self, profile: bool) -> Result<()> {
        let prepared = self.prepared;
        let device = self.runtime.device();
        self.profile = profile;
        self.events.push(device.record_event(self.stream)?);
        for number in 0..prepared.steps.len() {
            if !self.ran.contains(&number) {
                self.run_step(number)?;
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

    pub(in crate::exec) fn run_step(&mut self, number: usize) -> Result<()> {
        let before = std::mem::replace(&mut self.step, number);
        let label = self.prepared.steps[number].label();
        let _traced = self.runtime.traced_step(self.stream, label);
        match &self.prepared.steps[number] {
            PreparedStep::Pipeline(kernel) => self.pipeline(kernel)?,
            PreparedStep::Sort(sort) => self.sort(sort)?,
            PreparedStep::Borrow { into, .. } => self.borrow(*into)?,
        }
        self.step = before;
        Ok(())
    }

    /// What this run found out, for the next one over the same columns. `control` are the words at the end.
    pub(in crate::exec) fn learned(&self, control: &[u64]) -> Vec<Hint> {
        self.sizes
            .iter()
            .enumerate()
            .map(|(result, sizes)| Hint {
                rows: Control::word(control, result, ControlWord::Count),
                pairs: if self.prepared.shapes[result].lists_pairs() {
                    Control::word(control, result, ControlWord::Pairs)
                } else {
                    self.pairs[result]
                },
                slots: sizes.slots,
                distinct_slots: sizes.distinct_slots.clone(),
                bits: sizes.bits,
                largest: Control::largest(control, result),
            })
            .collect()
    }

    /// Did everything fit into the room that the hints gave? If not, the answer is worth nothing.
    pub(in crate::exec) fn kept_within(&self, control: &[u64]) -> bool {
        let word = |result, word| Control::word(control, result, word);
        let fitted = self.prepared.shapes.iter().enumerate().all(|(r, shape)| {
            word(r, ControlWord::Overflow) == 0
                && (!shape.appends() || word(r, ControlWord::Count) <= self.sizes[r].capacity)
                && (!shape.lists_pairs() || word(r, ControlWord::Pairs) <= self.sizes[r].pairs)
        });
        fitted
            && self.prepared.steps.iter().all(|step| match step {
                PreparedStep::Sort(sort) => {
                    let rows = word(sort.rows, ControlWord::Count);
                    word(sort.into, ControlWord::Count) == cut(rows, sort)
                }
                PreparedStep::Pipeline(_) | PreparedStep::Borrow { .. } => true,
            })
    }

    pub(in crate::exec) fn careful(&self) -> bool {
        self.hints.is_none()
    }

    pub(in crate::exec) fn hint(&self, result: ResultId) -> Option<&Hint> {
        self.hints.as_ref().and_then(|h| h.get(result))
    }

    /// Upper bound of the rows that a kernel goes over.
    pub(in crate::exec) fn bound(&self, source: PreparedSource) -> u64 {
        match source {
            PreparedSource::Exactly(rows) => rows,
            PreparedSource::Rows(result) => self.rows[result],
            PreparedSource::Slots(result) => self.sizes[result].slots,
            PreparedSource::Pairs(result) => self.pairs[result],
        }
    }

    fn pipeline(&mut self, kernel: &PreparedKernel) -> Result<()> {
        let Some(into) = kernel.into else {
            return self.fill_result(kernel);
        };
        if let Some(what) = &kernel.covering
            && let Some(index) = kept_indexes::find(self.runtime.indexes(), what)
        {
            return self.adopt(into, index);
        }
        if self.comes_in_strides(kernel, into) {
            return self.probe_strides(kernel, into);
        }
        if self.collect_in_parts(kernel, into)?
            || self.keep_first(kernel, into)?
            || self.write_down(kernel, into)?
        {
            return Ok(());
        }
        match self.splits_in_strides(kernel, into) {
            Some(bits) => self.split_strides(kernel, into, bits)?,
            None => self.fill_result(kernel)?,
        }
        if self.splits[into].is_some() && !self.probes_split(into) {
            return Ok(());
        }
        self.complete(into)?;
        if let (Some(what), Some(store)) = (&kernel.covering, &self.stores[into])
            && !self.head.holds(store)
            && self.recycler.spilled() == 0
        {
            self.built.push((into, what.clone(), store.clone()));
        }
        Ok(())
    }

    /// Run a pipeline; what its result needs to be read is still to be done.
    pub(in crate::exec) fn fill_result(&mut self, kernel: &PreparedKernel) -> Result<()> {
        let rows = self.bound(kernel.source);
        let Some(into) = kernel.into else {
            self.launch_all(kernel, rows)?;
            return self.mark("scan");
        };
        let before = self.rows[into];
        // A tree has more rows to give than its source: as many as thought, at first.
        let coming = match kernel.tree {
            Some(_) => rows.max(self.prepared.graph.results[into].estimate),
            None => rows,
        };
        self.provide(into, coming)?;
        let fits = self.ahead && self.prepared.shapes[into].never_overflows();
        if self.careful() && !fits {
            self.attempt(kernel, into, rows, before)?;
        } else {
            self.launch_all(kernel, rows)?;
            self.rows[into] = self.sizes[into].capacity;
        }
        self.mark(match (&self.prepared.shapes[into], kernel.source) {
            (Shape::Groups { .. }, _) => "aggregate",
            (Shape::Index(index), _) if index.join.is_none() => "build",
            (Shape::Index(_) | Shape::Matches(..) | Shape::Collected(_), _) => "write",
            (_, PreparedSource::Pairs(_)) => "gather",
            (_, PreparedSource::Slots(_)) => "groups",
            _ => "scan",
        })
    }

    /// Take an index that is there already for the result.
    fn adopt(&mut self, into: ResultId, index: FinishedIndex) -> Result<()> {
        if let Some(query) = Query::current() {
            query.adopt(index.store.bytes());
        }
        self.rows[into] = index.count;
        self.sizes[into] = index.sizes;
        self.stores[into] = Some(index.store);
        self.control
            .set(self.stream, into, ControlWord::Count, index.count)?;
        if index.null_key {
            self.control
                .set(self.stream, into, ControlWord::NullKey, 1)?;
        }
        Ok(())
    }

    /// Keep the indexes that this run built for those that come; it is over, and found `control`.
    pub(in crate::exec) fn keep_indexes(&mut self, control: &[u64]) {
        let budget = self.recycler.pool().statistics().budget;
        for (into, what, store) in std::mem::take(&mut self.built) {
            let index = FinishedIndex {
                store,
                sizes: self.sizes[into].clone(),
                count: Control::word(control, into, ControlWord::Count),
                null_key: Control::word(control, into, ControlWord::NullKey) != 0,
            };
            kept_indexes::keep(self.runtime.indexes(), what, index, budget);
        }
    }

    /// A result that a table has already.
    fn borrow(&mut self, into: ResultId) -> Result<()> {
        self.await_tables()?;
        let rows = self.lent(into).map_or(0, |lent| lent.rows);
        self.provide(into, rows)?;
        self.control
            .set(self.stream, into, ControlWord::Count, rows)?;
        self.rows[into] = rows;
        self.complete(into)
    }

    /// All rows of a result are there: do what its readers need, and where that goes in parts let them read each.
    pub(in crate::exec) fn complete(&mut self, into: ResultId) -> Result<()> {
        if self.probes_split(into) {
            return self.join_partitions(into);
        }
        if self.regroup_in_parts(into)? {
            return Ok(());
        }
        self.finish(into)
    }

    /// What a result has of a table.
    pub(in crate::exec) fn lent(&self, result: ResultId) -> Option<&'a Lent> {
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
        self.stores[self.prepared.graph.output]
            .as_ref()
            .ok_or_else(|| GpuError::Internal("no step filled the output".into()))
    }

    /// The buffer of a part of the output and its first byte there.
    pub(in crate::exec) fn output_part(&self, part: Part) -> Result<(&DeviceBuffer, usize)> {
        self.output()?
            .location(part)
            .ok_or_else(|| GpuError::Internal(format!("the output has no {part:?}")))
    }
}

/// Rows that a sort keeps of `rows`.
pub(in crate::exec) fn cut(rows: u64, sort: &PreparedSort) -> u64 {
    rows.saturating_sub(sort.skip)
        .min(sort.fetch.unwrap_or(u64::MAX))
}
