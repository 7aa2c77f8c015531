//! The files of a suite, and samples of files and of queries.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use crate::comparison::Statement;

/// Endings of the names of sqllogictest files: SQLite's and DuckDB's, those that take long there, and everybody else's.
const ENDINGS: [&str; 3] = ["test", "test_slow", "slt"];

/// The files in folders, and those that are named, in the order of their paths.
///
/// # Errors
/// A folder that cannot be read, or a file that is not there.
pub(super) fn find(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let path = path.canonicalize().map_err(|error| named(path, &error))?;
        if path.is_file() {
            found.push(path);
            continue;
        }
        let mut folders = vec![path];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().map_err(|error| named(&folder, &error))? {
                let entry = entry?;
                let path = entry.path();
                let kind = entry.file_type()?;
                let ending = path.extension().unwrap_or_default();
                if kind.is_dir() {
                    folders.push(path);
                } else if ENDINGS.iter().any(|known| ending == *known) {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// So many of the files, drawn by a seed, in the order drawn.
pub(super) fn sample(mut files: Vec<PathBuf>, count: usize, seed: u64) -> Vec<PathBuf> {
    files.sort_by_cached_key(|path| drawn(seed, path));
    files.truncate(count);
    files
}

/// So many of the queries, drawn by a seed, and all statements that are none, in the order of the file.
pub(super) fn sample_queries(
    statements: Vec<Statement>,
    count: usize,
    seed: u64,
) -> Vec<Statement> {
    let queries = statements.iter().enumerate();
    let mut queries: Vec<usize> = queries
        .filter(|(_, statement)| statement.is_query())
        .map(|(at, _)| at)
        .collect();
    queries.sort_by_cached_key(|at| drawn(seed, at));
    let mut left_out = vec![false; statements.len()];
    for at in queries.into_iter().skip(count) {
        left_out[at] = true;
    }
    let kept = statements.into_iter().zip(left_out);
    kept.filter(|(_, left_out)| !left_out)
        .map(|(statement, _)| statement)
        .collect()
}

/// A number that looks random, and is the same for the same seed.
fn drawn(seed: u64, what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, what).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_found_in_folders_and_by_name() {
        let name = format!("warpline-suite-files-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("a/b")).expect("a folder");
        for name in ["a/b/1.test", "a/2.slt", "3.test_slow", "a/4.csv", "5.sql"] {
            fs::write(folder.join(name), "").expect("a file");
        }
        let named = folder.join("5.sql");
        let found = find(&[folder.clone(), named.clone(), named]).expect("files");
        let names = found.iter().map(|path| path.file_name().expect("a name"));
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        assert_eq!(names, ["3.test_slow", "5.sql", "2.slt", "1.test"]);
        let error = find(&[folder.join("6")]).expect_err("no such file");
        assert!(error.to_string().contains("6: "), "{error}");
        fs::remove_dir_all(folder).expect("a folder to remove");
    }

    #[test]
    fn samples_are_drawn_by_seed() {
        let files: Vec<PathBuf> = (0..100).map(|i| PathBuf::from(format!("{i}"))).collect();
        let sample = |seed| sample(files.clone(), 10, seed);
        assert_eq!(sample(1).len(), 10);
        assert_eq!(sample(1), sample(1));
        assert_ne!(sample(1), sample(2));
    }

    #[test]
    fn statements_that_are_no_queries_stay() {
        let statements: Vec<Statement> = (0..100)
            .map(|line| Statement {
                line,
                sql: format!(
                    "{} {line}",
                    if line % 10 == 0 { "INSERT" } else { "SELECT" }
                ),
            })
            .collect();
        let sample = |seed| sample_queries(statements.clone(), 5, seed);
        let found = sample(1);
        assert_eq!(found.iter().filter(|s| s.is_query()).count(), 5);
        assert_eq!(found.len(), 15);
        assert!(found.is_sorted_by_key(|s| s.line));
        assert_ne!(found, sample(2));
    }
}
