//! Numbers whose digits stand in groups: `1_000_000`, which DataFusion reads as a 1 that is called `_000_000`.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// The text with such numbers in one group; `None` where there are none.
pub(crate) fn in_one_group(sql: &str) -> Option<String> {
    let grouped =
        |three: &[u8]| three[0].is_ascii_digit() && three[1] == b'_' && three[2].is_ascii_digit();
    if !sql.as_bytes().windows(3).any(grouped) {
        return None;
    }
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, sql).with_unescape(false);
    let mut tokens = tokenizer.tokenize().ok()?;
    let mut changed = false;
    for at in 1..tokens.len() {
        let digits = match (&tokens[at - 1], &tokens[at]) {
            (Token::Number(first, false), Token::Word(word)) if word.quote_style.is_none() => {
                word.value.strip_prefix('_').and_then(|rest| {
                    let groups = rest.split('_');
                    let digits = |group: &str| {
                        !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit())
                    };
                    groups
                        .clone()
                        .all(digits)
                        .then(|| groups.fold(first.clone(), |all, group| all + group))
                })
            }
            _ => None,
        };
        if let Some(digits) = digits {
            tokens[at - 1] = Token::make_word("", None);
            tokens[at] = Token::Number(digits, false);
            changed = true;
        }
    }
    changed.then(|| tokens.iter().map(Token::to_string).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::in_one_group;

    #[test]
    fn groups_of_digits() {
        for (written, one) in [
            ("SELECT 1_000_000 + 1_0", "SELECT 1000000 + 10"),
            ("SELECT 12_000.5, x1_0", "SELECT 12000.5, x1_0"),
        ] {
            assert_eq!(in_one_group(written).unwrap(), one);
        }
        for other in [
            "SELECT 1 _000",
            "SELECT '1_000', \"1_0\", t1_2 FROM a_1",
            "SELECT 1_a, 1__0",
            "SELECT '1_0",
        ] {
            assert_eq!(in_one_group(other), None, "{other}");
        }
    }
}
