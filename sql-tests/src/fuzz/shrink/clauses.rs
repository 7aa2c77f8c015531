//! Queries that are one step simpler. What is no SQL any more is refused when it is tried.

use super::expressions;
use crate::fuzz::query::{Body, Expr, Join, Node, Query, Relation, Select};

/// All that is one step simpler.
pub(super) fn simpler(of: &Query) -> Vec<Query> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Query)| {
        let mut query = of.clone();
        change(&mut query);
        found.push(query);
    };
    if of.limit.is_some() || of.offset.is_some() {
        with(&|q| (q.limit, q.offset) = (None, None));
        with(&|q| q.offset = None);
        with(&|q| q.limit = None);
    }
    if !of.order.is_empty() {
        with(&|q| q.order.clear());
        for i in 0..of.order.len() {
            with(&|q| {
                q.order.remove(i);
            });
        }
    }
    let mut used = Vec::new();
    names_of_body(&of.body, &mut used);
    if of.ctes.iter().any(|(name, _)| !used.contains(name)) {
        with(&|q| q.ctes.retain(|(name, _)| used.contains(name)));
    }
    for i in 0..of.items().len() {
        found.extend(without_item(of, i));
    }
    for (i, (_, cte)) in of.ctes.iter().enumerate() {
        found.push(cte.clone());
        for simpler in simpler(cte) {
            if simpler.items().len() == cte.items().len() {
                let mut query = of.clone();
                query.ctes[i].1 = simpler;
                found.push(query);
            }
        }
    }
    let of_body = |body: Body| Query { body, ..of.clone() };
    match &of.body {
        Body::Set {
            operator,
            left,
            right,
        } => {
            for side in [left, right] {
                found.push(Query {
                    ctes: of.ctes.clone(),
                    ..(**side).clone()
                });
            }
            let width = left.items().len();
            let set = |left: &Query, right: &Query| Body::Set {
                operator,
                left: Box::new(left.clone()),
                right: Box::new(right.clone()),
            };
            let same = |query: &Query| query.items().len() == width;
            found.extend(
                simpler(left)
                    .into_iter()
                    .filter(same)
                    .map(|l| of_body(set(&l, right))),
            );
            found.extend(
                simpler(right)
                    .into_iter()
                    .filter(same)
                    .map(|r| of_body(set(left, &r))),
            );
        }
        Body::Select(select) => {
            for source in &select.sources {
                if let Relation::Derived(inner) = &source.relation {
                    found.push(Query {
                        ctes: of.ctes.clone(),
                        ..(**inner).clone()
                    });
                }
            }
            let selects = simpler_select(select);
            found.extend(
                selects
                    .into_iter()
                    .map(|select| of_body(Body::Select(Box::new(select)))),
            );
        }
    }
    found
}

/// Without an output column, if another one is left.
fn without_item(of: &Query, i: usize) -> Option<Query> {
    let mut query = of.clone();
    query.order.retain(|key| key.column != i);
    for key in &mut query.order {
        if key.column > i {
            key.column -= 1;
        }
    }
    match &mut query.body {
        Body::Select(select) if select.items.len() > 1 => {
            select.items.remove(i);
        }
        Body::Select(_) => return None,
        Body::Set { left, right, .. } => {
            **left = without_item(left, i)?;
            **right = without_item(right, i)?;
        }
    }
    Some(query)
}

fn simpler_select(of: &Select) -> Vec<Select> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Select)| {
        let mut select = of.clone();
        change(&mut select);
        found.push(select);
    };
    if of.distinct {
        with(&|s| s.distinct = false);
    }
    for i in 0..of.filter.len() {
        with(&|s| {
            s.filter.remove(i);
        });
    }
    for i in 0..of.having.len() {
        with(&|s| {
            s.having.remove(i);
        });
    }
    if let Some(keys) = &of.group {
        with(&|s| {
            s.group = None;
            s.having.clear();
            s.items.iter_mut().for_each(|item| item.each_mut(&mut row));
        });
        for (i, key) in keys.iter().enumerate() {
            with(&|s| {
                s.group.iter_mut().for_each(|keys| {
                    keys.remove(i);
                });
                s.items.iter_mut().chain(&mut s.having).for_each(|item| {
                    item.each_mut(&mut |e| {
                        if e == key {
                            *e = expressions::constant(key.class);
                        }
                    });
                });
            });
            for simpler in expressions::simpler(key) {
                if matches!(simpler.node, Node::Literal(_)) {
                    continue;
                }
                with(&|s| {
                    for expr in s.expressions_mut() {
                        expr.each_mut(&mut |e| {
                            if e == key {
                                *e = simpler.clone();
                            }
                        });
                    }
                });
            }
        }
    }
    for i in 0..of.sources.len() {
        with(&|s| without_source(s, i));
        if i > 0 && !matches!(of.sources[i].join, Join::Inner | Join::Cross) {
            with(&|s| s.sources[i].join = Join::Inner);
        }
        for j in 0..of.sources[i].on.len() {
            with(&|s| {
                s.sources[i].on.remove(j);
            });
        }
        if let Relation::Derived(inner) = &of.sources[i].relation {
            for simpler in simpler(inner) {
                if simpler.items().len() == inner.items().len() {
                    with(&|s| {
                        s.sources[i].relation = Relation::Derived(Box::new(simpler.clone()));
                    });
                }
            }
            for column in 0..inner.items().len() {
                if let Some(narrow) = without_item(inner, column) {
                    with(&|s| {
                        s.sources[i].relation = Relation::Derived(Box::new(narrow.clone()));
                        let alias = s.sources[i].alias.clone();
                        each_deep(s, &mut |e| renumber(e, &alias, column));
                    });
                }
            }
        }
    }
    let keys = of.group.as_ref().map_or(0, Vec::len);
    let before_keys = of.expressions().count() - keys - of.having.len();
    for (place, expr) in of.expressions().enumerate() {
        if (before_keys..before_keys + keys).contains(&place) {
            continue;
        }
        for simpler in expressions::simpler(expr) {
            with(&|s| {
                if let Some(expr) = s.expressions_mut().nth(place) {
                    *expr = simpler.clone();
                }
            });
        }
    }
    found
}

