//! Conversion of a physical plan to relational algebra, or the operator that prevents it and why.
//!
//! Every relation has the columns of its plan node, in the same order. Exchanges between CPU threads vanish, and so
//! do inner sorts: rows on the device have no order until they are sorted at the end.

mod aggregate;
mod beside;
mod computed;
mod fields;
mod grouping;
mod grouping_sets;
mod inputs;
mod join;
mod moments;
mod order;
mod phases;
mod ranked;
mod reach;
mod scan;
mod states;
mod unnest;
mod window;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::list_of;

use computed::Combines;

use super::expr::{is_true, null, split};
use super::unread::without_unread;
use super::{Rel, RelRef};
use crate::config::{ComputedColumns, WarplineConfig};
use crate::reason::{Rank, Reason, refuse};
use crate::translate::{FieldColumns, Scope, is_string, is_value, translate};

pub use inputs::Inputs;
pub(crate) use inputs::{arrivals, is_arrival, stands_alone};
pub(crate) use scan::is_constant;
pub(crate) use states::Phase;

/// The operator that prevents a fragment.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The operator.
    pub at: Arc<dyn ExecutionPlan>,
    /// Why it runs on the CPU.
    pub reason: Reason,
}

/// The relation that `plan` computes over the rows of `inputs`, in the order that it promises. Where `config` says so, tables have columns
/// for what no kernel computes of theirs.
///
/// # Errors
/// The [`Refusal`] of the first operator that the device does not run.
pub fn convert(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: &Inputs,
    config: &WarplineConfig,
) -> Result<RelRef, Refusal> {
    let mut converter = Converter {
        inputs: inputs.clone(),
        computes: config.computed_columns,
        combines: config.value_tables,
        ..Converter::default()
    };
    let rel = without_unread(&fields::without_structs(&converter.plan(plan)?));
    let output = plan
        .schema()
        .fields()
        .iter()
        .zip(&rel.columns)
        .find(|(f, of)| {
            let data_type = f.data_type();
            !is_value(data_type) && !is_string(data_type) && list_of(&of.data_type).is_none()
        })
        .map(|(f, _)| Reason::new(format!("column {} is of type {}", f.name(), f.data_type())));
    let ordered = match output {
        Some(reason) => Err(reason),
        None => order::promised(plan, rel),
    };
    ordered.map_err(|reason| Refusal {
        at: Arc::clone(plan),
        reason,
    })
}

/// The reason of the operator `plan` itself, whatever is below it.
pub fn own_reason(plan: &Arc<dyn ExecutionPlan>) -> Option<Reason> {
    let converted = || {
        known(plan)?;
        let below = match plan.downcast_ref::<AggregateExec>() {
            Some(root) => vec![Phase::of(root, &Inputs::default()).input()],
            None => match unnest::list_of_values(plan, &Inputs::default()) {
                Some(list) => vec![list.projection.input()],
                None => plan.children(),
            },
        };
        // Rows of the same columns stand for those of the inputs.
        let inputs: Result<Vec<_>, _> = below.iter().map(|p| nulls(p, Rel::one())).collect();
        Converter::default().node(plan, &inputs?)
    };
    converted().err()
}

/// Turns plan nodes into relations.
#[derive(Default)]
struct Converter {
    /// What the CPU computes.
    inputs: Inputs,
    /// The scalar subqueries in scope: how expressions refer to them, and what they are.
    subqueries: Vec<(ScalarSubqueryExpr, RelRef)>,
    /// How many lists there are.
    lists: Cell<usize>,
    /// Tables get columns for what no kernel computes: nowhere, unless this is `On` or `Rest`.
    computes: ComputedColumns,
    /// What is evaluated by combination counts as computed.
    combines: bool,
}

