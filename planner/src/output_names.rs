//! Output columns that bear one name.
//!
//! `SELECT x, x`, `SELECT count(*), count(*)` and `SELECT *, x + 1 AS x` are SQL, but DataFusion has no plan for them: no two
//! expressions of a projection may have one name there. Those behind the first get names of their own, `x:1` and so on, which are
//! those that DataFusion itself gives to columns of a derived table that have one name.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, Statement, VisitMut, VisitorMut,
};

use crate::order_keys::normal;

/// The name that two expressions of a projection have, if planning failed with that: of a column without its table's.
pub(crate) fn repeated(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::Plan(message) => {
            let begin = "Projections require unique expression names but the expression \"";
            let (name, _) = message.strip_prefix(begin)?.split_once("\" at position ")?;
            let name = name.rsplit('.').next()?;
            Some(name.trim_matches('"').into())
        }
        // A column of a table, and something that is called like it.
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::AmbiguousReference { field } if field.relation.is_some() => {
                Some(field.name.clone())
            }
            _ => None,
        },
        _ => None,
    }
}

/// Gives output columns names of their own where others before them in the selection have them; `name` is one that a wildcard has.
/// Whether any changed. Columns of a table that is made are called what they are called, or it is not made.
pub(crate) fn set_apart(statement: &mut Statement, name: &str) -> bool {
    if matches!(
        statement,
        Statement::CreateTable(_) | Statement::CreateView(_)
    ) {
        return false;
    }
    let mut names = Names {
        name,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut names);
    names.changed
}

struct Names<'a> {
    name: &'a str,
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
            let Some(output) = Output::of(item) else {
                continue;
            };
            let in_wildcard = wildcard && output.name == self.name;
            if in_wildcard || before.iter().any(|other| other.is_same(&output)) {
                let free = |alias: &String| before.iter().all(|other| other.name != *alias);
                let mut numbered = (1..).map(|number| format!("{}:{number}", output.name));
                let alias = numbered.find(free).unwrap_or_default();
                let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
                else {
                    continue;
                };
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias: Ident::with_quote('"', alias.as_str()),
                };
                before.push(Output {
                    name: alias,
                    table: None,
                });
                self.changed = true;
                continue;
            }
            before.push(output);
        }
        ControlFlow::Continue(())
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
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => (normal(name).into(), None),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
                let (name, table) = names.split_last()?;
                let table: Vec<_> = table.iter().map(normal).collect();
                (normal(name).into(), Some(table.join(".")))
            }
            SelectItem::UnnamedExpr(expr) => (expr.to_string(), None),
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
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        let changed = set_apart(&mut statements[0], name);
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
            "SELECT x, x + 1 FROM t",
            "SELECT x, y AS x FROM t",
        ] {
            apart(other, "x");
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
