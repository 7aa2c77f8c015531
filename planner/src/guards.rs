//! `WHERE b <> 0 AND a / b > 2`: conditions that keep others from failing.
//!
//! SQL leaves open which side of AND is looked at first, but people write so, and a query that fails on some data and not on other is of no
//! use. DataFusion evaluates both sides for all rows, and merges filters that subqueries had apart. [`guarded_plan`] comes behind all of its
//! rules: what can fail is asked where the rest of a conjunction holds (of a disjunction, does not), by CASE, which looks at rows one
//! branch at a time on the CPU and on the device.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, lit, when,
};
use warpline_gpu::expr::is_fragile;

/// An optimised plan whose conditions keep others from failing. DataFusion's rules would take it back: it is what is planned physically.
///
/// # Errors
/// What DataFusion reports of a plan that does not fit together.
pub fn guarded_plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => guarded_filter(filter),
        // What a scan is asked is for it to decide.
        LogicalPlan::TableScan(_) => Ok(Transformed::no(node)),
        other => guarded_exprs(other),
    })?;
    Ok(guarded.data)
}

/// A filter that asks what can fail of the rows alone for which the other conditions hold.
fn guarded_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let schema = filter.input.schema();
    let conditions = split_conjunction(&filter.predicate).into_iter().cloned();
    let (fragile, safe): (Vec<Expr>, Vec<Expr>) =
        conditions.partition(|condition| may_fail(condition, schema));
    let mut changed = false;
    let mut within = |expr: Expr| -> Result<Expr> {
        let guarded = guarded(expr, schema)?;
        changed |= guarded.transformed;
        Ok(guarded.data)
    };
    let safe: Vec<Expr> = safe.into_iter().map(&mut within).collect::<Result<_>>()?;
    let fragile: Vec<Expr> = fragile
        .into_iter()
        .map(&mut within)
        .collect::<Result<_>>()?;
    let (safe, fragile) = (conjunction(safe), conjunction(fragile));
    let predicate = match (safe, fragile) {
        // What chance decides is not the same twice.
        (Some(safe), Some(fragile)) if safe.is_volatile() => safe.and(fragile),
        (Some(safe), Some(fragile)) => {
            changed = true;
            let guarded = when(safe.clone(), fragile).otherwise(lit(false))?;
            safe.and(guarded)
        }
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => filter.predicate.clone(),
    };
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let made = Filter::try_new(predicate, filter.input)?;
    Ok(Transformed::yes(LogicalPlan::Filter(made)))
}

/// An operator whose expressions have such sides.
fn guarded_exprs(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(guarded(expr, &schema)?.update_data(|expr| name.restore(expr)))
    })
}

/// An expression of which no part that can fail is asked where another part decides.
fn guarded(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|part| match part {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) => {
            let fragile = [may_fail(&left, schema), may_fail(&right, schema)];
            let (first, second) = match fragile {
                [false, false] => {
                    let same = Expr::BinaryExpr(BinaryExpr { left, op, right });
                    return Ok(Transformed::no(same));
                }
                [true, false] => (*right, *left),
                _ => (*left, *right),
            };
            // What chance decides is not the same twice.
            if first.is_volatile() {
                let (left, right) = (Box::new(first), Box::new(second));
                let same = Expr::BinaryExpr(BinaryExpr { left, op, right });
                return Ok(Transformed::no(same));
            }
            // What the first side is says all, unless it is the other value or NULL.
            let decided = op == Operator::Or;
            let decides = match decided {
                true => first.clone().is_true(),
                false => first.clone().is_false(),
            };
            let both = BinaryExpr {
                left: Box::new(first),
                op,
                right: Box::new(second),
            };
            let guarded = when(decides, lit(decided)).otherwise(Expr::BinaryExpr(both))?;
            Ok(Transformed::yes(guarded))
        }
        Expr::AggregateFunction(call) => of_filtered(call, schema),
        other => Ok(Transformed::no(other)),
    })
}

/// An aggregate whose arguments are asked for the rows alone that its filter keeps.
fn of_filtered(call: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let fragile = call
        .params
        .args
        .iter()
        .any(|argument| may_fail(argument, schema));
    let mut call = call;
    let Some(filter) = call.params.filter.as_ref().filter(|_| fragile) else {
        return Ok(Transformed::no(Expr::AggregateFunction(call)));
    };
    for argument in &mut call.params.args {
        if may_fail(argument, schema) {
            *argument = when(Expr::clone(filter), argument.clone()).end()?;
        }
    }
    Ok(Transformed::yes(Expr::AggregateFunction(call)))
}

