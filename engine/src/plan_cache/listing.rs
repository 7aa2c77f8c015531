//! The files of a location, and whether planning would list the same ones, unchanged.
//!
//! A location is listed by its store, as planning lists it. Of a local folder, what the store went by is noted as well: it and the
//! folders in it, and the names in each. As long as these and the noted files are as they were, a listing would be the same, whatever
//! its rules are; to see that takes a system call a folder and a file.
//!
//! The time of a folder tells that no name came, went or changed, unless file systems keep it coarsely: what changes twice within
//! their step has the same time before and after. So it is believed only where it was old when the names were read, on file systems
//! that are known to keep it; elsewhere the names are read again. What neither tells is left to the store.

use std::collections::HashSet;
use std::fs::{DirEntry, FileType, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use parking_lot::RwLock;
use warpline_gpu::tables::unchanged_on_disk;

/// File systems keep times in steps of at most so long (FAT: two seconds).
const COARSEST_TIME: Duration = Duration::from_secs(2);

/// File systems of this machine that set the time of a folder whenever a name in it changes.
const WITH_TIMES: &[&str] = &[
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs",
];

/// Most folders below one location that are looked at without its store.
const MOST_FOLDERS: usize = 4096;

/// Files that one thread looks at: about a millisecond.
const FILES_AT_ONCE: usize = 512;

/// The files of one location as planning would list them, by path: stores list them in any order.
///
/// # Errors
/// What the store reports.
pub(crate) async fn listed_files(
    state: &SessionState,
    table: &ListingTable,
    location: &ListingTableUrl,
) -> Result<Vec<ObjectMeta>> {
    let store = state.runtime_env().object_store(location)?;
    let extension = &table.options().file_extension;
    let files = location
        .list_all_files(state, store.as_ref(), extension)
        .await?;
    let mut files: Vec<ObjectMeta> = files.try_collect().await?;
    files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
    Ok(files)
}

/// What planning lists at a location.
#[derive(Debug)]
pub(super) struct Listing {
    files: Arc<[ObjectMeta]>,
    is_local: bool,
    /// The folders that were listed; `None`: only the store tells what is there.
    folders: RwLock<Option<Vec<Folder>>>,
}

impl Listing {
    /// What is at the location now.
    ///
    /// # Errors
    /// What the store reports.
    pub(super) async fn of(
        state: &SessionState,
        table: &ListingTable,
        location: &ListingTableUrl,
    ) -> Result<Self> {
        let is_local = location.object_store().as_str().starts_with("file:");
        // A runtime that the host has made may keep listings, which are planning's, for as long as it likes.
        let keeps_lists = state.runtime_env().cache_manager.get_list_files_cache();
        let looks = is_local && keeps_lists.is_none();
        // Noted before the files are listed: what changes in between makes the notes out of date.
        let noted = match looks && location.is_collection() {
            true => folders_below(location).await,
            false => None,
        };
        let files = listed_files(state, table, location).await?;
        let folders = noted.and_then(|noted| noted.of_listing(&files));
        // A location that is a file is listed as what it is, as long as it is one.
        let is_file = match files.as_slice() {
            [file] => looks && !location.is_collection() && file.location == *location.prefix(),
            _ => false,
        };
        Ok(Self {
            files: files.into(),
            is_local,
            folders: RwLock::new(if is_file { Some(vec![]) } else { folders }),
        })
    }

    /// The files, if they are of this machine.
    pub(super) fn local_files(&self) -> &[ObjectMeta] {
        if self.is_local { &self.files } else { &[] }
    }

    /// Would planning list the same files, and are those on this machine as they were?
    pub(super) async fn holds(
        &self,
        state: &SessionState,
        table: &ListingTable,
        location: &ListingTableUrl,
    ) -> bool {
        if self.is_local {
            // Whatever a runtime keeps: the file system has the last word.
            if !all_unchanged(&self.files).await {
                return false;
            }
            if self.is_as_noted() {
                return true;
            }
        }
        match Self::of(state, table, location).await {
            Ok(now) if now.files == self.files => {
                *self.folders.write() = now.folders.into_inner();
                true
            }
            _ => false,
        }
    }

    /// Are the folders as they were when they were listed?
    fn is_as_noted(&self) -> bool {
        let believed = |folders: &Vec<Folder>| folders.iter().all(Folder::is_untouched);
        if self.folders.read().as_ref().is_some_and(believed) {
            return true;
        }
        let mut folders = self.folders.write();
        let Some(folders) = folders.as_mut() else {
            return false;
        };
        let now = SystemTime::now();
        folders.iter_mut().all(|folder| folder.has_same_names(now))
    }
}

/// Are the local files as they were listed? Many are looked at by several threads.
async fn all_unchanged(files: &Arc<[ObjectMeta]>) -> bool {
    if files.len() <= FILES_AT_ONCE {
        return files.iter().all(unchanged_on_disk);
    }
    let first = (0..files.len()).step_by(FILES_AT_ONCE);
    let tasks = first.map(|first| {
        let files = Arc::clone(files);
        let mine = first..files.len().min(first + FILES_AT_ONCE);
        tokio::task::spawn_blocking(move || files[mine].iter().all(unchanged_on_disk))
    });
    let mut same = true;
    for task in tasks.collect::<Vec<_>>() {
        // One that did not end has not seen that they are unchanged.
        same &= task.await.unwrap_or(false);
    }
    same
}

/// A folder when its names were read.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    stamp: Stamp,
    /// Of all names in it and what each of them is, in any order.
    names: u64,
    /// Does its file system keep the time of the last change?
    has_times: bool,
    /// Would a change since then have changed the stamp?
    is_believed: bool,
}

