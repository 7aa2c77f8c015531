//! `SELECT price * n AS total, total * 0.2 AS tax … WHERE total > 9`: the name of an output in a later one, or in WHERE, as several systems let
//! it stand for its expression. Where a column has the name, it is that.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, VisitMut,
    VisitorMut,
};

use crate::statements::syntax::{normal, number, some};

/// Puts the expression of the output of this name, which is no column's, in the place of the name; whether there was one.
pub(crate) fn spelled_out(statement: &mut Statement, name: &str) -> bool {
    let mut selections = Selections {
        name,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut selections);
    selections.changed
}

struct Selections<'a> {
    name: &'a str,
    changed: bool,
}

impl VisitorMut for Selections<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let called = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { expr, alias } if normal(alias) == self.name => {
                Some(expr.clone())
            }
            _ => None,
        };
        let items = select.projection.iter().enumerate();
        let mut named = items.filter_map(|(at, item)| Some((at, called(item)?)));
        let Some((at, expr)) = named.next() else {
            return ControlFlow::Continue(());
        };
        let is_own =
            |part: &Expr| matches!(part, Expr::Identifier(own) if normal(own) == self.name);
        if some(&expr, is_own) {
            return ControlFlow::Continue(());
        }
        let mut reuse = Reuse {
            name: self.name,
            expr: &expr,
            depth: 0,
            changed: false,
        };
        for item in &mut select.projection[at + 1..] {
            let _: ControlFlow<()> = VisitMut::visit(item, &mut reuse);
        }
        if let Some(condition) = &mut select.selection {
            let _: ControlFlow<()> = VisitMut::visit(condition, &mut reuse);
        }
        self.changed |= reuse.changed;
        ControlFlow::Continue(())
    }

    /// `ORDER BY ALL`: by all outputs in their order.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return ControlFlow::Continue(());
        };
        let one_each = select.projection.iter().all(|item| {
            matches!(
                item,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
            )
        });
        let outputs = select.projection.len();
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
            && let [key] = &keys[..]
            && let Expr::Identifier(all) = &key.expr
            && self.name == "all"
            && normal(all) == "all"
            && one_each
        {
            let key = |n: usize| OrderByExpr {
                expr: number(n),
                ..key.clone()
            };
            *keys = (1..=outputs).map(key).collect();
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// Names in expressions, but for those of subqueries, which have columns of their own.
struct Reuse<'a> {
    name: &'a str,
    expr: &'a Expr,
    depth: usize,
    changed: bool,
}

impl VisitorMut for Reuse<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && normal(name) == self.name
        {
            *expr = Expr::Nested(Box::new(self.expr.clone()));
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn names_of_outputs_stand_for_them() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT value AS id, value % 5 AS a, value % 7 AS b FROM generate_series(1, 20) t(value)";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT id, a * b AS c, c + 1 AS d, d * c AS e FROM t WHERE c > 9 ORDER BY e, id",
                "SELECT id, a * b AS c, a * b + 1 AS d, (a * b + 1) * (a * b) AS e FROM t WHERE a * b > 9 ORDER BY e, id",
            ),
            (
                "SELECT b, sum(a) AS total, total / count(*) AS mean FROM t GROUP BY b ORDER BY b",
                "SELECT b, sum(a) AS total, sum(a) / count(*) AS mean FROM t GROUP BY b ORDER BY b",
            ),
            (
                "SELECT a + b AS x, (SELECT max(x) FROM (SELECT id AS x FROM t) s) AS y, x + 1 AS z FROM t WHERE id = 4",
                "SELECT a + b AS x, 20 AS y, a + b + 1 AS z FROM t WHERE id = 4",
            ),
            (
                "SELECT a, b, count(*) AS n FROM t GROUP BY a, b ORDER BY ALL",
                "SELECT a, b, count(*) AS n FROM t GROUP BY a, b ORDER BY a, b, n",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
