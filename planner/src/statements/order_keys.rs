//! Sort keys that bear the name of an output column and are not that column.
//!
//! `SELECT coalesce(t.x, 0) AS x FROM t ORDER BY t.x`: DataFusion carries `t.x` through the projection beside `x`, which it then
//! finds ambiguous. Such a query becomes one that computes outputs and keys under names of their own, and one around it that sorts.
//!
//! So does `SELECT sum(x) AS x … ORDER BY max(x)`: within an expression a name is an input's, and DataFusion takes it for the output's
//! and has no plan for an aggregate of an aggregate.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::statements::syntax::{
    is_aggregate, is_call, named, normal, number, quoted, schema_error, some,
};

/// Whether planning failed with names that are ambiguous.
pub(crate) fn is_ambiguous(error: &DataFusionError) -> bool {
    matches!(
        schema_error(error),
        Some(SchemaError::AmbiguousReference { .. })
    )
}

/// Gives the sort keys of all queries in a statement names of their own, where they need it; whether any did.
pub(crate) fn set_apart(statement: &mut Statement) -> bool {
    apart(statement, clashes)
}

/// The same where aggregates are of what is called like an output. A key that is an output becomes its number.
pub(crate) fn aggregates_apart(statement: &mut Statement) -> bool {
    let mut numbers = Numbers { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut numbers);
    let apart = apart(statement, |key, outputs| {
        names_an_output(key, outputs, true)
    });
    numbers.changed | apart
}

/// Puts the numbers of outputs in the place of sort keys of aggregates.
struct Numbers {
    changed: bool,
}

