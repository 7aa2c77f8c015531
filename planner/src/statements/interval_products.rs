//! `n * INTERVAL '1 hour'`: a span of time that depends on the row, which DataFusion has no product for.
//!
//! Of spans without months it is a duration, `n` times as many nanoseconds, which is added to timestamps as the interval would be. To
//! dates no duration is added: for these, and of months, it is an interval, by a function of ours ([`crate::interval_product`]).

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Interval, Statement, Value};

use crate::interval_product::NAME;
use crate::statements::replaced::replace;
use crate::statements::syntax::{arguments, expression, is_call, text};

const NANOSECONDS_A_DAY: i64 = 86_400_000_000_000;

/// The type of durations.
const DURATION: &str = "Duration(ns)";

/// Whether planning failed for such a product.
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::Plan(message)
        if message.starts_with("Cannot get result type for temporal operation"))
}

/// Whether it may be such a product: an interval beside a multiplication or division.
pub(crate) fn is_one(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp {
        left,
        op: BinaryOperator::Multiply | BinaryOperator::Divide,
        right,
    } if constant(left).is_some() || constant(right).is_some())
}

/// Puts durations in the place of such products; whether there was one.
pub(crate) fn as_durations(statement: &mut Statement) -> bool {
    replace(statement, duration)
}

/// Whether planning failed for a product, or for a duration in the place of one.
pub(crate) fn is_no_duration(error: &DataFusionError) -> bool {
    let of_dates = |message: &str| {
        message.starts_with("Cannot coerce arithmetic expression") && message.contains("Duration")
    };
    is_unsupported(error)
        || matches!(error.find_root(), DataFusionError::Plan(message) if of_dates(message))
}

/// Puts intervals in the place of such products, and of durations that stand for them; whether there was one.
pub(crate) fn as_intervals(statement: &mut Statement) -> bool {
    replace(statement, |expr| {
        of_duration(expr).or_else(|| product(expr))
    })
}

/// So many times the interval.
fn product(expr: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op, right } = expr else {
        return None;
    };
    let text = match (op, constant(left).is_some(), constant(right).is_some()) {
        (BinaryOperator::Multiply, true, false) => format!("{NAME}({left}, {right})"),
        (BinaryOperator::Multiply, false, true) => format!("{NAME}({right}, {left})"),
        (BinaryOperator::Divide, true, false) => format!("{NAME}({left}, 1.0 / ({right}))"),
        _ => return None,
    };
    expression(&text)
}

/// The interval that a duration of [`duration`] is as long as.
fn of_duration(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else {
        return None;
    };
    let [Expr::Cast { expr: number, .. }, duration] = arguments(call)?[..] else {
        return None;
    };
    let is_one = is_call(expr, "arrow_cast") && text(duration) == Some(DURATION);
    let Expr::BinaryOp { left, op, right } = number.as_ref() else {
        return None;
    };
    let span = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse::<i64>().ok().map(interval_of),
            _ => None,
        },
        _ => None,
    };
    let text = match (op, is_one) {
        (BinaryOperator::Multiply, true) => format!("{NAME}({}, {left})", span(right)?),
        (BinaryOperator::Divide, true) => format!("{NAME}({}, 1.0 / {right})", span(left)?),
        _ => return None,
    };
    expression(&text)
}

/// The constant interval of so many nanoseconds.
fn interval_of(nanoseconds: i64) -> String {
    match nanoseconds % NANOSECONDS_A_DAY {
        0 => format!("INTERVAL '{} days'", nanoseconds / NANOSECONDS_A_DAY),
        _ => format!("INTERVAL '{nanoseconds} nanoseconds'"),
    }
}

fn duration(expr: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op, right } = expr else {
        return None;
    };
    let text = match (op, nanoseconds(left), nanoseconds(right)) {
        (BinaryOperator::Multiply, Some(span), None) => format!("({right}) * {span}"),
        (BinaryOperator::Multiply, None, Some(span)) => format!("({left}) * {span}"),
        (BinaryOperator::Divide, Some(span), None) => format!("{span} / ({right})"),
        _ => return None,
    };
    let text = format!("arrow_cast(CAST({text} AS BIGINT), '{DURATION}')");
    expression(&text)
}

