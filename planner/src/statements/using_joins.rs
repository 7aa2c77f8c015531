//! Columns of `USING`: in SQL such a column is one, whichever of the joined tables has it.
//!
//! DataFusion takes it from the left table, which has NULL where a right or full join found no match there, and finds it ambiguous in the next
//! join with it. Such joins say `ON` here, and the column is named as what it is: that of the table which has all rows, or the first that is
//! not NULL.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, GroupByExpr, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use crate::statements::syntax::{both, expression, normal, path_of};

/// Names such columns by tables in all queries of a statement that need it; whether any did.
pub(crate) fn by_tables(statement: &mut Statement) -> bool {
    let mut queries = Queries { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut queries);
    queries.changed
}

struct Queries {
    changed: bool,
}

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { body, order_by, .. } = query;
        self.changed |= match body.as_mut() {
            SetExpr::Select(select) => rewritten(select, order_by.as_mut()),
            other => within_set(other),
        };
        ControlFlow::Continue(())
    }
}

/// The same of the queries that a set operation is of; those in parentheses are queries of their own.
fn within_set(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => rewritten(select, None),
        SetExpr::SetOperation { left, right, .. } => within_set(left) | within_set(right),
        _ => false,
    }
}

/// A column that tables have in common.
struct Merged {
    name: String,
    /// What it is.
    is: Expr,
    /// The tables that have a column of the name.
    tables: Vec<Path>,
    /// The one among them whose column it is; `None` where it is made of several.
    table: Option<Path>,
}

/// What a table is called in its query: with its schema, where that is said.
type Path = Vec<Ident>;

fn rewritten(select: &mut Select, order: Option<&mut OrderBy>) -> bool {
    if !select.from.iter().any(|from| from.joins.iter().any(needs)) && !repeats(select) {
        return false;
    }
    let mut from = select.from.clone();
    let mut merged: Vec<Merged> = Vec::new();
    let mut tables: Vec<Path> = Vec::new();
    for from in &mut from {
        let Some(first) = path_of(&from.relation) else {
            return false;
        };
        // Columns of one name in tables beside each other are not one.
        let mut own: Vec<Merged> = Vec::new();
        let mut left = vec![first];
        for join in &mut from.joins {
            let Some(table) = path_of(&join.relation) else {
                return false;
            };
            if merge(join, &table, &left, &mut own).is_none() {
                return false;
            }
            left.push(table);
        }
        if own.iter().any(|o| merged.iter().any(|m| m.name == o.name)) {
            return false;
        }
        merged.extend(own);
        tables.extend(left);
    }
    let Some(projection) = projected(select, &merged, &tables) else {
        return false;
    };
    let mut names = Names {
        merged: &merged,
        depth: 0,
    };
    select.from = from;
    for from in &mut select.from {
        for join in &mut from.joins {
            if let Some(JoinConstraint::On(on)) = constraint(join) {
                names.within(on);
            }
        }
    }
    select.projection = projection;
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => match names.of(expr) {
                Some(merged) => {
                    let Expr::Identifier(alias) = expr.clone() else {
                        continue;
                    };
                    let expr = merged.is.clone();
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
                None => names.within(expr),
            },
            SelectItem::ExprWithAlias { expr, .. } => names.within(expr),
            _ => {}
        }
    }
    let conditions = [
        &mut select.selection,
        &mut select.having,
        &mut select.qualify,
    ];
    conditions
        .into_iter()
        .flatten()
        .for_each(|e| names.within(e));
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        keys.iter_mut().for_each(|key| names.within(key));
    }
    let outputs: Vec<String> = select.projection.iter().filter_map(output).collect();
    let all = select.projection.iter().any(|item| output(item).is_none());
    if let Some(order) = order
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        for key in keys {
            // A key that is an output column stays one.
            let is_output = names
                .of(&key.expr)
                .is_some_and(|m| all || outputs.contains(&m.name));
            if !is_output {
                names.within(&mut key.expr);
            }
        }
    }
    true
}

/// Does a join take a column from the wrong side?
fn needs(join: &Join) -> bool {
    let outer = matches!(
        join.join_operator,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
    );
    outer && using(join).is_some()
}

/// Is a column of one join that of another as well?
fn repeats(select: &Select) -> bool {
    select.from.iter().any(|from| {
        let columns = from.joins.iter().filter_map(using).flatten();
        let mut columns: Vec<String> = columns.collect();
        columns.sort_unstable();
        columns.windows(2).any(|pair| pair[0] == pair[1])
    })
}