/// Whether some part of an expression fails for some values, and nothing in it sees to that. Values of CASE are taken for guarded.
fn may_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let mut found = false;
    let walked = expr.apply(|part| {
        found |= match part {
            Expr::Case(_) => return Ok(TreeNodeRecursion::Jump),
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Divide | Operator::Modulo,
                right,
                ..
            }) => !is_constant(right) && !part.get_type(schema)?.is_floating(),
            Expr::Cast(cast) => {
                let from = cast.expr.get_type(schema)?;
                !is_constant(&cast.expr) && !is_safe(&from, cast.field.data_type())
            }
            Expr::ScalarFunction(call) => {
                let constant: Vec<bool> = call.args.iter().map(is_constant).collect();
                is_fragile(call.name(), &constant)
            }
            _ => false,
        };
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    // What has no type is not known not to fail.
    found || walked.is_err()
}

/// Is it a constant? One that fails does so for any row.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Cast(cast) => is_constant(&cast.expr),
        Expr::Negative(inner) => is_constant(inner),
        _ => false,
    }
}

/// Whether each value of a type has one of another.
fn is_safe(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Decimal128, Decimal256, Dictionary, Null, Timestamp};
    let digits = |integer: &DataType| match integer.primitive_width() {
        Some(1) => 3,
        Some(2) => 5,
        Some(4) => 10,
        _ => 20,
    };
    match (from, to) {
        (Dictionary(_, from), to) => is_safe(from, to),
        (from, Dictionary(_, to)) => is_safe(from, to),
        (from, to) if from == to => true,
        (Null | Boolean, _) | (_, Boolean) => true,
        (from, to) if to.is_string() => !from.is_binary(),
        (from, to) if from.is_numeric() && to.is_floating() => true,
        (from, to) if from.is_integer() && to.is_integer() => {
            let wider = from.primitive_width() < to.primitive_width();
            wider && (from.is_unsigned_integer() || to.is_signed_integer())
        }
        (from, Decimal128(precision, scale) | Decimal256(precision, scale))
            if from.is_integer() =>
        {
            i16::from(*precision) - i16::from(*scale) >= digits(from)
        }
        (Decimal128(from, at), Decimal128(to, there) | Decimal256(to, there)) => {
            there >= at && i16::from(*to) - i16::from(*there) >= i16::from(*from) - i16::from(*at)
        }
        (Date32 | Date64 | Timestamp(..), Date32 | Date64 | Timestamp(..)) => true,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_plan::collect;
    use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
    use datafusion::prelude::SessionContext;

    use super::guarded_plan;
    use crate::statements::tests::answer;

    /// The number of rows.
    async fn rows(context: &SessionContext, sql: &str) -> String {
        let state = context.state();
        let counted = format!("SELECT count(*) AS n FROM ({sql}) AS q");
        let plan = state.create_logical_plan(&counted).await.unwrap();
        let plan = guarded_plan(state.optimize(&plan).unwrap()).unwrap();
        let planner = DefaultPhysicalPlanner::default();
        let plan = planner.create_physical_plan(&plan, &state).await.unwrap();
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    }

    #[tokio::test]
    async fn what_can_fail_is_asked_last() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT value AS a, value % 4 AS b, CASE WHEN value % 3 = 0 THEN 'x' ELSE CAST(value AS VARCHAR) END AS s, CASE WHEN value = 7 THEN NULL ELSE value % 2 END AS n FROM generate_series(1, 40)";
        answer(&context, create).await;
        for (written, number) in [
            ("SELECT a FROM t WHERE b <> 0 AND a / b > 10", 14),
            ("SELECT a FROM t WHERE a / b > 10 AND b <> 0", 14),
            ("SELECT a FROM t WHERE b = 0 OR a % b = 0", 34),
            (
                "SELECT a FROM (SELECT * FROM t WHERE b > 0) AS s WHERE a / b > 10",
                14,
            ),
            (
                "SELECT a FROM t WHERE CASE WHEN b > 0 THEN a / b > 10 ELSE false END",
                14,
            ),
            ("SELECT a FROM t WHERE s <> 'x' AND CAST(s AS INT) > 20", 13),
            (
                "SELECT sum(a) FROM t GROUP BY b HAVING b > 0 AND sum(a) / b > 50",
                3,
            ),
            (
                "SELECT * FROM (SELECT CASE WHEN b > 0 AND a % b = 0 THEN 1 END AS x FROM t) AS q WHERE x = 1",
                24,
            ),
            ("SELECT a FROM t WHERE (n <> 0 AND 6 / n > 1) IS NULL", 1),
            (
                "SELECT q.x FROM (SELECT sum(a / b) FILTER (WHERE b > 0) AS x FROM t) AS q WHERE x = 357",
                1,
            ),
        ] {
            let expected = answer(&context, &format!("SELECT {number} AS n")).await;
            assert_eq!(rows(&context, written).await, expected, "{written}");
        }
    }
}
