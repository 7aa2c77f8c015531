//! SQL text with several statements, cut at the semicolons between them.

/// The statements, without semicolons and without those that are empty. Semicolons in quotes and comments cut nothing.
pub(super) fn statements(sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while let Some(rest) = sql.get(at..) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if first == ';' {
            found.push(&sql[begin..at]);
            begin = at + 1;
        }
        at += token(rest, first);
    }
    found.push(sql.get(begin..).unwrap_or_default());
    found.retain(|sql| !is_empty(sql));
    found.iter().map(|sql| sql.trim()).collect()
}

/// Bytes of what begins here: a quoted text or a comment as a whole, else a character.
fn token(rest: &str, first: char) -> usize {
    let through = |from: usize, end: &str| {
        let tail = rest.get(from..).unwrap_or_default();
        tail.find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    match first {
        '\'' | '"' => through(1, if first == '"' { "\"" } else { "'" }),
        '-' if rest.starts_with("--") => through(2, "\n"),
        '/' if rest.starts_with("/*") => through(2, "*/"),
        '$' => match dollar_tag(rest) {
            Some(tag) => through(tag.len(), tag),
            None => 1,
        },
        _ => first.len_utf8(),
    }
}

/// `$$` or `$name$`, which begins and ends a text.
fn dollar_tag(rest: &str) -> Option<&str> {
    let length = rest.get(1..)?.find('$')?;
    let tag = rest.get(..length + 2)?;
    let name = &tag[1..tag.len() - 1];
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(tag)
}

/// Whether nothing but white space and comments is there.
fn is_empty(sql: &str) -> bool {
    let mut at = 0;
    while let Some(rest) = sql.get(at..) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        let is_comment = rest.starts_with("--") || rest.starts_with("/*");
        if !first.is_whitespace() && !is_comment {
            return false;
        }
        at += token(rest, first);
    }
    true
}
