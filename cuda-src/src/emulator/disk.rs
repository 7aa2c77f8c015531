//! Keeps the folder of compiled modules below a size: the least recently used ones go.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes of compiled modules that stay on disk when nothing else is asked for.
pub(super) const DEFAULT_CACHE_BYTES: u64 = 2 << 30;

/// A build folder this old was left behind by a process that was ended.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Note that a module was used. Failing is harmless: the module only looks older than it is.
pub(super) fn touch(path: &Path) {
    let outcome = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = outcome {
        log::debug!("{} stays as old as it is: {error}", path.display());
    }
}

/// Remove the least recently used modules of `folder` until three quarters of `limit` bytes are left, if there are
/// more than `limit`; `keep` stays. Other processes may use the folder at the same time: a module that is loaded
/// survives its file, and one that is about to be loaded is built again.
pub(super) fn trim(folder: &Path, limit: u64, keep: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let now = SystemTime::now();
    let mut modules: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in entries.flatten() {
        // Another process may have removed it since.
        let Ok(meta) = entry.metadata() else { continue };
        let Ok(used) = meta.modified() else { continue };
        let path = entry.path();
        if meta.is_dir() {
            let ours = entry.file_name().to_string_lossy().starts_with(".build-");
            let age = now.duration_since(used).unwrap_or_default();
            if ours && age > ABANDONED {
                remove(&path, fs::remove_dir_all(&path));
            }
        } else if path.extension().is_some_and(|e| e == "so") {
            modules.push((used, meta.len(), path));
        }
    }
    let mut bytes: u64 = modules.iter().map(|(_, size, _)| size).sum();
    if bytes <= limit {
        return;
    }
    modules.sort();
    for (_, size, path) in modules {
        if bytes <= limit / 4 * 3 {
            break;
        }
        if path != keep {
            remove(&path, fs::remove_file(&path));
            bytes = bytes.saturating_sub(size);
        }
    }
}

fn remove(path: &Path, outcome: std::io::Result<()>) {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            log::warn!(
                "{} cannot be removed from the cache: {error}",
                path.display()
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_modules_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let module = |number: u64| folder.path().join(format!("{number}.so"));
        let now = SystemTime::now();
        for number in 0..8 {
            fs::write(module(number), [0; 100]).expect("written");
            let file = File::options()
                .append(true)
                .open(module(number))
                .expect("open");
            let time = now - Duration::from_secs(1000 - number);
            file.set_modified(time).expect("set");
        }
        fs::write(folder.path().join("notes.txt"), [0; 500]).expect("written");
        let left = || (0..8).filter(|n| module(*n).exists()).collect::<Vec<u64>>();
        trim(folder.path(), 800, &module(7));
        assert_eq!(left(), [0, 1, 2, 3, 4, 5, 6, 7]);
        touch(&module(1));
        // Down to three quarters of 700 bytes; the one at hand stays whatever its age.
        trim(folder.path(), 700, &module(0));
        assert_eq!(left(), [0, 1, 5, 6, 7]);
        assert!(folder.path().join("notes.txt").exists());
    }
}
