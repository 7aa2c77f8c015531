//! Which leaf of a plan can be dealt out: the union of what the plan yields over the parts of that leaf is what it yields over the whole.
//!
//! That holds along a chain of operators that treat rows one by one (filters, projections, exchanges), of joins that keep the rows of
//! the leaf's side, and of aggregations whose groups no two parts share. What is beside the chain is read whole by each device, but
//! for leaves that are joined with the key that tells the parts apart: of those the files in the part's range will do, as in a
//! partition-wise join.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// The way from a plan down to a node, by the numbers of children.
pub(crate) type Path = Vec<usize>;

/// What tells the parts of the leaf apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafKey {
    /// The column of the leaf.
    pub(crate) column: usize,
    /// No row lacks it.
    pub(crate) complete: bool,
}

/// A leaf beside the chain of which a device needs the rows alone whose column is in the range of its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) path: Path,
    pub(crate) column: usize,
}

/// How a leaf can be dealt out; `None` where the plan needs all of its rows together.
///
/// `merged`: what reads the plan merges its partitions in their order.
pub(crate) fn chain(
    plan: &Arc<dyn ExecutionPlan>,
    leaf: &[usize],
    key: Option<LeafKey>,
    merged: bool,
) -> Option<Vec<Beside>> {
    let mut chain = Chain {
        key,
        beside: Vec::new(),
        at: Vec::new(),
    };
    let root = Root { merged };
    chain.up(plan, leaf, Some(root))?;
    Some(chain.beside)
}

/// Of a node that is the root, or has projections alone above it.
#[derive(Debug, Clone, Copy)]
struct Root {
    merged: bool,
}

struct Chain {
    key: Option<LeafKey>,
    beside: Vec<Beside>,
    /// Where the node at hand is.
    at: Path,
}

impl Chain {
    /// The columns of `plan` that are the key of the row of the leaf that they come from.
    fn up(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        leaf: &[usize],
        root: Option<Root>,
    ) -> Option<Vec<usize>> {
        let Some((number, below)) = leaf.split_first() else {
            return Some(self.key.map(|key| key.column).into_iter().collect());
        };
        let child = Arc::clone(*plan.children().get(*number)?);
        self.at.push(*number);
        let keys = self.up(&child, below, root.filter(|_| plan.is::<ProjectionExec>()));
        self.at.pop();
        let keys = keys?;
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let exprs = projection.expr().iter().map(|projected| &projected.expr);
            return Some(positions(exprs, &keys));
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let projection = filter.projection().as_deref();
            return plan.fetch().is_none().then(|| projected(keys, projection));
        }
        if passes(plan) {
            return Some(keys);
        }
        if plan.is::<SortExec>() {
            // What merges the parts in their order takes the first rows again.
            let allowed = root.map_or(plan.fetch().is_none(), |root| root.merged);
            return allowed.then_some(keys);
        }
        if plan.is::<LocalLimitExec>() {
            return root.map(|_| keys);
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            return self.aggregated(aggregate, &keys, root.is_some());
        }
        self.joined(plan, *number, &keys)
    }

    /// Groups are whole in a part when the key is among what they are grouped by. Parts of groups are merged by what reads the root.
    fn aggregated(
        &self,
        aggregate: &AggregateExec,
        keys: &[usize],
        is_root: bool,
    ) -> Option<Vec<usize>> {
        let groups = aggregate.group_expr();
        let whole = match groups.is_single() && self.key.is_some_and(|key| key.complete) {
            true => positions(groups.expr().iter().map(|(expr, _)| expr), keys),
            false => vec![],
        };
        let in_parts = *aggregate.mode() == AggregateMode::Partial && is_root;
        (in_parts || !whole.is_empty()).then_some(whole)
    }

    /// A join whose rows are those of the chain's side, with what they meet on the other.
    fn joined(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        side: usize,
        keys: &[usize],
    ) -> Option<Vec<usize>> {
        let children = plan.children();
        let [left, right] = children.as_slice() else {
            return None;
        };
        let widths = [left.schema().fields().len(), right.schema().fields().len()];
        if plan.is::<CrossJoinExec>() {
            let offset = [0, widths[0]][side];
            return Some(keys.iter().map(|key| key + offset).collect());
        }
        if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            keeps(*join.join_type(), side).then_some(())?;
            let offset = offset(*join.join_type(), side, widths[0])?;
            let keys = keys.iter().map(|key| key + offset).collect();
            return Some(projected(keys, join.projection().as_deref()));
        }
        let join = plan.downcast_ref::<HashJoinExec>()?;
        let kind = *join.join_type();
        (keeps(kind, side) && plan.fetch().is_none()).then_some(())?;
        let other = 1 - side;
        let mut found: Vec<usize> = Vec::new();
        for partner in partners(join, side, keys) {
            let child = [left, right][other];
            self.at.push(other);
            self.beside(child, partner);
            self.at.pop();
            // Rows without a partner have none of its values.
            if kind == JoinType::Inner {
                found.extend(offset(kind, other, widths[0]).map(|offset| partner + offset));
            }
        }
        let own = offset(kind, side, widths[0])?;
        found.extend(keys.iter().map(|key| key + own));
        Some(projected(found, join.projection.as_deref()))
    }

    /// Of `plan` only rows with a `column` in the range of the part matter: finds the leaves of which that holds, too.
    fn beside(&mut self, plan: &Arc<dyn ExecutionPlan>, column: usize) {
        let below = |expr: Option<&Arc<dyn PhysicalExpr>>| column_of(expr?);
        let children = plan.children();
        if children.is_empty() {
            let path = self.at.clone();
            let new = Beside { path, column };
            if !self.beside.contains(&new) {
                self.beside.push(new);
            }
            return;
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            self.beside_join(join, column);
            return;
        }
        let [child] = children.as_slice() else {
            return;
        };
        let column = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            below(projection.expr().get(column).map(|p| &p.expr))
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let projection = filter.projection().as_deref();
            source(column, projection).filter(|_| plan.fetch().is_none())
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            let groups = aggregate.group_expr();
            let single = groups.is_single() && aggregate.limit_options().is_none();
            below(groups.expr().get(column).map(|(expr, _)| expr)).filter(|_| single)
        } else {
            let rowwise = passes(plan) || plan.is::<SortExec>();
            (rowwise && plan.fetch().is_none()).then_some(column)
        };
        if let Some(column) = column {
            self.at.push(0);
            self.beside(child, column);
            self.at.pop();
        }
    }

    fn beside_join(&mut self, join: &HashJoinExec, column: usize) {
        let kind = *join.join_type();
        let widths = [
            join.left().schema().fields().len(),
            join.right().schema().fields().len(),
        ];
        let Some(column) = source(column, join.projection.as_deref()) else {
            return;
        };
        if join.fetch().is_some() {
            return;
        }
        let of_side = |side: usize| {
            let column = column.checked_sub(offset(kind, side, widths[0])?)?;
            (column < widths[side]).then_some((side, column))
        };
        let Some((side, column)) = of_side(0).or_else(|| of_side(1)) else {
            return;
        };
        if !keeps(kind, side) {
            return;
        }
        let sides = [join.left(), join.right()];
        self.at.push(side);
        self.beside(sides[side], column);
        self.at.pop();
        for partner in partners(join, side, &[column]) {
            self.at.push(1 - side);
            self.beside(sides[1 - side], partner);
            self.at.pop();
        }
    }
}

