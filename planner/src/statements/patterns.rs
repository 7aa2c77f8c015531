//! Patterns that DataFusion reads otherwise than SQL says, or not at all: SIMILAR TO, LIKE with an ESCAPE of its own, `LIKE ANY`, `RLIKE` and
//! `substring(… FROM 'regular expression')`.
//!
//! Where a pattern is a constant, it is put in words that DataFusion knows. Others stay as they are.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, Value};

use crate::statements::replaced::{replace, replace_named};
use crate::statements::syntax::{expression, literal, text};

/// Puts the patterns of a statement in DataFusion's words; whether there was one.
pub(crate) fn in_known_words(statement: &mut Statement) -> bool {
    let tests = replace(statement, known);
    let parts = replace_named(statement, part);
    tests | parts
}

fn known(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => {
            let escape = match escape_char {
                Some(escape) => escape_of(&escape.value)?,
                None => Some('\\'),
            };
            let pattern = regular(text(pattern)?, escape)?;
            let matched = Expr::BinaryOp {
                left: Box::new(Expr::Nested(expr.clone())),
                op: match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                },
                right: Box::new(literal(pattern)),
            };
            Some(Expr::Nested(Box::new(matched)))
        }
        Expr::RLike {
            negated,
            expr,
            pattern,
            ..
        } => {
            let matched = Expr::BinaryOp {
                left: expr.clone(),
                op: match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                },
                right: pattern.clone(),
            };
            Some(Expr::Nested(Box::new(matched)))
        }
        Expr::Like {
            any: true,
            negated: false,
            pattern,
            ..
        }
        | Expr::ILike {
            any: true,
            negated: false,
            pattern,
            ..
        } => any_of(expr, pattern),
        Expr::Like {
            any: false,
            pattern,
            escape_char: Some(escape),
            ..
        }
        | Expr::ILike {
            any: false,
            pattern,
            escape_char: Some(escape),
            ..
        } => {
            let known = literal(with_backslash(pattern, &escape.value)?);
            let mut other = expr.clone();
            if let Expr::Like {
                pattern,
                escape_char,
                ..
            }
            | Expr::ILike {
                pattern,
                escape_char,
                ..
            } = &mut other
            {
                **pattern = known;
                *escape_char = None;
            }
            Some(other)
        }
        _ => None,
    }
}

/// `x LIKE ANY (ARRAY['a%', 'b%'])`, or of a list: like one pattern or another.
fn any_of(expr: &Expr, patterns: &Expr) -> Option<Expr> {
    let patterns = match patterns {
        Expr::Array(array) => &array.elem[..],
        Expr::Tuple(list) => &list[..],
        Expr::Nested(one) => return any_of(expr, one),
        one => std::slice::from_ref(one),
    };
    let tests = patterns.iter().map(|one| {
        let mut test = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut test {
            *any = false;
            **pattern = one.clone();
        }
        known(&test).unwrap_or(test)
    });
    let any = tests.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Or,
        right: Box::new(right),
    });
    any.map(|any| Expr::Nested(Box::new(any)))
}

/// `substring(x FROM 'regular expression')`: what its first group matches, or all of it.
fn part(expr: &Expr) -> Option<Expr> {
    let Expr::Substring {
        expr,
        substring_from: Some(pattern),
        substring_for: None,
        ..
    } = expr
    else {
        return None;
    };
    let pattern = literal(text(pattern)?.to_string());
    expression(&format!("(regexp_match({expr}, {pattern}))[1]"))
}

/// The character that ESCAPE names; none where that is empty. `None` where it is no such character.
fn escape_of(value: &Value) -> Option<Option<char>> {
    let Value::SingleQuotedString(text) = value else {
        return None;
    };
    let mut characters = text.chars();
    let first = characters.next();
    characters.next().is_none().then_some(first)
}

