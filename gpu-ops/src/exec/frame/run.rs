//! One run of a prepared fragment: room for results, launches in order, and what to do when room was short.

use std::sync::Arc;
use std::time::Duration;

use crate::codegen::ControlWord;
use crate::device::{Event, Stream};
use crate::error::Result;
use crate::exec::frame::kept_indexes::{self, FinishedIndex};
use crate::exec::frame::results::Frame;
use crate::exec::frame::storage::Store;
use crate::exec::frame::trees::TreeMemory;
use crate::exec::portions::strategy::{Filling, Finishing, StepPortions};
use crate::exec::prepare::hints::Hint;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource, PreparedStep};
use crate::exec::prepare::prepared::Prepared;
use crate::exec::prepare::shapes::Shape;
use crate::graph::ResultId;
use crate::query::Query;
use crate::runtime::Runtime;

/// Launches of one pipeline: every one but the last doubles a table or makes exact room.
pub(in crate::exec) const MOST_ATTEMPTS: usize = 48;

/// The state of one run; nothing of it outlives the run.
pub(in crate::exec) struct Run<'a> {
    /// Its results, and what they are made with.
    pub(in crate::exec) frame: Frame<'a>,
    pub(in crate::exec) schedule: Schedule,
    pub(in crate::exec) reports: Reports,
}

/// Where a run is among its steps, and how the rows of a step come.
#[derive(Debug, Default)]
pub(in crate::exec) struct Schedule {
    /// The step at hand.
    pub(in crate::exec) step: usize,
    /// Steps that ran before their turn.
    pub(in crate::exec) ran: Vec<usize>,
    /// Rows came in parts: the sizes at the end are those of the last one.
    pub(in crate::exec) in_parts: bool,
    /// While set, a result holds the rows of the current piece alone.
    pub(in crate::exec) piecewise: bool,
    /// Work is queued for many parts ahead: what is known to fit is not waited for.
    pub(in crate::exec) ahead: bool,
}

/// What a run counts and measures.
#[derive(Default)]
pub(in crate::exec) struct Reports {
    /// Kernels launched, those behind primitives counted as one each.
    pub(in crate::exec) kernels: usize,
    /// Events are recorded after every step and kind of work.
    pub(in crate::exec) profile: bool,
    /// Before the first step and after each one, when asked for.
    pub(in crate::exec) events: Vec<Event>,
    /// Ends of kinds of work within steps, when asked for.
    pub(in crate::exec) marks: Vec<(&'static str, Event)>,
    /// Memory of tree-shaped kernels, with the step that launched them.
    pub(in crate::exec) trees: Vec<(usize, TreeMemory)>,
    /// Parts of joins: pairs of partitions, and strides that were probed one by one.
    pub(in crate::exec) join_parts: u64,
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
    /// What came in portions.
    pub(in crate::exec) portions: Vec<StepPortions>,
    /// Bytes of partitions that came from host memory.
    pub(in crate::exec) pair_bytes: u64,
}

/// Skip and fetch of the sort being launched.
pub(in crate::exec) type Cut = (u64, u64);

impl<'a> Run<'a> {
    /// With `hints` nothing is read back before the end, and the results are to be checked with
    /// [`Frame::kept_within`]; without, sizes are read after every step.
    pub(in crate::exec) fn new(
        runtime: &'a Arc<Runtime>,
        stream: &'a Stream,
        prepared: &'a Prepared,
        hints: Option<Arc<Vec<Hint>>>,
    ) -> Result<Self> {
        let frame = Frame::new(runtime, stream, prepared, hints)?;
        Ok(Self {
            frame,
            schedule: Schedule::default(),
            reports: Reports::default(),
        })
    }

    /// The run was waited for. Where its stream did all of the work, its memory is free for others at once; else the pool looks
    /// when the streams have passed what is queued.
    pub(in crate::exec) fn end(self) {
        let Reports {
            trees,
            join_parts,
            group_parts,
            sort_parts,
            portions,
            pair_bytes,
            ..
        } = self.reports;
        let parts = join_parts + group_parts + sort_parts + pair_bytes;
        let alone = parts == 0 && portions.is_empty() && self.frame.strides.is_none();
        if alone && !self.schedule.in_parts && self.frame.recycler.spilled() == 0 {
            let trees = trees.into_iter().map(|(_, memory)| memory);
            self.frame.release(trees);
        }
    }

    /// Bytes that came from host memory in strides, bytes of results that lie there, and bytes of rows on other devices.
    pub(in crate::exec) fn link_bytes(&self) -> (u64, u64, u64) {
        let streamed = self.frame.strides.as_ref().map_or(0, |s| s.bytes);
        (
            streamed + self.reports.pair_bytes,
            self.frame.recycler.spilled(),
            self.frame.recycler.on_peers(),
        )
    }

    /// What was launched since the last mark was this kind of work.
    pub(in crate::exec) fn mark(&mut self, work: &'static str) -> Result<()> {
        if self.reports.profile {
            let event = self
                .frame
                .runtime
                .device()
                .record_event(self.frame.stream)?;
            self.reports.marks.push((work, event));
        }
        Ok(())
    }