impl VisitorMut for Numbers {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return ControlFlow::Continue(());
        };
        let outputs = select.projection.iter().map(Output::of);
        let (Some(outputs), Some(order)) = (
            outputs.collect::<Option<Vec<Output>>>(),
            &mut query.order_by,
        ) else {
            return ControlFlow::Continue(());
        };
        let OrderByKind::Expressions(keys) = &mut order.kind else {
            return ControlFlow::Continue(());
        };
        for key in keys {
            let output = outputs.iter().position(|output| output.expr == key.expr);
            if let Some(output) = output
                && names_an_output(&key.expr, &outputs, true)
            {
                key.expr = number(output + 1);
                self.changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a key bears the name of one of the outputs and is another value.
type Clashes = fn(&Expr, &[Output]) -> bool;

fn apart(statement: &mut Statement, clashes: Clashes) -> bool {
    let mut keys = Keys {
        clashes,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut keys);
    keys.changed
}

/// The same of a text; `None` where nothing changes.
///
/// ```
/// let sql = "SELECT abs(t.x) AS x FROM t ORDER BY t.x LIMIT 3";
/// let apart = warpline_planner::statements::order_keys::text_apart(sql);
/// assert!(apart.is_some_and(|text| text.contains("__key_0") && text.ends_with("LIMIT 3")));
/// for sql in [
///     "SELECT t.x FROM t ORDER BY t.x",
///     "SELECT a.x, b.x FROM a, b ORDER BY a.x",
///     "SELECT abs(a.x) AS x, b.x FROM a, b ORDER BY a.x",
/// ] {
///     assert_eq!(warpline_planner::statements::order_keys::text_apart(sql), None);
/// }
/// ```
pub fn text_apart(sql: &str) -> Option<String> {
    // Whoever plans it says what is wrong with it.
    let mut statements = Parser::parse_sql(&GenericDialect {}, sql).ok()?;
    let mut changed = false;
    for statement in &mut statements {
        changed |= set_apart(statement);
    }
    let texts: Vec<String> = statements.iter().map(Statement::to_string).collect();
    changed.then(|| texts.join("; "))
}

struct Keys {
    clashes: Clashes,
    changed: bool,
}

impl VisitorMut for Keys {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(apart) = sorted_around(query, self.clashes) {
            *query = apart;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// What an output column is called, and of what.
struct Output {
    name: Ident,
    expr: Expr,
}

impl Output {
    /// That of an item that is one; it is called as it is written where it has no name.
    fn of(item: &SelectItem) -> Option<Self> {
        let (name, expr) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (alias.clone(), expr),
            SelectItem::UnnamedExpr(expr) => match expr {
                Expr::Identifier(name) => (name.clone(), expr),
                Expr::CompoundIdentifier(names) => (names.last()?.clone(), expr),
                other => (quoted(&other.to_string()), expr),
            },
            _ => return None,
        };
        let expr = expr.clone();
        Some(Self { name, expr })
    }
}

fn sorted_around(query: &Query, clashes: Clashes) -> Option<Query> {
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else {
        return None;
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let outputs = outputs(select)?;
    if !keys.iter().any(|key| clashes(&key.expr, &outputs)) {
        return None;
    }
    let mut inner = Select::clone(select);
    inner.projection = outputs
        .iter()
        .enumerate()
        .map(|(number, output)| named(output.expr.clone(), &output_name(number)))
        .collect();
    let mut sorts = Vec::with_capacity(keys.len());
    for (number, key) in keys.iter().enumerate() {
        let name = match output_of(&key.expr, &outputs) {
            Some(output) => output_name(output),
            None if names_an_output(&key.expr, &outputs, false) => return None,
            None => {
                let name = format!("__key_{number}");
                inner.projection.push(named(key.expr.clone(), &name));
                name
            }
        };
        sorts.push(OrderByExpr {
            expr: Expr::Identifier(quoted(&name)),
            ..key.clone()
        });
    }
    let mut around = template()?;
    let SetExpr::Select(outer) = around.body.as_mut() else {
        return None;
    };
    let [table] = &mut *outer.from else {
        return None;
    };
    let TableFactor::Derived { subquery, .. } = &mut table.relation else {
        return None;
    };
    *subquery.body = SetExpr::Select(Box::new(inner));
    outer.projection = outputs
        .into_iter()
        .enumerate()
        .map(|(number, output)| SelectItem::ExprWithAlias {
            expr: Expr::Identifier(quoted(&output_name(number))),
            alias: output.name,
        })
        .collect();
    let mut made = query.clone();
    made.body = around.body;
    if let Some(order) = &mut made.order_by {
        order.kind = OrderByKind::Expressions(sorts);
    }
    Some(made)
}

/// The output columns of a selection; `None` where they cannot be moved or are not in the text.
fn outputs(select: &Select) -> Option<Vec<Output>> {
    if select.distinct.is_some() || select.into.is_some() || select.top.is_some() {
        return None;
    }
    let outputs = select.projection.iter().map(Output::of);
    let outputs: Vec<Output> = outputs.collect::<Option<_>>()?;
    // What a query yields may have one name twice, but not what is around it.
    let twice = |at: usize| {
        let name = &outputs[at].name;
        outputs[..at].iter().any(|other| same(&other.name, name))
    };
    match (0..outputs.len()).any(twice) {
        true => None,
        false => Some(outputs),
    }
}

/// Whether a key has a column of a table with the name of an output that is something else.
fn clashes(key: &Expr, outputs: &[Output]) -> bool {
    some(key, |part| match part {
        Expr::CompoundIdentifier(names) => names.last().is_some_and(|name| {
            let is_output = outputs.iter().any(|output| output.expr == *part);
            !is_output && outputs.iter().any(|output| same(&output.name, name))
        }),
        _ => false,
    })
}

/// The output that a key is: by its name, its position or its expression.
fn output_of(key: &Expr, outputs: &[Output]) -> Option<usize> {
    match key {
        Expr::Identifier(name) => outputs.iter().position(|output| same(&output.name, name)),
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string().parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        key => outputs.iter().position(|output| output.expr == *key),
    }
}

/// Whether there is the name of an output in an expression, as that of another value: in what aggregates are of, or outside of these,
/// where it is the output's, which has not got the name within the selection.
fn names_an_output(key: &Expr, outputs: &[Output], in_aggregates: bool) -> bool {
    struct Find<'a> {
        outputs: &'a [Output],
        in_aggregates: bool,
        depth: usize,
    }
    impl Visitor for Find<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.depth += usize::from(is_of_rows(expr));
            let (Expr::Identifier(name), true) = (expr, self.in_aggregates == (self.depth > 0))
            else {
                return ControlFlow::Continue(());
            };
            let mut of_that_name = self.outputs.iter().filter(|o| same(&o.name, name));
            match of_that_name.any(|output| !self.in_aggregates || output.expr != *expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }

        fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.depth -= usize::from(is_of_rows(expr));
            ControlFlow::Continue(())
        }
    }
    let mut find = Find {
        outputs,
        in_aggregates,
        depth: 0,
    };
    Visit::visit(key, &mut find).is_break()
}

/// Is it of what is grouped: an aggregate, or `GROUPING`?
fn is_of_rows(expr: &Expr) -> bool {
    is_aggregate(expr) || is_call(expr, "grouping")
}

fn same(one: &Ident, other: &Ident) -> bool {
    normal(one) == normal(other)
}

fn output_name(number: usize) -> String {
    format!("__output_{number}")
}

/// A query over a derived table.
fn template() -> Option<Query> {
    let text = "SELECT 1 FROM (SELECT 1) AS __sorted";
    let statement = Parser::parse_sql(&GenericDialect {}, text).ok()?.pop()?;
    match statement {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn aggregates_in_sort_keys_are_of_inputs() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT value AS id, value % 5 AS a, value % 7 AS b FROM generate_series(1, 20) t(value)";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT b, sum(a) AS a FROM t GROUP BY b ORDER BY sum(a), b",
                "SELECT b, sum(a) AS x FROM t GROUP BY b ORDER BY x, b",
            ),
            (
                "SELECT b, sum(a) AS a FROM t GROUP BY b ORDER BY min(a) DESC, b",
                "SELECT b, x FROM (SELECT b, sum(a) AS x, min(a) AS y FROM t GROUP BY b) ORDER BY y DESC, b",
            ),
            (
                "SELECT max(id), sum(a) AS a, round(avg(id), 1) AS id FROM t GROUP BY b ORDER BY max(id)",
                "SELECT max(id) AS w, sum(a) AS x, round(avg(id), 1) AS y FROM t GROUP BY b ORDER BY w",
            ),
            (
                "SELECT CASE WHEN a < 3 THEN 'low' ELSE 'high' END AS a, count(*) FROM t GROUP BY 1 ORDER BY min(a)",
                "SELECT CASE WHEN a < 3 THEN 'low' ELSE 'high' END AS x, count(*) FROM t GROUP BY 1 ORDER BY x DESC",
            ),
            (
                "SELECT CASE WHEN grouping(b) = 1 THEN -1 ELSE b END AS b, sum(a) AS a FROM t GROUP BY ROLLUP (b) ORDER BY grouping(b) DESC, b LIMIT 4",
                "SELECT x, y FROM (SELECT NULL AS b, -1 AS x, sum(a) AS y FROM t UNION ALL SELECT b, b, sum(a) FROM t GROUP BY b) ORDER BY b NULLS FIRST LIMIT 4",
            ),
            (
                "SELECT a * 2 AS a, count(b) AS b FROM t GROUP BY a ORDER BY sum(b) / count(b) DESC, a LIMIT 3",
                "SELECT x, y FROM (SELECT a * 2 AS x, count(b) AS y, sum(b) / count(b) AS z FROM t GROUP BY a) ORDER BY z DESC, x LIMIT 3",
            ),
        ] {
            let rows = |table: String| table.lines().skip(2).map(String::from).collect::<Vec<_>>();
            let found = rows(answer(&context, written).await);
            // Names aside.
            let expected = rows(answer(&context, meant).await);
            let values = |rows: &[String]| -> Vec<Vec<String>> {
                let row = |row: &String| row.split('|').map(|v| v.trim().to_string()).collect();
                rows.iter()
                    .filter(|row| row.starts_with('|'))
                    .map(row)
                    .collect()
            };
            assert_eq!(values(&found), values(&expected), "{written}");
        }
    }
}
