//! Durations that are compared with intervals: `ts - lag(ts) OVER w > INTERVAL '30 minutes'`.
//!
//! DataFusion makes an interval of the duration, whose months and days are none, and compares months first, then days, then nanoseconds:
//! no duration is as much as a day. Here a day has 24 hours and a month 30 days, as PostgreSQL has it, and a comparison with a constant is
//! one of durations.

use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::logical_rules::with_parts;
use crate::translate::nanoseconds_of;

/// The rule of the analyzer that compares durations as durations. It comes after the types are known.
#[derive(Debug, Default)]
pub struct Durations;

impl Durations {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_durations";
}

impl AnalyzerRule for Durations {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        with_parts(plan, |part| as_interval(part).is_some(), comparison)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// What an expression makes an interval of.
fn as_interval(expr: &Expr) -> Option<&Expr> {
    let Expr::Cast(Cast { expr, field }) = expr else {
        return None;
    };
    let to = field.data_type();
    matches!(to, DataType::Interval(IntervalUnit::MonthDayNano)).then_some(expr)
}

/// A comparison without the interval, if it is one of a duration.
fn comparison(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let made = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let as_written = compared(left, *op, right, schema);
            let swapped = || compared(right, op.swap()?, left, schema);
            as_written.or_else(swapped)
        }
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) => {
            let (from, to, both): (_, _, fn(Expr, Expr) -> Expr) = match negated {
                false => (Operator::GtEq, Operator::LtEq, Expr::and),
                true => (Operator::Lt, Operator::Gt, Expr::or),
            };
            compared(expr, from, low, schema)
                .zip(compared(expr, to, high, schema))
                .map(|(from, to)| both(from, to))
        }
        _ => None,
    };
    match made {
        Some(made) => Transformed::yes(made),
        None => Transformed::no(expr),
    }
}

/// `left` compared with the constant `right`; `None` where they are not a duration and an interval.
fn compared(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let value = as_interval(left)?.clone();
    let DataType::Duration(unit) = value.get_type(schema).ok()? else {
        return None;
    };
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(constant)), _) = right else {
        return None;
    };
    let is_less = match op {
        Operator::Lt | Operator::LtEq => true,
        Operator::Gt | Operator::GtEq => false,
        Operator::Eq | Operator::NotEq => op == Operator::NotEq,
        _ => return None,
    };
    let IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    } = *constant;
    const DAY: i128 = 86_400_000_000_000;
    let tick = i128::from(nanoseconds_of(unit));
    let days = i128::from(months) * 30 + i128::from(days);
    let nanoseconds = days * DAY + i128::from(nanoseconds);
    let (ticks, rest) = (nanoseconds.div_euclid(tick), nanoseconds.rem_euclid(tick));
    // What lies between two ticks is more than the lower one, and less than the upper.
    let op = match op {
        Operator::Lt if rest > 0 => Operator::LtEq,
        Operator::GtEq if rest > 0 => Operator::Gt,
        op => op,
    };
    let is_equality = matches!(op, Operator::Eq | Operator::NotEq);
    if let (Ok(ticks), false) = (i64::try_from(ticks), rest > 0 && is_equality) {
        let ticks = Expr::Literal(duration(ticks, unit), None);
        let compared = BinaryExpr::new(Box::new(value), op, Box::new(ticks));
        return Some(Expr::BinaryExpr(compared));
    }
    let holds = match is_equality {
        true => is_less,
        // Every duration is less than what is more than all of them.
        false => is_less == (ticks > 0),
    };
    when(value.is_not_null(), lit(holds)).end().ok()
}

fn duration(ticks: i64, unit: TimeUnit) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::DurationSecond(Some(ticks)),
        TimeUnit::Millisecond => ScalarValue::DurationMillisecond(Some(ticks)),
        TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(Some(ticks)),
        TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(Some(ticks)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn durations_are_compared_as_such() {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(Durations));
        let sql = "CREATE TABLE t AS SELECT arrow_cast(1, 'Timestamp(us)') AS a, arrow_cast(2, 'Timestamp(us)') AS b";
        context.sql(sql).await.unwrap().collect().await.unwrap();
        for (condition, expected) in [
            (
                "a - b > interval '30' minute",
                "t.a - t.b > DurationMicrosecond(\"1800000000\")",
            ),
            (
                "interval '1' second <= a - b",
                "t.a - t.b >= DurationMicrosecond(\"1000000\")",
            ),
            (
                "a - b < interval '0.0000005 seconds'",
                "t.a - t.b <= DurationMicrosecond(\"0\")",
            ),
            (
                "a - b BETWEEN interval '1' second AND interval '2' second",
                "t.a - t.b >= DurationMicrosecond(\"1000000\") AND t.a - t.b <= DurationMicrosecond(\"2000000\")",
            ),
            (
                "a - b < interval '1' day",
                "t.a - t.b < DurationMicrosecond(\"86400000000\")",
            ),
            (
                "a - b >= interval '1 month 1 second'",
                "t.a - t.b >= DurationMicrosecond(\"2592001000000\")",
            ),
            (
                "a - b < interval '300000' year",
                "CASE WHEN t.a - t.b IS NOT NULL THEN Boolean(true) END",
            ),
            (
                "a - b <= interval '-300000' year",
                "CASE WHEN t.a - t.b IS NOT NULL THEN Boolean(false) END",
            ),
        ] {
            let sql = format!("SELECT {condition} FROM t WHERE {condition}");
            let plan = context.sql(&sql).await.unwrap().into_unoptimized_plan();
            let state = context.state();
            let analyzed =
                state
                    .analyzer()
                    .execute_and_check(plan, state.config_options(), |_, _| {});
            let text = analyzed.unwrap().to_string();
            assert!(text.contains(&format!("Filter: {expected}\n")), "{text}");
            // The column is called as it was.
            assert!(
                text.contains(" AS t.a - t.b") || text.contains(" AS Interval"),
                "{text}"
            );
        }
    }
}
