//! Late evaluation: what kernels do not compute of a query's output is computed as rows leave, from its arguments.
//!
//! A projection at the top of a plan stays above the fragment, which delivers the arguments ([`super::classify`]). One that is below
//! the query's order or limit is split first ([`pulled_up`]): the device orders and cuts off rows that carry the arguments in
//! place of what they are for.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Operator, Volatility};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::config::WarplineConfig;
use crate::fragment::FragmentPlanner;
use crate::rel::convert::Inputs;

/// Functions that have a value for every argument: to evaluate them for fewer rows leaves no error out.
const TOTAL: [&str; 22] = [
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "ends_with",
    "initcap",
    "lower",
    "ltrim",
    "md5",
    "nullif",
    "octet_length",
    "replace",
    "reverse",
    "rtrim",
    "starts_with",
    "strpos",
    "translate",
    "upper",
];

/// The plan with the expressions of its output that kernels do not compute above its order and limit. A plan without such
/// expressions, or whose order reads them, stays as it is.
pub(super) fn pulled_up(
    plan: &Arc<dyn ExecutionPlan>,
    config: &WarplineConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut chain = Vec::new();
    let mut node = plan;
    while let Some(input) = passed(node) {
        chain.push(Arc::clone(node));
        node = input;
    }
    let moves = chain.iter().any(|node| !node.is::<ProjectionExec>());
    if let (Some(projection), true) = (node.downcast_ref::<ProjectionExec>(), moves) {
        let split = split(projection, node, config)?;
        let pulled = split.map(|split| split.above(chain)).transpose()?.flatten();
        return Ok(match pulled {
            // The rule must not change what the plan yields.
            Some(pulled) if pulled.schema() == plan.schema() => pulled,
            _ => Arc::clone(plan),
        });
    }
    match wraps(plan) {
        Some(input) => {
            let pulled = pulled_up(input, config)?;
            match Arc::ptr_eq(&pulled, input) {
                true => Ok(Arc::clone(plan)),
                false => replace_children_if_necessary(Arc::clone(plan), vec![pulled]),
            }
        }
        None => Ok(Arc::clone(plan)),
    }
}

/// The query in an operator that makes something of all of its output.
pub(super) fn wraps(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let wraps = ["AnalyzeExec", "DataSinkExec", "OutputRequirementExec"].contains(&plan.name());
    match plan.children().as_slice() {
        [input] if wraps => Some(*input),
        _ => None,
    }
}

/// The input of an operator that orders rows or cuts them off, or names columns, and changes none.
fn passed(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let renames = plan
        .downcast_ref::<ProjectionExec>()
        .is_some_and(|projection| projection.expr().iter().all(|p| p.expr.is::<Column>()));
    let passes = renames
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>();
    match plan.children().as_slice() {
        [input] if passes => Some(*input),
        _ => None,
    }
}

/// A projection in two: what the device computes with the arguments of the rest, and the rest.
struct Split {
    below: Arc<dyn ExecutionPlan>,
    /// By column of the projection: its place below, unless it is computed above.
    places: Vec<Option<usize>>,
    /// What is computed above, or read from below, by column of the projection.
    above: Vec<ProjectionExpr>,
}

/// `None` where the device runs the whole projection, or nothing below it.
fn split(
    projection: &ProjectionExec,
    plan: &Arc<dyn ExecutionPlan>,
    config: &WarplineConfig,
) -> Result<Option<Split>> {
    let runs = |plan: &Arc<dyn ExecutionPlan>| {
        FragmentPlanner::over_inputs(plan, &Inputs::default(), config).is_ok()
    };
    if runs(plan) || !runs(projection.input()) {
        return Ok(None);
    }
    let mut below = Vec::new();
    let mut places = Vec::new();
    for one in projection.expr() {
        let alone = ProjectionExec::try_new(vec![one.clone()], Arc::clone(projection.input()))?;
        let computed = one.expr.is::<Column>() || runs(&(Arc::new(alone) as _));
        if !computed && is_volatile(&one.expr)? {
            return Ok(None);
        }
        places.push(computed.then_some(below.len()));
        if computed {
            below.push(one.clone());
        }
    }
    let schema = projection.input().schema();
    let mut above = Vec::new();
    for (one, place) in projection.expr().iter().zip(&places) {
        let expr = match place {
            Some(place) => Arc::new(Column::new(&one.alias, *place)) as _,
            None => {
                let moved = Arc::clone(&one.expr).transform_down(|e| {
                    let Some(column) = e.downcast_ref::<Column>() else {
                        return Ok(Transformed::no(e));
                    };
                    let reads =
                        |p: &ProjectionExpr| p.expr.downcast_ref::<Column>() == Some(column);
                    let place = below.iter().position(reads).unwrap_or_else(|| {
                        below.push(ProjectionExpr {
                            expr: Arc::clone(&e),
                            alias: schema.field(column.index()).name().clone(),
                        });
                        below.len() - 1
                    });
                    let moved = Arc::new(Column::new(&below[place].alias, place)) as _;
                    Ok(Transformed::new(moved, true, TreeNodeRecursion::Jump))
                })?;
                moved.data
            }
        };
        above.push(ProjectionExpr {
            expr,
            alias: one.alias.clone(),
        });
    }
    let below = ProjectionExec::try_new(below, Arc::clone(projection.input()))?;
    Ok(Some(Split {
        below: Arc::new(below),
        places,
        above,
    }))
}