/// The names of the columns of USING.
fn using(join: &Join) -> Option<Vec<String>> {
    let mut join = join.clone();
    match constraint(&mut join)? {
        JoinConstraint::Using(columns) => columns.iter().map(column).collect(),
        _ => None,
    }
}

fn column(name: &ObjectName) -> Option<String> {
    match &name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(normal(name).into_owned()),
        _ => None,
    }
}

/// What an inner or outer join says of its rows.
pub(crate) fn constraint(join: &mut Join) -> Option<&mut JoinConstraint> {
    match &mut join.join_operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on) => Some(on),
        _ => None,
    }
}

/// Says ON for USING in a join of the tables on the `left` with another; `None` where nobody knows whose the column is.
fn merge(join: &mut Join, table: &Path, left: &[Path], merged: &mut Vec<Merged>) -> Option<()> {
    let operator = join.join_operator.clone();
    let constraint = match operator {
        JoinOperator::CrossJoin(_) => return Some(()),
        _ => constraint(join)?,
    };
    let columns = match constraint {
        JoinConstraint::On(_) => return Some(()),
        JoinConstraint::Using(columns) => std::mem::take(columns),
        JoinConstraint::Natural | JoinConstraint::None => return None,
    };
    let mut conditions = Vec::with_capacity(columns.len());
    for written in &columns {
        let name = column(written)?;
        let [ObjectNamePart::Identifier(ident)] = &written.0[..] else {
            return None;
        };
        let of = |table: &Path| {
            let names = table.iter().chain(std::iter::once(ident));
            Expr::CompoundIdentifier(names.cloned().collect())
        };
        let at = match merged.iter().position(|m| m.name == name) {
            Some(at) => at,
            None => {
                let [only] = left else {
                    return None;
                };
                merged.push(Merged {
                    name,
                    is: of(only),
                    tables: vec![only.clone()],
                    table: Some(only.clone()),
                });
                merged.len() - 1
            }
        };
        let (own, other) = (&mut merged[at], of(table));
        conditions.push(Expr::BinaryOp {
            left: Box::new(own.is.clone()),
            op: BinaryOperator::Eq,
            right: Box::new(other.clone()),
        });
        own.tables.push(table.clone());
        match operator {
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => {
                own.is = other;
                own.table = Some(table.clone());
            }
            JoinOperator::FullOuter(_) => {
                own.is = expression(&format!("coalesce({}, {other})", own.is))?;
                own.table = None;
            }
            _ => {}
        }
    }
    *constraint = JoinConstraint::On(conditions.into_iter().reduce(both)?);
    Some(())
}

/// The output columns, where `*` has each common column once; `None` where that has options of its own.
fn projected(select: &Select, merged: &[Merged], tables: &[Path]) -> Option<Vec<SelectItem>> {
    let mut items = Vec::with_capacity(select.projection.len());
    for item in &select.projection {
        let SelectItem::Wildcard(options) = item else {
            items.push(item.clone());
            continue;
        };
        if *options != WildcardAdditionalOptions::default() {
            return None;
        }
        for common in merged.iter().filter(|common| common.table.is_none()) {
            items.push(SelectItem::ExprWithAlias {
                expr: common.is.clone(),
                alias: Ident::with_quote('"', &common.name),
            });
        }
        for table in tables {
            let hidden = merged.iter().filter(|common| {
                common.table.as_ref() != Some(table) && common.tables.contains(table)
            });
            let hidden: Vec<ObjectName> = hidden
                .map(|common| Ident::with_quote('"', &common.name).into())
                .collect();
            let options = WildcardAdditionalOptions {
                opt_exclude: (!hidden.is_empty()).then_some(ExcludeSelectItem::Multiple(hidden)),
                ..WildcardAdditionalOptions::default()
            };
            let table =
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(table.clone()));
            items.push(SelectItem::QualifiedWildcard(table, options));
        }
    }
    Some(items)
}

/// The name of an output column; `None` of `*`.
fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias).into_owned()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(normal(name).into_owned()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
            names.last().map(|name| normal(name).into_owned())
        }
        SelectItem::UnnamedExpr(other) => Some(other.to_string()),
        _ => None,
    }
}

/// Puts what common columns are in their places, but not in queries within.
struct Names<'a> {
    merged: &'a [Merged],
    depth: usize,
}

