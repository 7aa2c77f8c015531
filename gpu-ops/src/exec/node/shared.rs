//! What all runs of a fragment share: preparing it for the columns at hand, running it, planning again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use datafusion::error::Result as DataFusionResult;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use parking_lot::Mutex;

use crate::codegen::Program;
use crate::column::Column;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::execute::{Deliver, Finished, execute};
use crate::exec::node::exchange::in_one_partition;
use crate::exec::node::giving_way::giving_way;
use crate::exec::node::inputs::Collected;
use crate::exec::node::report::{FragmentOptions, FragmentReport};
use crate::exec::node::room::{RoomLevel, group_room};
use crate::exec::prepare::bind::OverlapScan;
use crate::exec::prepare::lookups::UsedLookups;
use crate::exec::prepare::prepared::{Prepared, streamed_scans};
use crate::exec::prepare::replan::ReplanFacts;
use crate::graph::{Graph, Parts, Policy};
use crate::query::Query;
use crate::runtime::Runtime;
use crate::runtime::slots::{Length, Slot, default_places};
use crate::tables::LoadedTable;
use crate::trace::Work;

/// What all runs of a fragment share.
#[derive(Debug)]
pub(in crate::exec) struct Shared {
    pub(in crate::exec) policy: Arc<dyn Policy>,
    pub(in crate::exec) original: Arc<dyn ExecutionPlan>,
    pub(in crate::exec) runtime: Arc<Runtime>,
    pub(in crate::exec) options: FragmentOptions,
    pub(in crate::exec) schema: SchemaRef,
    prepared: Mutex<Option<Arc<Prepared>>>,
    /// What runs found out that plans must know.
    facts: Mutex<ReplanFacts>,
    /// How much device memory its columns may take.
    pub(in crate::exec) room: RoomLevel,
    /// The device refused it once its columns were known: its second plan answers.
    pub(in crate::exec) in_parts: AtomicBool,
    /// The CPU plan has run: its operators may keep state of that.
    original_ran: AtomicBool,
    /// A run beside the CPU's plan failed.
    raced_in_vain: AtomicBool,
}

impl Shared {
    pub(in crate::exec) fn new(
        policy: Arc<dyn Policy>,
        original: Arc<dyn ExecutionPlan>,
        runtime: Arc<Runtime>,
        options: FragmentOptions,
    ) -> Self {
        Self {
            schema: original.schema(),
            policy,
            original,
            runtime,
            options,
            prepared: Mutex::default(),
            facts: Mutex::default(),
            room: RoomLevel::default(),
            in_parts: AtomicBool::new(false),
            original_ran: AtomicBool::new(false),
            raced_in_vain: AtomicBool::new(false),
        }
    }

    /// Begin with what runs of `earlier` left: kernels, sizes of results, shares of memory. Nothing is taken over where the two
    /// are not alike.
    pub(in crate::exec) fn take_over(&self, earlier: &Self) {
        let alike = Arc::ptr_eq(&self.runtime, &earlier.runtime)
            && self.schema == earlier.schema
            && self.policy.describe() == earlier.policy.describe();
        if !alike {
            return;
        }
        *self.prepared.lock() = earlier.prepared.lock().clone();
        *self.facts.lock() = earlier.facts.lock().clone();
        self.room.take_over(&earlier.room);
    }

    /// Is there anything to load or to compile, as far as is known, and did no run beside the CPU's plan fail?
    pub(in crate::exec) fn may_race(&self) -> bool {
        let prepared = self.prepared.lock().clone();
        let hot = prepared.is_some_and(|prepared| prepared.is_complete());
        !hot && !self.raced_in_vain.load(Ordering::Relaxed)
    }

    /// A run beside the CPU's plan failed.
    pub(in crate::exec) fn race_was_in_vain(&self) {
        self.raced_in_vain.store(true, Ordering::Relaxed);
    }

    /// The CPU plan, ready to run over the rows of its inputs, with one partition.
    pub(in crate::exec) fn original_ready(
        &self,
        collected: &Collected,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut original = Arc::clone(&self.original);
        let ran = self.original_ran.swap(true, Ordering::SeqCst);
        // Joins of this plan may hand filters to the scans of its inputs, where they would stay for the next run: those that are
        // reset do not.
        if ran || !collected.rows.is_empty() {
            original = reset_plan_states(original)?;
        }
        Ok(in_one_partition(giving_way(collected.plan(original)?)?))
    }

