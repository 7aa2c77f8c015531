//! Names of the outputs of set operations, which are those of the first query.
//!
//! `SELECT a.id, b.id AS other … UNION ALL SELECT a.id * 10, b.id …`: DataFusion names the second query's outputs after the first one's
//! one at a time, and finds `id` ambiguous on the way. Here each is named so before.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, VisitMut, VisitorMut,
};

/// Calls the outputs of all queries of set operations as the first one's; whether one was called otherwise.
pub(crate) fn as_the_first(statement: &mut Statement) -> bool {
    let mut branches = Branches { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut branches);
    branches.changed
}

struct Branches {
    changed: bool,
}

impl VisitorMut for Branches {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::SetOperation { left, right, .. } = query.body.as_mut()
            && let Some(first) = first(left)
        {
            let names = names(first);
            self.changed |= rename(left, &names) | rename(right, &names);
        }
        ControlFlow::Continue(())
    }
}

/// The first selection of a set operation.
fn first(set: &SetExpr) -> Option<&Select> {
    match set {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => first(&query.body),
        SetExpr::SetOperation { left, .. } => first(left),
        _ => None,
    }
}

/// What its outputs are called, where the text says that.
fn names(select: &Select) -> Vec<Option<Ident>> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().cloned(),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

fn rename(set: &mut SetExpr, names: &[Option<Ident>]) -> bool {
    match set {
        SetExpr::Select(select) => {
            let one_each = select.projection.len() == names.len()
                && select.projection.iter().all(is_one_column);
            one_each && rename_outputs(&mut select.projection, names)
        }
        SetExpr::Query(query) => rename(&mut query.body, names),
        SetExpr::SetOperation { left, right, .. } => rename(left, names) | rename(right, names),
        _ => false,
    }
}

fn is_one_column(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
    )
}

fn rename_outputs(items: &mut [SelectItem], names: &[Option<Ident>]) -> bool {
    let mut changed = false;
    for (item, name) in items.iter_mut().zip(names) {
        let Some(name) = name else {
            continue;
        };
        match item {
            SelectItem::ExprWithAlias { alias, .. } if alias != name => *alias = name.clone(),
            SelectItem::UnnamedExpr(Expr::Identifier(own)) if own == name => continue,
            SelectItem::UnnamedExpr(expr) => {
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias: name.clone(),
                };
            }
            _ => continue,
        }
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn outputs_are_called_as_the_first_ones() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT value AS id, value % 5 AS a, value % 7 AS b FROM generate_series(1, 20) t(value)";
        answer(&context, create).await;
        let joined = "FROM t a JOIN t b ON a.a = b.b";
        for (second, meant) in [
            ("a.id * 10, b.id", "a.id * 10 AS x, b.id AS y"),
            ("-a.id, -b.id", "-a.id AS x, -b.id AS y"),
            ("b.id AS y, a.id AS id", "b.id AS x, a.id AS y"),
        ] {
            let found = format!(
                "SELECT * FROM (SELECT a.id, b.id AS bid {joined} UNION ALL SELECT {second} {joined}) ORDER BY id, bid"
            );
            let expected = format!(
                "SELECT x AS id, y AS bid FROM (SELECT a.id AS x, b.id AS y {joined} UNION ALL SELECT {meant} {joined}) ORDER BY 1, 2"
            );
            assert_eq!(
                answer(&context, &found).await,
                answer(&context, &expected).await,
                "{second}"
            );
        }
    }
}
