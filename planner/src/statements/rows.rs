//! Comparisons of rows of values: `(a, b) < (c, d)`, `(a, b) IN ((1, 2), (3, 4))`, `(a, b) IS NULL`, `(a, b) OVERLAPS (c, d)`.
//!
//! DataFusion compares them as values of their own, in an order in which NULL is one. They are put as the comparisons of their values that
//! SQL says they are (ISO/IEC 9075-2, 8.2, 8.8 and 8.14).

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::{arguments, expression, is_call};

/// Most rows in a list that are compared one by one.
const MOST_ROWS: usize = 64;

/// Puts comparisons of values in the place of such of rows; whether there were any.
pub(crate) fn as_comparisons(statement: &mut Statement) -> bool {
    replace_named(statement, compared)
}

fn compared(expr: &Expr) -> Option<Expr> {
    let text = match expr {
        Expr::BinaryOp { left, op, right } => match (values(left)?, right.as_ref()) {
            (left, Expr::Subquery(subquery)) => of_one_row(&left, op, &subquery.to_string())?,
            (left, right) => by_values(&left, op, &values(right)?)?,
        },
        Expr::IsDistinctFrom(left, right) => {
            each(&values(left)?, &values(right)?, "IS DISTINCT FROM", " OR ")?
        }
        Expr::IsNotDistinctFrom(left, right) => each(
            &values(left)?,
            &values(right)?,
            "IS NOT DISTINCT FROM",
            " AND ",
        )?,
        Expr::InList {
            expr,
            list,
            negated,
        } if list.len() <= MOST_ROWS => {
            let row = values(expr)?;
            let equal = list
                .iter()
                .map(|other| each(&row, &values(other)?, "=", " AND "));
            let equal: Vec<String> = equal.collect::<Option<_>>()?;
            let not = if *negated { "NOT " } else { "" };
            format!("{not}({})", equal.join(" OR "))
        }
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => {
            let row = values(expr)?;
            let above = by_values(&row, &BinaryOperator::GtEq, &values(low)?)?;
            let below = by_values(&row, &BinaryOperator::LtEq, &values(high)?)?;
            let not = if *negated { "NOT " } else { "" };
            format!("{not}({above} AND {below})")
        }
        Expr::IsNull(row) => all(&values(row)?, "IS NULL"),
        Expr::IsNotNull(row) => all(&values(row)?, "IS NOT NULL"),
        _ => return None,
    };
    expression(&format!("({text})"))
}

/// The values of a row, each as a text in brackets.
fn values(expr: &Expr) -> Option<Vec<String>> {
    let values = match expr {
        Expr::Nested(inner) => return values(inner),
        Expr::Tuple(values) => values.iter().collect(),
        Expr::Function(call) if is_call(expr, "row") => arguments(call)?,
        _ => return None,
    };
    (values.len() > 1).then(|| values.iter().map(|value| format!("({value})")).collect())
}

/// The comparisons of values, one by one; `None` where there are more in one row.
fn each(left: &[String], right: &[String], op: &str, joined: &str) -> Option<String> {
    let same = left.len() == right.len();
    let pairs = left.iter().zip(right);
    let each: Vec<String> = pairs.map(|(l, r)| format!("({l} {op} {r})")).collect();
    same.then(|| format!("({})", each.join(joined)))
}

fn all(values: &[String], what: &str) -> String {
    let each: Vec<String> = values
        .iter()
        .map(|value| format!("{value} {what}"))
        .collect();
    each.join(" AND ")
}

/// Rows compared by their first values, then by those behind where these are equal.
fn by_values(left: &[String], op: &BinaryOperator, right: &[String]) -> Option<String> {
    match op {
        BinaryOperator::Eq => return each(left, right, "=", " AND "),
        BinaryOperator::NotEq => return each(left, right, "<>", " OR "),
        BinaryOperator::Overlaps => return overlap(left, right),
        BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {}
        _ => return None,
    }
    if left.len() != right.len() {
        return None;
    }
    let strictly = match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => "<",
        _ => ">",
    };
    let mut pairs = left.iter().zip(right).rev();
    let (l, r) = pairs.next()?;
    let last = format!("{l} {op} {r}");
    Some(pairs.fold(last, |behind, (l, r)| {
        format!("({l} {strictly} {r} OR ({l} = {r} AND ({behind})))")
    }))
}