    /// Run every step; `profile` asks for an event after each one.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`] and [`GpuError::DuplicateKeys`] as soon as they are known, which with hints is
    /// after [`Frame::kept_within`]; [`GpuError::OutOfDeviceMemory`]; [`GpuError::Unsupported`] for
    /// more rows than can be numbered.
    pub(in crate::exec) fn steps(&mut self, profile: bool) -> Result<()> {
        let prepared = self.frame.prepared;
        let device = self.frame.runtime.device();
        self.reports.profile = profile;
        self.reports
            .events
            .push(device.record_event(self.frame.stream)?);
        for number in 0..prepared.steps.len() {
            if !self.schedule.ran.contains(&number) {
                self.run_step(number)?;
            }
            for result in &prepared.dead_after[number] {
                if let Some(store) = self.frame.results[*result].store.take() {
                    store.release(&mut self.frame.recycler);
                }
            }
            if profile || number + 1 == prepared.steps.len() {
                self.reports
                    .events
                    .push(device.record_event(self.frame.stream)?);
            }
        }
        Ok(())
    }

    pub(in crate::exec) fn run_step(&mut self, number: usize) -> Result<()> {
        let before = std::mem::replace(&mut self.schedule.step, number);
        let label = self.frame.prepared.steps[number].label();
        let _traced = self.frame.runtime.traced_step(self.frame.stream, label);
        match &self.frame.prepared.steps[number] {
            PreparedStep::Pipeline(kernel) => self.pipeline(kernel)?,
            PreparedStep::Sort(sort) => self.sort(sort)?,
            PreparedStep::Borrow { into, .. } => self.borrow(*into)?,
        }
        self.schedule.step = before;
        Ok(())
    }

    fn pipeline(&mut self, kernel: &PreparedKernel) -> Result<()> {
        let Some(into) = kernel.into else {
            return self.fill_result(kernel);
        };
        if let Some(what) = &kernel.covering
            && let Some(index) = kept_indexes::find(self.frame.runtime.indexes(), what)
        {
            return self.adopt(into, index);
        }
        let filling = self.filling(kernel, into);
        self.note_strategy(filling.portions());
        match filling {
            Filling::ProbeStrides => return self.probe_strides(kernel, into),
            Filling::CollectPieces => return self.collect_pieces(kernel, into),
            Filling::FirstOfPieces => return self.keep_first(kernel, into),
            Filling::WritePieces => return self.write_pieces(kernel, into),
            Filling::SplitStrides(bits) => self.split_strides(kernel, into, bits)?,
            Filling::InCore => self.fill_result(kernel)?,
        }
        if self.frame.results[into].split.is_some() && !self.probes_split(into) {
            return Ok(());
        }
        self.complete(into)?;
        if let (Some(what), Some(store)) = (&kernel.covering, &self.frame.results[into].store)
            && !self.frame.head.holds(store)
            && self.frame.recycler.spilled() == 0
        {
            self.frame.built.push((into, what.clone(), store.clone()));
        }
        Ok(())
    }

    /// Run a pipeline; what its result needs to be read is still to be done.
    pub(in crate::exec) fn fill_result(&mut self, kernel: &PreparedKernel) -> Result<()> {
        let rows = self.frame.bound(kernel.source);
        let Some(into) = kernel.into else {
            self.launch_all(kernel, rows)?;
            return self.mark("scan");
        };
        let before = self.frame.results[into].rows;
        // A tree has more rows to give than its source: as many as thought, at first.
        let coming = match kernel.tree {
            Some(_) => rows.max(self.frame.prepared.graph.results[into].estimate),
            None => rows,
        };
        self.provide(into, coming)?;
        let fits = self.schedule.ahead && self.frame.prepared.shapes[into].never_overflows();
        if self.frame.reads_sizes() && !fits {
            self.attempt(kernel, into, rows, before)?;
        } else {
            self.launch_all(kernel, rows)?;
            self.frame.results[into].rows = self.frame.results[into].sizes.capacity;
        }
        self.mark(match (&self.frame.prepared.shapes[into], kernel.source) {
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
        self.frame.results[into].rows = index.count;
        self.frame.results[into].sizes = index.sizes;
        let store = match self.frame.zero_copy(into) {
            None => index.store,
            // What this query reads of the table is not what the one that built it read.
            Some(in_table) => {
                let mut store = Store::borrowing(&in_table.parts);
                store.join(index.store);
                store
            }
        };
        self.frame.results[into].store = Some(store);
        self.frame
            .control
            .set(self.frame.stream, into, ControlWord::Count, index.count)?;
        if index.null_key {
            self.frame
                .control
                .set(self.frame.stream, into, ControlWord::NullKey, 1)?;
        }
        Ok(())
    }

    /// A result that a table has already.
    fn borrow(&mut self, into: ResultId) -> Result<()> {
        self.await_tables()?;
        let rows = self
            .frame
            .zero_copy(into)
            .map_or(0, |in_table| in_table.rows);
        self.provide(into, rows)?;
        self.frame
            .control
            .set(self.frame.stream, into, ControlWord::Count, rows)?;
        self.frame.results[into].rows = rows;
        self.complete(into)
    }

    /// All rows of a result are there: do what its readers need, and where that goes in parts let them read each.
    pub(in crate::exec) fn complete(&mut self, into: ResultId) -> Result<()> {
        let finishing = self.finishing(into);
        self.note_strategy(finishing.portions());
        match finishing {
            Finishing::InCore => self.finish(into),
            Finishing::SplitIndex(bits) => self.split_index(into, bits),
            Finishing::JoinPartitions => self.join_partitions(into),
            Finishing::AggregateParts => self.regroup_in_parts(into),
        }
    }
}
