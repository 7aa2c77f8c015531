//! Output columns that bear one name.
//!
//! `SELECT x, CAST(x AS TEXT)`, `SELECT count(*), count(*)` and `SELECT *, x + 1 AS x` are SQL, but DataFusion has no plan for them: no two
//! expressions of a projection may have one name there. Those behind the first get names of their own, `x:1` and so on, which are
//! those that DataFusion itself gives to columns of a derived table that have one name.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, SetExpr, Statement, Value, VisitMut, VisitorMut,
};

use crate::statements::syntax::{named, normal};

/// The names that two expressions of a projection share, if planning failed with that: as it says both, of columns without their
/// table's.
pub(crate) fn repeated(error: &DataFusionError) -> Option<Vec<String>> {
    match error.find_root() {
        DataFusionError::Plan(message) => {
            let begin = "Projections require unique expression names but the expression \"";
            let (first, rest) = message.strip_prefix(begin)?.split_once("\" at position ")?;
            let second = rest
                .split_once(" and \"")
                .and_then(|(_, rest)| rest.split_once("\" at position "));
            let both = [Some(first), second.map(|(second, _)| second)];
            let column = |name: &str| {
                let name = name.rsplit('.').next().unwrap_or(name);
                name.trim_matches('"').to_string()
            };
            Some(both.into_iter().flatten().map(column).collect())
        }
        // A column of a table, and something that is called like it.
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::AmbiguousReference { field } if field.relation.is_some() => {
                Some(vec![field.name.clone()])
            }
            _ => None,
        },
        _ => None,
    }
}

/// Gives output columns names of their own where others before them in the selection have them; a wildcard may have one of `names`.
/// Whether any changed. Columns of a table that is made are called what they are called, or it is not made.
pub(crate) fn set_apart(statement: &mut Statement, names: &[String]) -> bool {
    if matches!(
        statement,
        Statement::CreateTable(_) | Statement::CreateView(_)
    ) {
        return false;
    }
    let mut names = Names {
        names,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut names);
    names.changed
}

struct Names<'a> {
    names: &'a [String],
    changed: bool,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let is_wildcard = |item: &SelectItem| {
            matches!(
                item,
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
            )
        };
        let wildcard = select.projection.iter().any(is_wildcard);
        let mut before: Vec<Output> = Vec::with_capacity(select.projection.len());
        for item in &mut select.projection {
            let Some(mut output) = Output::of(item) else {
                continue;
            };
            let in_wildcard = wildcard && self.names.contains(&output.name);
            let is_taken = in_wildcard || before.iter().any(|other| other.is_same(&output));
            if is_taken
                && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            {
                let free = |alias: &String| before.iter().all(|other| other.name != *alias);
                let mut numbered = (1..).map(|number| format!("{}:{number}", output.name));
                let name = numbered.find(free).unwrap_or_default();
                *item = named(expr.clone(), &name);
                output = Output { name, table: None };
                self.changed = true;
            }
            before.push(output);
        }
        ControlFlow::Continue(())
    }
}

/// An expression without what does not count for its name in DataFusion: casts, as in PostgreSQL, brackets; a subquery
/// is called as what it has.
pub(crate) fn bare(expr: &Expr) -> Expr {
    struct Bare;
    impl VisitorMut for Bare {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let called = |name: &str| Expr::value(Value::Placeholder(name.into()));
            match expr {
                Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => *expr = Expr::clone(inner),
                Expr::Subquery(query) => *expr = called(&value_of(query)),
                Expr::Exists { negated: false, .. } => *expr = called("EXISTS"),
                Expr::Exists { negated: true, .. } => *expr = called("NOT EXISTS"),
                Expr::InSubquery { negated: false, .. } => *expr = called("IN"),
                Expr::InSubquery { negated: true, .. } => *expr = called("NOT IN"),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    let _: ControlFlow<()> = VisitMut::visit(&mut expr, &mut Bare);
    expr
}

/// What the column of a subquery is called.
fn value_of(query: &Query) -> String {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            SetExpr::Select(select) => {
                let first = select.projection.first().and_then(Output::of);
                return first.map_or_else(String::new, |output| output.name);
            }
            _ => return String::new(),
        }
    }
}

/// What an output column is called.
struct Output {
    name: String,
    /// The table that a column is said to be of.
    table: Option<String>,
}

impl Output {
    fn of(item: &SelectItem) -> Option<Self> {
        let (name, table) = match item {
            SelectItem::UnnamedExpr(expr) => match bare(expr) {
                Expr::Identifier(name) => (normal(&name).into(), None),
                Expr::CompoundIdentifier(names) => {
                    let (name, table) = names.split_last()?;
                    let table: Vec<_> = table.iter().map(normal).collect();
                    (normal(name).into(), Some(table.join(".")))
                }
                other => (other.to_string(), None),
            },
            SelectItem::ExprWithAlias { alias, .. } => (normal(alias).into(), None),
            _ => return None,
        };
        Some(Self { name, table })
    }