impl Converter {
    fn plan(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<RelRef, Refusal> {
        if let Some(leaf) = self.inputs.leaf(plan) {
            return self.leaf(&leaf).map_err(|reason| Refusal {
                at: Arc::clone(plan),
                reason,
            });
        }
        let inputs = self.inputs(plan)?;
        let rel = self.node(plan, &inputs).map_err(|reason| Refusal {
            at: Arc::clone(plan),
            reason,
        })?;
        debug_assert_eq!(rel.columns.len(), plan.schema().fields().len());
        Ok(rel)
    }

    /// The inputs of a node, converted. An aggregation reads the rows below all of its phases that are here.
    fn inputs(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<RelRef>, Refusal> {
        // Say that the operator is in the way before any reason of its inputs.
        known(plan).map_err(|reason| Refusal {
            at: Arc::clone(plan),
            reason,
        })?;
        if let Some(exec) = plan.downcast_ref::<ScalarSubqueryExec>() {
            let depth = self.subqueries.len();
            let mut found = Vec::new();
            for link in exec.subqueries() {
                let rel = self.plan(&link.plan)?;
                let results = exec.results().clone();
                let Some(column) = rel.columns.first() else {
                    continue;
                };
                let data_type = column.data_type.clone();
                let name = ScalarSubqueryExpr::new(data_type, true, link.index, results);
                found.push((name, rel));
            }
            self.subqueries.extend(found);
            let input = self.plan(exec.input());
            self.subqueries.truncate(depth);
            return Ok(vec![input?]);
        }
        if let Some(root) = plan.downcast_ref::<AggregateExec>() {
            let input = Phase::of(root, &self.inputs).input();
            return Ok(vec![self.plan(input)?]);
        }
        if let Some(list) = unnest::list_of_values(plan, &self.inputs) {
            return Ok(vec![self.plan(list.projection.input())?]);
        }
        plan.children()
            .into_iter()
            .map(|child| self.plan(child))
            .collect()
    }

    fn node(&self, plan: &Arc<dyn ExecutionPlan>, inputs: &[RelRef]) -> Result<RelRef, Reason> {
        if inputs.is_empty() {
            return self.leaf(plan);
        }
        if let [left, right] = inputs {
            if let Some(exec) = plan.downcast_ref::<HashJoinExec>() {
                let rel = join::hash(exec, left, right)?;
                return limited(plan, rel);
            }
            if let Some(exec) = plan.downcast_ref::<SortMergeJoinExec>() {
                return join::sort_merge(exec, left, right);
            }
            if let Some(exec) = plan.downcast_ref::<NestedLoopJoinExec>() {
                return join::nested_loop(exec, left, right);
            }
            if plan.is::<CrossJoinExec>() {
                return Ok(join::cross(left, right));
            }
        }
        if plan.is::<UnionExec>() || plan.is::<InterleaveExec>() {
            let mut columns = inputs.iter().flat_map(|input| &input.columns);
            if columns.any(|column| list_of(&column.data_type).is_some()) {
                return refuse("lists of several inputs are put together on the CPU");
            }
            return Ok(Rel::union(inputs.to_vec()));
        }
        let [input] = inputs else {
            return refuse(format!("{} is not a device operator", plan.name()));
        };
        let input = Arc::clone(input);
        if let Some(exec) = plan.downcast_ref::<AggregateExec>() {
            return phases::aggregate(exec, input, self);
        }
        if let Some(exec) = plan.downcast_ref::<FilterExec>() {
            let rel = self.filter(exec, input)?;
            return limited(plan, rel);
        }
        if let Some(exec) = plan.downcast_ref::<ProjectionExec>() {
            let exprs: Vec<_> = exec.expr().iter().map(|p| Arc::clone(&p.expr)).collect();
            let names = exec.expr().iter().map(|p| p.alias.clone());
            let (input, exprs) = self.translated(input, &exprs, true)?;
            return Ok(Rel::project(input, exprs.into_iter().zip(names).collect()));
        }
        if let Some(exec) = plan.downcast_ref::<SortExec>() {
            // A limit a partition is an optimisation below the limit of all partitions.
            let whole = exec.input().output_partitioning().partition_count() == 1
                || !exec.preserve_partitioning();
            return order::sort(exec.expr(), exec.fetch().filter(|_| whole), input, self);
        }
        if let Some(exec) = plan.downcast_ref::<SortPreservingMergeExec>() {
            return order::sort(exec.expr(), exec.fetch(), input, self);
        }
        if let Some(exec) = plan.downcast_ref::<GlobalLimitExec>() {
            return Ok(order::limit(
                order::promised(exec.input(), input)?,
                exec.skip() as u64,
                exec.fetch().map(|f| f as u64),
            ));
        }
        if let Some(exec) = plan.downcast_ref::<WindowAggExec>() {
            return window::windows(exec.window_expr(), input, self);
        }
        if let Some(exec) = plan.downcast_ref::<BoundedWindowAggExec>() {
            return window::windows(exec.window_expr(), input, self);
        }
        if let Some(list) = unnest::list_of_values(plan, &self.inputs) {
            let (input, exprs) = self.translated(input, &list.expressions(), true)?;
            let schema = plan.schema();
            let names = schema.fields().iter().map(|field| field.name().clone());
            return list.rows(input, exprs, names);
        }
        if let Some(exec) = plan.downcast_ref::<UnnestExec>() {
            return unnest::unnest(exec, &input);
        }
        if plan.is::<ScalarSubqueryExec>() {
            return Ok(input);
        }
        // Exchanges, and limits a partition.
        limited(plan, input)
    }

    fn leaf(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<RelRef, Reason> {
        if plan.is::<EmptyExec>() {
            let nothing = vec![Expr::literal(ScalarValue::Boolean(Some(false)))];
            return nulls(plan, Rel::filter(Rel::one(), nothing));
        }
        if plan.is::<PlaceholderRowExec>() {
            return nulls(plan, Rel::one());
        }
        let mut scan = scan::scan(plan)?;
        for expr in scan.filters.iter_mut().chain(&mut scan.columns) {
            *expr = fields::of_table(expr, &scan.table)?;
        }
        let mut used = BTreeSet::new();
        for expr in scan.filters.iter().chain(&scan.columns) {
            expr.apply(|e| {
                used.extend(e.downcast_ref::<Column>().map(Column::index));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let used: Vec<usize> = used.into_iter().collect();
        if used
            .iter()
            .any(|i| *i >= scan.table.source.schema().fields().len())
        {
            return refuse("the scan reads a column that its table lacks");
        }
        let within = |expr: &Arc<dyn PhysicalExpr>| -> Result<Arc<dyn PhysicalExpr>, Reason> {
            let moved = Arc::clone(expr).transform_up(|e| {
                let Some(column) = e.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(e));
                };
                let place = used.iter().position(|u| *u == column.index());
                let column = Column::new(column.name(), place.unwrap_or(usize::MAX));
                Ok(Transformed::yes(Arc::new(column) as _))
            })?;
            Ok(moved.data)
        };
        let over = |exprs: &[Arc<dyn PhysicalExpr>]| {
            let moved = exprs.iter().map(within);
            moved.collect::<Result<Vec<_>, Reason>>()
        };
        let filters = over(&scan.filters)?;
        let columns = over(&scan.columns)?;
        let table = Rel::scan(Arc::new(scan.table), used.clone());
        let (rows, filters) = self.translate_all(table, &filters)?;
        let mut conjuncts = Vec::new();
        for filter in filters {
            split(filter, &mut conjuncts);
        }
        let rows = Rel::filter(rows, in_order(conjuncts));
        let (rows, columns) = self.translated(rows, &columns, true)?;
        let in_place = columns.len() == rows.columns.len()
            && columns
                .iter()
                .enumerate()
                .all(|(i, e)| super::expr::as_column(e) == Some(i));
        if in_place {
            return Ok(rows);
        }
        let schema = plan.schema();
        let names = schema.fields().iter().map(|f| f.name().clone());
        Ok(Rel::project(rows, columns.into_iter().zip(names).collect()))
    }

    fn filter(&self, exec: &FilterExec, input: RelRef) -> Result<RelRef, Reason> {
        let width = input.columns.len();
        let predicates: Vec<_> = split_conjunction(exec.predicate())
            .into_iter()
            .filter(|e| !e.is::<DynamicFilterPhysicalExpr>())
            .cloned()
            .collect();
        let (input, translated) = self.translate_all(input, &predicates)?;
        let mut conjuncts = Vec::new();
        for expr in translated {
            split(expr, &mut conjuncts);
        }
        let rel = Rel::filter(input, in_order(conjuncts));
        let columns: Vec<usize> = match exec.projection() {
            Some(projection) => projection.to_vec(),
            None => (0..width).collect(),
        };
        Ok(Rel::select(rel, &columns))
    }

    /// `rel` with columns for what `exprs` read of structs and what no kernel computes of them, and which those are.
    fn read_by(
        &self,
        rel: RelRef,
        exprs: &[Arc<dyn PhysicalExpr>],
    ) -> Result<(RelRef, FieldColumns), Reason> {
        let (rel, mut columns) = fields::read_by(rel, exprs)?;
        let combines = match self.computes {
            ComputedColumns::Auto | ComputedColumns::Off => return Ok((rel, columns)),
            ComputedColumns::Rest if self.combines => Combines::First,
            ComputedColumns::On if self.combines => Combines::Last,
            ComputedColumns::On | ComputedColumns::Rest => Combines::Never,
        };
        let exprs = exprs.iter().map(|expr| columns.replaced(expr));
        let exprs = exprs.collect::<Result<Vec<_>, _>>()?;
        let rel = computed::beside(rel, &exprs, &mut columns, combines)?;
        Ok((rel, columns))
    }

    /// What expressions over rows of this schema are translated in.
    fn scope<'s>(&self, schema: &'s Schema) -> Scope<'s> {
        let computes = matches!(self.computes, ComputedColumns::On | ComputedColumns::Rest);
        // Else it is said of them that they are too many, when the rest is known to run.
        Scope::whole(schema).combining(self.combines || !computes)
    }

    /// Translate expressions over `input`. Scalar subqueries among them become columns beside the
    /// input's, which the input that is returned has.
    fn translate_all(
        &self,
        input: RelRef,
        exprs: &[Arc<dyn PhysicalExpr>],
    ) -> Result<(RelRef, Vec<Expr>), Reason> {
        self.translated(input, exprs, false)
    }

    /// As [`Self::translate_all`]; where `passed`, columns of lists and of structs are among the expressions.
    fn translated(
        &self,
        input: RelRef,
        exprs: &[Arc<dyn PhysicalExpr>],
        passed: bool,
    ) -> Result<(RelRef, Vec<Expr>), Reason> {
        let (mut rel, columns) = self.read_by(input, exprs)?;
        let exprs = exprs.iter().map(|expr| columns.replaced(expr));
        let exprs = exprs.collect::<Result<Vec<_>, _>>()?;
        let mut beside: Vec<usize> = Vec::new();
        let mut prepared = Vec::with_capacity(exprs.len());
        let width = rel.columns.len();
        for expr in &exprs {
            let mut unknown = false;
            let replaced = Arc::clone(expr).transform_down(|e| {
                let Some(subquery) = e.downcast_ref::<ScalarSubqueryExpr>() else {
                    return Ok(Transformed::no(e));
                };
                let Some(at) = self.subqueries.iter().position(|(n, _)| n == subquery) else {
                    unknown = true;
                    return Ok(Transformed::no(e));
                };
                let place = beside.iter().position(|b| *b == at).unwrap_or_else(|| {
                    beside.push(at);
                    beside.len() - 1
                });
                let column = Arc::new(Column::new("scalar_subquery", width + place));
                Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
            })?;
            if unknown {
                // Converted without the operator that runs the subquery, which something kept off the device.
                return Err(Reason::ranked(
                    Rank::Consequence,
                    "a scalar subquery of it is answered apart",
                ));
            }
            prepared.push(replaced.data);
        }
        for at in &beside {
            rel = Rel::scalar(rel, Arc::clone(&self.subqueries[*at].1));
        }
        let schema = rel.schema();
        let mut scope = self.scope(&schema);
        let translated = prepared
            .iter()
            .map(|e| {
                let column = e.downcast_ref::<Column>().map(Column::index);
                let column = column.filter(|i| passed && is_passed(&rel, *i));
                match column {
                    Some(column) => Ok(rel.column(column)),
                    None => translate(e, &mut scope),
                }
            })
            .collect::<Result<_, _>>()?;
        Ok((rel, translated))
    }
}

/// Does a column refer to lists, or has it structs?
fn is_passed(rel: &RelRef, column: usize) -> bool {
    let column = rel.columns.get(column);
    let data_type = column.map(|column| &column.data_type);
    data_type.is_some_and(|of| list_of(of).is_some() || fields::is_struct(of))
}

/// AND is commutative: what can fail runs on the rows that the rest has left.
pub(crate) fn in_order(mut conjuncts: Vec<Expr>) -> Vec<Expr> {
    conjuncts.retain(|c| !is_true(c));
    conjuncts.sort_by_key(Expr::may_fault);
    conjuncts
}

/// One row (or none) of the schema's columns, all NULL.
fn nulls(plan: &Arc<dyn ExecutionPlan>, rows: RelRef) -> Result<RelRef, Reason> {
    let columns = plan.schema();
    let columns = columns
        .fields()
        .iter()
        .map(|f| Ok((null(f.data_type())?, f.name().clone())))
        .collect::<Result<_, Reason>>()?;
    Ok(Rel::project(rows, columns))
}

/// `rel` with the limit that `plan` has beside its work. A limit of each of several partitions only
/// saves work below a limit of all of them.
///
/// The first rows are those of the order that the plan promises, even without a sort in it: joins keep the order of the
/// rows that probe, and DataFusion counts on that.
fn limited(plan: &Arc<dyn ExecutionPlan>, rel: RelRef) -> Result<RelRef, Reason> {
    match plan.fetch() {
        Some(fetch) if plan.output_partitioning().partition_count() == 1 => {
            let ordered = order::promised(plan, rel)?;
            Ok(order::limit(ordered, 0, Some(fetch as u64)))
        }
        _ => Ok(rel),
    }
}

/// The input of an operator that changes neither rows nor columns, only their order or partitions.
pub(crate) fn exchange(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    // Deprecated, but plans built by other rules may still hold it.
    #[expect(deprecated)]
    use datafusion::physical_plan::coalesce_batches::CoalesceBatchesExec;

    #[expect(deprecated)]
    let exchange = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CoalesceBatchesExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<BufferExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>();
    match plan.children().as_slice() {
        [input] if exchange && plan.fetch().is_none() => Some(*input),
        _ => None,
    }
}

/// Is the operator one that has a device form at all?
fn known(plan: &Arc<dyn ExecutionPlan>) -> Result<(), Reason> {
    // Deprecated, but plans built by other rules may still hold it.
    #[expect(deprecated)]
    use datafusion::physical_plan::coalesce_batches::CoalesceBatchesExec;

    #[expect(deprecated)]
    let known = plan.children().is_empty()
        || plan.is::<AggregateExec>()
        || plan.is::<BoundedWindowAggExec>()
        || plan.is::<BufferExec>()
        || plan.is::<CoalesceBatchesExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<InterleaveExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<ScalarSubqueryExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<UnionExec>()
        || plan.is::<UnnestExec>()
        || plan.is::<WindowAggExec>();
    if known {
        return Ok(());
    }
    refuse("not a device operator")
}

/// The fields of both sides of a join, as residual conditions see them.
fn beside(left: &RelRef, right: &RelRef) -> Schema {
    let fields: Vec<Field> = left
        .columns
        .iter()
        .chain(&right.columns)
        .map(|c| Field::new(c.name.clone(), c.data_type.clone(), c.nullable))
        .collect();
    Schema::new(fields)
}
