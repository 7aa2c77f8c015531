//! Tables of one name in several schemas, beside each other: `FROM t, s.t`.
//!
//! SQL tells them apart by their schemas. DataFusion takes `t` for the name of either, and reads columns of one where those of the other are
//! meant. The one without a schema says here which it is in; where it is no table of a schema, the names say the same of two tables.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Select, Statement, TableFactor, VisitMut, VisitorMut,
    With,
};

use crate::statements::syntax::normal;

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
        let mut in_schemas = Vec::new();
        for_each_table(select, &mut |table| {
            if let Some((name, true)) = called(table) {
                in_schemas.push(name);
            }
        });
        if in_schemas.is_empty() {
            return ControlFlow::Continue(());
        }
        for_each_table(select, &mut |table| {
            let Some((name, false)) = called(table) else {
                return;
            };
            if !in_schemas.contains(&name) || self.with.contains(&name) {
                return;
            }
            if let TableFactor::Table {
                name: path,
                alias: None,
                ..
            } = table
            {
                let schema = ObjectNamePart::Identifier(Ident::with_quote('"', self.schema));
                path.0.insert(0, schema);
                self.changed = true;
            }
        });
        ControlFlow::Continue(())
    }
}

/// A name that two tables of a query have, one of them with its schema and the other as an alias or in WITH.
pub(crate) fn repeated(select: &Select) -> Option<String> {
    let mut select = select.clone();
    let (mut plain, mut in_schemas) = (Vec::new(), Vec::new());
    for_each_table(&mut select, &mut |table| match called(table) {
        Some((name, true)) => in_schemas.push(name),
        Some((name, false)) => plain.push(name),
        None => {}
    });
    plain.into_iter().find(|name| in_schemas.contains(name))
}

/// What a table is called, and whether that is by its schema.
fn called(table: &TableFactor) -> Option<(String, bool)> {
    match table {
        TableFactor::Table {
            name: ObjectName(path),
            alias: None,
            args: None,
            ..
        } => match path.last()? {
            ObjectNamePart::Identifier(name) => Some((normal(name).into_owned(), path.len() > 1)),
            ObjectNamePart::Function(_) => None,
        },
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. } => {
            Some((normal(&alias.as_ref()?.name).into_owned(), false))
        }
        _ => None,
    }
}

fn for_each_table(select: &mut Select, found: &mut dyn FnMut(&mut TableFactor)) {
    for from in &mut select.from {
        found(&mut from.relation);
        from.joins
            .iter_mut()
            .for_each(|join| found(&mut join.relation));
    }
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
