//! `INTERVAL '3 days 04:05:06'`: hours, minutes and seconds as PostgreSQL shows them, which DataFusion reads as words alone.

use datafusion::sql::sqlparser::ast::{Expr, Interval, Statement};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::{expression, text};

/// Puts the hours of such intervals in words; whether there was one.
pub(crate) fn in_words(statement: &mut Statement) -> bool {
    replace_named(statement, in_words_of)
}

fn in_words_of(expr: &Expr) -> Option<Expr> {
    let Expr::Interval(Interval {
        value,
        leading_field: None,
        ..
    }) = expr
    else {
        return None;
    };
    let text = text(value)?;
    if !text.contains(':') {
        return None;
    }
    let words = text
        .split_whitespace()
        .map(|word| clock(word).unwrap_or_else(|| word.to_string()));
    let words: Vec<String> = words.collect();
    expression(&format!(
        "INTERVAL '{}'",
        words.join(" ").replace('\'', "''")
    ))
}

/// `-04:05:06.5` in words; `None` for what is no time.
fn clock(word: &str) -> Option<String> {
    let (sign, time) = match word.strip_prefix('-') {
        Some(time) => ("-", time),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let parts: Vec<&str> = time.split(':').collect();
    let whole = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    let (before, after) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let is_time = [hours, minutes, before, after].into_iter().all(whole);
    is_time.then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn times_are_hours_minutes_and_seconds() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "1 year 2 months 3 days 04:05:06.789",
                "1 year 2 months 3 days 4 hours 5 minutes 6.789 seconds",
            ),
            ("-00:30", "-30 minutes"),
            ("1 day -02:00:01", "1 day -2 hours -1 seconds"),
            ("2 hours", "2 hours"),
        ] {
            let sql = |text: &str| {
                format!("SELECT TIMESTAMP '2024-01-31 12:00:00' + INTERVAL '{text}' AS x")
            };
            let found = answer(&context, &sql(written)).await;
            assert_eq!(found, answer(&context, &sql(meant)).await, "{written}");
        }
    }
}
