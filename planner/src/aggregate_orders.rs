//! `string_agg(a, ',' ORDER BY x), array_agg(b ORDER BY y)`: aggregates that want their rows in different orders.
//!
//! DataFusion refuses them, or gives both the order of one. [`AggregateOrders`] makes an aggregation of each order, and joins these by
//! their groups.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Aggregate, Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

/// The rule of the analyzer.
#[derive(Debug, Default)]
pub struct AggregateOrders;

impl AggregateOrders {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_aggregate_orders";
}

impl AnalyzerRule for AggregateOrders {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let apart = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if needs_orders(&aggregate)? => {
                by_order(&aggregate).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(apart.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// An aggregate that wants its rows in an order, and whether it is of distinct ones: DataFusion does not turn those round as it thinks. The
/// order of WITHIN GROUP is the function's own affair.
#[derive(Clone, Copy)]
struct Ordered<'a> {
    order: &'a [Sort],
    distinct: bool,
}

impl<'a> Ordered<'a> {
    fn of(aggregate: &'a Expr) -> Option<Self> {
        match aggregate {
            Expr::Alias(alias) => Self::of(&alias.expr),
            Expr::AggregateFunction(call) => {
                let distinct = call.params.distinct;
                let asks = match call.func.order_sensitivity() {
                    AggregateOrderSensitivity::HardRequirement => true,
                    AggregateOrderSensitivity::SoftRequirement => distinct,
                    _ => false,
                };
                let order = &call.params.order_by[..];
                let asks = asks && !call.func.supports_within_group_clause();
                (asks && !order.is_empty()).then_some(Self { order, distinct })
            }
            _ => None,
        }
    }

    /// Whether one order of rows does for both, from either end.
    fn agrees(self, other: Self) -> bool {
        let same = |turned: bool| {
            let mut pairs = self.order.iter().zip(other.order);
            pairs.all(|(one, other)| {
                one.expr == other.expr
                    && (one.asc != other.asc) == turned
                    && (one.nulls_first != other.nulls_first) == turned
            })
        };
        match self.distinct || other.distinct {
            true => self.order == other.order,
            false => same(false) || same(true),
        }
    }
}

/// Whether aggregates want different orders. The rows below have to be the same each time.
fn needs_orders(aggregate: &Aggregate) -> Result<bool> {
    let ordered = aggregate.aggr_expr.iter().filter_map(Ordered::of);
    let ordered: Vec<Ordered<'_>> = ordered.collect();
    let mut others = ordered.iter().enumerate();
    if !others.any(|(at, one)| ordered[..at].iter().any(|other| !one.agrees(*other))) {
        return Ok(false);
    }
    let mut volatile = false;
    aggregate.input.apply(|node| {
        volatile |= node.expressions().iter().any(Expr::is_volatile);
        Ok(match volatile {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(!volatile)
}

/// An aggregation of each order, side by side. Aggregates without one are in the first.
fn by_order(aggregate: &Aggregate) -> Result<LogicalPlan> {
    let mut orders: Vec<&[Sort]> = Vec::new();
    let sides = aggregate.aggr_expr.iter().map(|expr| {
        let Some(Ordered { order, .. }) = Ordered::of(expr) else {
            return 0;
        };
        let known = orders.iter().position(|known| *known == order);
        known.unwrap_or_else(|| {
            orders.push(order);
            orders.len() - 1
        })
    });
    let sides: Vec<usize> = sides.collect();
    let columns = aggregate.schema.columns();
    let (keys, values) = columns.split_at(columns.len() - aggregate.aggr_expr.len());
    let mut joined: Option<LogicalPlanBuilder> = None;
    for side in 0..orders.len() {
        let of_side = aggregate.aggr_expr.iter().zip(&sides);
        let of_side = of_side.filter(|(_, of)| **of == side);
        let part = LogicalPlan::Aggregate(Aggregate::try_new(
            Arc::clone(&aggregate.input),
            aggregate.group_expr.clone(),
            of_side.map(|(expr, _)| expr.clone()).collect(),
        )?);
        joined = Some(match joined {
            None => LogicalPlanBuilder::from(part),
            Some(left) => beside(left, part, keys, side)?,
        });
    }
    let Some(joined) = joined else {
        return Ok(LogicalPlan::Aggregate(aggregate.clone()));
    };
    joined
        .project(columns_of(keys).chain(columns_of(values)))?
        .build()
}

fn columns_of(columns: &[Column]) -> impl Iterator<Item = Expr> {
    columns.iter().cloned().map(Expr::Column)
}

/// Another aggregation of the same groups beside one: its groups' columns get names of their own.
fn beside(
    left: LogicalPlanBuilder,
    right: LogicalPlan,
    keys: &[Column],
    side: usize,
) -> Result<LogicalPlanBuilder> {
    if keys.is_empty() {
        return left.cross_join(right);
    }
    let own = |number: usize| format!("__order_{side}_{number}");
    let named = right.schema().columns().into_iter().enumerate();
    let named: Vec<Expr> = named
        .map(|(number, column)| match number < keys.len() {
            true => Expr::Column(column).alias(own(number)),
            false => Expr::Column(column),
        })
        .collect();
    let right = LogicalPlanBuilder::from(right).project(named)?.build()?;
    let owns = (0..keys.len()).map(|number| Column::from_name(own(number)));
    left.join_detailed(
        right,
        JoinType::Inner,
        (keys.to_vec(), owns.collect::<Vec<_>>()),
        None,
        NullEquality::NullEqualsNull,
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn each_aggregate_has_its_order() {
        let builder = SessionStateBuilder::new().with_default_features();
        let state = builder.with_analyzer_rule(Arc::new(AggregateOrders));
        let context = SessionContext::new_with_state(state.build());
        let create = "CREATE TABLE t AS SELECT column1 AS k, column2 AS id, column3 AS s FROM (VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, 'a'), (NULL, 4, 'd'), (NULL, 5, 'c'))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT k, string_agg(s, '|' ORDER BY s DESC, id) AS a, count(*) AS n, string_agg(s, '|' ORDER BY id DESC) AS b, array_agg(id ORDER BY id) AS c FROM t GROUP BY k ORDER BY k",
                "SELECT column1 AS k, column2 AS a, column3 AS n, column4 AS b, column5 AS c FROM (VALUES (1, 'b|a|a', 3, 'a|b|a', [1, 2, 3]), (NULL, 'd|c', 2, 'c|d', [4, 5]))",
            ),
            (
                "SELECT string_agg(s, '|' ORDER BY s DESC, id) AS a, string_agg(DISTINCT s, '|' ORDER BY s) AS b, sum(id) AS n FROM t WHERE k = 1",
                "SELECT 'b|a|a' AS a, 'a|b' AS b, 6 AS n",
            ),
            (
                "SELECT k, string_agg(s, '|' ORDER BY s, id) AS a, string_agg(s, '|' ORDER BY id DESC) AS b, grouping(k) AS g FROM t WHERE k = 1 GROUP BY ROLLUP (k) ORDER BY g",
                "SELECT column1 AS k, column2 AS a, column3 AS b, column4 AS g FROM (VALUES (1, 'a|a|b', 'a|b|a', 0), (NULL, 'a|a|b', 'a|b|a', 1))",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
