//! `SELECT unnest(tags) AS tag, lower(brand) AS brand FROM products`: an output beside an unnested list that bears a column's name.
//!
//! DataFusion carries the columns of such a query through the projection below, where it finds the name ambiguous. Such outputs get names
//! of their own there, and the query around it gives them back.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::statements::syntax::{is_call, named, some};

/// How the names of their own begin.
const OWN: &str = "__beside_";

/// Gives such outputs names of their own; whether there were any.
pub(crate) fn set_apart(statement: &mut Statement) -> bool {
    let mut outputs = Outputs { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut outputs);
    outputs.changed
}

struct Outputs {
    changed: bool,
}

impl VisitorMut for Outputs {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_ref()
            && let Some(apart) = apart(select)
        {
            *query.body = apart;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// The same rows by a query around one with names of its own; `None` where none is needed.
fn apart(select: &Select) -> Option<SetExpr> {
    let mut inner = select.clone();
    let mut outer = Vec::with_capacity(select.projection.len());
    let (mut unnests, mut renamed) = (false, false);
    for (number, item) in inner.projection.iter_mut().enumerate() {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), alias.clone()),
            SelectItem::UnnamedExpr(expr) => (expr.clone(), name_of(expr)?.clone()),
            _ => return None,
        };
        let unnested = some(&expr, |part| is_call(part, "unnest"));
        unnests |= unnested;
        if unnested || name_of(&expr).is_some_and(|own| own == &name) {
            outer.push(SelectItem::UnnamedExpr(Expr::Identifier(name)));
            continue;
        }
        if name.value.starts_with(OWN) {
            return None;
        }
        renamed = true;
        let own = format!("{OWN}{number}");
        outer.push(SelectItem::ExprWithAlias {
            expr: Expr::Identifier(Ident::new(own.clone())),
            alias: name,
        });
        *item = named(expr, &own);
    }
    if !unnests || !renamed {
        return None;
    }
    let text = format!("SELECT 1 FROM ({inner}) AS __apart");
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text).ok()?;
    let mut around = parser.parse_query().ok()?;
    let SetExpr::Select(select) = around.body.as_mut() else {
        return None;
    };
    select.projection = outer;
    Some(*around.body)
}

/// What a column is called.
fn name_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn outputs_beside_lists() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS id, column2 AS s, make_array(column1, column1 + 1) AS l FROM (VALUES (1, ' A'), (2, 'b '))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT unnest(l) AS x, trim(s) AS s, id FROM t ORDER BY x, id",
                "SELECT x, trim(s) AS s, id FROM (SELECT unnest(l) AS x, s, id FROM t) ORDER BY x, id",
            ),
            (
                "SELECT s, count(*) AS n FROM (SELECT t.id, array_length(l) AS l, unnest(l) AS x, upper(s) AS s FROM t) GROUP BY s ORDER BY s",
                "SELECT upper(s) AS s, 2 AS n FROM t ORDER BY 1",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
