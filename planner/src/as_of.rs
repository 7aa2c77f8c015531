//! `ASOF JOIN`: each row beside the nearest one of another table.
//!
//! `FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.time >= q.time) ON t.symbol = q.symbol` has for each trade the latest quote up to
//! it, and NULL where there is none, as Snowflake has it. DataFusion has no plan for it; it is a lateral join with the first
//! row of the table under these conditions, and [`decorrelate`](crate::decorrelate) makes windows of that.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, Query, Select, SetExpr,
    Statement, TableAlias, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::syntax::normal;

/// Whether planning failed for such a join.
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::NotImplemented(message)
        if message.starts_with("Unsupported JOIN operator AsOf"))
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
            0 => name_of(&tables.relation),
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
    let name = name_of(&join.relation)?;
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
            JoinConstraint::On(Expr::value(Value::Boolean(true)))
        }
        JoinConstraint::Using(columns) => {
            let left = left?;
            for column in columns {
                conditions.push(format!("{left}.{column} = {name}.{column}"));
            }
            constraint.clone()
        }
        JoinConstraint::None => JoinConstraint::On(Expr::value(Value::Boolean(true))),
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
        join_operator: JoinOperator::LeftOuter(outside),
    })
}

fn query(text: &str) -> Option<Query> {
    let statements = Parser::parse_sql(&GenericDialect {}, text).ok()?;
    match statements.into_iter().next()? {
        Statement::Query(query) if matches!(*query.body, SetExpr::Select(_)) => Some(*query),
        _ => None,
    }
}

/// What the columns of a table are said to be of.
fn name_of(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
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
