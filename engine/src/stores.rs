//! Object stores of locations: S3, Google Cloud Storage, Azure and HTTP, opened by the usual environment variables when they are
//! first asked for.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::{ObjectStore, ObjectStoreScheme, parse_url_opts};
use url::Url;
use warpline_planner::cpu_memory;

/// Variables of the environment that tell of stores begin so.
const VARIABLES: &[&str] = &["AWS_", "AZURE_", "GOOGLE_"];

/// A runtime that opens the store of a location by the environment, where nothing was registered for it. Folders are listed for each
/// query: lists that are kept do not have files that others add. What operators of the CPU take of host memory is bounded.
pub(crate) fn runtime() -> Result<Arc<RuntimeEnv>> {
    RuntimeEnvBuilder::new()
        .with_object_list_cache_limit(0)
        .with_memory_pool(cpu_memory::pool())
        .with_object_store_registry(Arc::new(EnvironmentStores::default()))
        .build_arc()
}

/// The stores that were registered, local files, and those that the environment describes.
#[derive(Debug, Default)]
struct EnvironmentStores {
    registered: DefaultObjectStoreRegistry,
}

impl ObjectStoreRegistry for EnvironmentStores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.registered.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.registered.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let unknown = match self.registered.get_store(url) {
            Ok(store) => return Ok(store),
            Err(unknown) => unknown,
        };
        if !is_remote(url) {
            return Err(unknown);
        }
        let store = open(url, &HashMap::new())?;
        self.registered.register_store(url, Arc::clone(&store));
        Ok(store)
    }
}

/// Makes sure that the runtime has a store for the location: one that it knows, else one by these options and the environment.
///
/// # Errors
/// When there is no store of such a location, or what describes it does not fit.
pub(crate) fn ensure(
    runtime: &RuntimeEnv,
    location: &ListingTableUrl,
    options: &HashMap<String, String>,
) -> Result<Arc<dyn ObjectStore>> {
    let url: &Url = location.as_ref();
    let known = runtime.object_store(location);
    if is_remote(url) && (known.is_err() || !options.is_empty()) {
        let store = open(url, options)?;
        runtime.register_object_store(url, Arc::clone(&store));
        return Ok(store);
    }
    known
}

/// The store of a location, by the environment.
///
/// # Errors
/// When there is no store of such a location, or what describes it does not fit.
#[cfg(feature = "serve")]
pub(crate) fn opened(location: &ListingTableUrl) -> Result<Arc<dyn ObjectStore>> {
    let url: &Url = location.as_ref();
    if !is_remote(url) {
        return Err(DataFusionError::Plan(format!(
            "{location} is no location of an object store: give one such as s3://bucket/tables"
        )));
    }
    open(url, &HashMap::new())
}

fn is_remote(url: &Url) -> bool {
    matches!(
        ObjectStoreScheme::parse(url),
        Ok((
            ObjectStoreScheme::AmazonS3
                | ObjectStoreScheme::GoogleCloudStorage
                | ObjectStoreScheme::MicrosoftAzure
                | ObjectStoreScheme::Http,
            _
        ))
    )
}

/// The store of a location. Options win over the environment; their names are those of the variables, as `aws_region`, or
/// datafusion-cli's, as `aws.region`.
fn open(url: &Url, options: &HashMap<String, String>) -> Result<Arc<dyn ObjectStore>> {
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let ours = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        ours.then(|| (name.to_ascii_lowercase(), value))
    });
    let mut described: HashMap<String, String> = environment.collect();
    if url.scheme() == "http" {
        described.insert("allow_http".into(), "true".into());
    }
    for (name, value) in options {
        described.insert(option(name), value.clone());
    }
    let (store, _) = parse_url_opts(url, described).map_err(|error| {
        let what = format!("opening the object store of {}", shown(url));
        DataFusionError::from(error).context(what)
    })?;
    Ok(Arc::from(store))
}

/// The name of an option as object stores know it. DataFusion puts `format.` before names without a point.
fn option(name: &str) -> String {
    let name = name.strip_prefix("format.").unwrap_or(name);
    let name = name.to_ascii_lowercase();
    match name.split_once('.') {
        Some(("gcp", key)) => format!("google_{key}"),
        Some((store, key)) => format!("{store}_{key}"),
        None => name,
    }
}

/// A location without what may be secret in it.
fn shown(url: &Url) -> String {
    format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_open_by_options() {
        let runtime = runtime().expect("a runtime");
        let location = |text: &str| ListingTableUrl::parse(text).expect("a location");
        for text in [
            "s3://bucket/t/",
            "gs://bucket/t/",
            "az://container/t/",
            "https://example.com/t/",
            "http://example.com/t/",
        ] {
            let options = HashMap::from([
                ("aws.region".to_string(), "eu-central-1".to_string()),
                ("azure_storage_account_name".to_string(), "account".into()),
                ("gcp.skip_signature".to_string(), "true".to_string()),
            ]);
            let store = ensure(&runtime, &location(text), &options);
            assert!(store.is_ok(), "{text}: {:?}", store.err());
        }
        let error = runtime.object_store(location("ftp://example.com/t/"));
        assert!(error.is_err());
    }

    #[test]
    fn names_of_options() {
        assert_eq!(option("aws.access_key_id"), "aws_access_key_id");
        assert_eq!(option("format.AWS_REGION"), "aws_region");
        assert_eq!(
            option("gcp.application_credentials_path"),
            "google_application_credentials_path"
        );
    }
}