/// Identity of a folder, and the times of its last changes in seconds and nanoseconds. The second one cannot be set by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(folder: &Metadata) -> Self {
        Self {
            device: folder.dev(),
            inode: folder.ino(),
            modified: (folder.mtime(), folder.mtime_nsec()),
            changed: (folder.ctime(), folder.ctime_nsec()),
        }
    }

    /// Is a change at `now` sure to lead to another stamp?
    fn is_old(&self, now: SystemTime) -> bool {
        let latest = self.modified.0.max(self.changed.0);
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        // The seconds are rounded down: one more.
        now.is_ok_and(|now| now.as_secs() as i64 - latest > COARSEST_TIME.as_secs() as i64)
    }
}

impl Folder {
    /// Has nothing changed, by its stamp alone?
    fn is_untouched(&self) -> bool {
        self.is_believed
            && std::fs::metadata(&self.path).is_ok_and(|found| Stamp::of(&found) == self.stamp)
    }

    /// Are the names those that were noted, `now` or later? Then its stamp may be believed from now on.
    fn has_same_names(&mut self, now: SystemTime) -> bool {
        let Ok(found) = std::fs::metadata(&self.path) else {
            return false;
        };
        let stamp = Stamp::of(&found);
        if self.is_believed && stamp == self.stamp {
            return true;
        }
        if names(&self.path, |_, _| ()).ok() != Some(self.names) {
            return false;
        }
        self.has_times &= stamp.device == self.stamp.device;
        self.is_believed = self.has_times && stamp.is_old(now);
        self.stamp = stamp;
        true
    }
}

/// What is below a location.
#[derive(Debug, Default)]
struct Below {
    /// The folders, and the one of the location.
    folders: Vec<Folder>,
    /// Links that lead to no folder.
    links: Vec<PathBuf>,
}

impl Below {
    /// The folders, if they tell what is there. They do not where a link leads to what was not listed: that may become a file that is,
    /// or a folder, and the link stays as it is.
    fn of_listing(self, files: &[ObjectMeta]) -> Option<Vec<Folder>> {
        let listed: HashSet<&str> = match self.links.is_empty() {
            true => HashSet::new(),
            false => files.iter().map(|file| file.location.as_ref()).collect(),
        };
        let is_listed = |link: &PathBuf| {
            let location = link.to_str().and_then(|path| path.strip_prefix('/'));
            location.is_some_and(|location| listed.contains(location))
        };
        self.links.iter().all(is_listed).then_some(self.folders)
    }
}

