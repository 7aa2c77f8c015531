//! Queries, tables and settings as SQL.

use std::fmt::Write as _;

use arrow::array::Array;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::query::{Body, Expr, Key, Node, Query, Relation, Select, Source};
use super::table::{STRUCTS, Table};
use super::value::{Value, array};

/// A query.
pub fn query(of: &Query) -> String {
    let mut text = String::new();
    let recursive = of.ctes.iter().any(|(name, cte)| cte.refers_to(name));
    for (i, (name, cte)) in of.ctes.iter().enumerate() {
        let begin = match (i, recursive) {
            (0, true) => "WITH RECURSIVE ",
            (0, false) => "WITH ",
            _ => ", ",
        };
        let _ = write!(text, "{begin}{name} AS ({})", query(cte));
    }
    if !of.ctes.is_empty() {
        text.push(' ');
    }
    match &of.body {
        Body::Select(of) => text.push_str(&select(of)),
        Body::Set {
            operator,
            left,
            right,
        } => {
            let _ = write!(text, "({}) {operator} ({})", query(left), query(right));
        }
    }
    if !of.order.is_empty() {
        let keys: Vec<String> = of.order.iter().map(key).collect();
        let _ = write!(text, " ORDER BY {}", keys.join(", "));
    }
    if let Some(limit) = of.limit {
        let _ = write!(text, " LIMIT {limit}");
    }
    if let Some(offset) = of.offset {
        let _ = write!(text, " OFFSET {offset}");
    }
    text
}

fn key(of: &Key) -> String {
    let direction = if of.descending { " DESC" } else { "" };
    let nulls = match of.nulls_first {
        None => "",
        Some(true) => " NULLS FIRST",
        Some(false) => " NULLS LAST",
    };
    format!("c{}{direction}{nulls}", of.column)
}

fn select(of: &Select) -> String {
    let distinct = if of.distinct { "DISTINCT " } else { "" };
    let items = of
        .items
        .iter()
        .enumerate()
        .map(|(i, item)| format!("{} AS c{i}", expr(item)));
    let mut text = format!("SELECT {distinct}{}", list(items));
    for (i, of) in of.sources.iter().enumerate() {
        text.push_str(&source(of, i == 0));
    }
    if !of.filter.is_empty() {
        let _ = write!(text, " WHERE {}", all(&of.filter));
    }
    if let Some(keys) = of.group.as_ref().filter(|keys| !keys.is_empty()) {
        let keys = list(keys.iter().map(expr));
        let _ = match of.rollup {
            true => write!(text, " GROUP BY ROLLUP ({keys})"),
            false => write!(text, " GROUP BY {keys}"),
        };
    }
    if !of.having.is_empty() {
        let _ = write!(text, " HAVING {}", all(&of.having));
    }
    text
}

fn source(of: &Source, first: bool) -> String {
    let relation = match &of.relation {
        Relation::Named(name) if *name == of.alias => name.clone(),
        Relation::Named(name) => format!("{name} AS {}", of.alias),
        Relation::Derived(inner) => format!("({}) AS {}", query(inner), of.alias),
    };
    if first {
        return format!(" FROM {relation}");
    }
    let words = of.join.words();
    match of.on.is_empty() {
        true if of.join == super::query::Join::Cross => format!(" {words} {relation}"),
        true => format!(" {words} {relation} ON true"),
        false => format!(" {words} {relation} ON {}", all(&of.on)),
    }
}

fn all(conditions: &[Expr]) -> String {
    let texts: Vec<String> = conditions.iter().map(expr).collect();
    texts.join(" AND ")
}

