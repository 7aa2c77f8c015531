//! Compiled kernels on disk, keyed by everything that determines them.
//!
//! An entry is a file `<key>.cubin`: a magic word, the SHA-256 of the payload, the payload. Entries
//! are written under another name and renamed, so a reader sees a whole entry or none; one that
//! fails its checksum is deleted and compiled again. Without a writable directory everything works,
//! only colder.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

/// Environment variable with the folder for everything that Warpline caches on disk; empty: nothing is kept.
pub const CACHE_VARIABLE: &str = "WARPLINE_CACHE_DIR";

/// Of the names of entries.
const EXTENSION: &str = "cubin";
const MAGIC: &[u8; 8] = b"WLCUBIN1";
const CHECKSUM_BYTES: usize = 32;

/// Name of an entry: the SHA-256 of its ingredients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey(String);

impl CacheKey {
    /// The key of these ingredients; their order and their borders count.
    pub fn new<'a>(ingredients: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for ingredient in ingredients {
            hash.update((ingredient.len() as u64).to_le_bytes());
            hash.update(ingredient.as_bytes());
        }
        Self(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The key as text, e.g. as an ingredient of another.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A directory of compiled kernels, or nothing when there is none to write to.
#[derive(Debug)]
pub struct CubinCache {
    directory: Option<PathBuf>,
    warned: AtomicBool,
}

/// Where compiled kernels are kept: `kernels` in the [`cache_directory`].
pub fn default_directory() -> Option<PathBuf> {
    cache_directory("kernels")
}

/// A folder of Warpline's cache on disk: `name` in `WARPLINE_CACHE_DIR`, else `warpline/<name>` in
/// `XDG_CACHE_HOME` or `~/.cache`; `None` when none of these is set or the first is empty.
pub fn cache_directory(name: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(CACHE_VARIABLE) {
        return (!folder.is_empty()).then(|| PathBuf::from(folder).join(name));
    }
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("warpline").join(name))
}

impl CubinCache {
    /// A cache in `directory`, created when first written; `None` keeps nothing.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            warned: AtomicBool::new(false),
        }
    }

    /// The payload of an entry that is whole; a broken entry is deleted.
    pub fn get(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let bytes = std::fs::read(&path).ok()?;
        match check(&bytes) {
            Some(payload) => Some(payload.to_vec()),
            None => {
                log::warn!(
                    "kernel cache entry {} is broken; rebuilding it",
                    path.display()
                );
                self.remove(key);
                None
            }
        }
    }

    /// Is there any entry?
    pub fn has_entries(&self) -> bool {
        let names = self.directory.as_ref().and_then(|d| d.read_dir().ok());
        let mut files = names.into_iter().flatten().flatten();
        files.any(|file| file.path().extension().is_some_and(|of| of == EXTENSION))
    }

    /// Delete an entry, e.g. one that the driver refuses.
    pub fn remove(&self, key: &CacheKey) {
        if let Some(path) = self.path(key)
            && let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            self.warn(&path, &error);
        }
    }

    /// Keep a payload. Failure costs the next start time and nothing else, so it is only logged, once.
    pub fn put(&self, key: &CacheKey, payload: &[u8]) {
        let Some(path) = self.path(key) else {
            return;
        };
        if let Err(error) = write_entry(&path, payload) {
            self.warn(&path, &error);
        }
    }

    /// For tests of what happens then: change a byte of an entry, or with `cut` lose its last one. False when there is none.
    pub fn damage(&self, key: &CacheKey, cut: bool) -> bool {
        let Some(path) = self.path(key) else {
            return false;
        };
        let damage = || -> std::io::Result<()> {
            let mut bytes = std::fs::read(&path)?;
            if cut {
                bytes.pop();
            } else if let Some(byte) = bytes.last_mut() {
                *byte ^= 1;
            }
            std::fs::write(&path, bytes)
        };
        damage().is_ok()
    }

    /// The file of an entry; `None` when nothing is kept.
    pub(super) fn path(&self, key: &CacheKey) -> Option<PathBuf> {
        Some(
            self.directory
                .as_ref()?
                .join(format!("{}.{EXTENSION}", key.0)),
        )
    }

    fn warn(&self, path: &Path, error: &std::io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "compiled kernels are not kept: {}: {error}; set {CACHE_VARIABLE} to a writable directory",
                path.display()
            );
        }
    }
}

/// The payload, when the bytes are a whole entry.
fn check(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, payload) = rest.split_at_checked(CHECKSUM_BYTES)?;
    (Sha256::digest(payload).as_slice() == checksum).then_some(payload)
}

/// Write under a temporary name in the same directory, then rename.
///
/// # Errors
/// [`std::io::Error`] of the directory, which is made, or the file.
pub(super) fn write_entry(path: &Path, payload: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(MAGIC)?;
    file.write_all(&Sha256::digest(payload))?;
    file.write_all(payload)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn only_file(directory: &Path) -> PathBuf {
        let mut files: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(files.len(), 1, "no temporary file may stay behind");
        files.pop().unwrap()
    }

    #[test]
    fn keeps_and_finds_entries() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CubinCache::new(Some(directory.path().join("a/b")));
        let key = CacheKey::new(["source", "sm_90"]);
        assert_eq!(cache.get(&key), None);
        assert!(!cache.has_entries());
        cache.put(&key, b"binary");
        assert!(cache.has_entries());
        assert_eq!(cache.get(&key).as_deref(), Some(&b"binary"[..]));
        cache.put(&key, b"newer");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"newer"[..]));
        only_file(&directory.path().join("a/b"));
        assert_eq!(cache.get(&CacheKey::new(["source", "sm_80"])), None);
    }

    #[test]
    fn keys_see_borders() {
        assert_ne!(CacheKey::new(["ab", "c"]), CacheKey::new(["a", "bc"]));
        assert_ne!(CacheKey::new(["a", "b"]), CacheKey::new(["b", "a"]));
        assert_ne!(CacheKey::new(["a"]), CacheKey::new(["a", ""]));
        assert_eq!(CacheKey::new(["a", "b"]), CacheKey::new(["a", "b"]));
    }

    #[test]
    fn every_damage_is_found_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CubinCache::new(Some(directory.path().into()));
        let key = CacheKey::new(["source"]);
        cache.put(&key, b"binary");
        let path = only_file(directory.path());
        let whole = std::fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&key), None, "bit flipped at {position}");
            assert!(!path.exists());
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.get(&key), None, "cut to {length} bytes");
        }
        for cut in [false, true] {
            assert!(!cache.damage(&key, cut), "there is nothing to damage");
            cache.put(&key, b"binary");
            assert!(cache.damage(&key, cut));
            assert_eq!(cache.get(&key), None, "damaged on purpose");
        }
        cache.put(&key, b"binary");
        assert!(cache.get(&key).is_some());
        cache.remove(&key);
        cache.remove(&key);
        assert_eq!(cache.get(&key), None);
    }

    #[test]
    fn works_without_a_writable_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, b"in the way").unwrap();
        for cache in [
            CubinCache::new(None),
            CubinCache::new(Some(file.join("below a file"))),
        ] {
            let key = CacheKey::new(["source"]);
            cache.put(&key, b"binary");
            assert_eq!(cache.get(&key), None);
            assert!(!cache.has_entries());
            cache.remove(&key);
        }
    }
}
