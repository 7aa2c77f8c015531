//! The physical plan node that stands for a fragment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::TryStreamExt;
use parking_lot::Mutex;

use crate::codegen::Program;
use crate::column::Column;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::execute::{Deliver, Delivered, Finished, Host, execute};
use crate::exec::frame::run::Run;
use crate::exec::node::attempts::FragmentRun;
use crate::exec::node::boxes::{Entry, boxed, plain, priced};
use crate::exec::node::lines::indented;
use crate::exec::node::overlap::EarlyScan;
use crate::exec::node::replan::Found;
use crate::exec::node::report::{Counters, FragmentOptions, FragmentReport};
use crate::exec::node::room::{RoomLevel, group_room};
use crate::exec::output::device_rows::DeviceRows;
use crate::exec::prepare::covering::index_room;
use crate::exec::prepare::prepared::{Prepared, streamed_scans};
use crate::graph::{Graph, Parts, Policy};
use crate::memory::BatchFile;
use crate::runtime::Runtime;
use crate::tables::LoadedTable;
use crate::trace::Work;

/// Most rows of one RecordBatch that leaves a fragment.
const BATCH_ROWS: usize = 8192;

/// What EXPLAIN says while nothing is known of the columns.
const NOT_CHOSEN: &str = "(algorithms are chosen when the columns are on the device: EXPLAIN ANALYZE runs the query and shows them)";

/// Runs a fragment on the device of a [`Runtime`]; a leaf with one output partition.
///
/// The node may be executed any number of times, also at once: what was generated, compiled and uploaded for
/// the resident columns is kept and used again as long as these stay the same.
#[derive(Debug)]
pub struct GpuFragmentExec {
    shared: Arc<Shared>,
    run: Arc<RunState>,
    properties: Arc<PlanProperties>,
}

/// What all runs of a fragment share.
#[derive(Debug)]
pub(in crate::exec) struct Shared {
    pub(in crate::exec) policy: Arc<dyn Policy>,
    original: Arc<dyn ExecutionPlan>,
    pub(in crate::exec) runtime: Arc<Runtime>,
    pub(in crate::exec) options: FragmentOptions,
    schema: SchemaRef,
    prepared: Mutex<Option<Arc<Prepared>>>,
    /// What runs found out that plans must know.
    found: Mutex<Found>,
    /// How much device memory its columns may take.
    pub(in crate::exec) room: RoomLevel,
    /// The CPU plan has run: its operators may keep state of that.
    original_ran: AtomicBool,
}

/// What belongs to one use of the plan.
#[derive(Debug, Default)]
struct RunState {
    report: Mutex<FragmentReport>,
    counters: Counters,
}

impl RunState {
    fn publish(&self, report: &FragmentReport) {
        self.counters.publish(report);
        *self.report.lock() = report.clone();
    }
}