impl Split {
    /// The same under the names of a projection that computes nothing; `None` where it reads what is not there.
    fn rename(&mut self, names: &ProjectionExec) -> Option<()> {
        let from = |p: &ProjectionExpr| Some(p.expr.downcast_ref::<Column>()?.index());
        let from: Vec<usize> = names.expr().iter().map(from).collect::<Option<_>>()?;
        let named = |(at, p): (&usize, &ProjectionExpr)| {
            Some(ProjectionExpr {
                expr: Arc::clone(&self.above.get(*at)?.expr),
                alias: p.alias.clone(),
            })
        };
        let above = from.iter().zip(names.expr()).map(named);
        self.above = above.collect::<Option<_>>()?;
        let places = from.iter().map(|at| self.places.get(*at).copied());
        self.places = places.collect::<Option<_>>()?;
        Some(())
    }

    /// The operators of `chain`, the topmost first, over the part below, and the rest above them. `None` where one of them reads
    /// what is computed above, or leaves out rows for which that may fail.
    fn above(
        mut self,
        chain: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let late = self.above.iter().zip(&self.places);
        let late = late.filter(|(_, place)| place.is_none());
        let total = late.map(|(one, _)| &one.expr).all(is_total);
        let mut plan = Arc::clone(&self.below);
        for node in chain.into_iter().rev() {
            if let Some(names) = node.downcast_ref::<ProjectionExec>() {
                if self.rename(names).is_none() {
                    return Ok(None);
                }
                continue;
            }
            let limits = node.fetch().is_some() || node.is::<GlobalLimitExec>();
            if limits && !total {
                return Ok(None);
            }
            let order = match (
                node.downcast_ref::<SortExec>(),
                node.downcast_ref::<SortPreservingMergeExec>(),
            ) {
                (Some(sort), _) => Some(sort.expr()),
                (_, Some(merge)) => Some(merge.expr()),
                _ => None,
            };
            let order = match order.map(|order| moved(order, &self.places)) {
                Some(None) => return Ok(None),
                Some(order) => order,
                None => None,
            };
            plan = match (node.downcast_ref::<SortExec>(), order) {
                (Some(sort), Some(order)) => Arc::new(
                    SortExec::new(order, plan)
                        .with_fetch(sort.fetch())
                        .with_preserve_partitioning(sort.preserve_partitioning()),
                ),
                (None, Some(order)) => {
                    Arc::new(SortPreservingMergeExec::new(order, plan).with_fetch(node.fetch()))
                }
                _ => replace_children_if_necessary(node, vec![plan])?,
            };
        }
        Ok(Some(Arc::new(ProjectionExec::try_new(self.above, plan)?)))
    }
}

/// An order over columns that lie elsewhere; `None` where one of them is not there.
fn moved(order: &LexOrdering, places: &[Option<usize>]) -> Option<LexOrdering> {
    let keys = order.iter().map(|key| {
        let mut known = true;
        let expr = Arc::clone(&key.expr).transform_down(|e| {
            let Some(column) = e.downcast_ref::<Column>() else {
                return Ok(Transformed::no(e));
            };
            let Some(Some(place)) = places.get(column.index()) else {
                known = false;
                return Ok(Transformed::no(e));
            };
            let moved = Arc::new(Column::new(column.name(), *place)) as _;
            Ok(Transformed::new(moved, true, TreeNodeRecursion::Jump))
        });
        let expr = expr.ok()?.data;
        known.then(|| PhysicalSortExpr::new(expr, key.options))
    });
    LexOrdering::new(keys.collect::<Option<Vec<_>>>()?)
}

/// Does an expression have another value each time it is evaluated?
fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expr.exists(|e| {
        let function = e.downcast_ref::<ScalarFunctionExpr>();
        let volatility = function.map(|f| f.fun().signature().volatility);
        Ok(volatility == Some(Volatility::Volatile))
    })
}

/// Has an expression a value for every row?
fn is_total(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let own = if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
        TOTAL.contains(&function.fun().name())
    } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or, StringConcat};
        matches!(
            binary.op(),
            Eq | NotEq | Lt | LtEq | Gt | GtEq | And | Or | StringConcat
        )
    } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        cast.cast_type().is_string()
    } else {
        expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<CaseExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
    };
    own && expr.children().into_iter().all(is_total)
}
