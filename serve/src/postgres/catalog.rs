//! `pg_catalog` in each session: what clients of PostgreSQL ask of tables, types and the server.
//!
//! `datafusion-pg-catalog` sets a session up from nothing: it decodes 5 MB of tables, and registers a schema that holds the list of
//! catalogs it is in, so that nothing of the session would ever be freed. Here sessions share the tables, and the schema knows the
//! list only as long as the session lives.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::catalog_info::CatalogInfo;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::generate_series_arg_coercion::CoerceIntArgsToBigInt;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::{
    PgCatalogSchemaProvider, PgCatalogStaticTables, setup_pg_catalog,
};
use parking_lot::Mutex;

/// The schema's name.
const SCHEMA: &str = "pg_catalog";

/// What the sessions of a server share.
#[derive(Default)]
pub(super) struct PgCatalogs {
    /// By the name of the catalog, which `current_database()` tells.
    made: Mutex<HashMap<String, Arc<Shared>>>,
}

/// What is the same in every session whose catalog has one name.
struct Shared {
    tables: Arc<PgCatalogStaticTables>,
    functions: Vec<Arc<ScalarUDF>>,
}

impl PgCatalogs {
    /// Adds schema, functions and types to a session, in its catalog `catalog`.
    ///
    /// # Errors
    /// A session without that catalog, or one that takes no schemas.
    pub(super) fn add(&self, context: &SessionContext, catalog: &str) -> Result<()> {
        let shared = self.shared(catalog)?;
        let provider = context.catalog(catalog).ok_or_else(|| {
            DataFusionError::Configuration(format!("the session has no catalog '{catalog}'"))
        })?;
        let catalogs = Catalogs(Arc::downgrade(context.state_ref().read().catalog_list()));
        let schema = PgCatalogSchemaProvider::try_new(
            catalogs,
            Arc::clone(&shared.tables),
            EmptyContextProvider,
        )?;
        provider.register_schema(SCHEMA, Arc::new(schema))?;
        for function in &shared.functions {
            context.register_udf(function.as_ref().clone());
        }
        let keywords = Arc::clone(&shared.tables.pg_get_keywords);
        context.register_udtf("pg_get_keywords", keywords);
        let state = context.state_ref();
        let types = SessionStateBuilder::new_from_existing(context.state())
            .with_type_planner(Arc::new(PgOidTypePlanner))
            .build();
        *state.write() = types;
        CoerceIntArgsToBigInt::widen(context);
        Ok(())
    }

    fn shared(&self, catalog: &str) -> Result<Arc<Shared>> {
        let mut made = self.made.lock();
        if let Some(shared) = made.get(catalog) {
            return Ok(Arc::clone(shared));
        }
        let shared = Arc::new(Shared::new(catalog)?);
        made.insert(catalog.to_string(), Arc::clone(&shared));
        Ok(shared)
    }
}

impl Shared {
    /// Sets a session up by the crate, for the functions that it has then and had not before.
    fn new(catalog: &str) -> Result<Self> {
        let config = SessionConfig::new().with_default_catalog_and_schema(catalog, "public");
        let context = SessionContext::new_with_config(config);
        let before = context.state();
        setup_pg_catalog(&context, catalog, EmptyContextProvider).map_err(|error| *error)?;
        let is_new = |name: &str, function: &Arc<ScalarUDF>| {
            let old = before.scalar_functions().get(name);
            old.is_none_or(|old| !Arc::ptr_eq(old, function))
        };
        let functions = context.state().scalar_functions().clone().into_iter();
        let functions = functions.filter(|(name, function)| is_new(name, function));
        let functions = functions.map(|(_, function)| function).collect();
        // The schema holds the list that it is in.
        if let Some(provider) = context.catalog(catalog) {
            provider.deregister_schema(SCHEMA, true)?;
        }
        Ok(Self {
            tables: Arc::new(PgCatalogStaticTables::try_new()?),
            functions,
        })
    }
}

/// The catalogs of a session that may have ended, and then has none.
#[derive(Debug, Clone)]
struct Catalogs(Weak<dyn CatalogProviderList>);

impl Catalogs {
    fn list(&self) -> Arc<dyn CatalogProviderList> {
        let none = || Arc::new(MemoryCatalogProviderList::new()) as _;
        self.0.upgrade().unwrap_or_else(none)
    }
}

#[async_trait]
impl CatalogInfo for Catalogs {
    async fn catalog_names(&self) -> Result<Vec<String>> {
        CatalogInfo::catalog_names(&self.list()).await
    }

    async fn schema_names(&self, catalog: &str) -> Result<Option<Vec<String>>> {
        self.list().schema_names(catalog).await
    }

    async fn table_names(&self, catalog: &str, schema: &str) -> Result<Option<Vec<String>>> {
        self.list().table_names(catalog, schema).await
    }

    async fn table_schema(
        &self,
        catalog: &str,
        schema: &str,
        table: &str,
    ) -> Result<Option<SchemaRef>> {
        self.list().table_schema(catalog, schema, table).await
    }

    async fn table_type(
        &self,
        catalog: &str,
        schema: &str,
        table: &str,
    ) -> Result<Option<TableType>> {
        self.list().table_type(catalog, schema, table).await
    }
}