/// Does the operator pass rows on as they are, in whatever partitions?
fn passes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>();
    passes && plan.fetch().is_none()
}

/// Is a row of the join due to one row of this side, whatever other rows there are on it?
fn keeps(kind: JoinType, side: usize) -> bool {
    use JoinType::{
        Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
    };
    match kind {
        Inner => true,
        Left | LeftSemi | LeftAnti | LeftMark => side == 0,
        Right | RightSemi | RightAnti | RightMark => side == 1,
        Full => false,
    }
}

/// Where the columns of a side begin in what a join yields; `None` where it does not yield them.
fn offset(kind: JoinType, side: usize, left: usize) -> Option<usize> {
    use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    match (kind, side) {
        (LeftSemi | LeftAnti | LeftMark, 1) | (RightSemi | RightAnti | RightMark, 0) => None,
        (RightSemi | RightAnti | RightMark, _) | (_, 0) => Some(0),
        _ => Some(left),
    }
}

/// The columns of the other side that rows must have equal to one of `keys`.
fn partners(join: &HashJoinExec, side: usize, keys: &[usize]) -> Vec<usize> {
    // Elsewhere a NULL anywhere on the other side counts, or NULLs are equal.
    if join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return vec![];
    }
    let pairs = join.on().iter().filter_map(|(left, right)| {
        let pair = [column_of(left)?, column_of(right)?];
        let sides = [join.left(), join.right()];
        let data_type = |side: usize| {
            let schema = sides[side].schema();
            let field = schema.fields().get(pair[side])?;
            Some(field.data_type().clone())
        };
        let same = data_type(0)? == data_type(1)?;
        (same && keys.contains(&pair[side])).then_some(pair[1 - side])
    });
    pairs.collect()
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// Where expressions are one of these columns.
fn positions<'a>(
    exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    keys: &[usize],
) -> Vec<usize> {
    let is_key =
        |expr: &Arc<dyn PhysicalExpr>| column_of(expr).is_some_and(|column| keys.contains(&column));
    let found = exprs.enumerate().filter(|(_, expr)| is_key(expr));
    found.map(|(position, _)| position).collect()
}

/// Where columns are after a projection.
fn projected(columns: Vec<usize>, projection: Option<&[usize]>) -> Vec<usize> {
    match projection {
        None => columns,
        Some(projection) => {
            let found = projection.iter().enumerate();
            let found = found.filter(|(_, column)| columns.contains(column));
            found.map(|(position, _)| position).collect()
        }
    }
}

/// What a column is before a projection.
fn source(column: usize, projection: Option<&[usize]>) -> Option<usize> {
    match projection {
        None => Some(column),
        Some(projection) => projection.get(column).copied(),
    }
}
