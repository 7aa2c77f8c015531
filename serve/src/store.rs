//! The files that clients reach: those below given folders, to read. Every path is resolved first, so that neither `..` nor a
//! symbolic link leads out.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use warpline_planner::cpu_memory;

use crate::error::StartError;

/// Local files below some folders, to read.
#[derive(Debug, Clone)]
pub struct FolderStore {
    folders: Arc<[PathBuf]>,
    files: Arc<LocalFileSystem>,
}

impl FolderStore {
    /// The files of these folders, which must exist.
    ///
    /// # Errors
    /// [`StartError::File`] for a folder that cannot be reached.
    pub fn open(folders: &[PathBuf]) -> std::result::Result<Self, StartError> {
        let resolved = folders.iter().map(|folder| {
            folder.canonicalize().map_err(|error| StartError::File {
                path: folder.clone(),
                cause: error.to_string(),
            })
        });
        Ok(Self {
            folders: resolved.collect::<std::result::Result<_, _>>()?,
            files: Arc::new(LocalFileSystem::new()),
        })
    }

    /// The folders, without links.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// A runtime whose only object store is this. Folders are listed for each query, so that files that are added are seen. What
    /// operators of the CPU take of host memory is bounded.
    ///
    /// # Errors
    /// What DataFusion reports.
    pub fn runtime(&self) -> datafusion::error::Result<Arc<RuntimeEnv>> {
        let runtime = RuntimeEnvBuilder::new()
            .with_object_list_cache_limit(0)
            .with_memory_pool(cpu_memory::pool())
            .build_arc()?;
        let files = ObjectStoreUrl::local_filesystem();
        runtime.register_object_store(files.as_ref(), Arc::new(self.clone()));
        Ok(runtime)
    }

    /// Refuses a path that does not lie in a folder. One that does not exist is judged by where it would be.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] for what lies elsewhere.
    pub fn check(&self, location: &Path) -> Result<()> {
        let path = self.files.path_to_filesystem(location)?;
        let resolved = resolved(&path).map_err(|_| denied(location))?;
        match self
            .folders
            .iter()
            .any(|folder| resolved.starts_with(folder))
        {
            true => Ok(()),
            false => Err(denied(location)),
        }
    }

    fn reachable(&self, meta: &ObjectMeta) -> bool {
        self.check(&meta.location).is_ok()
    }
}

/// The path without links and `..`; of one that does not exist, its nearest folder that does.
fn resolved(path: &FilePath) -> io::Result<PathBuf> {
    let mut path = path;
    loop {
        match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path = path.parent().ok_or(error)?;
            }
            outcome => return outcome,
        }
    }
}

fn denied(location: &Path) -> Error {
    Error::PermissionDenied {
        path: format!("/{location}"),
        source: "the server gives clients no access there".into(),
    }
}

fn read_only(location: &Path) -> Error {
    Error::PermissionDenied {
        path: format!("/{location}"),
        source: "the server lets clients write no files".into(),
    }
}

impl fmt::Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("files of the server's folders")
    }
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(&self, location: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only(location))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(location)?;
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.check(location)?;
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let refuse = |location: Result<Path>| async { Err(read_only(&location?)) };
        locations.then(refuse).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.check(prefix.unwrap_or(&Path::ROOT)) {
            return stream::once(async { Err(error) }).boxed();
        }
        let store = self.clone();
        let reachable = move |meta: &ObjectMeta| std::future::ready(store.reachable(meta));
        self.files.list(prefix).try_filter(reachable).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check(prefix.unwrap_or(&Path::ROOT))?;
        let mut listed = self.files.list_with_delimiter(prefix).await?;
        listed.objects.retain(|meta| self.reachable(meta));
        listed
            .common_prefixes
            .retain(|path| self.check(path).is_ok());
        Ok(listed)
    }

    async fn copy_opts(&self, _: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only(to))
    }

    async fn rename_opts(&self, _: &Path, to: &Path, _: RenameOptions) -> Result<()> {
        Err(read_only(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::object_store::ObjectStoreExt;

    #[tokio::test]
    async fn only_files_of_the_folders_are_read() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let inside = base.join("data");
        std::fs::create_dir_all(inside.join("t")).unwrap();
        std::fs::write(inside.join("t/a.csv"), "x").unwrap();
        std::fs::write(base.join("secret.csv"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("secret.csv"), inside.join("t/link.csv")).unwrap();
        std::fs::create_dir_all(base.join("other")).unwrap();
        std::fs::write(base.join("other/secret.csv"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("other"), inside.join("up")).unwrap();
        let store = FolderStore::open(std::slice::from_ref(&inside)).unwrap();
        let path = |p: PathBuf| Path::from_absolute_path(p).unwrap();
        assert!(store.get(&path(inside.join("t/a.csv"))).await.is_ok());
        for outside in [
            base.join("secret.csv"),
            inside.join("t/link.csv"),
            inside.join("up/secret.csv"),
            PathBuf::from("/etc/passwd"),
            base.join("data2/a.csv"),
        ] {
            let error = store
                .get(&Path::parse(outside.to_str().unwrap()).unwrap())
                .await;
            assert!(
                matches!(error, Err(Error::PermissionDenied { .. })),
                "{outside:?}: {error:?}"
            );
        }
        let listed: Vec<_> = store.list(Some(&path(inside.clone()))).collect().await;
        let names: Vec<_> = listed
            .into_iter()
            .map(|meta| meta.unwrap().location.filename().unwrap().to_string())
            .collect();
        assert_eq!(names, ["a.csv"]);
        assert!(store.list(None).next().await.unwrap().is_err());
        assert!(
            store
                .put(&path(inside.join("t/a.csv")), "y".into())
                .await
                .is_err()
        );
        assert!(store.delete(&path(inside.join("t/a.csv"))).await.is_err());
    }
}
