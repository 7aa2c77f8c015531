//! What a sort adds to its rows for window functions: where each row lies in its partition, and values that run through it.

use crate::primitives::RunningCombine;

/// Columns behind those of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// So many of the sort's first keys make a partition; rows of a partition are peers where the other keys are equal as well.
    pub partition: usize,
    /// In order.
    pub columns: Vec<WindowColumn>,
}

/// A column that a window adds. Numbers of rows count from 0 over all partitions; none is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowColumn {
    /// The row's number (Int64).
    Position,
    /// First row of the row's partition (Int64).
    PartitionStart,
    /// The row behind the partition (Int64).
    PartitionEnd,
    /// First row of the row's peers (Int64).
    PeerStart,
    /// The row behind the peers (Int64).
    PeerEnd,
    /// Groups of peers of the partition up to the row's, from 1 (Int64).
    DenseRank,
    /// Values of a column that are not NULL, from the first of the partition to this row (Int64).
    RunningCount(usize),
    /// What the values of a column come to that are not NULL, from the first of the partition to this row; of none, any value of
    /// the column's range.
    Running(RunningCombine, usize),
}
