//! The files of object stores that clients reach: those below given prefixes, to read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

/// A folder in an object store, whose files are tables.
#[derive(Debug, Clone)]
pub struct StoreFolder {
    /// Where it is, such as `s3://bucket/tables/`.
    pub location: ListingTableUrl,
    /// The store, with what it takes to reach it.
    pub store: Arc<dyn ObjectStore>,
}

/// An object store of which some prefixes can be read, and nothing else.
#[derive(Debug, Clone)]
struct PrefixStore {
    root: String,
    store: Arc<dyn ObjectStore>,
    prefixes: Arc<[Path]>,
}

/// Gives a runtime the stores of these folders, as far as the folders go.
pub(crate) fn register(runtime: &RuntimeEnv, folders: &[StoreFolder]) {
    for folder in folders {
        let root = folder.location.object_store();
        let same = folders
            .iter()
            .filter(|other| other.location.object_store() == root);
        let store = PrefixStore {
            root: root.as_str().to_string(),
            store: Arc::clone(&folder.store),
            prefixes: same.map(|other| other.location.prefix().clone()).collect(),
        };
        runtime.register_object_store(root.as_ref(), Arc::new(store));
    }
}

impl PrefixStore {
    /// Refuses what does not lie below a prefix. Paths of stores have no `..`.
    fn check(&self, location: &Path) -> Result<()> {
        let below = |prefix: &Path| location.prefix_matches(prefix);
        match self.prefixes.iter().any(below) {
            true => Ok(()),
            false => Err(self.refusal(location, "the server gives clients no access there")),
        }
    }

    fn read_only(&self, location: &Path) -> Error {
        self.refusal(location, "the server lets clients write no files")
    }

    fn refusal(&self, location: &Path, why: &'static str) -> Error {
        Error::PermissionDenied {
            path: format!("{}{location}", self.root),
            source: why.into(),
        }
    }
}

impl fmt::Display for PrefixStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files of the server's folders in {}", self.root)
    }
}

#[async_trait]
impl ObjectStore for PrefixStore {
    async fn put_opts(&self, location: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(self.read_only(location))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(self.read_only(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(location)?;
        self.store.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.check(location)?;
        self.store.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let refuse = move |location: Result<Path>| {
            let refused = location.and_then(|location| Err(store.read_only(&location)));
            std::future::ready(refused)
        };
        locations.then(refuse).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.check(prefix.unwrap_or(&Path::ROOT)) {
            return stream::once(async { Err(error) }).boxed();
        }
        let store = self.clone();
        // A store may take a prefix for the beginning of a name.
        let below =
            move |meta: &ObjectMeta| std::future::ready(store.check(&meta.location).is_ok());
        self.store.list(prefix).try_filter(below).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.check(prefix.unwrap_or(&Path::ROOT)) {
            return stream::once(async { Err(error) }).boxed();
        }
        let store = self.clone();
        let below =
            move |meta: &ObjectMeta| std::future::ready(store.check(&meta.location).is_ok());
        let listed = self.store.list_with_offset(prefix, offset);
        listed.try_filter(below).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check(prefix.unwrap_or(&Path::ROOT))?;
        let mut listed = self.store.list_with_delimiter(prefix).await?;
        listed.objects.retain(|m| self.check(&m.location).is_ok());
        listed
            .common_prefixes
            .retain(|path| self.check(path).is_ok());
        Ok(listed)
    }

    async fn copy_opts(&self, _: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        Err(self.read_only(to))
    }

    async fn rename_opts(&self, _: &Path, to: &Path, _: RenameOptions) -> Result<()> {
        Err(self.read_only(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::object_store::ObjectStoreExt;
    use datafusion::object_store::memory::InMemory;

    #[tokio::test]
    async fn only_files_of_the_prefixes_are_read() {
        let files = Arc::new(InMemory::new());
        for name in [
            "a/t.csv",
            "a/u/1.csv",
            "b/t.csv",
            "ab/t.csv",
            "t.csv",
            "c/t.csv",
        ] {
            files.put(&Path::from(name), "x".into()).await.unwrap();
        }
        let folder = |location: &str| StoreFolder {
            location: ListingTableUrl::parse(location).unwrap(),
            store: Arc::clone(&files) as Arc<dyn ObjectStore>,
        };
        let runtime = RuntimeEnvBuilder::new().build_arc().unwrap();
        register(&runtime, &[folder("s3://one/a/"), folder("s3://one/c")]);
        let url = ListingTableUrl::parse("s3://one/").unwrap();
        let store = runtime.object_store(&url).unwrap();
        for name in ["a/t.csv", "a/u/1.csv", "c/t.csv"] {
            assert!(store.get(&Path::from(name)).await.is_ok(), "{name}");
        }
        for name in ["b/t.csv", "ab/t.csv", "t.csv", "a", "d/t.csv"] {
            let got = store.get(&Path::from(name)).await;
            let denied = matches!(got, Err(Error::PermissionDenied { .. }));
            assert!(denied || name == "a", "{name}: {got:?}");
            assert!(got.is_err(), "{name}");
        }
        let listed = |prefix: &str| {
            let listed = store.list(Some(&Path::from(prefix)));
            listed.try_collect::<Vec<_>>()
        };
        assert_eq!(listed("a").await.unwrap().len(), 2);
        for prefix in ["", "b", "ab"] {
            assert!(listed(prefix).await.is_err(), "{prefix}");
        }
        let by_folder = store.list_with_delimiter(Some(&Path::from("a"))).await;
        assert_eq!(by_folder.unwrap().common_prefixes, [Path::from("a/u")]);
        assert!(store.list_with_delimiter(None).await.is_err());
        let behind = store.list_with_offset(Some(&Path::from("a")), &Path::from("a/t.csv"));
        assert_eq!(behind.try_collect::<Vec<_>>().await.unwrap().len(), 1);
        assert!(store.put(&Path::from("a/t.csv"), "y".into()).await.is_err());
        assert!(store.delete(&Path::from("a/t.csv")).await.is_err());
        let (from, to) = (Path::from("a/t.csv"), Path::from("a/v.csv"));
        assert!(store.copy(&from, &to).await.is_err());
        let other = ListingTableUrl::parse("s3://two/a/").unwrap();
        assert!(runtime.object_store(&other).is_err());
    }
}
