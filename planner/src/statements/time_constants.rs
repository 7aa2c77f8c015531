//! `t < TIME '06:00:00'` where `t` counts in coarser units than nanoseconds, in which DataFusion has constants: it compares no two units.

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Statement};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::{expression, text};

/// The unit that planning found compared with another one, as Arrow calls its type.
pub(crate) fn coarser(error: &DataFusionError) -> Option<&'static str> {
    let (DataFusionError::Plan(message) | DataFusionError::Internal(message)) = error.find_root()
    else {
        return None;
    };
    let says = [
        "Cannot infer common argument type",
        "Failed to coerce types",
        "Can not find compatible types to compare",
    ];
    let types = says.iter().find_map(|says| message.strip_prefix(says))?;
    let units = [
        ("Time64(µs)", "Time64(Microsecond)"),
        ("Time32(ms)", "Time32(Millisecond)"),
        ("Time32(s)", "Time32(Second)"),
    ];
    let mut units = units.into_iter().filter(|(shown, _)| types.contains(shown));
    units.next().map(|(_, name)| name)
}

/// Is it a time of day?
pub(crate) fn is_one(expr: &Expr) -> bool {
    time_of(expr).is_some()
}

/// The text of a constant time of day, in quotes.
fn time_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Time(..)) => {
            Some(typed.value.to_string())
        }
        Expr::Cast {
            expr,
            data_type: DataType::Time(..),
            ..
        } => Some(format!("'{}'", text(expr)?)),
        _ => None,
    }
}

/// Has the unit this time, or does it lie between two of its ticks?
fn has(unit: &str, time: &str) -> bool {
    let digits = match unit {
        "Time32(Second)" => 0,
        "Time32(Millisecond)" => 3,
        _ => 6,
    };
    let fraction = time.trim_matches('\'').split_once('.').map_or("", |t| t.1);
    fraction.trim_end_matches('0').len() <= digits
}

/// Puts constants of this type in the place of times of day that it has; whether there were any.
pub(crate) fn in_units(statement: &mut Statement, unit: &str) -> bool {
    replace_named(statement, |expr| {
        let time = time_of(expr).filter(|time| has(unit, time))?;
        expression(&format!("arrow_cast({time}, '{unit}')"))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::has;
    use crate::statements::tests::answer;

    #[test]
    fn times_between_ticks_stay_as_they_are() {
        for (unit, time, exact) in [
            ("Time32(Second)", "'18:30:00'", true),
            ("Time32(Second)", "'18:30:00.000'", true),
            ("Time32(Second)", "'18:30:00.5'", false),
            ("Time32(Millisecond)", "'18:30:00.125'", true),
            ("Time32(Millisecond)", "'18:30:00.1255'", false),
            ("Time64(Microsecond)", "'18:30:00.125501'", true),
        ] {
            assert_eq!(has(unit, time), exact, "{time} in {unit}");
        }
    }

    #[tokio::test]
    async fn times_are_compared_with_constants() {
        let context = SessionContext::new();
        for unit in [
            "Time64(Microsecond)",
            "Time32(Second)",
            "Time64(Nanosecond)",
        ] {
            let table = format!(
                "(SELECT arrow_cast(column1, '{unit}') AS t FROM (VALUES ('05:59:59'), ('06:00:00'), ('18:30:00'))) AS q"
            );
            for (condition, rows) in [
                ("t < TIME '06:00:00'", 1),
                ("t IN (TIME '06:00:00', TIME '18:31:00')", 1),
                ("t BETWEEN TIME '06:00:00' AND '18:00:00'::TIME", 1),
                (
                    "CASE WHEN t >= TIME '06:00' THEN 'day' ELSE 'night' END = 'day'",
                    2,
                ),
            ] {
                let sql = format!("SELECT count(*) AS n FROM {table} WHERE {condition}");
                let expected = answer(&context, &format!("SELECT {rows} AS n")).await;
                assert_eq!(answer(&context, &sql).await, expected, "{sql}");
            }
        }
    }
}
