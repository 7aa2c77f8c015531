//! Sort keys that bear the name of an output column and are not that column.
//!
//! `SELECT coalesce(t.x, 0) AS x FROM t ORDER BY t.x`: DataFusion carries `t.x` through the projection beside `x`, which it then
//! finds ambiguous. Such a query becomes one that computes outputs and keys under names of their own, and one around it that sorts.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Whether planning failed with names that are ambiguous.
pub(crate) fn is_ambiguous(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => {
            matches!(**error, SchemaError::AmbiguousReference { .. })
        }
        _ => false,
    }
}

/// Gives the sort keys of all queries in a statement names of their own, where they need it; whether any did.
pub(crate) fn set_apart(statement: &mut Statement) -> bool {
    let mut keys = Keys { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut keys);
    keys.changed
}

/// The same of a text; `None` where nothing changes.
///
/// ```
/// let sql = "SELECT abs(t.x) AS x FROM t ORDER BY t.x LIMIT 3";
/// let apart = warpline_planner::order_keys::text_apart(sql);
/// assert!(apart.is_some_and(|text| text.contains("__key_0") && text.ends_with("LIMIT 3")));
/// for sql in [
///     "SELECT t.x FROM t ORDER BY t.x",
///     "SELECT a.x, b.x FROM a, b ORDER BY a.x",
///     "SELECT abs(a.x) AS x, b.x FROM a, b ORDER BY a.x",
/// ] {
///     assert_eq!(warpline_planner::order_keys::text_apart(sql), None);
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
    changed: bool,
}

impl VisitorMut for Keys {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(apart) = sorted_around(query) {
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

fn sorted_around(query: &Query) -> Option<Query> {
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
            None if names_an_output(&key.expr, &outputs) => return None,
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

/// The output columns of a selection; `None` where they cannot be moved or their names are not in the text.
fn outputs(select: &Select) -> Option<Vec<Output>> {
    if select.distinct.is_some() || select.into.is_some() || select.top.is_some() {
        return None;
    }
    let output = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr, alias } => Some(Output {
            name: alias.clone(),
            expr: expr.clone(),
        }),
        SelectItem::UnnamedExpr(expr) => {
            let name = match expr {
                Expr::Identifier(name) => name.clone(),
                Expr::CompoundIdentifier(names) => names.last()?.clone(),
                _ => return None,
            };
            let expr = expr.clone();
            Some(Output { name, expr })
        }
        _ => None,
    };
    let outputs: Vec<Output> = select
        .projection
        .iter()
        .map(output)
        .collect::<Option<_>>()?;
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

/// The output that a key is: by its name or its position.
fn output_of(key: &Expr, outputs: &[Output]) -> Option<usize> {
    match key {
        Expr::Identifier(name) => outputs.iter().position(|output| same(&output.name, name)),
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string().parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression refers to an output by its name, which it has not got within the selection.
fn names_an_output(key: &Expr, outputs: &[Output]) -> bool {
    some(key, |part| match part {
        Expr::Identifier(name) => outputs.iter().any(|output| same(&output.name, name)),
        _ => false,
    })
}

/// Whether `found` holds for some part of an expression.
pub(crate) fn some(expr: &Expr, mut found: impl FnMut(&Expr) -> bool) -> bool {
    struct Find<'a>(&'a mut dyn FnMut(&Expr) -> bool);
    impl Visitor for Find<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match (self.0)(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut Find(&mut found)).is_break()
}

fn same(one: &Ident, other: &Ident) -> bool {
    normal(one) == normal(other)
}

/// A name as DataFusion compares it: in lower case, unless it is in quotes.
pub(crate) fn normal(name: &Ident) -> Cow<'_, str> {
    match name.quote_style {
        Some(_) => Cow::Borrowed(&name.value),
        None => Cow::Owned(name.value.to_lowercase()),
    }
}

fn output_name(number: usize) -> String {
    format!("__output_{number}")
}

/// An output column of this name, to the letter.
pub(crate) fn named(expr: Expr, name: &str) -> SelectItem {
    let alias = quoted(name);
    SelectItem::ExprWithAlias { expr, alias }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
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
