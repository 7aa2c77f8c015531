//! The files of a table in as many pieces as there are devices, and the ranges of the column that the table is clustered by.

use datafusion::common::ColumnStatistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::listing::PartitionedFile;

use super::integers::integer;

/// The files of a table, piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) files: Vec<Vec<PartitionedFile>>,
    /// A column by whose values alone one can tell the piece of a row.
    pub(super) key: Option<Key>,
}

/// A column of which each piece has a range of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its position in the table.
    pub(super) column: usize,
    /// By piece: its least and its greatest value; `None` for a piece without files.
    pub(super) ranges: Vec<Option<(i128, i128)>>,
    /// No row lacks it.
    pub(super) complete: bool,
}

impl Pieces {
    /// Neighbours stay together: files in the order of the column that the table is clustered by, else of their paths, and about
    /// as many bytes a piece. The same files are in the same piece whatever a query reads of them.
    pub(super) fn of(mut files: Vec<PartitionedFile>, count: usize) -> Self {
        let column = clustered_by(&files);
        files.sort_by_cached_key(|file| {
            let least = column.and_then(|column| Some(range_of(file, column)?.0));
            (least, file.path().clone())
        });
        let sizes: Vec<u64> = files
            .iter()
            .map(|file| file.object_meta.size.max(1))
            .collect();
        let piece_of = contiguous(&sizes, count);
        let mut pieces = vec![Vec::new(); count];
        for (file, piece) in files.into_iter().zip(piece_of) {
            pieces[piece].push(file);
        }
        let key = column.and_then(|column| key_of(&pieces, column));
        Self { files: pieces, key }
    }
}

/// The files of another table that may have rows of the range; all of those of which nothing is known.
pub(super) fn overlapping(
    files: &[PartitionedFile],
    column: usize,
    range: Option<(i128, i128)>,
) -> Vec<PartitionedFile> {
    let meets = |file: &&PartitionedFile| match (range_of(file, column), range) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some((least, greatest)), Some((from, to))) => least <= to && greatest >= from,
    };
    files.iter().filter(meets).cloned().collect()
}

/// The piece of each part of a sequence: the one that its middle lies in.
fn contiguous(sizes: &[u64], count: usize) -> Vec<usize> {
    let total: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    let mut before = 0_u128;
    let piece_of = |size: &u64| {
        let size = u128::from(*size);
        let twice_the_middle = 2 * before + size;
        before += size;
        let piece = twice_the_middle * count as u128 / (2 * total.max(1));
        (piece as usize).min(count.saturating_sub(1))
    };
    sizes.iter().map(piece_of).collect()
}

fn statistics_of(file: &PartitionedFile, column: usize) -> Option<&ColumnStatistics> {
    file.statistics.as_ref()?.column_statistics.get(column)
}

/// The least and the greatest value of a column of a file, where they are known for sure.
fn range_of(file: &PartitionedFile, column: usize) -> Option<(i128, i128)> {
    let statistics = statistics_of(file, column)?;
    let exact = |value: &Precision<_>| match value {
        Precision::Exact(value) => integer(value),
        _ => None,
    };
    Some((exact(&statistics.min_value)?, exact(&statistics.max_value)?))
}

/// The first column of which no file has values between those of another.
fn clustered_by(files: &[PartitionedFile]) -> Option<usize> {
    let columns = files.first()?.statistics.as_ref()?.column_statistics.len();
    (0..columns).find(|column| {
        let ranges: Option<Vec<_>> = files.iter().map(|file| range_of(file, *column)).collect();
        ranges.is_some_and(|mut ranges| {
            ranges.sort_unstable();
            let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            let varies = ranges.windows(2).any(|pair| pair[0].1 < pair[1].0);
            apart && varies
        })
    })
}

