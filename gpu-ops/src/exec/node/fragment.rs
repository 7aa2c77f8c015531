//! The physical plan node that stands for a fragment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::TryStreamExt;
use parking_lot::Mutex;

use crate::device_batch::DeviceBatch;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::node::attempts::FragmentRun;
use crate::exec::node::boxes::{Entry, boxed, plain, priced};
use crate::exec::node::device_side::DeviceSide;
use crate::exec::node::exchange::in_one_partition;
use crate::exec::node::inputs::ready;
use crate::exec::node::lines::indented;
use crate::exec::node::race;
use crate::exec::node::report::{Counters, FragmentOptions, FragmentReport, SecondPlan};
use crate::exec::node::shared::Shared;
use crate::exec::output::arrow_on_device::arrow_on_device;
use crate::exec::output::device_rows::DeviceRows;
use crate::exec::output::host::Host;
use crate::graph::Policy;
use crate::runtime::Runtime;

/// What EXPLAIN says while nothing is known of the columns.
const NOT_CHOSEN: &str = "(algorithms are chosen when the columns are on the device: EXPLAIN ANALYZE runs the query and shows them)";

/// Runs a fragment on the device of a [`Runtime`], with one output partition. Its children are CPU plans whose rows it reads
/// beside those of tables.
///
/// The node may be executed any number of times, also at once: what was generated, compiled and uploaded for
/// the resident columns is kept and used again as long as these stay the same.
#[derive(Debug)]
pub struct GpuFragmentExec {
    shared: Arc<Shared>,
    run: Arc<RunState>,
    properties: Arc<PlanProperties>,
    inputs: Arc<[Arc<dyn ExecutionPlan>]>,
}

/// What belongs to one use of the plan.
#[derive(Debug, Default)]
pub(super) struct RunState {
    report: Mutex<FragmentReport>,
    /// The plan in smaller parts that answered.
    parts: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    counters: Counters,
    /// The inputs have run: their operators may keep state of that.
    inputs_ran: AtomicBool,
    /// Of all steps of a recursive query, and how many there were.
    steps: Option<AtomicUsize>,
}

impl RunState {
    /// Of a use of a plan with these inputs. A recursive query's steps are one use: each runs the same plan again, over another
    /// working table.
    fn over(inputs: &[Arc<dyn ExecutionPlan>]) -> Arc<Self> {
        let working_table = inputs.iter().find_map(working_table);
        Arc::new(Self {
            steps: working_table.map(|_| AtomicUsize::new(0)),
            ..Self::default()
        })
    }

    /// What a run did. The report is of the last one, and of all steps together.
    pub(super) fn publish(&self, run: FragmentReport) {
        self.counters.add(&run);
        let mut report = self.report.lock();
        let steps = self.steps.as_ref();
        if steps.is_none_or(|steps| steps.fetch_add(1, Ordering::Relaxed) == 0) {
            *report = run;
            return;
        }
        let before = std::mem::take(&mut *report);
        *report = before.plus(&run);
        report.ladder = report.ladder.plus(&run.ladder);
        report.fallback = report.fallback.take().or(run.fallback);
    }
}

