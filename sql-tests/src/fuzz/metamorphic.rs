//! Other forms of a query that have the same answer.

use super::draw::{Draw, Leaf, visible};
use super::query::{Body, Expr, Join, Node, Query, Relation, Select, Source};
use super::value::Class;

/// Forms of `query` with the same answer; none for shapes that have none here.
///
/// - Rows: those that a condition accepts, those that its negation accepts, and those for which it is NULL, together.
/// - Groups: the aggregates of such a union of parts of the rows.
pub(crate) fn forms(query: &Query, draw: &mut Draw<'_>) -> Vec<Query> {
    let Body::Select(select) = &query.body else {
        return vec![];
    };
    // A window of a part of the rows is another one.
    if select.sources.is_empty() || select.items.iter().any(Expr::has_window) {
        return vec![];
    }
    let leaves = visible(select, draw.tables, &query.ctes);
    let condition = draw.condition(2, &leaves);
    let parts = match select.group {
        None if !select.distinct => split(select, &condition),
        Some(_) => match grouped(select, &leaves, &condition) {
            Some(select) => Body::Select(Box::new(select)),
            None => return vec![],
        },
        None => return vec![],
    };
    vec![Query {
        body: parts,
        ..query.clone()
    }]
}

/// A condition, its negation, and that it is NULL: each row meets one.
fn three(condition: &Expr) -> [Expr; 3] {
    let of = |form: &str| Expr::call(Class::Bool, form, vec![condition.clone()]);
    [condition.clone(), of("(NOT {})"), of("({} IS NULL)")]
}

fn split(select: &Select, condition: &Expr) -> Body {
    let [yes, no, unknown] = three(condition).map(|part| {
        let mut select = select.clone();
        select.filter.push(part);
        Query::of(Body::Select(Box::new(select)))
    });
    union(union(Query::of_body(yes), no), unknown)
}

fn union(left: Body, right: Query) -> Body {
    Body::Set {
        operator: "UNION ALL",
        left: Box::new(Query::of(left)),
        right: Box::new(right),
    }
}

impl Query {
    fn of_body(self) -> Body {
        self.body
    }
}

/// The same groups over a union of three parts of the rows.
fn grouped(select: &Select, leaves: &[Leaf], condition: &Expr) -> Option<Select> {
    const ALIAS: &str = "parts";
    let above = || {
        select
            .items
            .iter()
            .chain(select.group.iter().flatten())
            .chain(&select.having)
    };
    if above().any(Expr::has_query) {
        return None;
    }
    let mut columns: Vec<Expr> = Vec::new();
    for expr in above() {
        collect(expr, leaves, &mut columns);
    }
    if columns.is_empty() {
        columns.push(Expr::literal(Class::Int, "1"));
    }
    let rows = Select {
        items: columns.clone(),
        group: None,
        rollup: false,
        having: vec![],
        distinct: false,
        ..select.clone()
    };
    let mut outer = Select {
        sources: vec![Source {
            join: Join::Inner,
            relation: Relation::Derived(Box::new(Query::of(split(&rows, condition)))),
            alias: ALIAS.into(),
            on: vec![],
        }],
        filter: vec![],
        ..select.clone()
    };
    for expr in outer.expressions_mut() {
        expr.each_mut(&mut |e| {
            if let Some(i) = columns.iter().position(|column| column.node == e.node)
                && let Node::Column { relation, name } = &mut e.node
            {
                *relation = ALIAS.into();
                *name = format!("c{i}");
            }
        });
    }
    Some(outer)
}

fn collect(expr: &Expr, leaves: &[Leaf], columns: &mut Vec<Expr>) {
    let here = leaves.iter().any(|leaf| leaf.expr.node == expr.node);
    if here && matches!(expr.node, Node::Column { .. }) && !columns.contains(expr) {
        columns.push(expr.clone());
    }
    for child in expr.children() {
        collect(child, leaves, columns);
    }
}
