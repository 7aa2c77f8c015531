//! Local files, as they were listed and as they are.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use datafusion::object_store::ObjectMeta;

/// Has the local file the size, the time and the inode of its listing? One system call, no task. False also when its path
/// cannot be looked up as it stands; its store then decides.
pub fn unchanged_on_disk(listed: &ObjectMeta) -> bool {
    let path = format!("/{}", listed.location);
    std::fs::metadata(path).is_ok_and(|found| is_as_listed(&found, listed))
}

fn is_as_listed(found: &Metadata, listed: &ObjectMeta) -> bool {
    found.len() == listed.size
        && found
            .modified()
            .is_ok_and(|time| time == SystemTime::from(listed.last_modified))
        // Another file may have taken the place of one with its size and its time.
        && inode_of(listed).is_none_or(|inode| inode == found.ino())
}

/// The inode of a listed file, which the tags of local files begin with.
fn inode_of(listed: &ObjectMeta) -> Option<u64> {
    let (inode, _) = listed.e_tag.as_deref()?.split_once('-')?;
    u64::from_str_radix(inode, 16).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use datafusion::object_store::local::LocalFileSystem;
    use datafusion::object_store::path::Path;
    use datafusion::object_store::{ObjectStore, ObjectStoreExt};

    use super::*;

    #[tokio::test]
    async fn changes_of_a_file_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("50% of a file.csv");
        let store = LocalFileSystem::new();
        let listed = async || {
            let location = Path::from_absolute_path(&path).unwrap();
            store.head(&location).await.unwrap()
        };
        let write = |path: &std::path::Path, text: &str, seconds: u64| {
            fs::write(path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        write(&path, "one", 0);
        let first = listed().await;
        assert!(unchanged_on_disk(&first));
        // In place: of another size, of another time.
        write(&path, "three", 0);
        assert!(!unchanged_on_disk(&first));
        write(&path, "two", 1);
        assert!(!unchanged_on_disk(&first));
        assert!(unchanged_on_disk(&listed().await));
        write(&path, "one", 0);
        assert!(unchanged_on_disk(&first));
        // Another file, of the same size and time.
        let other = folder.path().join("other");
        write(&other, "six", 0);
        fs::rename(&other, &path).unwrap();
        assert!(!unchanged_on_disk(&first));
        let second = listed().await;
        assert!(unchanged_on_disk(&second));
        // Listings name files as they are looked up.
        let prefix = Path::from_absolute_path(folder.path()).unwrap();
        let found: Vec<_> = futures::TryStreamExt::try_collect(store.list(Some(&prefix)))
            .await
            .unwrap();
        assert_eq!(found, std::slice::from_ref(&second));
        fs::remove_file(&path).unwrap();
        assert!(!unchanged_on_disk(&second));
    }

    #[test]
    fn tags_of_other_stores_tell_no_inode() {
        let mut listed = ObjectMeta {
            location: "a".into(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: Some("1f-5-1".into()),
            version: None,
        };
        assert_eq!(inode_of(&listed), Some(0x1f));
        for tag in [None, Some("\"0x8D\"".to_string()), Some("xyz-1".into())] {
            listed.e_tag = tag;
            assert_eq!(inode_of(&listed), None);
        }
    }
}
