//! Times of day that end with their minutes: `TIMESTAMP '2024-03-01 12:00'`, `ts >= '2024-03-01 12:00'`.
//!
//! SQL's seconds may be left out. Arrow reads no such text as a timestamp, so constants of this form are given their seconds where they are
//! cast to one.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, TryCast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::logical_rules::with_parts;

/// The rule of the analyzer that gives such constants their seconds. It comes after the types are known.
#[derive(Debug, Default)]
pub struct Minutes;

impl AnalyzerRule for Minutes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |part: &Expr| full_text(part).is_some();
        with_parts(plan, concerns, |part, _| with_seconds(part))
    }

    fn name(&self) -> &str {
        "warpline_minutes"
    }
}

fn with_seconds(mut expr: Expr) -> Transformed<Expr> {
    match (full_text(&expr), &mut expr) {
        (
            Some(full),
            Expr::Cast(Cast { expr: value, .. }) | Expr::TryCast(TryCast { expr: value, .. }),
        ) => {
            **value = lit(full);
            Transformed::yes(expr)
        }
        _ => Transformed::no(expr),
    }
}

/// The constant of a cast to a timestamp, with the seconds that it lacks.
fn full_text(expr: &Expr) -> Option<String> {
    let (Expr::Cast(Cast { expr: value, field }) | Expr::TryCast(TryCast { expr: value, field })) =
        expr
    else {
        return None;
    };
    let Expr::Literal(constant, _) = value.as_ref() else {
        return None;
    };
    let is_timestamp = matches!(field.data_type(), DataType::Timestamp(..));
    constant
        .try_as_str()
        .flatten()
        .filter(|_| is_timestamp)
        .and_then(in_full)
}

/// `2024-03-01 12:00` and what follows, such as a zone, with seconds; `None` of any other text.
fn in_full(text: &str) -> Option<String> {
    const FORM: &[u8] = b"0000-00-00 00:00";
    let (minutes, rest) = text.split_at_checked(FORM.len())?;
    let fits = |(byte, form): (u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b' ' => byte == b' ' || byte == b'T',
        other => byte == *other,
    };
    let minutes_alone = minutes.bytes().zip(FORM).all(fits)
        && (rest.is_empty() || rest.starts_with(['+', '-', 'Z', 'z', ' ']));
    minutes_alone.then(|| format!("{minutes}:00{rest}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use super::{Minutes, in_full};
    use crate::statements::tests::answer;

    #[test]
    fn texts_that_end_with_minutes() {
        for (text, full) in [
            ("2024-03-01 12:00", "2024-03-01 12:00:00"),
            ("2024-03-01T23:59", "2024-03-01T23:59:00"),
            ("2024-03-01 12:00+02:00", "2024-03-01 12:00:00+02:00"),
            ("2024-03-01 12:00Z", "2024-03-01 12:00:00Z"),
        ] {
            assert_eq!(in_full(text).as_deref(), Some(full));
        }
        for other in [
            "2024-03-01",
            "2024-03-01 12:00:07",
            "2024-03-01 1:00",
            "12:00",
            "größer als sonst!",
        ] {
            assert_eq!(in_full(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn constants_have_seconds() {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(Minutes));
        for (written, meant) in [
            (
                "SELECT TIMESTAMP '2024-03-01 12:00' AS t, '2024-03-01 12:30+01:00'::timestamptz AS z, TRY_CAST('2024-03-01 1x:00' AS TIMESTAMP) AS n",
                "SELECT TIMESTAMP '2024-03-01 12:00:00' AS t, '2024-03-01 12:30:00+01:00'::timestamptz AS z, CAST(NULL AS TIMESTAMP) AS n",
            ),
            (
                "SELECT count(*) AS n FROM (VALUES (TIMESTAMP '2024-03-01 12:00:01'), (TIMESTAMP '2024-03-01 11:59:59')) v(t) WHERE t >= '2024-03-01 12:00' AND t < '2024-03-02 00:00'",
                "SELECT 1 AS n",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