fn list(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

/// An expression.
pub fn expr(of: &Expr) -> String {
    match &of.node {
        Node::Column { relation, name } => format!("{relation}.{name}"),
        Node::Literal(text) => text.clone(),
        Node::Call { form, operands } => {
            let mut text = String::new();
            let mut operands = operands.iter();
            for (i, piece) in form.split("{}").enumerate() {
                if i > 0 {
                    text.push_str(&operands.next().map(expr).unwrap_or_default());
                }
                text.push_str(piece);
            }
            text
        }
        Node::Aggregate {
            function,
            distinct,
            argument,
            filter,
        } => {
            let distinct = if *distinct { "DISTINCT " } else { "" };
            let argument = argument.as_ref().map_or("*".to_string(), |a| expr(a));
            let filter = filter.as_ref().map_or(String::new(), |condition| {
                format!(" FILTER (WHERE {})", expr(condition))
            });
            // In an order that tells all values apart, or the answer is none.
            let rest = match *function {
                "string_agg" => format!(", '|' ORDER BY {argument}"),
                _ => String::new(),
            };
            format!("{function}({distinct}{argument}{rest}){filter}")
        }
        Node::Subquery {
            negated,
            value,
            query: inner,
        } => {
            let not = if *negated { "NOT " } else { "" };
            match value {
                None => format!("{not}EXISTS ({})", query(inner)),
                Some(value) => format!("({} {not}IN ({}))", expr(value), query(inner)),
            }
        }
        Node::Scalar(inner) => format!("({})", query(inner)),
    }
}

/// `SET key = 'value'`.
pub fn set(key: &str, value: &str) -> String {
    format!("SET {key} = '{value}'")
}

/// A statement that makes the table, rows and types, in memory.
pub fn create_table(of: &Table) -> String {
    let typed = of.columns.iter().enumerate().map(|(i, column)| {
        let value = match column.data_type {
            // Of its characters.
            DataType::List(_) => format!("string_to_array(column{}, NULL)", i + 1),
            _ => format!("arrow_cast(column{}, '{}')", i + 1, column.data_type),
        };
        (column, value)
    });
    let (within, own): (Vec<_>, Vec<_>) = typed.partition(|(column, _)| column.within);
    let mut columns: Vec<String> = own
        .iter()
        .map(|(column, value)| format!("{value} AS {}", column.name))
        .collect();
    if !within.is_empty() {
        let fields = within
            .iter()
            .map(|(column, value)| format!("'{}', {value}", column.name));
        columns.push(format!("named_struct({}) AS {STRUCTS}", list(fields)));
    }
    let cells: Vec<Vec<String>> = of
        .columns
        .iter()
        .map(|column| match array(&column.data_type, &column.values) {
            Ok(array) => (0..array.len())
                .map(|row| cell(&array, row, &column.values[row]))
                .collect(),
            Err(error) => vec![format!("<{error}>"); column.values.len()],
        })
        .collect();
    let mut rows: Vec<String> = (0..of.rows())
        .map(|row| format!("({})", list(cells.iter().map(|column| column[row].clone()))))
        .collect();
    let nothing = if rows.is_empty() { " WHERE false" } else { "" };
    if rows.is_empty() {
        rows.push(format!(
            "({})",
            list(of.columns.iter().map(|_| "NULL".to_string()))
        ));
    }
    format!(
        "CREATE TABLE {} AS SELECT {} FROM (VALUES {}) AS v{nothing}",
        of.name,
        list(columns.into_iter()),
        rows.join(", ")
    )
}

/// A cell as a string, or as a number where a string would do as well: casts read all types from strings.
fn cell(array: &dyn Array, row: usize, value: &Value) -> String {
    if array.is_null(row) {
        return "NULL".into();
    }
    if let (Value::Int(i), true) = (value, array.data_type().is_integer())
        && i.abs() < 1 << 53
    {
        return i.to_string();
    }
    let quoted = |text: String| format!("'{}'", text.replace('\'', "''"));
    if let (Value::Text(text), DataType::List(_)) = (value, array.data_type()) {
        return quoted(text.clone());
    }
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(array, &options)
        .and_then(|formatter| formatter.value(row).try_to_string());
    match text {
        Ok(text) => quoted(text),
        Err(error) => format!("<{error}>"),
    }
}
