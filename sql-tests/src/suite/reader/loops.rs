//! Loops of DuckDB's files: `loop i 0 10`, `foreach type INTEGER BIGINT`, `foreach a,b 1,2 3,4`.
//!
//! Those that DuckDB runs at the same time run one pass after the other.

use super::Line;

/// Most passes of a loop. Later ones repeat what the first do.
const PASSES: usize = 24;

/// Lists of types that files name, without those that only DuckDB has.
const LISTS: [(&str, &[&str]); 4] = [
    ("<integral>", &["TINYINT", "SMALLINT", "INTEGER", "BIGINT"]),
    ("<signed>", &["TINYINT", "SMALLINT", "INTEGER", "BIGINT"]),
    (
        "<numeric>",
        &[
            "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE",
        ],
    ),
    (
        "<alltypes>",
        &[
            "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "INTERVAL",
            "VARCHAR",
        ],
    ),
];

/// Lines before the `endloop` of a loop whose body begins here, or all.
pub(super) fn end(lines: &[Line]) -> usize {
    let mut open = 0;
    for (at, line) in lines.iter().enumerate() {
        match line.directive() {
            "loop" | "foreach" | "concurrentloop" | "concurrentforeach" => open += 1,
            "endloop" if open == 0 => return at,
            "endloop" => open -= 1,
            _ => {}
        }
    }
    lines.len()
}

/// The variables of each pass.
pub(super) fn passes(head: &str) -> Vec<Vec<(String, String)>> {
    let mut words = head.split_whitespace();
    let counts = words.next().is_some_and(|kind| kind.ends_with("loop"));
    let Some(names) = words.next() else {
        return vec![];
    };
    if counts {
        let mut bound = || words.next()?.parse::<i64>().ok();
        return match (bound(), bound()) {
            (Some(first), Some(end)) => (first..end)
                .take(PASSES)
                .map(|value| vec![(names.to_string(), value.to_string())])
                .collect(),
            _ => vec![],
        };
    }
    let names: Vec<&str> = names.split(',').collect();
    values(words)
        .iter()
        .take(PASSES)
        .map(|value| {
            let parts: Vec<&str> = match names.len() {
                // Commas may belong to the value: `decimal(4,1)`.
                1 => vec![value],
                _ => value.split(',').collect(),
            };
            let pairs = names.iter().zip(parts);
            pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect()
        })
        .collect()
}

/// The values that the words say: lists by name, without those that have a `!` before them.
fn values<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut values = Vec::new();
    for word in words {
        if let Some((_, list)) = LISTS.iter().find(|(name, _)| *name == word) {
            values.extend_from_slice(list);
        } else if let Some(without) = word.strip_prefix('!') {
            values.retain(|value| !value.eq_ignore_ascii_case(without));
        } else {
            values.push(word);
        }
    }
    values
}

/// The text with `${name}` and `{name}` replaced.
pub(super) fn replaced(text: &str, variables: &[(String, String)]) -> String {
    let mut text = text.to_string();
    for (name, value) in variables {
        if text.contains('{') {
            text = text.replace(&format!("${{{name}}}"), value);
            text = text.replace(&format!("{{{name}}}"), value);
        }
    }
    text
}