/// The nanoseconds of a constant interval without months.
fn nanoseconds(expr: &Expr) -> Option<i64> {
    let interval = constant(expr)?;
    let days = i64::from(interval.days).checked_mul(NANOSECONDS_A_DAY)?;
    match interval.months {
        0 => days.checked_add(interval.nanoseconds),
        _ => None,
    }
}

/// A constant interval.
fn constant(expr: &Expr) -> Option<IntervalMonthDayNano> {
    let interval = match expr {
        Expr::Nested(inner) => return constant(inner),
        Expr::Interval(interval) => interval,
        _ => return None,
    };
    let Interval {
        value,
        leading_field,
        last_field: None,
        ..
    } = interval
    else {
        return None;
    };
    let Expr::Value(value) = value.as_ref() else {
        return None;
    };
    let number = match &value.value {
        Value::SingleQuotedString(text) | Value::Number(text, _) => text,
        _ => return None,
    };
    let text = match leading_field {
        Some(unit) => format!("{number} {unit}"),
        None => number.clone(),
    };
    parse_interval_month_day_nano(&text).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use crate::statements::tests::answer;
    use datafusion::prelude::SessionContext;

    #[tokio::test]
    async fn products_are_durations() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS n, TIMESTAMP '2024-02-28 12:00:00' AS at FROM (VALUES (1), (-2), (NULL))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "at + n * INTERVAL '1 hour'",
                "CASE n WHEN 1 THEN TIMESTAMP '2024-02-28 13:00:00' WHEN -2 THEN TIMESTAMP '2024-02-28 10:00:00' END",
            ),
            (
                "at - INTERVAL '2' DAY * (n + 0)",
                "CASE n WHEN 1 THEN TIMESTAMP '2024-02-26 12:00:00' WHEN -2 THEN TIMESTAMP '2024-03-03 12:00:00' END",
            ),
            (
                "at + INTERVAL '1 day' / 24 + (n + 0.5) * INTERVAL '1 minute'",
                "CASE n WHEN 1 THEN TIMESTAMP '2024-02-28 13:01:30' WHEN -2 THEN TIMESTAMP '2024-02-28 12:58:30' END",
            ),
        ] {
            let found = answer(&context, &format!("SELECT {written} AS x FROM t")).await;
            let expected = answer(&context, &format!("SELECT {meant} AS x FROM t")).await;
            assert_eq!(found, expected, "{written}");
        }
    }

    /// What is added to dates, and what has months.
    #[tokio::test]
    async fn products_are_intervals() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS n, DATE '2024-01-31' AS d, TIMESTAMP '2024-01-31 12:00:00' AS at FROM (VALUES (1), (-2), (NULL))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "d - n * INTERVAL '1 day'",
                "CASE n WHEN 1 THEN DATE '2024-01-30' WHEN -2 THEN DATE '2024-02-02' END",
            ),
            (
                "d + INTERVAL '2' WEEK * n",
                "CASE n WHEN 1 THEN DATE '2024-02-14' WHEN -2 THEN DATE '2024-01-03' END",
            ),
            (
                "d + INTERVAL '1 month' * (n + 0)",
                "CASE n WHEN 1 THEN DATE '2024-02-29' WHEN -2 THEN DATE '2023-11-30' END",
            ),
            (
                "d + INTERVAL '1 month' * 11 + 0 * n * INTERVAL '1 day'",
                "CASE WHEN n IS NOT NULL THEN DATE '2024-12-31' END",
            ),
            (
                "at - n * INTERVAL '1 month' + INTERVAL '3 days' / 2",
                "CASE n WHEN 1 THEN TIMESTAMP '2024-01-02 00:00:00' WHEN -2 THEN TIMESTAMP '2024-04-02 00:00:00' END",
            ),
            (
                "CASE WHEN d < DATE '2024-02-01' + n * INTERVAL '1 day' THEN at + n * INTERVAL '1 hour' END",
                "CASE n WHEN 1 THEN TIMESTAMP '2024-01-31 13:00:00' END",
            ),
        ] {
            let found = answer(&context, &format!("SELECT {written} AS x FROM t")).await;
            let expected = answer(&context, &format!("SELECT {meant} AS x FROM t")).await;
            assert_eq!(found, expected, "{written}");
        }
    }
}