/// The column as a key of the pieces, unless a value is in two of them.
fn key_of(pieces: &[Vec<PartitionedFile>], column: usize) -> Option<Key> {
    let range = |files: &Vec<PartitionedFile>| {
        let ranges = files.iter().filter_map(|file| range_of(file, column));
        ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    };
    let ranges: Vec<Option<(i128, i128)>> = pieces.iter().map(range).collect();
    let known: Vec<(i128, i128)> = ranges.iter().flatten().copied().collect();
    let apart = known.windows(2).all(|pair| pair[0].1 < pair[1].0);
    let complete = pieces.iter().flatten().all(|file| {
        let nulls = statistics_of(file, column).map(|statistics| statistics.null_count);
        nulls == Some(Precision::Exact(0))
    });
    (apart && known.len() > 1).then_some(Key {
        column,
        ranges,
        complete,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use datafusion::common::{ScalarValue, Statistics};

    use super::*;

    /// A file with a column without statistics, a constant one, and one with this range and so many NULLs.
    fn file(name: &str, size: u64, least: i64, greatest: i64, nulls: usize) -> PartitionedFile {
        let column = |least, greatest, nulls| {
            let value = |v| Precision::Exact(ScalarValue::Int64(Some(v)));
            ColumnStatistics::new_unknown()
                .with_min_value(value(least))
                .with_max_value(value(greatest))
                .with_null_count(Precision::Exact(nulls))
        };
        let statistics = Statistics {
            num_rows: Precision::Exact(100),
            total_byte_size: Precision::Absent,
            column_statistics: vec![
                ColumnStatistics::new_unknown(),
                column(7, 7, 0),
                column(least, greatest, nulls),
            ],
        };
        let mut file = PartitionedFile::new(name, size);
        file.statistics = Some(Arc::new(statistics));
        file
    }

    fn names(pieces: &Pieces) -> Vec<Vec<&str>> {
        let names = pieces.files.iter();
        names
            .map(|files| files.iter().map(|file| file.path().as_ref()).collect())
            .collect()
    }

    #[test]
    fn parts_stay_in_order() {
        assert_eq!(contiguous(&[1, 1, 1, 1], 2), [0, 0, 1, 1]);
        assert_eq!(contiguous(&[100, 1], 2), [0, 1]);
        assert_eq!(contiguous(&[1, 1, 100], 2), [0, 0, 1]);
        assert_eq!(contiguous(&[5], 3), [1]);
        assert_eq!(contiguous(&[u64::MAX, u64::MAX], 2), [0, 1]);
        assert!(contiguous(&[], 2).is_empty());
    }

    #[test]
    fn pieces_follow_the_column_that_a_table_is_clustered_by() {
        // By name the order would be another.
        let files = vec![
            file("1", 10, 0, 9, 0),
            file("10", 10, 20, 30, 0),
            file("2", 10, 9, 19, 0),
            file("3", 10, 31, 40, 0),
        ];
        let pieces = Pieces::of(files, 2);
        assert_eq!(names(&pieces), [vec!["1", "2"], vec!["10", "3"]]);
        let key = pieces.key.unwrap();
        assert_eq!(key.column, 2);
        assert_eq!(key.ranges, [Some((0, 19)), Some((20, 40))]);
        assert!(key.complete);
        let all = pieces.files.concat();
        let beside = |range| overlapping(&all, 2, range).len();
        assert_eq!(beside(Some((5, 9))), 2);
        assert_eq!(beside(Some((41, 50))), 0);
        assert_eq!(beside(None), 0);
        assert_eq!(overlapping(&all, 0, Some((5, 9))).len(), 4);
    }

    #[test]
    fn a_value_in_two_pieces_is_no_key() {
        let files = vec![
            file("a", 10, 0, 9, 0),
            file("b", 10, 9, 19, 0),
            file("c", 1, 30, 30, 1),
        ];
        let pieces = Pieces::of(files, 2);
        assert_eq!(names(&pieces), [vec!["a"], vec!["b", "c"]]);
        assert_eq!(pieces.key, None);
        // A value that some rows lack is.
        let files = vec![file("a", 10, 0, 9, 0), file("b", 10, 10, 19, 1)];
        assert!(!Pieces::of(files, 2).key.unwrap().complete);
        // Values of one file between those of another, and none at all.
        let files = vec![file("b", 10, 0, 9, 0), file("a", 10, 5, 19, 0)];
        let pieces = Pieces::of(files, 2);
        assert_eq!(names(&pieces), [vec!["a"], vec!["b"]]);
        assert_eq!(pieces.key, None);
        let bare = vec![PartitionedFile::new("a", 1), PartitionedFile::new("b", 1)];
        assert_eq!(Pieces::of(bare, 2).key, None);
        assert_eq!(Pieces::of(vec![], 2).files.len(), 2);
    }
}
