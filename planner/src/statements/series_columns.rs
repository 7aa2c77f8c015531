//! `FROM generate_series(1, 9) AS day`: PostgreSQL calls the column as the table, where DataFusion calls it `value`.
//!
//! It is called so where a query asks for a column of the name that is not there.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    ObjectNamePart, Statement, TableAliasColumnDef, TableFactor, VisitMut, VisitorMut,
};

use crate::statements::syntax::{normal, schema_error};

/// The column that planning found nowhere.
pub(crate) fn missing(error: &DataFusionError) -> Option<String> {
    match schema_error(error)? {
        SchemaError::FieldNotFound { field, .. } => Some(field.name.clone()),
        _ => None,
    }
}

/// Calls the column of such tables of this name as these; whether there was one.
pub(crate) fn called(statement: &mut Statement, name: &str) -> bool {
    let mut series = Series {
        name,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut series);
    series.changed
}

struct Series<'a> {
    name: &'a str,
    changed: bool,
}

impl VisitorMut for Series<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name,
            alias: Some(alias),
            args: Some(_),
            ..
        } = table
            && let [ObjectNamePart::Identifier(function)] = &name.0[..]
            && matches!(&*normal(function), "generate_series" | "range")
            && alias.columns.is_empty()
            && normal(&alias.name) == self.name
        {
            alias.columns.push(TableAliasColumnDef {
                name: alias.name.clone(),
                data_type: None,
            });
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn a_series_is_called_as_its_table() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "SELECT n, n * 2 AS d FROM generate_series(1, 3) AS n ORDER BY n",
                "SELECT n, n * 2 AS d FROM generate_series(1, 3) AS n(n) ORDER BY n",
            ),
            (
                "SELECT s.value AS n FROM generate_series(1, 3) AS s ORDER BY 1",
                "SELECT n FROM generate_series(1, 3) AS s(n) ORDER BY 1",
            ),
            (
                "SELECT a.m AS x, count(b.value) AS c FROM range(1, 4) AS n JOIN (SELECT 2 AS m) a ON a.m <= n.n JOIN generate_series(1, 2) b ON true GROUP BY 1",
                "SELECT 2 AS x, 4 AS c",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
