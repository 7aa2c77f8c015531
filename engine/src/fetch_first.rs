//! `FETCH FIRST n ROWS ONLY`, the standard's `LIMIT`: DataFusion parses it and plans it not, so queries get the word that it plans.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// The same statement with `LIMIT n` for each `FETCH FIRST n ROWS ONLY` (`NEXT`, `ROW`; without a number it is one row). Nothing else
/// changes: not `WITH TIES`, which DataFusion refuses, nor words in quotes or comments.
///
/// ```
/// let sql = warpline::fetch_first::as_limit("SELECT a FROM t ORDER BY a FETCH FIRST 5 ROWS ONLY");
/// assert_eq!(sql, "SELECT a FROM t ORDER BY a LIMIT 5");
/// ```
pub fn as_limit(sql: &str) -> Cow<'_, str> {
    const WORD: &[u8] = b"fetch";
    let mut words = sql.as_bytes().windows(WORD.len());
    if !words.any(|word| word.eq_ignore_ascii_case(WORD)) {
        return Cow::Borrowed(sql);
    }
    // Whoever parses it says what is wrong with it.
    let Ok(mut tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location() else {
        return Cow::Borrowed(sql);
    };
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut text = String::with_capacity(sql.len());
    let mut copied = 0;
    for first in 0..tokens.len() {
        let Some((number, last)) = fetched(&tokens[first..]) else {
            continue;
        };
        let place = |location| offset(sql, location);
        let (Some(start), Some(end)) = (place(tokens[first].span.start), place(last.span.end))
        else {
            return Cow::Borrowed(sql);
        };
        text.push_str(&sql[copied..start]);
        text.push_str("LIMIT ");
        text.push_str(&number);
        copied = end;
    }
    match copied {
        0 => Cow::Borrowed(sql),
        _ => {
            text.push_str(&sql[copied..]);
            Cow::Owned(text)
        }
    }
}

/// How many rows the clause asks for that begins with these tokens, and its last token.
fn fetched(tokens: &[TokenWithSpan]) -> Option<(String, &TokenWithSpan)> {
    let keyword = |at: usize| match &tokens.get(at)?.token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    };
    let begins =
        keyword(0)? == Keyword::FETCH && matches!(keyword(1)?, Keyword::FIRST | Keyword::NEXT);
    let (number, rows) = match &tokens.get(2)?.token {
        token @ (Token::Number(..) | Token::Placeholder(_)) => (token.to_string(), 3),
        _ => ("1".to_string(), 2),
    };
    let ends = matches!(keyword(rows)?, Keyword::ROW | Keyword::ROWS)
        && keyword(rows + 1)? == Keyword::ONLY;
    let last = tokens.get(rows + 1)?;
    (begins && ends).then_some((number, last))
}

/// The byte of a place, whose lines and characters count from 1.
fn offset(sql: &str, place: Location) -> Option<usize> {
    let line = usize::try_from(place.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(place.column.checked_sub(1)?).ok()?;
    let start = match line {
        0 => 0,
        line => sql.match_indices('\n').nth(line - 1)?.0 + 1,
    };
    let mut characters = sql[start..].char_indices().map(|(at, _)| start + at);
    characters
        .nth(column)
        .or_else(|| (sql[start..].chars().count() == column).then_some(sql.len()))
}

#[cfg(test)]
mod tests {
    use super::as_limit;

    #[test]
    fn the_clause_alone_changes() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            (
                "SELECT 'é',\n a FROM t\nORDER BY a fetch next 7 row only; ",
                "SELECT 'é',\n a FROM t\nORDER BY a LIMIT 7; ",
            ),
            (
                "SELECT a FROM t OFFSET 2 ROWS FETCH NEXT ROWS ONLY",
                "SELECT a FROM t OFFSET 2 ROWS LIMIT 1",
            ),
            (
                "SELECT (SELECT b FROM u FETCH FIRST ROW ONLY) FROM t FETCH FIRST $1 ROWS ONLY -- FETCH FIRST 2 ROWS ONLY",
                "SELECT (SELECT b FROM u LIMIT 1) FROM t LIMIT $1 -- FETCH FIRST 2 ROWS ONLY",
            ),
            (
                "SELECT a FROM t FETCH FIRST 5 ROWS WITH TIES",
                "SELECT a FROM t FETCH FIRST 5 ROWS WITH TIES",
            ),
            (
                "SELECT 'FETCH FIRST 5 ROWS ONLY' AS fetch FROM t",
                "SELECT 'FETCH FIRST 5 ROWS ONLY' AS fetch FROM t",
            ),
            ("FETCH FORWARD 5 FROM c", "FETCH FORWARD 5 FROM c"),
            ("SELECT 'fetch", "SELECT 'fetch"),
        ] {
            assert_eq!(as_limit(sql), expected, "{sql}");
        }
    }
}