/// The leaf that reads the rows of a recursive query's step before.
fn working_table(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    match plan.is::<WorkTableExec>() {
        true => Some(plan),
        false => plan.children().into_iter().find_map(working_table),
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
            shared: Arc::new(Shared::new(policy, original, runtime, options)),
            run: Arc::default(),
            properties: Arc::new(properties),
            inputs: Arc::default(),
        })
    }

    /// The same over CPU plans: [`crate::tables::InputExec`]s in the plan that it stands for tell them by their numbers.
    #[must_use]
    pub fn over(self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        Self {
            run: RunState::over(&inputs),
            inputs: inputs.into(),
            ..self
        }
    }

    /// The CPU plan that the fragment stands for, with an [`crate::tables::InputExec`] in the place of each input.
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
        let deliver = move |frame: &Frame<'_>, host: &Host| visit(&DeviceRows::of(frame, host)?);
        self.run_and(context, profile, deliver).await
    }

    /// Runs the fragment on the device alone, and hands its rows to `deliver`.
    async fn run_and<T: Send + 'static>(
        &self,
        context: Arc<TaskContext>,
        profile: bool,
        deliver: impl Fn(&Frame<'_>, &Host) -> Result<T> + Clone + Send + 'static,
    ) -> Result<(T, FragmentReport)> {
        let mut fragment = FragmentRun::new(&self.shared, Arc::clone(&context), profile);
        let inputs = self.inputs_ready()?;
        let collected = fragment.gather(&inputs, &context).await?;
        let outcome = match collected.left_to_cpu.clone() {
            Some(reason) => Err(GpuError::LeftToCpu(reason)),
            None => fragment.run(deliver, None).await,
        };
        let (output, report) = fragment.finish(outcome)?;
        self.run.publish(report.clone());
        Ok((output, report))
    }

    /// Runs the fragment and leaves its rows on the device, as Arrow has them. Nothing falls back to the CPU.
    ///
    /// # Errors
    /// Those of the run; [`GpuError::Unsupported`] and [`GpuError::LeftToCpu`] where the rows cannot stay there.
    pub async fn batch_on_device(
        &self,
        context: Arc<TaskContext>,
    ) -> Result<(DeviceBatch, FragmentReport)> {
        let schema = self.schema();
        let deliver = move |frame: &Frame<'_>, host: &Host| arrow_on_device(frame, host, &schema);
        self.run_and(context, false, deliver).await
    }

    /// Begin with what runs of `earlier` left, a fragment of an earlier plan of the same query over the same tables: kernels,
    /// sizes of results, shares of memory. Nothing is taken over where the two are not alike.
    pub fn take_over(&self, earlier: &Self) {
        self.shared.take_over(&earlier.shared);
    }

    /// The inputs for one more run.
    fn inputs_ready(&self) -> DataFusionResult<Vec<Arc<dyn ExecutionPlan>>> {
        let ran = self.run.inputs_ran.swap(true, Ordering::SeqCst);
        ready(&self.inputs, ran)
    }

    /// What the last run did; all zero before the first.
    pub fn report(&self) -> FragmentReport {
        self.with_report(FragmentReport::clone)
    }

    /// The plan in smaller parts that answered in its place, with fragments of its own.
    pub fn parts(&self) -> Option<Arc<dyn ExecutionPlan>> {
        self.run.parts.lock().clone()
    }

    /// What the last run did, without a copy.
    pub fn with_report<T>(&self, read: impl FnOnce(&FragmentReport) -> T) -> T {
        read(&self.run.report.lock())
    }

    /// Whoever keeps the plan looks at files before each run: at local ones, as they were listed, of which `looked_at` is true.
    pub fn note_looks(&self, looked_at: &dyn Fn(&ObjectMeta) -> bool) {
        for scan in self.shared.policy.scans() {
            scan.table.note_looks(looked_at);
        }
    }

    /// The files that are looked at are as they were listed: a run that begins now does not look at them again.
    pub fn note_unchanged(&self) {
        for scan in self.shared.policy.scans() {
            scan.table.note_unchanged();
        }
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
        let FragmentReport {
            fallback,
            race,
            portions,
            chunks,
            ..
        } = self.report();
        for (step, portions) in portions {
            if let Some(line) = lines.get_mut(step).filter(|line| is_pipeline(line)) {
                line.push_str(" | ");
                line.push_str(&portions);
            }
        }
        lines.extend(fallback.map(|reason| format!("on the CPU: {reason}")));
        lines.extend(race.map(|race| format!("first run: {race}")));
        lines.extend(chunks.map(|chunks| format!("parquet: {chunks}")));
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
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    // The fragment's expressions are not DataFusion's: rules must not rewrite them.
    crate::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if children.len() != self.inputs.len() {
            return Err(DataFusionError::Internal(format!(
                "a GpuFragmentExec has {} children, not {}",
                self.inputs.len(),
                children.len()
            )));
        }
        if children.is_empty() {
            return Ok(self);
        }
        // The next step of a recursive query reads the same working table.
        let before = self.inputs.iter().find_map(working_table);
        let after = children.iter().find_map(working_table);
        let run = match (before, after) {
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) => Arc::clone(&self.run),
            _ => RunState::over(&children),
        };
        Ok(Arc::new(Self {
            shared: Arc::clone(&self.shared),
            run,
            properties: Arc::clone(&self.properties),
            inputs: children.into(),
        }))
    }

    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        // Report and metrics are of one use of the plan; what was prepared serves the next as well. Another use of a recursive query
        // has a working table of its own.
        let run = match self.run.steps {
            Some(_) => Arc::clone(&self.run),
            None => Arc::default(),
        };
        Ok(Arc::new(Self {
            shared: Arc::clone(&self.shared),
            run,
            properties: Arc::clone(&self.properties),
            inputs: Arc::clone(&self.inputs),
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
        let (shared, state) = (Arc::clone(&self.shared), Arc::clone(&self.run));
        let answer = answer(shared, state, self.inputs_ready()?, context);
        let stream = futures::stream::once(answer).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.run.counters.metrics())
    }
}

/// Run on the device, beside the CPU's plan where that may be first; where the device cannot and the CPU may, that answers.
async fn answer(
    shared: Arc<Shared>,
    state: Arc<RunState>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    context: Arc<TaskContext>,
) -> DataFusionResult<SendableRecordBatchStream> {
    if shared.in_parts.load(Ordering::Relaxed)
        && let Some(second) = &shared.options.second
    {
        return in_parts(&shared, second, &state, context);
    }
    if inputs.is_empty() && race::pays(&shared) {
        return race::answer(shared, state, context).await;
    }
    let side = DeviceSide::run(Arc::clone(&shared), inputs, Arc::clone(&context)).await?;
    if let Some(second) = side.smaller_parts(&shared) {
        return in_parts(&shared, second, &state, context);
    }
    side.answer(&shared, &state, context)
}

/// Let the plan in smaller parts answer.
pub(super) fn in_parts(
    shared: &Shared,
    second: &SecondPlan,
    state: &RunState,
    context: Arc<TaskContext>,
) -> DataFusionResult<SendableRecordBatchStream> {
    state.publish(FragmentReport {
        fallback: second.fallback.clone(),
        ..FragmentReport::default()
    });
    let plan = in_one_partition(reset_plan_states(Arc::clone(&second.plan))?);
    *state.parts.lock() = Some(Arc::clone(&plan));
    let stream = plan.execute(0, context)?;
    let schema = Arc::clone(&shared.schema);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
}
