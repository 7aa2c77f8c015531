//! What `onlyif` and `skipif` ask: SQLite's for the name of an engine, DuckDB's for the variable of a loop.

/// The engine for which files may have statements of their own.
const ENGINE: &str = "datafusion";

/// Operators, longer ones first.
const OPERATORS: [&str; 6] = ["<>", ">=", "<=", "=", ">", "<"];

/// Whether the condition of a line such as `onlyif mysql # why` or `skipif i>=1&&i<5` holds.
pub(super) fn holds(line: &str, variables: &[(String, String)]) -> bool {
    let text = line.split('#').next().unwrap_or_default();
    let text: String = text.split_whitespace().skip(1).collect();
    let all = |text: &str| text.split("&&").all(|part| part_holds(part, variables));
    text.split("||").any(all)
}

fn part_holds(part: &str, variables: &[(String, String)]) -> bool {
    let found = OPERATORS
        .iter()
        .filter_map(|operator| Some((part.find(operator)?, *operator)))
        // The first in the text, and of those that begin there the longest.
        .min_by_key(|(at, operator)| (*at, usize::MAX - operator.len()));
    let Some((at, operator)) = found else {
        return part.eq_ignore_ascii_case(ENGINE);
    };
    let (name, wanted) = (&part[..at], &part[at + operator.len()..]);
    let variable = variables.iter().rev().find(|(known, _)| known == name);
    // The line may have had its variable replaced already.
    let value = variable.map_or(name, |(_, value)| value.as_str());
    let order = match (value.parse::<i64>(), wanted.parse::<i64>()) {
        (Ok(value), Ok(wanted)) => value.cmp(&wanted),
        _ => value.cmp(wanted),
    };
    match operator {
        "<>" => order.is_ne(),
        ">=" => order.is_ge(),
        "<=" => order.is_le(),
        "=" => order.is_eq(),
        ">" => order.is_gt(),
        _ => order.is_lt(),
    }
}
