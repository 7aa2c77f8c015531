//! `t PIVOT (sum(x) FOR k IN ('a', 'b'))` and `t UNPIVOT (x FOR k IN (a, b))`, as groups with filters and as lists taken apart.
//!
//! A pivot's rows are grouped by all columns but those that it names; a column a value is called as the value, or as it and the
//! aggregate where that has a name. An unpivot leaves out NULLs unless it includes them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Ident, NullInclusion, PivotValueSource, Statement, TableAlias,
    TableFactor, Value, VisitMut, VisitorMut, visit_expressions,
};

use crate::statements::syntax::derived;

/// Puts queries in the place of such tables; whether there were any.
pub(crate) fn as_queries(statement: &mut Statement) -> bool {
    let mut pivots = Pivots { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut pivots);
    pivots.changed
}

struct Pivots {
    changed: bool,
}

impl VisitorMut for Pivots {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let Some(query) = pivoted(table).or_else(|| unpivoted(table)) {
            *table = query;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

fn pivoted(table: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Pivot {
        table,
        aggregate_functions,
        value_column,
        value_source: PivotValueSource::List(values),
        default_on_null: None,
        alias,
    } = table
    else {
        return None;
    };
    let [key] = &value_column[..] else {
        return None;
    };
    let mut used = columns_of(key);
    let mut outputs = Vec::new();
    for value in values {
        let of_value = named(value)?;
        for aggregate in aggregate_functions {
            used.extend(columns_of(&aggregate.expr));
            let name = match &aggregate.alias {
                Some(alias) => format!("{of_value}_{}", alias.value),
                None => of_value.clone(),
            };
            outputs.push(format!(
                "{} FILTER (WHERE {key} = {}) AS {}",
                aggregate.expr,
                value.expr,
                quoted(&name)
            ));
        }
    }
    let used: Vec<String> = used.into_iter().collect();
    let text = format!(
        "SELECT * EXCLUDE ({}), {} FROM {table} GROUP BY ALL",
        used.join(", "),
        outputs.join(", ")
    );
    derived(&text, &alias_or(alias.as_ref()))
}

fn unpivoted(table: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Unpivot {
        table,
        value,
        name,
        columns,
        null_inclusion,
        alias,
    } = table
    else {
        return None;
    };
    let used: BTreeSet<String> = columns.iter().flat_map(|c| columns_of(&c.expr)).collect();
    let used: Vec<String> = used.into_iter().collect();
    let names = columns.iter().map(|column| Some(text_of(&named(column)?)));
    let names: Vec<String> = names.collect::<Option<_>>()?;
    let values: Vec<String> = columns.iter().map(|c| c.expr.to_string()).collect();
    let known = match null_inclusion {
        Some(NullInclusion::IncludeNulls) => String::new(),
        _ => format!(" WHERE {value} IS NOT NULL"),
    };
    let text = format!(
        "SELECT * FROM (SELECT * EXCLUDE ({}), unnest(make_array({})) AS {name}, unnest(make_array({})) AS {value} FROM {table}) AS __unpivoted{known}",
        used.join(", "),
        names.join(", "),
        values.join(", ")
    );
    derived(&text, &alias_or(alias.as_ref()))
}

/// The columns that an expression names, as it writes them.
fn columns_of(expr: &Expr) -> BTreeSet<String> {
    let mut columns = BTreeSet::new();
    let _: ControlFlow<()> = visit_expressions(expr, |part| {
        match part {
            Expr::Identifier(name) => {
                columns.insert(name.to_string());
            }
            Expr::CompoundIdentifier(names) => columns.extend(names.last().map(Ident::to_string)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    columns
}

/// What a value or a column is called.
fn named(of: &ExprWithAlias) -> Option<String> {
    if let Some(alias) = &of.alias {
        return Some(alias.value.clone());
    }
    Some(match &of.expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last()?.value.clone(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => text.clone(),
            _ => return None,
        },
        _ => return None,
    })
}

/// How the table is called.
fn alias_or(alias: Option<&TableAlias>) -> String {
    alias.map_or_else(|| "__pivoted".to_string(), ToString::to_string)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn text_of(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn rows_become_columns_and_back() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS id, column2 AS k, column3 AS x FROM (VALUES (1, 'a', 5), (1, 'b', 7), (2, 'a', 1), (2, 'a', 2), (3, 'c', 9))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT * FROM t PIVOT (sum(x) FOR k IN ('a', 'b' AS bee)) ORDER BY id",
                "SELECT id, sum(CASE WHEN k = 'a' THEN x END) AS a, sum(CASE WHEN k = 'b' THEN x END) AS bee FROM t GROUP BY id ORDER BY id",
            ),
            (
                "SELECT p.id, a_n + a_hi AS s FROM (SELECT * FROM t WHERE id < 3) PIVOT (count(x) AS n, max(x) AS hi FOR k IN ('a')) AS p ORDER BY 1",
                "SELECT id, count(*) + max(x) AS s FROM t WHERE k = 'a' AND id < 3 GROUP BY id ORDER BY 1",
            ),
            (
                "SELECT * FROM (SELECT id, x, nullif(x, 7) AS y FROM t WHERE k <> 'c') UNPIVOT (v FOR what IN (x, y AS other)) ORDER BY id, what, v",
                "SELECT id, 'x' AS what, x AS v FROM t WHERE k <> 'c' UNION ALL SELECT id, 'other', x FROM t WHERE k <> 'c' AND x <> 7 ORDER BY id, what, v",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