/// An aggregate as its argument.
fn row(e: &mut Expr) {
    if let Node::Aggregate { argument, .. } = &e.node {
        *e = match argument {
            Some(argument) if argument.class == e.class => (**argument).clone(),
            _ => expressions::constant(e.class),
        };
    }
}

/// Without something in `FROM`: its columns become constants, and conditions on them go.
fn without_source(select: &mut Select, i: usize) {
    let gone = select.sources.remove(i);
    let mentions = |e: &Expr| {
        e.any(&|e| matches!(&e.node, Node::Column { relation, .. } if *relation == gone.alias))
    };
    if i == 0
        && let Some(first) = select.sources.first_mut()
    {
        let moved = std::mem::take(&mut first.on);
        first.join = Join::Inner;
        select.filter.extend(moved);
    }
    select.filter.retain(|e| !mentions(e));
    for source in &mut select.sources {
        source.on.retain(|e| !mentions(e));
    }
    if let Some(keys) = &mut select.group {
        keys.retain(|e| !mentions(e));
    }
    each_deep(select, &mut |e| {
        if let Node::Column { relation, .. } = &e.node
            && *relation == gone.alias
        {
            *e = expressions::constant(e.class);
        }
    });
}

/// References after a column of a derived table went.
fn renumber(e: &mut Expr, alias: &str, gone: usize) {
    let class = e.class;
    let Node::Column { relation, name } = &mut e.node else {
        return;
    };
    let number = name.strip_prefix('c').and_then(|n| n.parse::<usize>().ok());
    match number {
        Some(n) if relation == alias && n > gone => *name = format!("c{}", n - 1),
        Some(n) if relation == alias && n == gone => *e = expressions::constant(class),
        _ => {}
    }
}

/// Every expression of a query, those of subqueries too.
fn each_deep(select: &mut Select, change: &mut dyn FnMut(&mut Expr)) {
    for expr in select.expressions_mut() {
        expr.each_mut(&mut |e| {
            change(e);
            if let Some(query) = e.query_mut() {
                each_in(query, change);
            }
        });
    }
    for source in &mut select.sources {
        if let Relation::Derived(query) = &mut source.relation {
            each_in(query, change);
        }
    }
}

fn each_in(query: &mut Query, change: &mut dyn FnMut(&mut Expr)) {
    match &mut query.body {
        Body::Select(select) => each_deep(select, change),
        Body::Set { left, right, .. } => {
            each_in(left, change);
            each_in(right, change);
        }
    }
}

/// Names of the tables and common table expressions that a query reads.
pub(super) fn names(of: &Query, found: &mut Vec<String>) {
    for (_, cte) in &of.ctes {
        names(cte, found);
    }
    names_of_body(&of.body, found);
}

fn names_of_body(body: &Body, found: &mut Vec<String>) {
    match body {
        Body::Set { left, right, .. } => {
            names(left, found);
            names(right, found);
        }
        Body::Select(select) => {
            for source in &select.sources {
                match &source.relation {
                    Relation::Named(name) => found.push(name.clone()),
                    Relation::Derived(query) => names(query, found),
                }
            }
            for expr in select.expressions() {
                names_of_expr(expr, found);
            }
        }
    }
}

fn names_of_expr(expr: &Expr, found: &mut Vec<String>) {
    if let Some(query) = expr.query() {
        names(query, found);
    }
    for child in expr.children() {
        names_of_expr(child, found);
    }
}
