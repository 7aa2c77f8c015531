//! Phases of aggregations whose partner is elsewhere: what is cut off, what stands between, how many partitions are left.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlanProperties, PlanProperties, collect,
};
use warpline_gpu::exec::GpuFragmentExec;

use super::*;
use crate::config::Reentry;

/// An operator of somebody else's that passes its input on.
#[derive(Debug)]
struct PassExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for PassExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PassExec")
    }
}

impl ExecutionPlan for PassExec {
    fn name(&self) -> &str {
        "PassExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self(children.remove(0))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}

const SQL: &str = "SELECT u, count(*) AS n, sum(qty) AS q, avg(price) AS p, min(s) AS s FROM t WHERE a > 1 GROUP BY u";

fn settings(reentry: Reentry) -> WarplineConfig {
    WarplineConfig {
        reentry,
        ..any_size()
    }
}

/// The plan of a query without our rule.
async fn unplaced(sql: &str) -> Arc<dyn ExecutionPlan> {
    plan(&session(None, any_size()), sql).await
}

fn place(plan: Arc<dyn ExecutionPlan>, config: WarplineConfig) -> Arc<dyn ExecutionPlan> {
    let context = session(None, config);
    let rule = GpuPlacement::new(Some(runtime()));
    let state = context.state();
    rule.optimize(plan, state.config_options()).unwrap()
}

fn fragments(plan: &Arc<dyn ExecutionPlan>) -> usize {
    usize::from(plan.is::<GpuFragmentExec>())
        + plan.children().into_iter().map(fragments).sum::<usize>()
}

fn phase(plan: &Arc<dyn ExecutionPlan>, mode: AggregateMode) -> Arc<dyn ExecutionPlan> {
    let found = plan
        .downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| *aggregate.mode() == mode);
    match found {
        true => Arc::clone(plan),
        false => phase(plan.children()[0], mode),
    }
}

/// `plan` with a [`PassExec`] above its partial phase.
fn with_pass(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let partial = plan
        .downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| *aggregate.mode() == AggregateMode::Partial);
    if partial {
        return Arc::new(PassExec(plan));
    }
    let children: Vec<_> = plan
        .children()
        .into_iter()
        .map(|child| with_pass(Arc::clone(child)))
        .collect();
    match children.is_empty() {
        true => plan,
        false => {
            datafusion::physical_plan::execution_plan::replace_children_if_necessary(plan, children)
                .unwrap()
        }
    }
}

async fn rows(plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
    let context = session(None, any_size());
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap();
    let text = text.to_string();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn phases_that_are_together_are_one_fragment() {
    for reentry in [Reentry::Auto, Reentry::On, Reentry::Off] {
        let placed = place(unplaced(SQL).await, settings(reentry));
        assert!(placed.children()[0].is::<GpuFragmentExec>());
        assert_eq!(fragments(&placed), 1, "{}", text(&placed));
    }
}

#[tokio::test]
async fn what_is_cut_off_keeps_its_partitions() {
    let whole = unplaced(SQL).await;
    let partial = phase(&whole, AggregateMode::Partial);
    let exchange = phase(&whole, AggregateMode::FinalPartitioned);
    let exchange = Arc::clone(exchange.children()[0]);
    for cut in [partial, exchange] {
        let declared = cut.output_partitioning().partition_count();
        assert!(declared > 1, "{}", text(&cut));
        let placed = place(Arc::clone(&cut), any_size());
        assert_eq!(fragments(&placed), 1, "{}", text(&placed));
        assert_eq!(placed.schema(), cut.schema());
        let partitioning = placed.output_partitioning();
        assert_eq!(partitioning.partition_count(), declared);
        // Groups that the CPU has in several partitions come once.
        let states = rows(placed).await;
        assert!(states.len() <= rows(reset_plan_states(cut).unwrap()).await.len());
    }
}

#[tokio::test]
async fn both_phases_run_on_the_device_around_an_operator_of_somebody_else() {
    let expected = rows(unplaced(SQL).await).await;
    let plan = with_pass(unplaced(SQL).await);
    let partitions = |plan: &Arc<dyn ExecutionPlan>| {
        let mut node = Arc::clone(plan);
        while !node.is::<PassExec>() {
            let below = Arc::clone(node.children()[0]);
            node = below;
        }
        node.output_partitioning().partition_count()
    };
    let declared = partitions(&plan);
    let placed = place(plan, settings(Reentry::On));
    assert_eq!(fragments(&placed), 2, "{}", text(&placed));
    assert_eq!(partitions(&placed), declared, "{}", text(&placed));
    assert_eq!(rows(placed).await, expected);
    // So few rows are not worth the way.
    let placed = place(with_pass(unplaced(SQL).await), any_size());
    assert_eq!(fragments(&placed), 1, "{}", text(&placed));
    assert_eq!(rows(placed).await, expected);
}

/// States that are merged where they are made are states of the same groups.
#[tokio::test]
async fn phases_in_a_row_are_one_grouping() {
    let partial = phase(&unplaced(SQL).await, AggregateMode::Partial);
    let of = partial.downcast_ref::<AggregateExec>().unwrap();
    let merged = AggregateExec::try_new(
        AggregateMode::PartialReduce,
        of.group_expr().as_final(),
        of.aggr_expr().to_vec(),
        of.filter_expr().to_vec(),
        Arc::clone(&partial),
        of.input_schema(),
    );
    let merged: Arc<dyn ExecutionPlan> = Arc::new(merged.unwrap());
    let placed = place(Arc::clone(&merged), any_size());
    assert_eq!(placed.schema(), merged.schema());
    let shown = text(&placed);
    assert_eq!(fragments(&placed), 1, "{shown}");
    assert_eq!(shown.matches("aggregate by").count(), 1, "{shown}");
}

#[tokio::test]
async fn limits_of_groups_hold() {
    let plan = unplaced("SELECT DISTINCT a FROM t LIMIT 3").await;
    let partial = phase(&plan, AggregateMode::Partial);
    let limited = partial.downcast_ref::<AggregateExec>().unwrap();
    assert!(limited.limit_options().is_some(), "{}", text(&plan));
    let placed = place(partial, any_size());
    assert_eq!(fragments(&placed), 1, "{}", text(&placed));
    // Three lines are the frame, one is the head.
    assert_eq!(rows(placed).await.len(), 3 + 4);
}

/// Also what the CPU makes of the one partition of a fragment.
#[tokio::test]
async fn states_that_the_device_does_not_merge_say_whose_they_are() {
    let sql = "SELECT u, array_agg(a) AS l, sum(b) AS b FROM (SELECT DISTINCT u, a, b FROM t) q GROUP BY u";
    let partial = phase(&unplaced(sql).await, AggregateMode::Partial);
    let declared = partial.output_partitioning().partition_count();
    let placed = place(partial, any_size());
    assert_eq!(fragments(&placed), 1, "{}", text(&placed));
    let partitions = placed.output_partitioning().partition_count();
    assert_eq!(partitions, declared, "{}", text(&placed));
    let plan = unplaced("SELECT u, array_agg(a) AS l, sum(b) AS b FROM t GROUP BY u").await;
    let placed = place(phase(&plan, AggregateMode::Partial), any_size());
    let shown = text(&placed);
    assert!(
        shown.contains("the state of array_agg(t.a) has a List")
            && shown.contains("where its phases run apart"),
        "{shown}"
    );
}
