//! Scalar subqueries that may have no row: their value is NULL then, also where their column never is.
//!
//! DataFusion takes the column's word for it: `(SELECT k FROM t WHERE false) IS NULL` is false, and a row with such a value an error.
//! [`SubqueryNulls`] makes the column nullable.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Distinct, Expr, FetchType, GroupingSet, LogicalPlan, LogicalPlanBuilder, SkipType, Subquery,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

/// The rule of the analyzer. It comes after what makes joins of subqueries.
#[derive(Debug, Default)]
pub struct SubqueryNulls;

impl SubqueryNulls {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_subquery_nulls";
}

impl AnalyzerRule for SubqueryNulls {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(nullable)?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })?;
        rewritten
            .map_data(LogicalPlan::recompute_schema)
            .map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// A scalar subquery whose column may be NULL, in place of one that says it is not.
fn nullable(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(query) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let schema = query.subquery.schema();
    let (qualifier, field) = schema.qualified_field(0);
    let known = schema.fields().len() != 1
        || field.is_nullable()
        || field.data_type().is_nested()
        || has_a_row(&query.subquery)?;
    if known {
        return Ok(Transformed::no(expr));
    }
    // It equals NULL never.
    let none = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
    let value = nullif(Expr::Column(Column::from((qualifier, field))), none);
    let value = value.alias_qualified(qualifier.cloned(), field.name());
    let plan = LogicalPlanBuilder::from(Arc::clone(&query.subquery));
    Ok(Transformed::yes(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan.project([value])?.build()?),
        ..query.clone()
    })))
}

/// Whether there is a row whatever the tables have: of a subquery without a table, of groups with one of all rows.
fn has_a_row(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => has_a_row(&projection.input)?,
        LogicalPlan::SubqueryAlias(alias) => has_a_row(&alias.input)?,
        LogicalPlan::Sort(sort) => sort.fetch != Some(0) && has_a_row(&sort.input)?,
        LogicalPlan::Distinct(Distinct::All(input)) => has_a_row(input)?,
        LogicalPlan::Limit(limit) => {
            let skips = !matches!(limit.get_skip_type()?, SkipType::Literal(0));
            let fetches = !matches!(
                limit.get_fetch_type()?,
                FetchType::Literal(Some(0)) | FetchType::UnsupportedExpr
            );
            !skips && fetches && has_a_row(&limit.input)?
        }
        LogicalPlan::Aggregate(aggregate) => match &aggregate.group_expr[..] {
            [] => true,
            [Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_))] => true,
            [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
            _ => false,
        },
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        _ => false,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use super::SubqueryNulls;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn no_row_is_null() {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(SubqueryNulls));
        let create = "CREATE TABLE t AS SELECT value AS k, 'v' || value AS s FROM generate_series(1, 4) t(value)";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT (SELECT k FROM t WHERE k > 9) AS x",
                "SELECT CAST(NULL AS BIGINT) AS x",
            ),
            (
                "SELECT (SELECT k FROM t WHERE k > 9) IS NULL AS x",
                "SELECT true AS x",
            ),
            (
                "SELECT coalesce((SELECT count(*) FROM t WHERE k > 9 GROUP BY s), -1) AS x, (SELECT s FROM t WHERE k = 2) AS y",
                "SELECT -1 AS x, 'v2' AS y",
            ),
            (
                "SELECT (SELECT grouping(s) FROM t WHERE k > 9 GROUP BY ROLLUP (s) LIMIT 1) IS NULL AS x, (SELECT 5) + 1 AS y",
                "SELECT false AS x, 6 AS y",
            ),
            (
                "SELECT sum(k) AS x FROM t WHERE (SELECT s FROM t WHERE k = 7) IS NULL AND k > (SELECT min(k) FROM t)",
                "SELECT 9 AS x",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