/// What is below a location; `None` where it cannot be read.
async fn folders_below(location: &ListingTableUrl) -> Option<Below> {
    let root = PathBuf::from(format!("/{}", location.prefix()));
    let noted = tokio::task::spawn_blocking(move || walk(root, &devices_with_times()));
    noted.await.ok()?.ok()?
}

/// Notes a folder and all below it, through links; `None` for more than [`MOST_FOLDERS`], as links in a circle make.
fn walk(root: PathBuf, with_times: &HashSet<String>) -> io::Result<Option<Below>> {
    let mut below = Below::default();
    let mut rest = vec![root];
    while let Some(path) = rest.pop() {
        if below.folders.len() == MOST_FOLDERS {
            return Ok(None);
        }
        let now = SystemTime::now();
        let stamp = Stamp::of(&std::fs::metadata(&path)?);
        let names = names(&path, |entry, kind| {
            let leads_to_folder = || std::fs::metadata(entry.path()).is_ok_and(|m| m.is_dir());
            if kind.is_dir() || kind.is_symlink() && leads_to_folder() {
                rest.push(entry.path());
            } else if kind.is_symlink() {
                below.links.push(entry.path());
            }
        })?;
        let has_times = with_times.contains(&device_name(stamp.device));
        below.folders.push(Folder {
            path,
            stamp,
            names,
            has_times,
            is_believed: has_times && stamp.is_old(now),
        });
    }
    Ok(Some(below))
}

/// A number for the names in a folder and what each of them is.
fn names(folder: &Path, mut visit: impl FnMut(&DirEntry, FileType)) -> io::Result<u64> {
    let mut sum = 0u64;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mut hasher = DefaultHasher::new();
        entry.file_name().hash(&mut hasher);
        (kind.is_file(), kind.is_dir(), kind.is_symlink()).hash(&mut hasher);
        sum = sum.wrapping_add(hasher.finish());
        visit(&entry, kind);
    }
    Ok(sum)
}

/// The devices of file systems that are [`WITH_TIMES`]; none where the system does not tell.
fn devices_with_times() -> HashSet<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let with_times = mounts.lines().filter_map(|line| {
        let device = line.split(' ').nth(2)?;
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        WITH_TIMES.contains(&kind).then(|| device.to_string())
    });
    with_times.collect()
}

