//! `ASOF JOIN`: each row beside the nearest one of another table.
//!
//! `FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.time >= q.time) ON t.symbol = q.symbol` has for each trade the latest quote up to
//! it, and NULL where there is none, as Snowflake has it. DataFusion has no plan for it; it is a lateral join with the first
//! row of the table under these conditions, and [`decorrelate`](crate::decorrelate) makes windows of that.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, Select, Statement, TableAlias,
    TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::statements::syntax::{always, both, normal, path_of, query};

/// Whether planning failed for such a join.
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::NotImplemented(message)
        if message.starts_with("Unsupported JOIN operator AsOf"))
}

/// A text with DuckDB's joins with the nearest row, `a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts` and `ASOF LEFT JOIN`, as joins that are marked by
/// a word for clusters; `None` where there are none, or some already bear it.
pub(crate) fn marked(sql: &str) -> Option<String> {
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, sql).with_unescape(false);
    let mut tokens = tokenizer.tokenize().ok()?;
    let keyword = |token: &Token| match token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let has = |wanted: Keyword| tokens.iter().any(|token| keyword(token) == wanted);
    if !has(Keyword::ASOF) || has(Keyword::GLOBAL) || has(Keyword::MATCH_CONDITION) {
        return None;
    }
    for token in &mut tokens {
        if keyword(token) == Keyword::ASOF {
            *token = Token::make_word("GLOBAL", None);
        }
    }
    Some(tokens.iter().map(Token::to_string).collect())
}

/// Makes joins with the nearest row of those that are marked: one comparison of their conditions says which is nearest. An inner one keeps the
/// mark. Whether there were any.
pub(crate) fn by_marks(statement: &mut Statement) -> bool {
    let mut marks = Marks { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut marks);
    marks.changed
}

struct Marks {
    changed: bool,
}

impl VisitorMut for Marks {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let tables = select.from.iter_mut();
        for join in tables
            .flat_map(|table| &mut table.joins)
            .filter(|join| join.global)
        {
            let (is_inner, condition) = match &join.join_operator {
                JoinOperator::Join(JoinConstraint::On(on))
                | JoinOperator::Inner(JoinConstraint::On(on)) => (true, on),
                JoinOperator::Left(JoinConstraint::On(on))
                | JoinOperator::LeftOuter(JoinConstraint::On(on)) => (false, on),
                _ => continue,
            };
            let Some((match_condition, constraint)) = nearest(condition) else {
                continue;
            };
            join.global = is_inner;
            join.join_operator = JoinOperator::AsOf {
                match_condition,
                constraint,
            };
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// The one comparison of a conjunction that says which row is nearest, and the rest.
fn nearest(condition: &Expr) -> Option<(Expr, JoinConstraint)> {
    fn split<'a>(condition: &'a Expr, parts: &mut Vec<&'a Expr>) {
        match condition {
            Expr::Nested(inner) => split(inner, parts),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right,
            } => {
                split(left, parts);
                split(right, parts);
            }
            part => parts.push(part),
        }
    }
    let mut parts = Vec::new();
    split(condition, &mut parts);
    let compares = |part: &&Expr| {
        use BinaryOperator::{Gt, GtEq, Lt, LtEq};
        matches!(
            part,
            Expr::BinaryOp {
                op: Gt | GtEq | Lt | LtEq,
                ..
            }
        )
    };
    let (nearest, others): (Vec<&Expr>, Vec<&Expr>) = parts.into_iter().partition(compares);
    let [nearest] = nearest[..] else {
        return None;
    };
    let others = others.into_iter().cloned().reduce(both);
    let constraint = others.map_or(JoinConstraint::None, JoinConstraint::On);
    Some((nearest.clone(), constraint))
}

/// Makes lateral joins of such joins in a statement; whether there was one.
pub(crate) fn as_lateral(statement: &mut Statement) -> bool {
    let mut joins = Joins { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut joins);
    joins.changed
}

struct Joins {
    changed: bool,
}

impl VisitorMut for Joins {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for tables in &mut select.from {
            self.changed |= all_lateral(tables);
        }
        ControlFlow::Continue(())
    }
}

