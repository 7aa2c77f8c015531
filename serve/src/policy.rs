//! What clients may run: a list of statements and plan nodes; whatever is not on it is refused.
//!
//! The list is the second wall. Files lie behind [`crate::store`], which reads the server's folders and writes nothing.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlannedStatement};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{CopyTarget, ObjectType, Statement};

use warpline_planner::statements;

use crate::client::Client;
use crate::error::{Result, ServeError};
use crate::fetch_first::as_limit;

/// Refuses texts of which DataFusion's own grammar makes external tables, and PostgreSQL's nothing.
pub(crate) fn check_text(sql: &str) -> Result<()> {
    let mut words = sql.split_whitespace().map(str::to_ascii_uppercase);
    let creates = words.next().as_deref() == Some("CREATE");
    match creates && words.take(3).any(|word| word == "EXTERNAL") {
        true => Err(ServeError::denied(EXTERNAL)),
        false => Ok(()),
    }
}

/// Refuses a statement that is not for clients.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Query(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Set(_)
        | Statement::Reset(_)
        | Statement::ShowVariable { .. }
        | Statement::ShowVariables { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowFunctions { .. }
        | Statement::ShowCreate { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowDatabases { .. }
        | Statement::ShowCatalogs { .. }
        | Statement::ShowViews { .. }
        | Statement::ExplainTable { .. }
        | Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Savepoint { .. }
        | Statement::ReleaseSavepoint { .. }
        | Statement::Discard { .. }
        | Statement::Declare { .. }
        | Statement::Fetch { .. }
        | Statement::Close { .. }
        | Statement::Execute { .. }
        | Statement::Deallocate { .. }
        | Statement::CreateView(_) => Ok(()),
        Statement::Explain { statement, .. } | Statement::Prepare { statement, .. } => {
            check(statement)
        }
        Statement::CreateSchema { .. } => Ok(()),
        Statement::Drop { object_type, .. } => match object_type {
            ObjectType::Table | ObjectType::View | ObjectType::Schema => Ok(()),
            _ => Err(ServeError::unsupported(&format!("DROP {object_type}"))),
        },
        Statement::CreateTable(table) => match table.external || table.location.is_some() {
            true => Err(ServeError::denied(EXTERNAL)),
            false => Ok(()),
        },
        Statement::Copy { to, target, .. } => match (to, target) {
            (true, CopyTarget::Stdout) => Ok(()),
            (false, CopyTarget::Stdin) => Err(ServeError::unsupported("COPY FROM STDIN")),
            _ => Err(ServeError::denied(FILES)),
        },
        Statement::Directory { .. } | Statement::Unload { .. } => Err(ServeError::denied(FILES)),
        Statement::CreateFunction(_)
        | Statement::CreateExtension(_)
        | Statement::Load { .. }
        | Statement::AttachDatabase { .. } => Err(ServeError::denied(
            "clients cannot load code or other databases",
        )),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(ServeError::unsupported(&words.join(" ")))
        }
    }
}

const EXTERNAL: &str =
    "clients add no tables of files: the server's tables are those of its folders (--data)";
const FILES: &str = "clients read and write no files of the server: COPY (query) TO STDOUT sends rows to the client";

/// Refuses a plan that changes what is not the client's.
fn check_plan(plan: &LogicalPlan, client: &Client) -> Result<()> {
    let shared = client.server.providers();
    // Clients make tables in memory alone.
    let is_clients = |table: &Arc<dyn TableProvider>| {
        client.session.is_in_memory(table) && !shared.iter().any(|other| Arc::ptr_eq(other, table))
    };
    let mut refusal = None;
    plan.apply_with_subqueries(|node| {
        if let Err(error) = check_node(node, &is_clients) {
            refusal = Some(error);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    refusal.map_or(Ok(()), Err)
}

fn check_node(
    node: &LogicalPlan,
    is_clients: &dyn Fn(&Arc<dyn TableProvider>) -> bool,
) -> Result<()> {
    match node {
        LogicalPlan::Copy(_) => Err(ServeError::denied(FILES)),
        LogicalPlan::Dml(dml) => {
            let table = source_as_provider(&dml.target)?;
            match is_clients(&table) {
                true => Ok(()),
                false => Err(ServeError::denied(format!(
                    "table '{}' is the server's: clients change tables that they made with CREATE TABLE",
                    dml.table_name
                ))),
            }
        }
        LogicalPlan::Ddl(ddl) => match ddl {
            DdlStatement::CreateMemoryTable(_)
            | DdlStatement::CreateView(_)
            | DdlStatement::CreateCatalogSchema(_)
            | DdlStatement::DropTable(_)
            | DdlStatement::DropView(_)
            | DdlStatement::DropCatalogSchema(_) => Ok(()),
            DdlStatement::CreateExternalTable(_) => Err(ServeError::denied(EXTERNAL)),
            other => Err(ServeError::unsupported(other.name())),
        },
        // Settings go their own way, past the list of those that are for clients.
        LogicalPlan::Statement(
            PlannedStatement::SetVariable(_) | PlannedStatement::ResetVariable(_),
        ) => Err(ServeError::denied("settings cannot be changed there")),
        _ => Ok(()),
    }
}

/// A plan of the statement that changes nothing but what is the client's.
pub(crate) async fn planned(client: &Arc<Client>, ast: &Statement) -> Result<LogicalPlan> {
    let mut ast = ast.clone();
    // Whatever a client makes goes with its session.
    match &mut ast {
        Statement::CreateTable(table) => table.temporary = false,
        Statement::CreateView(view) => view.temporary = false,
        _ => {}
    }
    as_limit(&mut ast);
    let statement = DfStatement::Statement(Box::new(ast));
    let plan = statements::plan(&client.context().state(), statement).await?;
    check_plan(&plan, client)?;
    Ok(plan)
}

impl From<Box<DataFusionError>> for ServeError {
    fn from(error: Box<DataFusionError>) -> Self {
        (*error).into()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn code(sql: &str) -> Option<&'static str> {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql);
        let statements = parsed.unwrap_or_else(|error| panic!("{sql}: {error}"));
        check(&statements[0]).err().map(|error| error.code)
    }

    #[test]
    fn statements_of_clients_pass() {
        for sql in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "EXPLAIN ANALYZE SELECT 1",
            "CREATE TABLE t (a INT)",
            "CREATE TEMPORARY TABLE t AS SELECT 1",
            "INSERT INTO t VALUES (1)",
            "COPY (SELECT 1) TO STDOUT",
            "BEGIN",
            "DROP TABLE t",
            "SET a = 1",
        ] {
            assert_eq!(code(sql), None, "{sql}");
        }
    }

    #[test]
    fn what_reaches_the_host_is_refused() {
        for sql in [
            "COPY (SELECT 1) TO '/tmp/x'",
            "COPY t FROM '/etc/passwd'",
            "COPY (SELECT 1) TO PROGRAM 'sh'",
            "EXPLAIN COPY (SELECT 1) TO '/tmp/x'",
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/tmp/x'",
            "CREATE FUNCTION f() RETURNS INT AS 'x' LANGUAGE c",
            "CREATE EXTENSION x",
        ] {
            assert!(code(sql).is_some(), "{sql}");
        }
        for sql in [
            "CREATE DATABASE x",
            "GRANT SELECT ON t TO u",
            "CREATE ROLE r",
            "VACUUM",
        ] {
            assert_eq!(code(sql), Some("0A000"), "{sql}");
        }
    }
}
