//! The files behind a scan that a planner cut into ranges of bytes.

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;

use super::sealed::ChosenRows;
use crate::error::{GpuError, Result};

/// The files of a scan by path, with the ranges a planner cut them into joined again.
///
/// # Errors
/// [`GpuError::Unsupported`](crate::GpuError::Unsupported) where a part of a file is missing, or an extension of a file chooses
/// among its rows in another way than [`ChosenRows`].
pub fn whole_files(groups: &[FileGroup]) -> Result<Vec<PartitionedFile>> {
    let mut parts: Vec<PartitionedFile> = groups
        .iter()
        .flat_map(|group| group.iter().cloned())
        .collect();
    let unknown = |file: &PartitionedFile| {
        !file.extensions.is_empty() && file.extension::<ChosenRows>().is_none()
    };
    if parts.iter().any(unknown) {
        return Err(unsupported("reads chosen parts of its files"));
    }
    parts.sort_by(|a, b| (a.path(), a.range().0).cmp(&(b.path(), b.range().0)));
    let mut files: Vec<PartitionedFile> = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter().peekable();
    while let Some(mut file) = parts.next() {
        let (start, mut end) = file.range();
        let mut whole = start == 0;
        while end < file.object_meta.size
            && let Some(next) = parts.next_if(|next| next.path() == file.path())
        {
            whole &= next.range().0 == end;
            end = next.range().1;
        }
        if !whole || end < file.object_meta.size {
            return Err(unsupported("reads parts of its files"));
        }
        file.range = None;
        files.push(file);
    }
    Ok(files)
}

pub(super) fn unsupported(what: &str) -> GpuError {
    GpuError::Unsupported(format!("a scan that {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> PartitionedFile {
        PartitionedFile::new(name, size)
    }

    fn whole(parts: &[PartitionedFile]) -> Result<Vec<PartitionedFile>> {
        let groups = parts.iter().cloned().map(|part| FileGroup::new(vec![part]));
        whole_files(&groups.collect::<Vec<_>>())
    }

    #[test]
    fn parts_of_files_are_joined() {
        let parts = [
            file("b", 10).with_range(4, 10),
            file("a", 7),
            file("b", 10).with_range(0, 4),
            file("c", 0),
        ];
        let files = whole(&parts).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.path().as_ref()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(files.iter().all(|file| file.range.is_none()));
        assert!(whole(&parts[..1]).is_err());
        assert!(whole(&parts[2..]).is_err());
    }

    #[test]
    fn extensions_that_choose_rows_are_known_or_refused() {
        let chosen = file("a", 7).with_extension(ChosenRows("deleted: 3".into()));
        let files = whole(&[chosen]).unwrap();
        assert!(files[0].extension::<ChosenRows>().is_some());
        let unknown = file("a", 7).with_extension(String::from("row groups 1 and 2"));
        assert!(whole(&[unknown]).is_err());
    }
}