/// Whether two periods have a point in common. Ends may come in any order, or be lengths of intervals.
fn overlap(left: &[String], right: &[String]) -> Option<String> {
    let ([a, b], [c, d]) = (left, right) else {
        return None;
    };
    let end = |start: &str, end: &str| match end.starts_with("(INTERVAL") {
        true => format!("({start} + {end})"),
        false => end.to_string(),
    };
    let (b, d) = (end(a, b), end(c, d));
    let (first, last) = (format!("least({a}, {b})"), format!("greatest({a}, {b})"));
    let (other, end) = (format!("least({c}, {d})"), format!("greatest({c}, {d})"));
    Some(format!(
        "{first} = {other} OR ({first} < {end} AND {other} < {last})"
    ))
}

/// A row compared with that of a subquery, which is asked for each of its values.
fn of_one_row(left: &[String], op: &BinaryOperator, subquery: &str) -> Option<String> {
    let names: Vec<String> = (1..=left.len()).map(|n| format!("__column_{n}")).collect();
    let all = names.join(", ");
    let right: Vec<String> = names
        .iter()
        .map(|name| format!("(SELECT {name} FROM ({subquery}) AS __row({all}))"))
        .collect();
    by_values(left, op, &right)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn rows_are_compared_by_their_values() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "SELECT (1, 2) = (1, 2) AS a, (1, NULL) = (1, 2) AS b, (2, NULL) = (1, 2) AS c, (1, 2) <> (1, NULL) AS d",
                "SELECT true AS a, CAST(NULL AS BOOLEAN) AS b, false AS c, CAST(NULL AS BOOLEAN) AS d",
            ),
            (
                "SELECT (1, NULL) < (2, 1) AS a, (1, NULL) < (1, 2) AS b, (1, 2, 3) <= (1, 2, 3) AS c, (1, 2, 4) < (1, 2, 3) AS d, ROW(2, 1) > ROW(1, 9) AS e",
                "SELECT true AS a, CAST(NULL AS BOOLEAN) AS b, true AS c, false AS d, true AS e",
            ),
            (
                "SELECT (1 + 1, 'x') IN ((1, 'x'), (2, 'x')) AS a, (1, 'y') NOT IN ((1, 'x'), (2, 'x')) AS b, (1, NULL) NOT IN ((1, 2)) AS c",
                "SELECT true AS a, true AS b, CAST(NULL AS BOOLEAN) AS c",
            ),
            (
                "SELECT (1, NULL) IS NULL AS a, ROW(NULL, NULL) IS NULL AS b, (1, NULL) IS NOT NULL AS c, (1, 2) IS NOT NULL AS d, (1, NULL) IS DISTINCT FROM (1, NULL) AS e",
                "SELECT false AS a, true AS b, false AS c, true AS d, false AS e",
            ),
            (
                "SELECT (1, 5) BETWEEN (1, 4) AND (2, 0) AS a, (3, 0) BETWEEN (1, 4) AND (2, 0) AS b",
                "SELECT true AS a, false AS b",
            ),
            (
                "SELECT (DATE '2024-01-01', DATE '2024-02-01') OVERLAPS (DATE '2024-01-15', DATE '2024-03-01') AS a, (DATE '2024-01-01', DATE '2024-02-01') OVERLAPS (DATE '2024-02-01', DATE '2024-03-01') AS b, (DATE '2024-01-01', INTERVAL '40 days') OVERLAPS (DATE '2024-03-01', DATE '2024-02-01') AS c",
                "SELECT true AS a, false AS b, true AS c",
            ),
            (
                "SELECT count(*) AS n FROM generate_series(1, 9) AS s(x) WHERE (x, 2) = (SELECT max(value), 2 FROM generate_series(1, 4))",
                "SELECT 1 AS n",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
