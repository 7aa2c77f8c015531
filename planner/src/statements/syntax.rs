//! Expressions and names of statements: what they are, and how they are made.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    JoinConstraint, ObjectNamePart, Query, SelectItem, SetExpr, TableFactor, Value, Visit, Visitor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The expression that a text says.
pub(crate) fn expression(text: &str) -> Option<Expr> {
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).ok()?;
    parser.parse_expr().ok()
}

/// The table that a query is, by what it is called.
pub(crate) fn derived(query: &str, alias: &str) -> Option<TableFactor> {
    relation(&format!("({query}) {alias}"))
}

/// The table that a text says, as it stands behind FROM.
pub(crate) fn relation(text: &str) -> Option<TableFactor> {
    let text = format!("SELECT 1 FROM {text}");
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text).ok()?;
    let SetExpr::Select(mut select) = *parser.parse_query().ok()?.body else {
        return None;
    };
    Some(select.from.pop()?.relation)
}

/// What a table is called in its query: its alias, or its name with the schema, where that is said.
pub(crate) fn path_of(table: &TableFactor) -> Option<Vec<Ident>> {
    match table {
        TableFactor::Table {
            name, alias: None, ..
        } => name.0.iter().map(|part| part.as_ident().cloned()).collect(),
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. } => Some(vec![alias.as_ref()?.name.clone()]),
        _ => None,
    }
}

/// The same table, which sees those to the left of it.
pub(crate) fn lateral(mut table: TableFactor) -> TableFactor {
    if let TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } = &mut table
    {
        *lateral = true;
    }
    table
}

/// A condition that all rows meet.
pub(crate) fn always() -> JoinConstraint {
    JoinConstraint::On(Expr::value(Value::Boolean(true)))
}

/// The conjunction of two conditions.
pub(crate) fn both(one: Expr, other: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(one))),
        op: BinaryOperator::And,
        right: Box::new(Expr::Nested(Box::new(other))),
    }
}

/// The query that a text says.
pub(crate) fn query(text: &str) -> Option<Query> {
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).ok()?;
    parser.parse_query().ok().map(|query| *query)
}

/// The output that a number stands for, as in `GROUP BY 1`.
pub(crate) fn of_output<'a>(expr: &Expr, outputs: &'a [SelectItem]) -> Option<&'a Expr> {
    let Expr::Value(value) = expr else {
        return None;
    };
    let Value::Number(number, _) = &value.value else {
        return None;
    };
    let at = number.to_string().parse::<usize>().ok()?.checked_sub(1)?;
    match outputs.get(at)? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
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

/// A name as DataFusion compares it: in lower case, unless it is in quotes.
pub(crate) fn normal(name: &Ident) -> Cow<'_, str> {
    match name.quote_style {
        Some(_) => Cow::Borrowed(&name.value),
        None => Cow::Owned(name.value.to_lowercase()),
    }
}

/// What planning says of names, where it failed for them.
pub(crate) fn schema_error(error: &DataFusionError) -> Option<&SchemaError> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => Some(error),
        _ => None,
    }
}

/// A text constant.
pub(crate) fn literal(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

/// The text that a constant is.
pub(crate) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => text(inner),
        _ => None,
    }
}

/// A number, such as an output's.
pub(crate) fn number(number: impl ToString) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).into())
}

/// The name of the function that is called, unless a schema is part of it.
pub(crate) fn function_name(call: &Function) -> Option<Cow<'_, str>> {
    match &call.name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(normal(name)),
        _ => None,
    }
}

/// Is it a call of this function?
pub(crate) fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(call) if function_name(call).is_some_and(|own| own == name))
}

/// The arguments of a call; `None` where one has a name or is no expression.
pub(crate) fn arguments(call: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    arguments.collect()
}

/// An output column of this name, to the letter.
pub(crate) fn named(expr: Expr, name: &str) -> SelectItem {
    let alias = quoted(name);
    SelectItem::ExprWithAlias { expr, alias }
}

/// A name to the letter.
pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// The names of aggregates. What `grouping` is of is no value.
static AGGREGATES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let functions = all_default_aggregate_functions().into_iter();
    let names = functions.flat_map(|function| {
        let aliases = function.aliases().iter().cloned();
        let names: Vec<String> = aliases.chain([function.name().to_string()]).collect();
        names
    });
    names.filter(|name| name != "grouping").collect()
});

/// Is it an aggregate, or a window's?
pub(crate) fn is_aggregate(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Function(call) => function_name(call),
        _ => None,
    };
    name.is_some_and(|name| AGGREGATES.contains(&*name))
}
