//! Plans cut between the phases of their aggregations, as engines of several machines cut them.
//!
//! Each phase is a plan of its own: what one yields arrives at the next as a leaf that is somebody else's and is read once. Which
//! phases are placed on the device is the caller's choice; the rest runs as DataFusion's. The answer must be the same whoever begins
//! and whoever finishes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, collect,
    displayable,
};
use futures::StreamExt;
use tokio::sync::Barrier;
use warpline::{WarplineRule, WarplineSession};

/// Who computes which phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The device computes states of rows.
    pub begins: bool,
    /// States are merged once more on their way; by the device?
    pub reduces: Option<bool>,
    /// The device computes values of states.
    pub finishes: bool,
}

impl Cut {
    /// Cut, and all phases left to DataFusion.
    pub const NOWHERE: Self = Self::of(false, None, false);

    /// Every way in which the device has a part.
    pub const EACH: [Self; 6] = [
        Self::of(true, None, false),
        Self::of(false, None, true),
        Self::of(true, None, true),
        Self::of(true, Some(false), true),
        Self::of(false, Some(true), false),
        Self::of(true, Some(true), true),
    ];

    const fn of(begins: bool, reduces: Option<bool>, finishes: bool) -> Self {
        Self {
            begins,
            reduces,
            finishes,
        }
    }
}

/// The outcome of a plan that was cut.
#[derive(Debug)]
pub struct CutRun {
    /// Columns of the answer.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
    /// Phases that ran apart.
    pub phases: usize,
    /// A call depends on the order of rows, which cutting may change.
    pub ordered: bool,
    /// The plans of those that the device did not take, and of the rest why.
    pub refused: Vec<String>,
}

/// The partitions in which rows are grouped.
const PARTITIONS: usize = 3;

/// Runs a query with its aggregations cut.
///
/// # Errors
/// What planning or a phase reports.
pub async fn run(session: &WarplineSession, sql: &str, cut: Cut) -> Result<CutRun> {
    let frame = session.reference().sql(sql).await?;
    let plan = frame.create_physical_plan().await?;
    let schema = plan.schema();
    let mut cutter = Cutter {
        session,
        cut,
        phases: 0,
        ordered: false,
        refused: vec![],
    };
    let plan = plan.transform_up(|node| cutter.node(node))?.data;
    let context = session.context().task_ctx();
    let batches = collect(plan, context).await?;
    Ok(CutRun {
        schema,
        batches,
        phases: cutter.phases,
        ordered: cutter.ordered,
        refused: cutter.refused,
    })
}

struct Cutter<'a> {
    session: &'a WarplineSession,
    cut: Cut,
    phases: usize,
    ordered: bool,
    refused: Vec<String>,
}

impl Cutter<'_> {
    fn node(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
            return Ok(Transformed::no(node));
        };
        let mut calls = aggregate.aggr_expr().iter();
        self.ordered |= calls.any(|call| !call.order_sensitivity().is_insensitive());
        let plan = match aggregate.mode() {
            AggregateMode::Partial => self.placed(Arc::clone(&node), self.cut.begins)?,
            AggregateMode::Final | AggregateMode::FinalPartitioned => self.finished(aggregate)?,
            AggregateMode::Single | AggregateMode::SinglePartitioned => {
                let (begun, finished) = split(aggregate)?;
                let begun = self.placed(begun, self.cut.begins)?;
                let whole = finished(exchanged(begun, aggregate.group_expr())?)?;
                let Some(last) = whole.downcast_ref::<AggregateExec>() else {
                    return Ok(Transformed::no(node));
                };
                self.finished(last)?
            }
            AggregateMode::PartialReduce => return Ok(Transformed::no(node)),
        };
        Ok(Transformed::yes(partitioned_as(plan, &node)?))
    }

    /// A final phase over states that arrive.
    fn finished(&mut self, last: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
        let mut states = Arc::clone(last.input());
        if let Some(device) = self.cut.reduces {
            let merged = AggregateExec::try_new(
                AggregateMode::PartialReduce,
                last.group_expr().clone(),
                last.aggr_expr().to_vec(),
                last.filter_expr().to_vec(),
                arrived(states),
                last.input_schema(),
            )?;
            let merged = self.placed(Arc::new(merged), device)?;
            states = exchanged(merged, last.group_expr())?;
        }
        let finished = AggregateExec::try_new(
            *last.mode(),
            last.group_expr().clone(),
            last.aggr_expr().to_vec(),
            last.filter_expr().to_vec(),
            arrived(states),
            last.input_schema(),
        )?;
        let finished = finished.with_limit_options(last.limit_options());
        self.placed(Arc::new(finished), self.cut.finishes)
    }

    /// The phase, on the device where it is to be there.
    fn placed(
        &mut self,
        phase: Arc<dyn ExecutionPlan>,
        device: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.phases += 1;
        if !device {
            return Ok(phase);
        }
        let partitions = phase.output_partitioning().partition_count();
        let schema = phase.schema();
        let state = self.session.context().state();
        let rules = state.physical_optimizers().iter();
        let Some(rule) = rules
            .into_iter()
            .find(|rule| rule.name() == WarplineRule::NAME)
        else {
            return Err(DataFusionError::Internal("no rule of ours".into()));
        };
        let states = phase.downcast_ref::<AggregateExec>().is_some_and(|phase| {
            matches!(
                phase.mode(),
                AggregateMode::Partial | AggregateMode::PartialReduce
            )
        });
        let placed = rule.optimize(phase, state.config_options())?;
        let text = displayable(placed.as_ref()).indent(false).to_string();
        if text.contains("AggregateExec:") {
            self.refused.push(text);
        }
        // Whoever reads states asks for the partitions that were declared.
        let declared = placed.output_partitioning().partition_count();
        if states && declared != partitions || placed.schema() != schema {
            return Err(DataFusionError::Internal(format!(
                "{declared} partitions of {:?} instead of {partitions} of {schema:?}",
                placed.schema()
            )));
        }
        Ok(placed)
    }
}

