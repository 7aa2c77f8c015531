//! What a sort adds to its rows for window functions: where each row lies in its partition, and values that run through it.

use std::fmt;

use warpline_cuda::kernels::{Numbering, RunningCombine};

use super::ListColumn;

/// Columns behind those of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// So many of the sort's first keys make a partition; rows of a partition are peers where the other keys are equal as well.
    pub partition: usize,
    /// In order.
    pub columns: Vec<WindowColumn>,
    /// Only these rows are asked for; the window's columns are none that depend on others.
    pub first: Option<FirstRows>,
    /// Columns of which lists are made, of all rows.
    pub lists: Vec<ListColumn>,
}

/// The first rows of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstRows {
    /// By what they are numbered, from 1.
    pub numbering: Numbering,
    /// The last number.
    pub most: u64,
}

impl fmt::Display for FirstRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = match self.numbering {
            Numbering::Row => "row_number()",
            Numbering::Rank => "rank()",
            Numbering::DenseRank => "dense_rank()",
        };
        write!(f, "{function} <= {}", self.most)
    }
}

impl WindowColumn {
    /// Is its value, but for a constant that all rows of a partition share, told by the rows up to this one and its peers?
    pub fn is_of_rows_before(self) -> bool {
        matches!(
            self,
            Self::Position
                | Self::PartitionStart
                | Self::PeerStart
                | Self::DenseRank
                | Self::RunningCount(_)
                | Self::Running(..)
        )
    }
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
    /// A row at a distance from this one in its partition (Int64). The window has [`Self::PartitionStart`] and
    /// [`Self::PartitionEnd`] as well, and for groups [`Self::DenseRank`].
    Bound(FrameBound),
    /// Values of a column that are not NULL, from the first of the partition to this row (Int64).
    RunningCount(usize),
    /// What the values of a column come to that are not NULL, from the first of the partition to this row; of none, any value of
    /// the column's range.
    Running(RunningCombine, usize),
    /// The least or greatest value of a column that is not NULL, from the row at the first edge to before that at the second,
    /// within the partition; of none, any value of the column's range. The window has [`Self::PartitionStart`] and
    /// [`Self::PartitionEnd`] as well.
    Extreme(RunningCombine, usize, (Edge, Edge)),
    /// The sum of squared differences from their mean of the values of a Float64 column that are not NULL, over a frame likewise
    /// (Float64); of none, 0.
    Squares(usize, (Edge, Edge)),
}

/// The row at a distance from another, by the first key of the order behind the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameBound {
    /// How far.
    pub distance: Distance,
    /// Towards the first row of the partition, else towards the last.
    pub preceding: bool,
    /// The row behind the last one that is no farther, else the first one that is no farther.
    pub end: bool,
}

/// How far rows are from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// In groups of peers.
    Groups(u64),
    /// In values of the key: a number, or units of a decimal, date or timestamp.
    Number(i128),
    /// In values of the key, a float with these bits.
    Float(u64),
}

/// A row that is found by a number of the window, and so many rows behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Place among [`Window::columns`], of a number.
    pub column: usize,
    /// Rows behind it; before it where negative.
    pub plus: i64,
}