/// A device as mounts name it.
fn device_name(device: u64) -> String {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & 0xffff_f000);
    let minor = (device & 0xff) | ((device >> 12) & 0xffff_ff00);
    format!("{major}:{minor}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn noted(root: &Path) -> Below {
        let noted = walk(root.to_path_buf(), &devices_with_times());
        noted.expect("a folder").expect("few folders")
    }

    fn hold(folders: &mut [Folder]) -> bool {
        let now = SystemTime::now();
        folders.iter_mut().all(|folder| folder.has_same_names(now))
    }

    #[test]
    fn names_that_come_and_go_are_seen() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        fs::create_dir_all(root.join("day=1/hour=2")).expect("folders");
        fs::write(root.join("day=1/hour=2/a"), "1").expect("a file");
        let again = || noted(root).folders;
        assert_eq!(again().len(), 3);
        assert!(hold(&mut again()));
        let mut before = again();
        fs::write(root.join("day=1/hour=2/b"), "1").expect("a file");
        assert!(!hold(&mut before));
        let mut before = again();
        fs::remove_file(root.join("day=1/hour=2/a")).expect("a file less");
        assert!(!hold(&mut before));
        let mut before = again();
        fs::create_dir(root.join("day=2")).expect("a folder");
        assert!(!hold(&mut before));
        let mut before = again();
        fs::rename(root.join("day=2"), root.join("day=3")).expect("renamed");
        assert!(!hold(&mut before));
        // A file in the place of a folder of its name.
        let mut before = again();
        fs::remove_dir(root.join("day=3")).expect("a folder less");
        fs::write(root.join("day=3"), "1").expect("a file");
        assert!(!hold(&mut before));
        // What is gone again, and what is written into a file, is no change of names.
        let mut before = again();
        fs::write(root.join("c"), "1").expect("a file");
        fs::remove_file(root.join("c")).expect("a file less");
        fs::write(root.join("day=1/hour=2/b"), "22").expect("a file");
        assert!(hold(&mut before));
        assert!(walk(root.join("none"), &HashSet::new()).is_err());
    }

    /// As a change within the step of the file system's times leaves it: the folder has a name more, and the stamp of before.
    #[test]
    fn stamps_are_believed_only_when_they_are_old() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let mut before = noted(root).folders;
        fs::write(root.join("a"), "1").expect("a file");
        before[0].stamp = noted(root).folders[0].stamp;
        before[0].is_believed = false;
        assert!(!before[0].is_untouched() && !hold(&mut before));
        before[0].is_believed = true;
        assert!(before[0].is_untouched() && hold(&mut before));

        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let stamp = |modified: i64, changed: i64| Stamp {
            device: 1,
            inode: 2,
            modified: (modified, 999_999_999),
            changed: (changed, 0),
        };
        assert!(stamp(97, 97).is_old(now));
        assert!(!stamp(98, 97).is_old(now) && !stamp(97, 98).is_old(now));
        // Set back, by hand or with the clock.
        assert!(!stamp(0, 100).is_old(now) && !stamp(200, 0).is_old(now));
    }

    /// A folder is believed after a look at its names when its last change is long ago, and no sooner.
    #[test]
    fn names_are_read_until_the_stamp_is_old() {
        let root = tempfile::tempdir().expect("a folder");
        let mut folder = noted(root.path()).folders.remove(0);
        folder.is_believed = false;
        let later = |seconds: u64| SystemTime::now() + Duration::from_secs(seconds);
        folder.has_times = false;
        assert!(folder.has_same_names(later(100)) && !folder.is_believed);
        folder.has_times = true;
        let changed = u64::try_from(folder.stamp.changed.0).expect("a time");
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
        assert!(folder.has_same_names(then) && !folder.is_believed);
        assert!(folder.has_same_names(later(100)) && folder.is_believed);
        assert!(folder.is_untouched());
        fs::write(root.path().join("a"), "1").expect("a file");
        assert!(!folder.is_untouched() && !folder.has_same_names(later(100)));
    }

    #[test]
    fn links_are_followed_or_left_to_the_store() {
        let root = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
        fs::create_dir(&inside).expect("a folder");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("a"), "1").expect("a file");
        symlink(&outside, inside.join("folder")).expect("a link");
        let mut before = noted(&inside);
        assert_eq!(before.folders.len(), 2);
        assert!(before.links.is_empty());
        fs::write(outside.join("b"), "1").expect("a file");
        assert!(!hold(&mut before.folders));
        let file = |name: &str| ObjectMeta {
            location: inside.join(name).to_str().expect("a path").into(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        symlink(outside.join("a"), inside.join("file")).expect("a link");
        assert!(noted(&inside).of_listing(&[file("file")]).is_some());
        assert!(noted(&inside).of_listing(&[]).is_none());
        symlink(outside.join("none"), inside.join("nowhere")).expect("a link");
        assert!(noted(&inside).of_listing(&[file("file")]).is_none());
        // A circle.
        symlink(&inside, inside.join("self")).expect("a link");
        symlink(&inside, inside.join("other self")).expect("a link");
        let circle = walk(inside.clone(), &HashSet::new());
        assert!(!matches!(circle, Ok(Some(_))));
    }

    #[test]
    fn devices_have_the_names_of_mounts() {
        assert_eq!(device_name(0x801), "8:1");
        assert_eq!(device_name(0xfe00), "254:0");
        assert_eq!(device_name(0x1234_5678), "1110:74616");
    }
}
