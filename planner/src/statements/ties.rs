//! `FETCH FIRST 3 ROWS WITH TIES`, `FETCH FIRST 10 PERCENT ROWS ONLY`, and SQL Server's `TOP` of both kinds: rows are chosen by their places in
//! the order, as windows know them.
//!
//! The rows with a rank of at most `n` are the first `n` and those that tie with the last of these.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, LimitClause, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    Top, TopQuantity, VisitMut, VisitorMut,
};

use crate::statements::syntax::{expression, normal, number, of_output, query};

/// Puts conditions of places in the order in the place of such clauses; whether there were any.
pub(crate) fn by_places(statement: &mut Statement) -> bool {
    let mut clauses = Clauses { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut clauses);
    clauses.changed
}

struct Clauses {
    changed: bool,
}

impl VisitorMut for Clauses {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(placed) = placed(query) {
            *query = placed;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// How many rows of the first ones are wanted.
struct Portion {
    quantity: Expr,
    percent: bool,
    ties: bool,
}

fn placed(query: &Query) -> Option<Query> {
    let portion = portion(query)?;
    let keys: &[OrderByExpr] = match &query.order_by {
        None => &[],
        Some(order) => match &order.kind {
            OrderByKind::Expressions(keys) => keys,
            OrderByKind::All(_) => return None,
        },
    };
    let mut made = query.clone();
    made.fetch = None;
    made.limit_clause = None;
    if let SetExpr::Select(select) = made.body.as_mut() {
        select.top = None;
    }
    let skipped = skipped(query)?;
    let (select, keys) = match made.body.as_ref() {
        SetExpr::Select(select) if select.distinct.is_none() && select.qualify.is_none() => {
            let keys = keys.iter().map(|key| key_of(key, &select.projection));
            (Select::clone(select), keys.collect::<Vec<_>>())
        }
        // Only what comes out is there to order by.
        body => (around(body)?, keys.to_vec()),
    };
    let is_place = |key: &OrderByExpr| matches!(&key.expr, Expr::Value(_));
    if keys.iter().any(is_place) {
        return None;
    }
    let order: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let over = match &order[..] {
        [] => String::new(),
        keys => format!("ORDER BY {}", keys.join(", ")),
    };
    let Portion {
        quantity,
        percent,
        ties,
    } = portion;
    let many = match percent {
        true => format!("ceil(count(*) OVER () * ({quantity}) / 100.0)"),
        false => format!("({quantity})"),
    };
    let place = if ties { "rank" } else { "row_number" };
    let mut condition = format!("{place}() OVER ({over}) <= {many}");
    if let Some(skipped) = skipped {
        condition =
            format!("{condition} + ({skipped}) AND row_number() OVER ({over}) > ({skipped})");
    }
    let mut select = select;
    select.qualify = Some(expression(&condition)?);
    *made.body = SetExpr::Select(Box::new(select));
    Some(made)
}

/// What the clause asks for; `None` where LIMIT says it as well.
fn portion(query: &Query) -> Option<Portion> {
    if let Some(fetch) = &query.fetch {
        let quantity = fetch.quantity.clone().unwrap_or_else(|| number(1));
        return (fetch.with_ties || fetch.percent).then_some(Portion {
            quantity,
            percent: fetch.percent,
            ties: fetch.with_ties,
        });
    }
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let top = select.top.as_ref()?;
    let quantity = quantity_of(top)?;
    (top.with_ties || top.percent).then_some(Portion {
        quantity,
        percent: top.percent,
        ties: top.with_ties,
    })
}

/// The number behind TOP.
pub(crate) fn quantity_of(top: &Top) -> Option<Expr> {
    Some(match top.quantity.as_ref()? {
        TopQuantity::Expr(expr) => expr.clone(),
        TopQuantity::Constant(rows) => number(rows),
    })
}

/// The rows that OFFSET skips; `None` where there is a LIMIT too.
fn skipped(query: &Query) -> Option<Option<&Expr>> {
    match &query.limit_clause {
        None => Some(None),
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) if limit_by.is_empty() => Some(offset.as_ref().map(|offset| &offset.value)),
        Some(_) => None,
    }
}

/// A key as windows know it: outputs have no names and numbers there.
fn key_of(key: &OrderByExpr, outputs: &[SelectItem]) -> OrderByExpr {
    let by_name = |item: &SelectItem| match (item, &key.expr) {
        (SelectItem::ExprWithAlias { expr, alias }, Expr::Identifier(name))
            if normal(alias) == normal(name) =>
        {
            Some(expr.clone())
        }
        _ => None,
    };
    let expr = of_output(&key.expr, outputs).cloned();
    let expr = expr.or_else(|| outputs.iter().find_map(by_name));
    OrderByExpr {
        expr: expr.unwrap_or_else(|| key.expr.clone()),
        ..key.clone()
    }
}

/// A selection of all that a query body yields.
fn around(body: &SetExpr) -> Option<Select> {
    let query = query(&format!("SELECT * FROM ({body}) AS __all"))?;
    match *query.body {
        SetExpr::Select(select) => Some(*select),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn ties_and_portions() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS k, column2 AS x FROM (VALUES (1, 5), (2, 7), (3, 7), (4, 9), (5, 9), (6, 9), (7, 1), (8, NULL))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT k, x FROM t WHERE x IS NOT NULL ORDER BY x DESC FETCH FIRST 2 ROWS WITH TIES",
                "SELECT k, x FROM t WHERE x = 9",
            ),
            (
                "SELECT k, x AS v FROM t ORDER BY v DESC NULLS LAST FETCH FIRST 4 ROWS WITH TIES",
                "SELECT k, x AS v FROM t WHERE x >= 7",
            ),
            (
                "SELECT TOP 3 WITH TIES k FROM t ORDER BY x NULLS LAST",
                "SELECT k FROM t WHERE x <= 7",
            ),
            (
                "SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY count(*) DESC, 1 NULLS FIRST FETCH FIRST 2 ROWS WITH TIES",
                "SELECT x, count(*) AS n FROM t WHERE x IN (7, 9) GROUP BY x",
            ),
            (
                "SELECT DISTINCT x FROM t ORDER BY x NULLS FIRST OFFSET 1 ROWS FETCH NEXT 2 ROWS WITH TIES",
                "SELECT x FROM t WHERE k IN (7, 1)",
            ),
            (
                "SELECT k, x FROM t ORDER BY x NULLS FIRST OFFSET 3 ROWS FETCH FIRST 1 ROW WITH TIES",
                "SELECT k, x FROM t WHERE x = 7",
            ),
            (
                "SELECT k FROM t ORDER BY k FETCH FIRST 30 PERCENT ROWS ONLY",
                "SELECT k FROM t WHERE k <= 3",
            ),
            (
                "SELECT k FROM t WHERE k < 3 UNION ALL SELECT 2 ORDER BY k FETCH FIRST 2 ROWS WITH TIES",
                "SELECT column1 AS k FROM (VALUES (1), (2), (2))",
            ),
        ] {
            let found = answer(&context, written).await;
            let (mut found, meant) = (lines(&found), answer(&context, meant).await);
            let mut meant = lines(&meant);
            found.sort();
            meant.sort();
            assert_eq!(found, meant, "{written}");
        }
    }

    fn lines(table: &str) -> Vec<String> {
        table.lines().map(ToString::to_string).collect()
    }
}