    /// Columns of two tables may have one name.
    fn is_same(&self, other: &Self) -> bool {
        let of_two = match (&self.table, &other.table) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        self.name == other.name && !of_two
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::statements;

    fn apart(sql: &str, name: &str) -> String {
        let names = [name.to_string()];
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        let changed = set_apart(&mut statements[0], &names);
        let text = statements[0].to_string();
        assert_eq!(changed, text != sql, "{text}");
        text
    }

    #[test]
    fn columns_behind_the_first_are_numbered() {
        let text = apart("SELECT x, X, t.x, count(*), count(*) FROM t", "x");
        let expected =
            "SELECT x, X AS \"x:1\", t.x AS \"x:2\", count(*), count(*) AS \"count(*):1\" FROM t";
        assert_eq!(text, expected);
        let text = apart(
            "SELECT x, CAST(x AS TEXT), sum((x)::int), sum(x) FROM t",
            "x",
        );
        let expected =
            "SELECT x, CAST(x AS TEXT) AS \"x:1\", sum((x)::INT), sum(x) AS \"sum(x):1\" FROM t";
        assert_eq!(text.to_lowercase(), expected.to_lowercase());
        let text = apart("SELECT 1 AS a, 2 AS a, 3 AS \"a:1\"", "a");
        assert_eq!(text, "SELECT 1 AS a, 2 AS \"a:1\", 3 AS \"a:1:1\"");
        let text = apart("SELECT *, y, x FROM t", "x");
        assert_eq!(text, "SELECT *, y, x AS \"x:1\" FROM t");
        let text = apart(
            "SELECT a FROM (SELECT b, b FROM t) AS s UNION ALL SELECT c FROM u",
            "b",
        );
        assert_eq!(
            text,
            "SELECT a FROM (SELECT b, b AS \"b:1\" FROM t) AS s UNION ALL SELECT c FROM u"
        );
        for other in [
            "SELECT a.x, b.x FROM a, b",
            "SELECT x, x + 1, y AS z FROM t",
            "SELECT *, y FROM t",
        ] {
            assert_eq!(apart(other, "x"), other);
        }
    }

    #[tokio::test]
    async fn statements_have_plans() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS VALUES (1, 'a'), (2, 'b')";
        context.sql(create).await.unwrap().collect().await.unwrap();
        let names = async |sql: &str| {
            let plan = statements::plan_text(&context.state(), sql).await?;
            let names = plan
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone());
            Ok::<_, DataFusionError>(names.collect::<Vec<_>>())
        };
        for (sql, expected) in [
            (
                "SELECT column1, column1 FROM t",
                vec!["column1", "column1:1"],
            ),
            (
                "SELECT t.column1, column1 AS b, column1 FROM t",
                vec!["column1", "b", "column1:1"],
            ),
            (
                "SELECT count(*), count(*) FROM t",
                vec!["count(*)", "count(*):1"],
            ),
            (
                "SELECT *, column2 FROM t",
                vec!["column1", "column2", "column2:1"],
            ),
            (
                "SELECT *, column2, column1 FROM t",
                vec!["column1", "column2", "column2:1", "column1:1"],
            ),
            (
                "SELECT *, column1 + 1 AS column1 FROM t",
                vec!["column1", "column2", "column1:1"],
            ),
            (
                "SELECT column1, column2 AS column1 FROM t ORDER BY t.column1",
                vec!["column1", "column1:1"],
            ),
            (
                "SELECT column1, CAST(column1 AS VARCHAR), max(column1)::int, max(column1) FROM t GROUP BY 1",
                vec!["column1", "column1:1", "max(t.column1)", "max(column1):1"],
            ),
            (
                "SELECT CAST(column1 AS VARCHAR), * FROM t",
                vec!["column1:1", "column1", "column2"],
            ),
            (
                "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t WHERE column1 > 1), (SELECT max(column1) FROM t)",
                vec!["count(*)", "count(*):1", "max(t.column1)"],
            ),
            (
                "SELECT 1, 1 FROM t ORDER BY column1",
                vec!["Int64(1)", "1:1"],
            ),
            (
                "WITH c(p, q) AS (SELECT column1, column1 FROM t) SELECT q, p FROM c",
                vec!["q", "p"],
            ),
            (
                "SELECT column1, column1 FROM t GROUP BY column1 HAVING count(*) > 0 ORDER BY column1",
                vec!["column1", "column1:1"],
            ),
        ] {
            assert_eq!(names(sql).await.unwrap(), expected, "{sql}");
        }
        let made = "CREATE TABLE twice AS SELECT column1, column1 FROM t";
        assert!(names(made).await.is_err());
        let error = names("SELECT nothing, nothing FROM t").await.unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
    }
}