impl Names<'_> {
    fn of(&self, expr: &Expr) -> Option<&Merged> {
        let Expr::Identifier(name) = expr else {
            return None;
        };
        let name = normal(name);
        self.merged.iter().find(|merged| merged.name == *name)
    }

    fn within(&mut self, expr: &mut Expr) {
        let _: ControlFlow<()> = VisitMut::visit(expr, self);
    }
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Some(merged) = self.of(expr)
        {
            *expr = merged.is.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    async fn tables() -> SessionContext {
        let context = SessionContext::new();
        for table in [
            "CREATE TABLE a AS VALUES (1, 10), (2, 20), (3, 30)",
            "CREATE TABLE b AS VALUES (2, 200), (3, 300), (4, 400)",
            "CREATE TABLE c AS VALUES (3, 3000), (4, 4000), (5, 5000)",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        for (name, value) in [("a", "p"), ("b", "q"), ("c", "r")] {
            let view = format!(
                "CREATE VIEW {name}v AS SELECT column1 AS x, column2 AS {value} FROM {name}"
            );
            context.sql(&view).await.unwrap().collect().await.unwrap();
        }
        context
    }

    #[tokio::test]
    async fn a_common_column_is_that_of_whoever_has_the_row() {
        let context = tables().await;
        for (written, meant) in [
            (
                "SELECT x, p, q FROM av FULL JOIN bv USING (x) ORDER BY x",
                "SELECT coalesce(av.x, bv.x) AS x, p, q FROM av FULL JOIN bv ON av.x = bv.x ORDER BY 1",
            ),
            (
                "SELECT x, q FROM av RIGHT JOIN bv USING (x) WHERE x > 2 ORDER BY x DESC",
                "SELECT bv.x AS x, q FROM av RIGHT JOIN bv ON av.x = bv.x WHERE bv.x > 2 ORDER BY 1 DESC",
            ),
            (
                "SELECT * FROM av JOIN bv USING (x) JOIN cv USING (x)",
                "SELECT av.x, p, q, r FROM av, bv, cv WHERE av.x = bv.x AND bv.x = cv.x",
            ),
            (
                "SELECT * FROM av FULL JOIN bv USING (x) FULL JOIN cv USING (x) ORDER BY x",
                "SELECT coalesce(av.x, bv.x, cv.x) AS x, p, q, r FROM av FULL JOIN bv ON av.x = bv.x FULL JOIN cv ON coalesce(av.x, bv.x) = cv.x ORDER BY 1",
            ),
            (
                "SELECT x + 1 AS y, count(*) AS n FROM av l LEFT JOIN bv m USING (x) LEFT JOIN cv USING (x) GROUP BY x HAVING x < 9 ORDER BY x",
                "SELECT x + 1 AS y, 1 AS n FROM av ORDER BY x",
            ),
            (
                "SELECT x, count(r) AS n FROM av FULL JOIN bv USING (x) LEFT JOIN cv ON cv.x = bv.x GROUP BY x ORDER BY x",
                "SELECT * FROM (VALUES (1, 0), (2, 0), (3, 1), (4, 1)) v(x, n)",
            ),
            (
                "SELECT x FROM av FULL JOIN bv USING (x) WHERE x IN (SELECT x FROM cv) ORDER BY 1",
                "SELECT * FROM (VALUES (3), (4)) v(x)",
            ),
            (
                "SELECT \"x\", q FROM (SELECT x, q FROM av RIGHT JOIN bv USING (x) UNION ALL SELECT x, r FROM cv) u ORDER BY x, q",
                "SELECT x, q FROM (SELECT x, q FROM bv UNION ALL SELECT x, r FROM cv) u ORDER BY x, q",
            ),
        ] {
            let found = answer(&context, written).await;
            let expected = answer(&context, meant).await;
            assert_eq!(found, expected, "{written}");
        }
    }

    #[tokio::test]
    async fn other_joins_stay_as_they_are() {
        for same in [
            "SELECT * FROM a JOIN b USING (x)",
            "SELECT * FROM a JOIN b USING (x) JOIN c USING (y)",
            "SELECT * FROM a RIGHT JOIN b ON a.x = b.x",
        ] {
            let dialect = datafusion::sql::sqlparser::dialect::GenericDialect {};
            let parsed = datafusion::sql::sqlparser::parser::Parser::parse_sql(&dialect, same);
            let mut statement = parsed.unwrap().remove(0);
            assert!(!super::by_tables(&mut statement), "{same}");
        }
    }
}
