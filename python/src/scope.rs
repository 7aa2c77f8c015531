//! Tables that one statement sees beside those of the session: variables of the caller.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::error::Result;

/// Tables by the names that a statement has for them.
pub(crate) type Variables = Arc<HashMap<String, Arc<dyn TableProvider>>>;

tokio::task_local! {
    /// Those of the statement that is being planned.
    static VARIABLES: Variables;
}

/// Plans and runs a statement that may name these tables.
pub(crate) async fn with<F: Future>(variables: Variables, work: F) -> F::Output {
    VARIABLES.scope(variables, work).await
}

/// The schema of a session: its tables, and behind them those of the statement's scope. They are in no catalog, so that
/// statements at the same time do not see each other's.
#[derive(Debug, Default)]
pub(crate) struct SessionSchema {
    tables: MemorySchemaProvider,
}

#[async_trait]
impl SchemaProvider for SessionSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.tables.table(name).await? {
            return Ok(Some(table));
        }
        let variable = VARIABLES.try_with(|variables| variables.get(name).cloned());
        Ok(variable.ok().flatten())
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.tables.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.tables.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.table_exist(name)
    }
}
