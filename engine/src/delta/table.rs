//! A table of Delta Lake as DataFusion's: each query reads the latest version, or always the one that was asked for.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use deltalake_core::DeltaTable;
use deltalake_core::delta_datafusion::DeltaScanNext;
use parking_lot::Mutex;
use warpline_gpu::tables::SealedScanExec;

use super::error::failed;
use super::files::VersionFiles;

/// A table of Delta Lake.
pub(crate) struct DeltaProvider {
    name: TableReference,
    location: String,
    schema: SchemaRef,
    /// Does it read the latest version?
    follows: bool,
    /// Settings of the session that opened it.
    settings: Arc<SessionState>,
    log: tokio::sync::Mutex<DeltaTable>,
    /// The version that was read last.
    latest: Mutex<Option<Arc<Version>>>,
}

/// A version of the table.
struct Version {
    number: u64,
    /// Where a column of the table is in this version.
    columns: Vec<usize>,
    provider: DeltaScanNext,
    files: Option<VersionFiles>,
}

impl DeltaProvider {
    /// The table whose log is loaded; its columns are those of the loaded version.
    ///
    /// # Errors
    /// When the log asks for what the crate does not know, or is damaged.
    pub(super) async fn try_new(
        session: &dyn Session,
        name: TableReference,
        location: &str,
        log: DeltaTable,
        follows: bool,
        settings: Arc<SessionState>,
    ) -> Result<Self> {
        let provider = scan_of(&log, &settings).await?;
        let table = Self {
            name,
            location: location.to_string(),
            schema: provider.schema(),
            follows,
            settings,
            latest: Mutex::new(None),
            log: tokio::sync::Mutex::new(log),
        };
        {
            let log = table.log.lock().await;
            let version = table.version(session, &log, provider).await?;
            *table.latest.lock() = Some(Arc::new(version));
        }
        Ok(table)
    }

    /// The number of the version that a query would read now.
    ///
    /// # Errors
    /// When the log cannot be read, or has become one of other columns.
    pub(crate) async fn current_version(&self, session: &dyn Session) -> Result<u64> {
        Ok(self.current(session).await?.number)
    }

    async fn current(&self, session: &dyn Session) -> Result<Arc<Version>> {
        let mut log = self.log.lock().await;
        if self.follows {
            let updated = log.update_state().await;
            updated.map_err(|error| failed(&self.location, error))?;
        }
        let known = self.latest.lock().clone();
        if let Some(known) = known
            && Some(known.number) == log.version()
        {
            return Ok(known);
        }
        let provider = scan_of(&log, &self.settings).await?;
        let version = Arc::new(self.version(session, &log, provider).await?);
        *self.latest.lock() = Some(Arc::clone(&version));
        Ok(version)
    }

    async fn version(
        &self,
        session: &dyn Session,
        log: &DeltaTable,
        provider: DeltaScanNext,
    ) -> Result<Version> {
        let schema = provider.schema();
        let number = log.version().unwrap_or_default();
        let columns = self.columns_in(&schema).ok_or_else(|| {
            DataFusionError::Plan(format!(
                "Delta table {}: version {number} has other columns than '{}' was created with; create the table anew",
                self.location, self.name
            ))
        })?;
        let files = VersionFiles::of(session, &self.name, &self.location, log, &provider, &schema);
        Ok(Version {
            number,
            columns,
            files: files.await?,
            provider,
        })
    }

    /// Where the table's columns are in a version; `None` if one is gone, or of another type.
    fn columns_in(&self, version: &Schema) -> Option<Vec<usize>> {
        let columns = self.schema.fields().iter().map(|field| {
            let (at, found) = version.column_with_name(field.name())?;
            let same = found.data_type() == field.data_type()
                && found.is_nullable() <= field.is_nullable();
            same.then_some(at)
        });
        columns.collect()
    }
}

/// The crate's own scan of the loaded version.
async fn scan_of(log: &DeltaTable, settings: &Arc<SessionState>) -> Result<DeltaScanNext> {
    let builder = log.table_provider().with_session(Arc::clone(settings));
    builder.build().await
}

impl fmt::Debug for DeltaProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaProvider")
            .field("name", &self.name)
            .field("location", &self.location)
            .field("follows", &self.follows)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for DeltaProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters leave out files, and are applied again: which of them are exact differs between versions.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let version = self.current(session).await?;
        let columns: Vec<usize> = match projection {
            Some(projection) => projection.iter().map(|at| version.columns[*at]).collect(),
            None => version.columns.clone(),
        };
        let schema = version.provider.schema();
        // NULLs inside of nested values may be where the log has none, which the crate sees to.
        let nested = |at: &usize| schema.field(*at).data_type().is_nested();
        if let Some(files) = &version.files
            && !columns.iter().any(nested)
        {
            return files.scan(session, &columns, filters, limit).await;
        }
        let known: Vec<&Expr> = filters.iter().collect();
        let known = version.provider.supports_filters_pushdown(&known)?;
        let filters = filters.iter().zip(known);
        let filters: Vec<Expr> = filters
            .filter(|(_, known)| *known != TableProviderFilterPushDown::Unsupported)
            .map(|(filter, _)| filter.clone())
            .collect();
        let scan = version
            .provider
            .scan(session, Some(&columns), &filters, limit)
            .await?;
        Ok(Arc::new(SealedScanExec::new(scan)))
    }

    async fn insert_into(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !self.follows {
            return Err(DataFusionError::Plan(format!(
                "'{}' is Delta table {} at a version of the past: create a table without version and timestamp to add rows",
                self.name, self.location
            )));
        }
        let version = self.current(session).await?;
        let provider = &version.provider;
        provider.insert_into(session, input, operation).await
    }
}