impl GpuFragmentExec {
    /// A node that computes what `original` computes on the CPU, in the way that `policy` decides once
    /// the columns are resident.
    ///
    /// # Errors
    /// None at present; the answer leaves room for checks.
    pub fn try_new(
        policy: Arc<dyn Policy>,
        original: Arc<dyn ExecutionPlan>,
        runtime: Arc<Runtime>,
        options: FragmentOptions,
    ) -> Result<Self> {
        let schema = original.schema();
        // Operators above may rely on the order that the policy promises, and on which columns are constant or equal.
        let mut equivalences = original.equivalence_properties().clone();
        if original.output_partitioning().partition_count() != 1 {
            equivalences.clear_per_partition_constants();
        }
        equivalences.clear_orderings();
        if let Some(order) = original.output_ordering() {
            equivalences.add_ordering(order.iter().cloned());
        }
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            shared: Arc::new(Shared {
                policy,
                original,
                runtime,
                options,
                schema,
                prepared: Mutex::default(),
                found: Mutex::default(),
                room: RoomLevel::default(),
                original_ran: AtomicBool::new(false),
            }),
            run: Arc::default(),
            properties: Arc::new(properties),
        })
    }

    /// The CPU plan that the fragment stands for.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.shared.original
    }

    /// How it behaves when it meets a limit, and what it was planned with.
    pub fn options(&self) -> &FragmentOptions {
        &self.shared.options
    }

    /// The planner's side of the fragment.
    pub fn policy(&self) -> &Arc<dyn Policy> {
        &self.shared.policy
    }

    /// Runs the fragment and leaves its rows on the device: `visit` sees them there before their memory is used again. What
    /// comes of it, and what the run did, with the time of each step and kind of work when `profile` asks for it; nothing falls
    /// back to the CPU.
    ///
    /// # Errors
    /// Those of the run and of `visit`; [`GpuError::Unsupported`] for columns of strings that are not codes.
    pub async fn on_device<T: Send + 'static>(
        &self,
        context: Arc<TaskContext>,
        profile: bool,
        visit: impl Fn(&DeviceRows<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> Result<(T, FragmentReport)> {
        let deliver = move |run: &Run<'_>, host: &Host| visit(&DeviceRows::of(run, host)?);
        let mut fragment = FragmentRun::new(&self.shared, context, profile);
        let outcome = fragment.run(deliver).await;
        let (output, report) = fragment.finish(outcome)?;
        self.run.publish(&report);
        Ok((output, report))
    }

    /// Begin with what runs of `earlier` left, a fragment of an earlier plan of the same query over the same tables: kernels,
    /// sizes of results, shares of memory. Nothing is taken over where the two are not alike.
    pub fn take_over(&self, earlier: &Self) {
        let (ours, theirs) = (&self.shared, &earlier.shared);
        let alike = Arc::ptr_eq(&ours.runtime, &theirs.runtime)
            && ours.schema == theirs.schema
            && ours.policy.describe() == theirs.policy.describe();
        if !alike {
            return;
        }
        *ours.prepared.lock() = theirs.prepared.lock().clone();
        *ours.found.lock() = theirs.found.lock().clone();
        ours.room.take_over(&theirs.room);
    }

    /// What the last run did; all zero before the first.
    pub fn report(&self) -> FragmentReport {
        self.run.report.lock().clone()
    }
}

impl DisplayAs for GpuFragmentExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.shared.runtime.device().info().name;
        let mut lines = self.shared.describe();
        let is_pipeline = |line: &str| line.contains(" := ");
        // Before columns are resident there are only lines of the plan, which are in order.
        let chosen = lines.iter().any(|line| is_pipeline(line));
        // Only a plan that has run has one.
        let fallback = self.run.report.lock().fallback.clone();
        lines.extend(fallback.map(|reason| format!("on the CPU: {reason}")));
        if matches!(format, DisplayFormatType::TreeRender) {
            // Entries come by their key: this one is the first.
            writeln!(f, "00 device={}", plain(device))?;
            let entries: Vec<(&'static str, String)> = lines
                .into_iter()
                .map(|line| match chosen && !is_pipeline(&line) {
                    true => ("choice", priced(&line)),
                    false => ("", line),
                })
                .collect();
            let entries: Vec<Entry<'_>> = entries
                .iter()
                .map(|(key, text)| Entry { key, text })
                .collect();
            return boxed(&entries)
                .iter()
                .try_for_each(|line| writeln!(f, "{line}"));
        }
        if !chosen {
            lines.push(NOT_CHOSEN.to_string());
        }
        let lines = indented(lines.iter().map(String::as_str));
        write!(f, "GpuFragmentExec: device={device}{lines}")
    }
}

impl ExecutionPlan for GpuFragmentExec {
    fn name(&self) -> &str {
        "GpuFragmentExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        // The fragment's expressions are not DataFusion's: rules must not rewrite them.
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            Err(DataFusionError::Internal(
                "GpuFragmentExec has no children".into(),
            ))
        }
    }

    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        // Report and metrics are of one use of the plan; what was prepared serves the next as well.
        Ok(Arc::new(Self {
            shared: Arc::clone(&self.shared),
            run: Arc::default(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!(
                "GpuFragmentExec has no partition {partition}"
            )));
        }
        let schema = Arc::clone(&self.shared.schema);
        let answer = answer(Arc::clone(&self.shared), Arc::clone(&self.run), context);
        let stream = futures::stream::once(answer).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.run.counters.metrics.clone_inner())
    }
}

