//! `n * INTERVAL '1 hour'`: a span of time that depends on the row, which DataFusion has no product for.
//!
//! Of spans without months it is a duration, `n` times as many nanoseconds, which is added to timestamps as the interval would be.

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Interval, Statement, Value};

use crate::replaced::{expression, replace};

/// Whether planning failed for such a product.
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::Plan(message)
        if message.starts_with("Cannot get result type for temporal operation"))
}

/// Puts durations in the place of such products; whether there was one.
pub(crate) fn as_durations(statement: &mut Statement) -> bool {
    replace(statement, duration)
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
    let text = format!("arrow_cast(CAST({text} AS BIGINT), 'Duration(ns)')");
    expression(&text)
}

/// The nanoseconds of a constant interval without months.
fn nanoseconds(expr: &Expr) -> Option<i64> {
    let interval = match expr {
        Expr::Nested(inner) => return nanoseconds(inner),
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
    let interval = parse_interval_month_day_nano(&text).ok()?;
    let days = i64::from(interval.days).checked_mul(86_400_000_000_000)?;
    match interval.months {
        0 => days.checked_add(interval.nanoseconds),
        _ => None,
    }
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
        let months = "SELECT n * INTERVAL '1 month' FROM t";
        assert!(
            crate::statements::plan_text(&context.state(), months)
                .await
                .is_err()
        );
    }
}
