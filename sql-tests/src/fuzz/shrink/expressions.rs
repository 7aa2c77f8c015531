//! Expressions that are one step simpler.

use super::clauses;
use crate::fuzz::query::{Expr, Node};
use crate::fuzz::value::Class;

/// The plainest constant of a class.
pub(super) fn constant(class: Class) -> Expr {
    let text = match class {
        Class::Int => "1",
        Class::Decimal => "CAST(1 AS DECIMAL(5, 2))",
        Class::Float => "0.5",
        Class::Bool => "true",
        Class::Text => "'a'",
        Class::Bytes => "X'61'",
        Class::List => "make_array('a')",
        Class::Date => "DATE '2000-02-29'",
        Class::Timestamp => "TIMESTAMP '2000-02-29 00:00:00'",
    };
    Expr::literal(class, text)
}

/// Its operands of the same class, a constant, and itself with one thing in it simpler.
pub(super) fn simpler(of: &Expr) -> Vec<Expr> {
    let mut found = Vec::new();
    if !matches!(of.node, Node::Literal(_)) {
        found.push(constant(of.class));
    }
    let children = of.children();
    found.extend(
        children
            .iter()
            .filter(|child| child.class == of.class)
            .map(|child| (*child).clone()),
    );
    if let Node::Aggregate {
        distinct, filter, ..
    } = &of.node
    {
        if filter.is_some() {
            found.push(changed(of, |node| {
                if let Node::Aggregate { filter, .. } = node {
                    *filter = None;
                }
            }));
        }
        if *distinct {
            found.push(changed(of, |node| {
                if let Node::Aggregate { distinct, .. } = node {
                    *distinct = false;
                }
            }));
        }
    }
    for (i, child) in children.iter().enumerate() {
        for simpler in simpler(child) {
            let mut whole = of.clone();
            if let Some(place) = whole.children_mut().into_iter().nth(i) {
                *place = simpler;
            }
            found.push(whole);
        }
    }
    if let Some(query) = of.query() {
        for simpler in clauses::simpler(query) {
            // It stands for one value.
            if simpler.items().len() != query.items().len() {
                continue;
            }
            let mut whole = of.clone();
            if let Some(place) = whole.query_mut() {
                *place = simpler;
            }
            found.push(whole);
        }
    }
    found
}

fn changed(of: &Expr, change: impl Fn(&mut Node)) -> Expr {
    let mut expr = of.clone();
    change(&mut expr.node);
    expr
}
