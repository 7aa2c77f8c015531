//! `EXCEPT ALL` and `INTERSECT ALL`, which count rows: of a row that is there three times EXCEPT ALL takes away as many as the other side has,
//! and INTERSECT ALL leaves as many as both have.
//!
//! DataFusion leaves out all of them, or none. [`Multisets`] numbers equal rows on either side and compares the numbers as well.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule of the analyzer.
#[derive(Debug, Default)]
pub struct Multisets;

impl Multisets {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_multisets";
}

impl AnalyzerRule for Multisets {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let counted = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if is_of_all(&join) => counted(join).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(counted.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// Is it what DataFusion makes of EXCEPT ALL or INTERSECT ALL? Only set operations compare all columns in their order, NULL as a value,
/// before plans are optimised; without ALL the rows on the left are distinct, and need no numbers.
fn is_of_all(join: &Join) -> bool {
    let columns = join.left.schema().fields().len();
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == columns
        && join.right.schema().fields().len() == columns
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

/// The same with a number for each of equal rows among what is compared.
fn counted(join: Join) -> Result<LogicalPlan> {
    const NUMBERS: [&str; 2] = ["__left_number", "__right_number"];
    let own = join.left.schema().columns();
    let (lefts, rights): (Vec<Expr>, Vec<Expr>) = join.on.into_iter().unzip();
    let left = numbered(join.left, &lefts, NUMBERS[0])?;
    let right = numbered(join.right, &rights, NUMBERS[1])?;
    let [left_number, right_number] = NUMBERS.map(|name| Expr::Column(Column::from_name(name)));
    let lefts = lefts.into_iter().chain([left_number]);
    let rights = rights.into_iter().chain([right_number]);
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        lefts.zip(rights).collect(),
        None,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNull,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined))
        .project(own.into_iter().map(Expr::Column))?
        .build()
}

/// `plan` with a column that numbers, from 1, the rows for which these keys are equal.
fn numbered(plan: Arc<LogicalPlan>, keys: &[Expr], name: &str) -> Result<LogicalPlan> {
    let own = plan.schema().columns();
    // The order is one of equal keys: any.
    let order = keys.first().map(|key| key.clone().sort(true, false));
    let number = row_number()
        .partition_by(keys.to_vec())
        .order_by(order.into_iter().collect())
        .build()?;
    let column = Expr::Column(Column::from_name(number.schema_name().to_string()));
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(plan))
        .window([number])?
        .project(
            own.into_iter()
                .map(Expr::Column)
                .chain([column.alias(name)]),
        )?
        .build()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::Multisets;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn equal_rows_are_counted() {
        let builder = SessionStateBuilder::new().with_default_features();
        let state = builder.with_analyzer_rule(std::sync::Arc::new(Multisets));
        let context = SessionContext::new_with_state(state.build());
        for table in [
            "CREATE TABLE a AS VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (2, NULL), (3, 'y')",
            "CREATE TABLE b AS VALUES (1, 'x'), (2, NULL), (2, NULL), (2, NULL), (4, 'z')",
            "CREATE TABLE c AS SELECT CAST(column1 AS BIGINT) * 1000000000 / 1000000000 AS n, column2 AS s FROM b",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        for (sets, rows) in [
            (
                "SELECT * FROM a EXCEPT ALL SELECT * FROM b",
                "(1, 'x'), (1, 'x'), (3, 'y')",
            ),
            (
                "SELECT * FROM a INTERSECT ALL SELECT * FROM b",
                "(1, 'x'), (2, NULL), (2, NULL)",
            ),
            (
                "SELECT * FROM a INTERSECT ALL SELECT * FROM c",
                "(1, 'x'), (2, NULL), (2, NULL)",
            ),
            ("SELECT * FROM a EXCEPT SELECT * FROM b", "(3, 'y')"),
            (
                "SELECT * FROM a INTERSECT SELECT * FROM b",
                "(1, 'x'), (2, NULL)",
            ),
            (
                "SELECT DISTINCT * FROM a EXCEPT ALL SELECT * FROM b",
                "(3, 'y')",
            ),
            ("SELECT * FROM a EXCEPT ALL SELECT * FROM a", "(NULL, NULL)"),
            (
                "SELECT column1, column2 FROM a EXCEPT ALL (SELECT * FROM b EXCEPT ALL SELECT * FROM a)",
                "(1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (3, 'y')",
            ),
        ] {
            let found = answer(
                &context,
                &format!("SELECT column1 AS n, column2 AS s FROM ({sets}) x ORDER BY n, s"),
            )
            .await;
            let expected = format!(
                "SELECT CAST(n AS BIGINT) AS n, s FROM (VALUES {rows}) v(n, s) WHERE n IS NOT NULL ORDER BY n, s"
            );
            assert_eq!(found, answer(&context, &expected).await, "{sets}");
        }
    }
}