/// A pattern of LIKE whose escape is the backslash.
fn with_backslash(pattern: &Expr, escape: &Value) -> Option<String> {
    let (pattern, escape) = (text(pattern)?, escape_of(escape)?);
    if escape == Some('\\') {
        return None;
    }
    let mut known = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let escaped = Some(character) == escape;
        // An escape at the end is an error, which stays DataFusion's.
        let character = if escaped {
            characters.next()?
        } else {
            character
        };
        if character == '\\' || escaped && matches!(character, '%' | '_') {
            known.push('\\');
        }
        known.push(character);
    }
    Some(known)
}

/// The regular expression of a pattern of SIMILAR TO, which is about the whole text.
fn regular(pattern: &str, escape: Option<char>) -> Option<String> {
    let mut regular = String::from("(?s)^(?:");
    let mut characters = pattern.chars();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            push_plain(&mut regular, characters.next()?);
            continue;
        }
        match character {
            '[' if !in_class => {
                in_class = true;
                regular.push('[');
            }
            ']' if in_class => {
                in_class = false;
                regular.push(']');
            }
            '\\' | '[' if in_class => {
                regular.push('\\');
                regular.push(character);
            }
            _ if in_class => regular.push(character),
            '%' => regular.push_str(".*"),
            '_' => regular.push('.'),
            '(' => regular.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => regular.push(character),
            _ => push_plain(&mut regular, character),
        }
    }
    regular.push_str(")$");
    (!in_class).then_some(regular)
}

/// A character that means itself.
fn push_plain(regular: &mut String, character: char) {
    if r"\.+*?()|[]{}^$#&-~".contains(character) {
        regular.push('\\');
    }
    regular.push(character);
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn patterns_are_those_of_sql() {
        let context = SessionContext::new();
        for (test, met) in [
            ("'abc' SIMILAR TO 'a%'", true),
            ("'abc' SIMILAR TO 'b'", false),
            ("'abc' SIMILAR TO 'a_c'", true),
            ("'abc' SIMILAR TO '(x|a)b[b-d]'", true),
            ("'abbbc' SIMILAR TO 'ab{2,3}c'", true),
            ("'a.c' SIMILAR TO 'a.c'", true),
            ("'abc' SIMILAR TO 'a.c'", false),
            ("'abc' NOT SIMILAR TO 'x%'", true),
            ("'a%c' SIMILAR TO 'a!%c' ESCAPE '!'", true),
            ("'abc' SIMILAR TO 'a!%c' ESCAPE '!'", false),
            ("'a' || E'\\n' || 'c' SIMILAR TO 'a%c'", true),
            ("true AND 'abc' SIMILAR TO 'a%' AND true", true),
            ("'10%' LIKE '%!%' ESCAPE '!'", true),
            ("'100' LIKE '10!%' ESCAPE '!'", false),
            ("'a\\b_c' LIKE 'a\\b#_c' ESCAPE '#'", true),
            ("'a\\bxc' LIKE 'a\\b#_c' ESCAPE '#'", false),
            ("'A!B' ILIKE 'a!!b' ESCAPE '!'", true),
            ("'10%' NOT LIKE '%!%' ESCAPE '!'", false),
            ("'abc' RLIKE '^a.c$' AND 'abc' NOT REGEXP 'd'", true),
            ("'abc' LIKE ANY (ARRAY['x%', '_b%'])", true),
            ("'abc' LIKE ANY ('x%', 'b%')", false),
            ("'ABC' ILIKE ANY (ARRAY['a!%', 'a%']) AND true", true),
            ("substring('order 1234 of 7' FROM '[0-9]+') = '1234'", true),
            ("substring('key=value' FROM 'key=([a-z]+)') = 'value'", true),
            ("substring('abc' FROM '[0-9]+') IS NULL", true),
            ("substring('abc' FROM 2) = 'bc'", true),
        ] {
            let found = answer(&context, &format!("SELECT ({test}) AS b")).await;
            let expected = answer(&context, &format!("SELECT {met} AS b")).await;
            assert_eq!(found, expected, "{test}");
        }
    }
}
