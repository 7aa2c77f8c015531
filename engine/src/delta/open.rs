//! Opening a table of Delta Lake: where it is, which version, by which object store.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::TableReference;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::scalar::ScalarValue;
use deltalake_core::logstore::logstore_factories;
use deltalake_core::{DeltaTable, DeltaTableBuilder};
use url::Url;

use super::error::failed;
use super::table::DeltaProvider;
use crate::stores;

/// What `STORED AS` names them.
pub(super) const FILE_TYPES: &[&str] = &["DELTATABLE", "DELTA"];

/// How a table of Delta Lake is read.
///
/// ```
/// use warpline::DeltaOptions;
///
/// let options = DeltaOptions { version: Some(3), ..DeltaOptions::default() };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeltaOptions {
    /// This version; the latest one of each query when neither this nor `timestamp` is given.
    pub version: Option<u64>,
    /// The last version before or at this time, such as `2026-01-31 12:00:00` (UTC) or `2026-01-31T12:00:00+01:00`.
    pub timestamp: Option<String>,
    /// Options of the object store, by the names of their environment variables, such as `aws_region`.
    pub storage: HashMap<String, String>,
}

impl DeltaOptions {
    /// The options of a statement.
    fn of(options: &HashMap<String, String>) -> Result<Self> {
        let mut found = Self::default();
        for (name, value) in options {
            match name.strip_prefix("format.").unwrap_or(name) {
                "version" => {
                    let version = value.parse().map_err(|_| {
                        let text = format!(
                            "version '{value}' of a Delta table: give a number, such as '3'"
                        );
                        DataFusionError::Plan(text)
                    })?;
                    found.version = Some(version);
                }
                "timestamp" => found.timestamp = Some(value.clone()),
                _ => {
                    found.storage.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(found)
    }
}

/// Makes tables of Delta Lake for `CREATE EXTERNAL TABLE`.
#[derive(Debug)]
pub(super) struct DeltaFactory;

#[async_trait]
impl TableProviderFactory for DeltaFactory {
    async fn create(
        &self,
        session: &dyn Session,
        command: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let [location] = command.locations.as_slice() else {
            let text = "a Delta table has one LOCATION: the folder that has its _delta_log";
            return Err(DataFusionError::Plan(text.into()));
        };
        if !command.schema.fields().is_empty() || !command.table_partition_cols.is_empty() {
            let text = "the columns and partitions of a Delta table are in its log: leave them out of CREATE EXTERNAL TABLE";
            return Err(DataFusionError::Plan(text.into()));
        }
        let options = DeltaOptions::of(&command.options)?;
        let name = Some(command.name.clone());
        Ok(Arc::new(open(session, name, location, &options).await?))
    }
}

/// The table at a location.
///
/// # Errors
/// When there is none, it has no such version, or its log cannot be read or asks for what the crate does not know.
pub(super) async fn open(
    session: &dyn Session,
    name: Option<TableReference>,
    location: &str,
    options: &DeltaOptions,
) -> Result<DeltaProvider> {
    let table = load(session, location, options).await?;
    // Types of strings are the session's at this time. A state without its tables: they will have this one among them.
    let settings = SessionStateBuilder::new()
        .with_config(session.config().clone())
        .build();
    let follows = options.version.is_none() && options.timestamp.is_none();
    let name = name.unwrap_or_else(|| TableReference::bare(location));
    DeltaProvider::try_new(session, name, location, table, follows, Arc::new(settings)).await
}

async fn load(session: &dyn Session, location: &str, options: &DeltaOptions) -> Result<DeltaTable> {
    let root = root(location)?;
    let url: &Url = root.as_ref();
    let store = stores::ensure(session.runtime_env(), &root, &options.storage)?;
    keep_logs_of(url)?;
    let explain = |error| failed(location, error);
    let mut builder = DeltaTableBuilder::from_url(url.clone())
        .map_err(explain)?
        .with_storage_backend(store, url.clone());
    match (options.version, &options.timestamp) {
        (Some(_), Some(_)) => {
            let text = "a Delta table is read at a version or at a timestamp, not at both";
            return Err(DataFusionError::Plan(text.into()));
        }
        (Some(version), None) => builder = builder.with_version(version),
        (None, Some(text)) => {
            let time = timestamp_us_to_datetime(microseconds(text)?);
            let time = time.ok_or_else(|| no_time(text))?;
            builder = builder.with_timestamp(time.and_utc());
        }
        (None, None) => {}
    }
    builder.load().await.map_err(explain)
}

/// The location as a folder.
fn root(location: &str) -> Result<ListingTableUrl> {
    let mut url = match Url::parse(location) {
        Ok(url) if location.contains("://") => url,
        _ => {
            let missing = |error: std::io::Error| {
                DataFusionError::from(error).context(format!("Delta table {location}"))
            };
            // Absolute, without links: the log's files are found by it.
            let path = std::path::absolute(location)
                .and_then(|path| path.canonicalize())
                .map_err(missing)?;
            Url::from_directory_path(&path).map_err(|()| {
                DataFusionError::Plan(format!("{} is no location of a table", path.display()))
            })?
        }
    };
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    ListingTableUrl::try_new(url, None)
}

/// The crate has logs in local files; those of other locations are alike.
fn keep_logs_of(url: &Url) -> Result<()> {
    let factories = logstore_factories();
    let scheme = |name: &str| Url::parse(&format!("{name}://"));
    let (Ok(here), Ok(local)) = (scheme(url.scheme()), scheme("file")) else {
        let text = format!("a Delta table cannot lie at {}://", url.scheme());
        return Err(DataFusionError::Plan(text));
    };
    if !factories.contains_key(&here) {
        let plain = factories.get(&local).map(|found| Arc::clone(found.value()));
        if let Some(plain) = plain {
            factories.insert(here, plain);
        }
    }
    Ok(())
}

/// A time in UTC, since 1970.
fn microseconds(text: &str) -> Result<i64> {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    match ScalarValue::try_from_string(text.to_string(), &utc) {
        Ok(ScalarValue::TimestampMicrosecond(Some(time), _)) => Ok(time),
        _ => Err(no_time(text)),
    }
}

fn no_time(text: &str) -> DataFusionError {
    DataFusionError::Plan(format!(
        "'{text}' is no time of a Delta table: give one as '2026-01-31 12:00:00', which is in UTC, or with an offset"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let noon = 1_769_860_800_000_000;
        for text in [
            "2026-01-31 12:00:00",
            "2026-01-31T12:00:00Z",
            "2026-01-31T13:00:00+01:00",
        ] {
            assert_eq!(microseconds(text).expect(text), noon, "{text}");
        }
        let error = microseconds("yesterday").expect_err("no time").to_string();
        assert!(error.contains("'yesterday' is no time"), "{error}");
    }

    #[test]
    fn options_of_statements() {
        let options = HashMap::from([
            ("format.version".to_string(), "3".to_string()),
            ("aws.region".to_string(), "eu-central-1".to_string()),
        ]);
        let options = DeltaOptions::of(&options).expect("options");
        assert_eq!(options.version, Some(3));
        assert_eq!(options.storage.len(), 1);
        let wrong = HashMap::from([("version".to_string(), "-1".to_string())]);
        let error = DeltaOptions::of(&wrong)
            .expect_err("no version")
            .to_string();
        assert!(error.contains("version '-1'"), "{error}");
    }
}