/// Run on the device; where that is impossible and allowed, let the CPU plan answer.
async fn answer(
    shared: Arc<Shared>,
    state: Arc<RunState>,
    context: Arc<TaskContext>,
) -> DataFusionResult<SendableRecordBatchStream> {
    let schema = Arc::clone(&shared.schema);
    let to_host = {
        let schema = Arc::clone(&schema);
        move |run: &Run<'_>, host: &Host| host.delivered(run, &schema)
    };
    let mut fragment = FragmentRun::new(&shared, Arc::clone(&context), shared.options.profile);
    let outcome = fragment.run(to_host).await;
    let answered_by_cpu = match &outcome {
        // The CPU would read the same data: its errors are the user's answer. And nobody waits for a stopped query.
        Ok(_) | Err(GpuError::DataFusion(_) | GpuError::Stopped) => false,
        Err(_) => !shared.options.require_gpu,
    };
    if answered_by_cpu {
        fragment.ladder.leave();
    }
    let failed = FragmentReport {
        ladder: fragment.ladder.counts(&fragment.query),
        peak_bytes: fragment.query.peak(),
        ..FragmentReport::default()
    };
    match fragment.finish(outcome) {
        Ok((delivered, mut report)) => {
            let options = &shared.options;
            let over = |limit: &usize| delivered.rows() > *limit;
            if let Some(limit) = options.max_tail_rows.filter(over) {
                let tail = options.tail.as_deref().unwrap_or("the operators above");
                let reason = format!(
                    "{tail} ran on the CPU over {} rows that left the device (limit {limit})",
                    delivered.rows()
                );
                if options.require_gpu {
                    return Err(required(&reason));
                }
                report.fallback = Some(reason);
            }
            state.publish(&report);
            Ok(match delivered {
                Delivered::Batch(batch) => {
                    let slices = futures::stream::iter(slices(&batch));
                    Box::pin(RecordBatchStreamAdapter::new(schema, slices))
                }
                Delivered::File(file) => {
                    Box::pin(RecordBatchStreamAdapter::new(schema, from_file(file)))
                }
            })
        }
        Err(error) => {
            if answered_by_cpu {
                log::warn!("the CPU answers instead of the device: {error}");
            }
            state.publish(&FragmentReport {
                fallback: answered_by_cpu.then(|| error.to_string()),
                ..failed
            });
            if !answered_by_cpu {
                return Err(match error {
                    GpuError::DataFusion(_) | GpuError::Stopped => error.into(),
                    other => required(&other.to_string()),
                });
            }
            let stream = shared.original()?.execute(0, context)?;
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
        }
    }
}

/// A batch in pieces of moderate size.
fn slices(batch: &RecordBatch) -> Vec<DataFusionResult<RecordBatch>> {
    let rows = batch.num_rows();
    let slice = |at: usize| Ok(batch.slice(at, BATCH_ROWS.min(rows - at)));
    (0..rows).step_by(BATCH_ROWS).map(slice).collect()
}

/// The rows of a file, of which one batch at a time lies in memory; the file goes with the stream.
fn from_file(
    file: Arc<BatchFile>,
) -> impl futures::Stream<Item = DataFusionResult<RecordBatch>> + Send {
    let next = |(file, number): (Arc<BatchFile>, usize)| async move {
        let read = tokio::task::spawn_blocking(move || (file.batch(number), file)).await;
        let (batch, file) = read.map_err(|error| DataFusionError::External(error.into()))?;
        let pieces = batch?.map(|batch| futures::stream::iter(slices(&batch)));
        Ok::<_, DataFusionError>(pieces.map(|pieces| (pieces, (file, number + 1))))
    };
    futures::stream::try_unfold((file, 0), next).try_flatten()
}

fn required(reason: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "warpline.require_gpu is set, but the query cannot run on the device: {reason}; \
         SET warpline.require_gpu = false to let the CPU answer"
    ))
}