    /// Prepare if need be, and run, over tables of which one may be still coming; plan again when a build turns out not to be unique.
    pub(in crate::exec) fn run<T>(
        &self,
        tables: &[Arc<LoadedTable>],
        overlap: Option<&OverlapScan>,
        stream: &Stream,
        profile: bool,
        deliver: Deliver<'_, T>,
        mut held: Option<Slot>,
    ) -> Result<(T, FragmentReport)> {
        let mut report = FragmentReport::default();
        loop {
            let begin = Instant::now();
            let (prepared, lookups, reused) = self.prepare(tables, overlap, stream)?;
            if !reused {
                report.compile_ms += begin.elapsed().as_secs_f64() * 1e3;
            }
            let budget = self.runtime.pool().budget();
            prepared.expect_results(self.room.results(budget));
            let place = match (held.take(), overlap) {
                (Some(place), _) => Some(place),
                // It waits for files most of the time.
                (None, Some(_)) => None,
                (None, None) => self.place(&prepared)?,
            };
            report.queue_ms += place.as_ref().map_or(0.0, |p| p.waited.as_secs_f64() * 1e3);
            let outcome = execute(&self.runtime, stream, &prepared, deliver, profile);
            drop(lookups);
            drop(place);
            self.runtime.return_to_peers();
            match outcome {
                Ok(finished) => {
                    if !finished.reads_sizes {
                        prepared.took(finished.kernel_ms);
                    }
                    if finished.spilled_bytes > 0 {
                        // Less for columns next time.
                        self.room.tighten();
                    }
                    return Ok(complete(report, &prepared, finished));
                }
                Err(GpuError::DuplicateKeys(build)) => {
                    self.forget(&prepared);
                    let note = format!("{build} has rows of equal keys: planned again");
                    self.facts.lock().duplicates.insert(build.clone());
                    if prepared.facts.duplicates.contains(&build) {
                        return Err(GpuError::Internal(format!(
                            "{build} was assumed to be unique although it is known not to be"
                        )));
                    }
                    report.choices.push(note);
                }
                Err(GpuError::GroupsOutgrown {
                    name,
                    slots,
                    distinct_slots,
                    full_sets,
                }) => {
                    self.forget(&prepared);
                    let note = format!("groups of {name} outgrew {slots} slots: planned again");
                    report.choices.push(note);
                    let mut facts = self.facts.lock();
                    let outgrown = facts.outgrown.entry(name).or_default();
                    outgrown.note(slots, &distinct_slots, full_sets);
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn places(&self) -> usize {
        match self.options.concurrency {
            0 => default_places(),
            most => most,
        }
    }

    /// A place on the device, if there is one now, for a run that has all it needs, memory as well, and is over before another
    /// thread would have been woken for it and told of its end.
    pub(in crate::exec) fn place_at_once(&self, tables: &[Arc<LoadedTable>]) -> Option<Slot> {
        let prepared = self.prepared.lock().clone()?;
        let length = prepared.length();
        let pool = self.runtime.pool();
        let has_room = || {
            let results = self.room.results(pool.budget());
            results.is_some_and(|bytes| bytes <= pool.available())
        };
        let ready = length == Length::Short
            && prepared.known().is_some()
            && prepared.is_complete()
            && self.suits(&prepared, tables)
            && has_room();
        ready.then(|| self.runtime.slots().try_take(length, self.places()))?
    }

    /// A place on the device for the query of this thread.
    fn place(&self, prepared: &Prepared) -> Result<Option<Slot>> {
        let Some(query) = Query::current() else {
            return Ok(None);
        };
        let slots = self.runtime.slots();
        let most = self.places();
        let length = prepared.length();
        if let Some(place) = slots.try_take(length, most) {
            return Ok(Some(place));
        }
        let _parked = self.runtime.pool().park(&query);
        slots.take(&query, length, most).map(Some)
    }

    /// Was this prepared for these columns, and for as much memory as there is?
    fn suits(&self, prepared: &Prepared, tables: &[Arc<LoadedTable>]) -> bool {
        let short = self.room.results_may_spill();
        prepared.fits(tables) && (prepared.graph.parts.allowed() || !short)
    }

    /// What was prepared for these columns, with its lookup tables, or anew; the last value tells which.
    fn prepare(
        &self,
        tables: &[Arc<LoadedTable>],
        overlap: Option<&OverlapScan>,
        stream: &Stream,
    ) -> Result<(Arc<Prepared>, UsedLookups, bool)> {
        let kept = self.prepared.lock().clone();
        if let Some(prepared) = kept.filter(|kept| self.suits(kept, tables))
            && let Some(lookups) = prepared.lookups_for_use()
        {
            return Ok((prepared, lookups, true));
        }
        let trace = self.runtime.trace();
        let _traced = trace.map(|trace| trace.thread(Work::Compile, "make pipelines and kernels"));
        let facts = self.facts.lock().clone();
        let plain: Vec<LoadedTable> = tables.iter().map(|t| LoadedTable::clone(t)).collect();
        let graph = self.graph(&plain, &facts)?;
        if graph.schema != self.schema {
            return Err(GpuError::Internal(
                "a fragment's schema differs from its plan's".into(),
            ));
        }
        let device = self.runtime.device().info();
        let program = match Program::new(&graph, &plain, self.policy.as_ref(), device) {
            Err(GpuError::NeedsCodes(what)) if self.policy.ask_for_codes() => {
                log::info!("{what}: the strings are loaded again, with dictionaries");
                return Err(GpuError::ReloadScans);
            }
            program => program?,
        };
        // Anonymous tables are loaded anew each time: keeping them would only hold memory.
        drop(plain);
        let mut prepared = Prepared::new(
            graph,
            facts,
            program,
            tables,
            overlap,
            &self.runtime,
            stream,
        )?;
        prepared.spill.clone_from(&self.options.spill);
        if self.options.blocks > 0 {
            prepared.limit_blocks(self.options.blocks * u64::from(device.multiprocessors.max(1)));
        }
        let lookups = prepared.lookups_for_use().ok_or_else(|| {
            GpuError::Internal("lookup tables were given back before anybody knew of them".into())
        })?;
        if let Some(kept) = prepared.kept_lookups() {
            self.runtime.lookups().add(kept);
        }
        let prepared = Arc::new(prepared);
        *self.prepared.lock() = Some(Arc::clone(&prepared));
        Ok((prepared, lookups, false))
    }

    /// The graph over these tables, by what runs have found out.
    fn graph(&self, tables: &[LoadedTable], facts: &ReplanFacts) -> Result<Graph> {
        let budget = self.runtime.pool().budget();
        let mut graph = self
            .policy
            .graph(tables, &facts.duplicates, budget.kept_index())?;
        // Lists are read from results that have all of their rows where kernels reach them.
        if self.room.results_may_spill() && !graph.parts.allowed() && graph.lists.is_empty() {
            graph.parts = Parts::Large;
        }
        if graph.parts.allowed() {
            graph.group_room = Some(group_room(budget));
        }
        for result in &mut graph.results {
            if let Some(outgrown) = facts.outgrown.get(&result.name) {
                result.estimate = result.estimate.max(outgrown.slots / 2);
            }
        }
        Ok(graph)
    }

    /// A run got no room: the next one is to take no more for its results than the first one took.
    pub(in crate::exec) fn read_sizes(&self) {
        if let Some(prepared) = &*self.prepared.lock() {
            prepared.read_sizes();
        }
    }

    /// The columns of the last run that are still there.
    pub(in crate::exec) fn last_columns(&self) -> Vec<Arc<Column>> {
        let prepared = self.prepared.lock().clone();
        prepared.map_or_else(Vec::new, |prepared| prepared.columns())
    }

    /// Do not use this again.
    fn forget(&self, prepared: &Arc<Prepared>) {
        let mut kept = self.prepared.lock();
        if kept.as_ref().is_some_and(|p| Arc::ptr_eq(p, prepared)) {
            *kept = None;
        }
    }

    /// The fragment for EXPLAIN: its steps and the chosen algorithms once its columns are resident, else what the
    /// planner says.
    pub(in crate::exec) fn describe(&self) -> Vec<String> {
        let prepared = self.prepared.lock().clone();
        if let Some(prepared) = prepared {
            return steps_of(&prepared.graph, &prepared.choices);
        }
        let scans = self.policy.scans().iter();
        let resident: Option<Vec<LoadedTable>> = scans
            .map(|scan| {
                self.runtime
                    .tables()
                    .peek(&scan.table, &scan.columns, &scan.needs_codes)
            })
            .collect();
        let steps = resident.and_then(|tables| {
            let facts = self.facts.lock().clone();
            let graph = self.graph(&tables, &facts).ok()?;
            // The choices are made with the figures that code generation comes to.
            let device = self.runtime.device().info();
            let program = Program::new(&graph, &tables, self.policy.as_ref(), device);
            let mut choices = program.map_or_else(|error| vec![error.to_string()], |p| p.choices);
            choices.extend(streamed_scans(&graph, &tables));
            Some(steps_of(&graph, &choices))
        });
        steps.unwrap_or_else(|| self.policy.describe().lines().map(str::to_string).collect())
    }
}

/// One line a step, then one a choice.
fn steps_of(graph: &Graph, choices: &[String]) -> Vec<String> {
    let steps = graph.to_string();
    let steps = steps.lines().map(str::to_string);
    steps.chain(choices.iter().cloned()).collect()
}

fn complete<T>(
    mut report: FragmentReport,
    prepared: &Prepared,
    finished: Finished<T>,
) -> (T, FragmentReport) {
    report.choices.extend(prepared.choices.iter().cloned());
    let portions = finished.portions.iter();
    report.portions = portions.map(|p| (p.step, p.to_string())).collect();
    report.early_strides = finished.early_strides;
    report.kernel_ms = finished.kernel_ms;
    report.kernels = finished.kernels;
    report.bytes = prepared.bytes;
    report.join_parts = finished.parts;
    report.sides_apart = finished.sides_apart;
    report.group_parts = finished.group_parts;
    report.sort_parts = finished.sort_parts;
    report.streamed_bytes = finished.streamed_bytes;
    report.spilled_bytes = finished.spilled_bytes;
    report.peer_bytes = finished.peer_bytes;
    report.output_rows = usize::try_from(finished.rows).unwrap_or(usize::MAX);
    report.sizes_read = finished.reads_sizes;
    report.steps = finished.steps;
    report.phases = finished.phases;
    (finished.output, report)
}
