//! Values of the time of day: what a query computes of the moment at which it begins, and whether that is still the same.
//!
//! `current_date - INTERVAL '1 year'` is one value all day, `now()` another one at each moment. DataFusion makes constants of both
//! when it plans. A plan with such constants is right as long as they would be the same now.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

/// A plan whose values change sooner is not worth keeping.
const SHORTEST: Duration = Duration::from_secs(60);

/// What a plan computes of the moment at which it is made.
#[derive(Debug, Default)]
pub(super) struct Moments {
    values: Vec<(Expr, ScalarValue)>,
}

impl Moments {
    /// Those of a plan before it is optimised; `None` if one is no constant, or changes within a minute.
    ///
    /// # Errors
    /// None of its own: walking the plan has them.
    pub(super) fn of(plan: &LogicalPlan, state: &SessionState) -> Result<Option<Self>> {
        let exprs = exprs_of(plan)?;
        if exprs.is_empty() {
            return Ok(Some(Self::default()));
        }
        let now = context_of(state);
        Ok(Self::noted(exprs, &now, &later(&now, SHORTEST)))
    }

    /// `None` if these have other values later than now.
    fn noted(exprs: Vec<Expr>, now: &SimplifyContext, later: &SimplifyContext) -> Option<Self> {
        let values = exprs.into_iter().map(|expr| {
            let value = value_of(&expr, now)?;
            (value_of(&expr, later)? == value).then_some((expr, value))
        });
        let values: Option<Vec<_>> = values.collect();
        values.map(|values| Self { values })
    }

    /// Would a plan that is made now have the same values?
    pub(super) fn still_hold(&self, state: &SessionState) -> bool {
        self.values.is_empty() || self.hold_at(&context_of(state))
    }

    fn hold_at(&self, now: &SimplifyContext) -> bool {
        let mut values = self.values.iter();
        values.all(|(expr, value)| value_of(expr, now).as_ref() == Some(value))
    }
}

/// What is computed of the moment, each as large as it can be without a column.
fn exprs_of(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut exprs = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if !part.exists(|inner| Ok(is_of_the_moment(inner)))? {
                    return Ok(TreeNodeRecursion::Jump);
                }
                if is_of_the_moment(part) || is_constant(part)? {
                    exprs.push(part.clone());
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(exprs)
}

/// What a query knows that begins now.
fn context_of(state: &SessionState) -> SimplifyContext {
    SimplifyContext::builder()
        .with_config_options(Arc::clone(state.config_options()))
        .with_current_time()
        .build()
}

/// What it would know that much later.
fn later(now: &SimplifyContext, by: Duration) -> SimplifyContext {
    SimplifyContext::builder()
        .with_config_options(Arc::clone(now.config_options()))
        .with_query_execution_start_time(now.query_execution_start_time().map(|time| time + by))
        .build()
}

/// The constant that it is at that moment.
fn value_of(expr: &Expr, at: &SimplifyContext) -> Option<ScalarValue> {
    let simplifier = ExprSimplifier::new(at.clone());
    let typed = simplifier.coerce(expr.clone(), at.schema()).ok()?;
    match simplifier.simplify(typed).ok()? {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// Does a value of the plan depend on when it is computed?
///
/// # Errors
/// None of its own: walking the plan has them.
pub(super) fn asks_the_time(plan: &LogicalPlan) -> Result<bool> {
    Ok(!exprs_of(plan)?.is_empty())
}

/// A function whose value is the same within a query, and perhaps another one in the next.
fn is_of_the_moment(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call)
        if call.func.signature().volatility == Volatility::Stable)
}

/// Is it computed of constants alone?
fn is_constant(expr: &Expr) -> Result<bool> {
    let depends = expr.exists(|part| {
        Ok(!matches!(
            part,
            Expr::Literal(..)
                | Expr::ScalarFunction(_)
                | Expr::BinaryExpr(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::Negative(_)
                | Expr::Not(_)
                | Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::Between(_)
                | Expr::Case(_)
        ))
    })?;
    Ok(!depends)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// What a query computes of the moment so long `after` the year 2000 began, and that moment.
    async fn noted(sql: &str, after: Duration) -> (Option<Moments>, SimplifyContext) {
        let context = SessionContext::new();
        let state = context.state();
        let plan = state.create_logical_plan(sql).await.unwrap();
        let begin = SimplifyContext::builder()
            .with_query_execution_start_time(Some("2000-01-01T00:00:00Z".parse().unwrap()))
            .build();
        let now = later(&begin, after);
        let exprs = exprs_of(&plan).unwrap();
        (Moments::noted(exprs, &now, &later(&now, SHORTEST)), now)
    }

    #[tokio::test]
    async fn a_day_holds_until_midnight() {
        for (sql, holds_beyond) in [
            (
                "SELECT 1 WHERE current_date - INTERVAL '1 year' < DATE '1999-05-05'",
                true,
            ),
            ("SELECT date_trunc('day', now())", false),
            (
                "SELECT CAST(now() AS DATE) = DATE '2000-01-01', current_date()",
                false,
            ),
        ] {
            let noon = noted(sql, DAY / 2).await;
            let moments = noon.0.unwrap();
            assert!(!moments.values.is_empty(), "{sql}");
            assert!(moments.hold_at(&later(&noon.1, DAY / 3)), "{sql}");
            let late = noted(sql, DAY - Duration::from_secs(2)).await;
            assert_eq!(late.0.is_some(), holds_beyond, "{sql}");
        }
        let (moments, now) = noted("SELECT current_date", DAY / 2).await;
        assert!(!moments.unwrap().hold_at(&later(&now, DAY / 2)));
    }

    #[tokio::test]
    async fn a_moment_does_not_hold() {
        for sql in [
            "SELECT now()",
            "SELECT current_time, current_date",
            "SELECT x FROM (VALUES (1)) t(x) WHERE to_timestamp(x) < now() - INTERVAL '1 day'",
        ] {
            assert!(noted(sql, DAY / 2).await.0.is_none(), "{sql}");
        }
        let (moments, _) = noted("SELECT 1 + 1", DAY / 2).await;
        assert!(moments.unwrap().values.is_empty());
    }
}
