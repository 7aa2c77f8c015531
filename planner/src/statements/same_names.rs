//! Tables of one name in several schemas, beside each other: `FROM t, s.t`.
//!
//! SQL tells them apart by their schemas. DataFusion takes `t` for the name of either, and reads columns of one where those of the other are
//! meant. The one without a schema says here which it is in; where it is no table of a schema, the names say the same of two tables.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectNamePart, Query, Select, Statement, TableFactor, VisitMut, VisitorMut, With,
};

use crate::statements::syntax::{normal, path_of};

/// Names the schema of tables beside others of their names; whether any needed it.
pub(crate) fn with_schemas(statement: &mut Statement, schema: &str) -> bool {
    let mut queries = Queries {
        schema,
        with: Vec::new(),
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut queries);
    queries.changed
}

struct Queries<'a> {
    schema: &'a str,
    /// Names of the queries in WITH, which are in no schema.
    with: Vec<String>,
    changed: bool,
}

impl VisitorMut for Queries<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.with.extend(query.with.iter().flat_map(names_of));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let (_, in_schemas) = names(select);
        if in_schemas.is_empty() {
            return ControlFlow::Continue(());
        }
        let joined = select.from.iter_mut().flat_map(|from| {
            let others = from.joins.iter_mut().map(|join| &mut join.relation);
            std::iter::once(&mut from.relation).chain(others)
        });
        for table in joined {
            let Some((name, false)) = called(table) else {
                continue;
            };
            if let TableFactor::Table {
                name: path,
                alias: None,
                ..
            } = table
                && in_schemas.contains(&name)
                && !self.with.contains(&name)
            {
                let schema = ObjectNamePart::Identifier(Ident::with_quote('"', self.schema));
                path.0.insert(0, schema);
                self.changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// A name that two tables of a query have, one of them with its schema and the other as an alias or in WITH.
pub(crate) fn repeated(select: &Select) -> Option<String> {
    let (plain, in_schemas) = names(select);
    plain.into_iter().find(|name| in_schemas.contains(name))
}

/// What the tables of a query are called, without a schema and with one.
fn names(select: &Select) -> (Vec<String>, Vec<String>) {
    let tables = select.from.iter().flat_map(|from| {
        let others = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(others)
    });
    let (with_schema, plain): (Vec<_>, Vec<_>) =
        tables.filter_map(called).partition(|(_, schema)| *schema);
    let alone = |names: Vec<(String, bool)>| names.into_iter().map(|(name, _)| name).collect();
    (alone(plain), alone(with_schema))
}

/// What a table is called, and whether that is by its schema. Functions are in none.
fn called(table: &TableFactor) -> Option<(String, bool)> {
    if let TableFactor::Table {
        alias: None,
        args: Some(_),
        ..
    } = table
    {
        return None;
    }
    let path = path_of(table)?;
    Some((normal(path.last()?).into_owned(), path.len() > 1))
}

fn names_of(with: &With) -> Vec<String> {
    let names = with.cte_tables.iter().map(|table| &table.alias.name);
    names.map(|name| normal(name).into_owned()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::plan_text;
    use crate::statements::tests::answer;

    async fn tables() -> SessionContext {
        let context = SessionContext::new();
        for statement in [
            "CREATE SCHEMA s",
            "CREATE SCHEMA r",
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 10), (2, 20)) v(id, a)",
            "CREATE TABLE s.t AS SELECT * FROM (VALUES (1, 100), (3, 300)) v(id, b)",
            "CREATE TABLE r.t AS SELECT * FROM (VALUES (1, 1000), (4, 4000)) v(id, c)",
        ] {
            let ran = context.sql(statement).await.unwrap().collect().await;
            ran.unwrap();
        }
        context
    }

    #[tokio::test]
    async fn schemas_tell_tables_apart() {
        let context = tables().await;
        for (written, meant) in [
            (
                "SELECT * FROM t, s.t WHERE s.t.id = 3 ORDER BY 1",
                "SELECT x.*, y.* FROM t AS x, s.t AS y WHERE y.id = 3 ORDER BY 1",
            ),
            (
                "SELECT s.t.b, t.a FROM s.t JOIN t ON s.t.id = public.t.id",
                "SELECT b, a FROM s.t AS y JOIN t AS x ON x.id = y.id",
            ),
            (
                "SELECT id, a, b, c FROM t JOIN s.t USING (id) JOIN r.t USING (id)",
                "SELECT 1 AS id, 10 AS a, 100 AS b, 1000 AS c",
            ),
            (
                "SELECT * FROM s.t FULL JOIN r.t USING (id) ORDER BY id",
                "SELECT coalesce(x.id, y.id) AS id, b, c FROM s.t x FULL JOIN r.t y ON x.id = y.id ORDER BY 1",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }

    #[tokio::test]
    async fn one_name_for_two_is_refused() {
        let context = tables().await;
        for written in [
            "WITH t AS (SELECT 1 AS id) SELECT * FROM t, s.t",
            "SELECT * FROM (SELECT 1 AS id) t, s.t",
            "SELECT * FROM r.t, (SELECT 1 AS id) t",
        ] {
            let refused = plan_text(&context.state(), written).await.unwrap_err();
            assert!(refused.to_string().contains("alias"), "{refused}");
        }
    }
}
