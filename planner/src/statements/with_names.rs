//! `WITH t AS (…) SELECT (WITH t AS (…) SELECT …)`: a name that a query within another gives to another table.
//!
//! DataFusion takes the name for one that is given twice. The inner one gets a name of its own.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, TableAlias, TableFactor, VisitMut,
    VisitorMut,
};

use crate::statements::syntax::{normal, quoted};

/// The name that planning found twice.
pub(crate) fn repeated(error: &DataFusionError) -> Option<String> {
    let DataFusionError::Plan(message) = error.find_root() else {
        return None;
    };
    let (name, _) = message
        .strip_prefix("WITH query name \"")?
        .split_once("\" specified more than once")?;
    Some(name.to_string())
}

/// Gives other names to tables of this name that queries within others define; whether there were any.
pub(crate) fn set_apart(statement: &mut Statement, name: &str) -> bool {
    let mut queries = Queries {
        name,
        around: 0,
        made: 0,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut queries);
    queries.made > 0
}

struct Queries<'a> {
    name: &'a str,
    /// How many of the queries around define the name.
    around: usize,
    made: usize,
}

impl VisitorMut for Queries<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.around += usize::from(place(query, self.name).is_some());
        ControlFlow::Continue(())
    }

    /// The innermost comes first, so that what is left of the name within a query is its own.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Some(place) = place(query, self.name) else {
            return ControlFlow::Continue(());
        };
        self.around -= 1;
        if self.around > 0 {
            self.made += 1;
            let own = quoted(&format!("__{}_{}", self.name, self.made));
            rename(query, place, self.name, &own);
        }
        ControlFlow::Continue(())
    }
}

/// Which of a query's own tables has the name.
fn place(query: &Query, name: &str) -> Option<usize> {
    let tables = &query.with.as_ref()?.cte_tables;
    tables
        .iter()
        .position(|table| normal(&table.alias.name) == name)
}

fn rename(query: &mut Query, place: usize, name: &str, own: &Ident) {
    let mut uses = Uses { name, own };
    let with = query.with.take();
    let _: ControlFlow<()> = VisitMut::visit(query, &mut uses);
    query.with = with;
    let Some(with) = &mut query.with else {
        return;
    };
    // Those before it, and it itself where it is not recursive, mean the one around.
    let first = place + usize::from(!with.recursive);
    for table in &mut with.cte_tables[first..] {
        let _: ControlFlow<()> = VisitMut::visit(&mut table.query, &mut uses);
    }
    with.cte_tables[place].alias.name = own.clone();
}

/// Puts another name in the place of that of a table; its columns keep theirs.
struct Uses<'a> {
    name: &'a str,
    own: &'a Ident,
}

impl VisitorMut for Uses<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = table
            && let [ObjectNamePart::Identifier(used)] = &name.0[..]
            && normal(used) == self.name
        {
            let used = used.clone();
            *name = ObjectName::from(vec![self.own.clone()]);
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: used,
                columns: vec![],
                at: None,
            });
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::{plan_text, tests::answer};

    #[tokio::test]
    async fn names_within_hide_those_around() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "WITH t AS (SELECT 1 AS x) SELECT (WITH t AS (SELECT 2 AS x) SELECT t.x FROM t) AS inner_x, x FROM t",
                "SELECT 2 AS inner_x, 1 AS x",
            ),
            (
                "WITH t AS (SELECT 1 AS x), u AS (WITH t AS (SELECT x + 10 AS x FROM t) SELECT * FROM t) SELECT t.x AS a, u.x AS b FROM t, u",
                "SELECT 1 AS a, 11 AS b",
            ),
            (
                "WITH t AS (SELECT 1 AS x) SELECT * FROM (WITH t AS (SELECT 2 AS x) SELECT * FROM (WITH t AS (SELECT x + 3 AS x FROM t) SELECT x FROM t) AS s) AS r",
                "SELECT 5 AS x",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
        let twice = "WITH t AS (SELECT 1 AS x), t AS (SELECT 2 AS x) SELECT x FROM t";
        assert!(plan_text(&context.state(), twice).await.is_err());
    }
}
