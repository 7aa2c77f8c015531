//! `FETCH FIRST n ROWS ONLY`, the standard's `LIMIT`: the parser knows it, DataFusion's planner does not.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, LimitClause, Query, Statement, Value, VisitMut, VisitorMut,
};

/// Writes the clause as a limit wherever it is; `WITH TIES`, `PERCENT` and a limit beside it stay, for the planner to refuse.
pub(crate) fn as_limit(statement: &mut Statement) {
    let _: ControlFlow<()> = statement.visit(&mut Limits);
}

struct Limits;

impl VisitorMut for Limits {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let plain = |fetch: &&Fetch| !fetch.with_ties && !fetch.percent;
        let Some(fetch) = query.fetch.as_ref().filter(plain) else {
            return ControlFlow::Continue(());
        };
        let one = || Expr::value(Value::Number("1".into(), false));
        let rows = fetch.quantity.clone().unwrap_or_else(one);
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, .. }) if limit.is_none() => *limit = Some(rows),
            none @ None => {
                *none = Some(LimitClause::LimitOffset {
                    limit: Some(rows),
                    offset: None,
                    limit_by: vec![],
                });
            }
            Some(_) => return ControlFlow::Continue(()),
        }
        query.fetch = None;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::as_limit;

    #[test]
    fn the_clause_becomes_a_limit() {
        for (sql, expected) in [
            (
                "SELECT a FROM (SELECT a FROM t FETCH FIRST 3 ROWS ONLY) ORDER BY a OFFSET 2 ROWS FETCH NEXT ROW ONLY",
                "SELECT a FROM (SELECT a FROM t LIMIT 3) ORDER BY a LIMIT 1 OFFSET 2 ROWS",
            ),
            (
                "SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES",
                "SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES",
            ),
        ] {
            let mut parsed = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
            as_limit(&mut parsed[0]);
            assert_eq!(parsed[0].to_string(), expected);
        }
    }
}