impl Shared {
    /// The CPU plan, ready to run, with one partition.
    fn original(&self) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut original = Arc::clone(&self.original);
        if self.original_ran.swap(true, Ordering::SeqCst) {
            original = reset_plan_states(original)?;
        }
        Ok(in_one_partition(original))
    }

    /// Prepare if need be, and run, over tables of which one may be still coming; plan again when a build turns out not to be unique.
    pub(in crate::exec) fn run<T>(
        &self,
        tables: &[Arc<LoadedTable>],
        early: Option<&EarlyScan>,
        stream: &Stream,
        profile: bool,
        deliver: Deliver<'_, T>,
    ) -> Result<(T, FragmentReport)> {
        let mut report = FragmentReport::default();
        loop {
            let begin = Instant::now();
            let (prepared, reused) = self.prepare(tables, early, stream)?;
            if !reused {
                report.compile_ms += begin.elapsed().as_secs_f64() * 1e3;
            }
            let budget = self.runtime.pool().budget();
            prepared.expect_results(self.room.results(budget));
            match execute(&self.runtime, stream, &prepared, deliver, profile) {
                Ok(finished) => {
                    if finished.spilled_bytes > 0 {
                        // Less for columns next time.
                        self.room.tighten();
                    }
                    return Ok(complete(report, &prepared, finished));
                }
                Err(GpuError::DuplicateKeys(build)) => {
                    self.forget(&prepared);
                    let note = format!("{build} has rows of equal keys: planned again");
                    self.found.lock().duplicates.insert(build.clone());
                    if prepared.found.duplicates.contains(&build) {
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
                }) => {
                    self.forget(&prepared);
                    let note = format!("groups of {name} outgrew {slots} slots: planned again");
                    report.choices.push(note);
                    let mut found = self.found.lock();
                    let outgrown = found.outgrown.entry(name).or_default();
                    outgrown.note(slots, &distinct_slots);
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// What was prepared for these columns, or anew; the second value tells which.
    fn prepare(
        &self,
        tables: &[Arc<LoadedTable>],
        early: Option<&EarlyScan>,
        stream: &Stream,
    ) -> Result<(Arc<Prepared>, bool)> {
        let kept = self.prepared.lock().clone();
        let short = self.room.results_may_spill();
        let suits = |p: &Arc<Prepared>| p.fits(tables) && (p.graph.parts.allowed() || !short);
        if let Some(prepared) = kept.filter(suits) {
            return Ok((prepared, true));
        }
        let trace = self.runtime.trace();
        let _traced = trace.map(|trace| trace.thread(Work::Compile, "make pipelines and kernels"));
        let found = self.found.lock().clone();
        let plain: Vec<LoadedTable> = tables.iter().map(|t| LoadedTable::clone(t)).collect();
        let graph = self.graph(&plain, &found)?;
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
        let mut prepared =
            Prepared::new(graph, found, program, tables, early, &self.runtime, stream)?;
        prepared.spill.clone_from(&self.options.spill);
        if self.options.blocks > 0 {
            prepared.limit_blocks(self.options.blocks * u64::from(device.multiprocessors.max(1)));
        }
        let prepared = Arc::new(prepared);
        *self.prepared.lock() = Some(Arc::clone(&prepared));
        Ok((prepared, false))
    }

    /// The graph over these tables, by what runs have found out.
    fn graph(&self, tables: &[LoadedTable], found: &Found) -> Result<Graph> {
        let budget = self.runtime.pool().budget();
        let index_room = index_room(budget) as u64;
        let mut graph = self.policy.graph(tables, &found.duplicates, index_room)?;
        if self.room.results_may_spill() && !graph.parts.allowed() {
            graph.parts = Parts::Large;
        }
        if graph.parts.allowed() {
            graph.group_room = Some(group_room(budget));
        }
        for result in &mut graph.results {
            if let Some(outgrown) = found.outgrown.get(&result.name) {
                result.estimate = result.estimate.max(outgrown.slots / 2);
            }
        }
        Ok(graph)
    }

    /// A run got no room: the next one is to take no more for its results than the first one took.
    pub(in crate::exec) fn be_careful(&self) {
        if let Some(prepared) = &*self.prepared.lock() {
            prepared.be_careful();
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
    fn describe(&self) -> Vec<String> {
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
            let found = self.found.lock().clone();
            let graph = self.graph(&tables, &found).ok()?;
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

/// The rows of `plan` in one partition, in the order that it promises: what a fragment in its place yields.
pub fn in_one_partition(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.output_partitioning().partition_count() == 1 {
        plan
    } else if let Some(order) = plan.output_ordering().cloned() {
        Arc::new(SortPreservingMergeExec::new(order, plan))
    } else {
        Arc::new(CoalescePartitionsExec::new(plan))
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
    report.output_rows = usize::try_from(finished.rows).unwrap_or(usize::MAX);
    report.sizes_read = finished.careful;
    report.steps = finished.steps;
    report.phases = finished.phases;
    (finished.output, report)
}