/// Whether one of the joins changed.
fn all_lateral(tables: &mut TableWithJoins) -> bool {
    let mut changed = false;
    let inner = |table: &mut TableFactor| match table {
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => all_lateral(table_with_joins),
        _ => false,
    };
    changed |= inner(&mut tables.relation);
    for at in 0..tables.joins.len() {
        changed |= inner(&mut tables.joins[at].relation);
        // The table that the columns of USING are of is named only where there is one.
        let left = match at {
            0 => path_of(&tables.relation).and_then(|mut path| path.pop()),
            _ => None,
        };
        if let Some(join) = lateral(&tables.joins[at], left.as_ref()) {
            tables.joins[at] = join;
            changed = true;
        }
    }
    changed
}

/// The join of the first row on its side of the condition; `None` where this is no such join, or says what is not known.
fn lateral(join: &Join, left: Option<&Ident>) -> Option<Join> {
    let JoinOperator::AsOf {
        match_condition,
        constraint,
    } = &join.join_operator
    else {
        return None;
    };
    let name = path_of(&join.relation)?.pop()?;
    let Expr::BinaryOp {
        left: one,
        op,
        right: other,
    } = match_condition
    else {
        return None;
    };
    let (value, is_latest) = match (is_of(one, &name), op) {
        (false, BinaryOperator::GtEq | BinaryOperator::Gt) => (other, true),
        (false, BinaryOperator::LtEq | BinaryOperator::Lt) => (other, false),
        (true, BinaryOperator::LtEq | BinaryOperator::Lt) => (one, true),
        (true, BinaryOperator::GtEq | BinaryOperator::Gt) => (one, false),
        _ => return None,
    };
    let mut conditions = vec![format!("({match_condition})")];
    let outside = match constraint {
        JoinConstraint::On(condition) => {
            conditions.push(format!("({condition})"));
            always()
        }
        JoinConstraint::Using(columns) => {
            let left = left?;
            for column in columns {
                conditions.push(format!("{left}.{column} = {name}.{column}"));
            }
            constraint.clone()
        }
        JoinConstraint::None => always(),
        JoinConstraint::Natural => return None,
    };
    let direction = if is_latest { "DESC" } else { "ASC" };
    let text = format!(
        "SELECT * FROM {} WHERE {} ORDER BY {value} {direction} LIMIT 1",
        join.relation,
        conditions.join(" AND "),
    );
    let subquery = query(&text)?;
    Some(Join {
        relation: TableFactor::Derived {
            lateral: true,
            subquery: Box::new(subquery),
            alias: Some(TableAlias {
                explicit: true,
                name,
                columns: vec![],
                at: None,
            }),
            sample: None,
        },
        global: false,
        join_operator: match join.global {
            true => JoinOperator::Inner(outside),
            false => JoinOperator::LeftOuter(outside),
        },
    })
}

/// Is an expression said to be a column of a table?
fn is_of(expr: &Expr, table: &Ident) -> bool {
    match expr {
        Expr::Nested(inner) => is_of(inner, table),
        Expr::CompoundIdentifier(names) => match &**names {
            [.., qualifier, _] => normal(qualifier) == normal(table),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use crate::Decorrelation;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn joins_as_duckdb_writes_them() {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(Decorrelation));
        for create in [
            "CREATE TABLE a AS SELECT column1 AS k, column2 AS t FROM (VALUES ('x', 5), ('x', 1), ('y', 9))",
            "CREATE TABLE b AS SELECT column1 AS k, column2 AS t, column3 AS p FROM (VALUES ('x', 2, 10), ('x', 4, 20), ('y', 9, 30))",
        ] {
            answer(&context, create).await;
        }
        for (written, meant) in [
            (
                "SELECT a.k, a.t, b.p FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t ORDER BY a.k, a.t",
                "SELECT column1 AS k, column2 AS t, column3 AS p FROM (VALUES ('x', 5, 20), ('y', 9, 30))",
            ),
            (
                "SELECT a.k, a.t, b.p FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t > b.t ORDER BY a.k, a.t",
                "SELECT column1 AS k, column2 AS t, column3 AS p FROM (VALUES ('x', 1, NULL), ('x', 5, 20), ('y', 9, NULL))",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
