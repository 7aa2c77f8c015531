//! Formats of times in PostgreSQL's words (`YYYY-MM-DD HH24:MI`), which DataFusion takes for plain text: in those of `strftime`.
//!
//! A format is in these words if it has no `%` and all its letters are words that are known here.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement, Value,
};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::function_name;

/// Functions whose further arguments are formats.
const FUNCTIONS: [&str; 8] = [
    "to_char",
    "date_format",
    "to_date",
    "to_timestamp",
    "to_timestamp_seconds",
    "to_timestamp_millis",
    "to_timestamp_micros",
    "to_timestamp_nanos",
];

/// PostgreSQL's words, longer ones before those that they begin with, and what they are elsewhere. The case of names is that of the word.
const WORDS: [(&str, &str); 26] = [
    ("FMMonth", "%B"),
    ("FMDay", "%A"),
    ("FMMM", "%-m"),
    ("FMDD", "%-d"),
    ("FMHH24", "%-H"),
    ("FMHH12", "%-I"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("HH", "%I"),
    ("IYYY", "%G"),
    ("YYYY", "%Y"),
    ("YY", "%y"),
    ("DDD", "%j"),
    ("DD", "%d"),
    ("IW", "%V"),
    ("ID", "%u"),
    ("MM", "%m"),
    ("MI", "%M"),
    ("SS", "%S"),
    ("MS", "%3f"),
    ("US", "%6f"),
    ("Mon", "%b"),
    ("Dy", "%a"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("Q", "%q"),
];

/// Words whose case says how names are written.
const NAMES: [&str; 4] = ["FMMonth", "FMDay", "Mon", "Dy"];

/// Puts such formats in the words of DataFusion; whether there was one.
pub(crate) fn in_known_words(statement: &mut Statement) -> bool {
    replace_named(statement, |expr| match expr {
        Expr::Function(call)
            if function_name(call).is_some_and(|name| FUNCTIONS.contains(&&*name)) =>
        {
            with_known_formats(call)
        }
        _ => None,
    })
}

fn with_known_formats(call: &Function) -> Option<Expr> {
    let mut call = call.clone();
    let FunctionArguments::List(list) = &mut call.args else {
        return None;
    };
    let mut changed = false;
    for argument in list.args.iter_mut().skip(1) {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) = argument
            && let Value::SingleQuotedString(format) = &mut value.value
            && let Some(known) = known(format)
        {
            *format = known;
            changed = true;
        }
    }
    changed.then_some(Expr::Function(call))
}

/// A format in other words; `None` where it is not in PostgreSQL's.
fn known(format: &str) -> Option<String> {
    if format.contains('%') {
        return None;
    }
    let mut known = String::new();
    let mut rest = format;
    let mut words = 0;
    while let Some(next) = rest.chars().next() {
        if next == '"' {
            let (plain, behind) = rest[1..].split_once('"')?;
            known.push_str(plain);
            rest = behind;
            continue;
        }
        if !next.is_alphabetic() {
            known.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let begins = |word: &str| match rest.get(..word.len()) {
            Some(start) if NAMES.contains(&word) => start == word,
            Some(start) => start.eq_ignore_ascii_case(word),
            None => false,
        };
        match WORDS.iter().find(|(word, _)| begins(word)) {
            Some((word, other)) => {
                known.push_str(other);
                rest = &rest[word.len()..];
                words += 1;
            }
            // Between a date and a time.
            None if next == 'T' && words > 0 => {
                known.push('T');
                rest = &rest[1..];
            }
            None => return None,
        }
    }
    (words > 0).then_some(known)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::known;
    use crate::statements::tests::answer;

    #[test]
    fn words_of_formats() {
        for (format, expected) in [
            ("YYYY-MM-DD", Some("%Y-%m-%d")),
            ("yyyy-mm-dd hh24:mi:ss", Some("%Y-%m-%d %H:%M:%S")),
            ("DD.MM.YY", Some("%d.%m.%y")),
            ("YYYYMMDD", Some("%Y%m%d")),
            ("Mon DD, YYYY HH12:MI AM", Some("%b %d, %Y %I:%M %p")),
            ("FMMonth YYYY", Some("%B %Y")),
            ("IYYY-\"W\"IW", Some("%G-W%V")),
            ("YYYY-\"Q\"Q", Some("%Y-Q%q")),
            ("YYYY-MM-DDTHH24:MI:SS.MS", Some("%Y-%m-%dT%H:%M:%S.%3f")),
            ("%Y-%m", None),
            ("Month", None),
            ("MON", None),
            ("hello", None),
            ("---", None),
            ("", None),
            ("\"YYYY", None),
        ] {
            assert_eq!(known(format).as_deref(), expected, "{format}");
        }
    }

    #[tokio::test]
    async fn formats_of_postgres() {
        let context = SessionContext::new();
        let moment = "TIMESTAMP '2024-03-05 14:07:09.125'";
        for (written, meant) in [
            (format!("to_char({moment}, 'YYYY-MM')"), "'2024-03'"),
            (
                format!("to_char({moment}, 'DD/MM/YY HH24:MI')"),
                "'05/03/24 14:07'",
            ),
            (format!("to_char({moment}, '\"Q\"Q YYYY')"), "'Q1 2024'"),
            (format!("to_char({moment}, 'Dy, FMDD Mon')"), "'Tue, 5 Mar'"),
            (format!("to_char({moment}, 'IYYY-IW')"), "'2024-10'"),
            (format!("to_char({moment}, '%Y')"), "'2024'"),
            (
                "to_date('03/05/2024', 'MM/DD/YYYY')".into(),
                "DATE '2024-03-05'",
            ),
            (
                "to_timestamp('2024-03-05 14:07:09', 'YYYY-MM-DD HH24:MI:SS')".into(),
                "to_timestamp('2024-03-05T14:07:09')",
            ),
        ] {
            let found = answer(&context, &format!("SELECT {written} AS v")).await;
            let expected = answer(&context, &format!("SELECT {meant} AS v")).await;
            assert_eq!(found, expected, "{written}");
        }
    }
}