/// The phases of an aggregation that has one, and what makes the second over the states of the first.
type Phases = (
    Arc<dyn ExecutionPlan>,
    Box<dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>>,
);

fn split(whole: &AggregateExec) -> Result<Phases> {
    let rows = Arc::clone(whole.input());
    let rows: Arc<dyn ExecutionPlan> = match rows.output_partitioning().partition_count() {
        1 => Arc::new(RepartitionExec::try_new(
            rows,
            Partitioning::RoundRobinBatch(PARTITIONS),
        )?),
        _ => rows,
    };
    let begun = AggregateExec::try_new(
        AggregateMode::Partial,
        whole.group_expr().clone(),
        whole.aggr_expr().to_vec(),
        whole.filter_expr().to_vec(),
        rows,
        whole.input_schema(),
    )?;
    let keys = whole.group_expr().as_final();
    let mode = match whole.group_expr().is_true_no_grouping() {
        true => AggregateMode::Final,
        false => AggregateMode::FinalPartitioned,
    };
    let (calls, filters) = (whole.aggr_expr().to_vec(), whole.filter_expr().to_vec());
    let schema = whole.input_schema();
    let finished = move |states: Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        let finished = AggregateExec::try_new(
            mode,
            keys.clone(),
            calls.clone(),
            filters.clone(),
            states,
            Arc::clone(&schema),
        )?;
        Ok(Arc::new(finished))
    };
    Ok((Arc::new(begun), Box::new(finished)))
}

/// States where those of a group are together.
fn exchanged(
    states: Arc<dyn ExecutionPlan>,
    by: &PhysicalGroupBy,
) -> Result<Arc<dyn ExecutionPlan>> {
    if by.is_true_no_grouping() {
        return Ok(Arc::new(CoalescePartitionsExec::new(states)));
    }
    let keys = by.output_exprs();
    let exchange = RepartitionExec::try_new(states, Partitioning::Hash(keys, PARTITIONS))?;
    Ok(Arc::new(exchange))
}

/// The rows of a plan in the partitions of another that has stood in its place: what is above counts on them, and on the rows of a group
/// being where those of the same hash are.
fn partitioned_as(
    plan: Arc<dyn ExecutionPlan>,
    before: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let wanted = before.output_partitioning();
    let partitions = wanted.partition_count();
    if plan.output_partitioning().partition_count() == partitions {
        return Ok(plan);
    }
    if partitions == 1 {
        return Ok(Arc::new(CoalescePartitionsExec::new(plan)));
    }
    let by = match wanted {
        Partitioning::Hash(..) => wanted.clone(),
        _ => Partitioning::RoundRobinBatch(partitions),
    };
    Ok(Arc::new(RepartitionExec::try_new(plan, by)?))
}

fn arrived(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(ArrivalExec::new(plan))
}

/// The rows of a plan that nobody sees: a leaf, as the reader of an exchange is. Each partition is read once, and none has rows before
/// all are asked for them.
pub struct ArrivalExec {
    sender: Arc<dyn ExecutionPlan>,
    read: Vec<AtomicBool>,
    asked: Arc<Barrier>,
    waiting: AtomicUsize,
}

impl ArrivalExec {
    /// The rows of `sender`.
    pub fn new(sender: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = sender.output_partitioning().partition_count();
        Self {
            sender,
            read: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            asked: Arc::new(Barrier::new(partitions)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Partitions that were asked for.
    pub fn asked(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for ArrivalExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrivalExec").finish_non_exhaustive()
    }
}

impl DisplayAs for ArrivalExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrivalExec: partitions={}", self.read.len())
    }
}

impl ExecutionPlan for ArrivalExec {
    fn name(&self) -> &str {
        "ArrivalExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sender.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let read = self.read.get(partition);
        if read.is_none_or(|read| read.swap(true, Ordering::SeqCst)) {
            return Err(DataFusionError::Execution(format!(
                "partition {partition} of what arrives was read before"
            )));
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let rows = self.sender.execute(partition, context)?;
        let asked = Arc::clone(&self.asked);
        let all_are_asked = futures::stream::once(async move {
            asked.wait().await;
        });
        let rows = all_are_asked.map(|()| None).chain(rows.map(Some));
        let rows = rows.filter_map(futures::future::ready);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
