//! How the rows of a step come: all at once, or in portions, and which.
//!
//! A strategy is chosen twice. Before a pipeline fills its result there are bounds and estimates ([`Filling`]); once all rows are
//! there, or in partitions, their number is exact ([`Finishing`], and for sorts [`Sorting`]). In core is the case of one portion.

use std::fmt;

/// How a pipeline fills its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Filling {
    /// In one portion.
    InCore,
    /// Strides of the scan probe an index one by one: what reads the matches of one runs before those of the next replace them.
    ProbeStrides,
    /// Rows to be grouped are partitioned by key piece by piece, then aggregated part by part.
    CollectPieces,
    /// Of each piece only the first rows of a sort stay.
    FirstOfPieces,
    /// Pieces are written down as they come, to be sorted in ranges.
    WritePieces,
    /// A join's side is partitioned by so many hash bits stride by stride.
    SplitStrides(u32),
}

/// What follows once all rows of a result are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Finishing {
    /// In one portion.
    InCore,
    /// The entries of an index are partitioned by so many hash bits, to be joined pair by pair.
    SplitIndex(u32),
    /// Both sides of a join lie in partitions: pairs of these are joined one by one.
    JoinPartitions,
    /// Collected rows are partitioned by key, then aggregated part by part.
    AggregateParts,
}

/// How rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Sorting {
    /// In one portion.
    InCore,
    /// Pieces that were written down are partitioned by ranges of their keys, which are sorted one by one.
    Pieces,
    /// Rows that lie together are.
    Ranges,
    /// Of each piece only the first rows stay.
    FirstOfPieces,
}

impl Filling {
    /// What the portions are; `None` where there is one.
    pub(in crate::exec) fn portions(self) -> Option<&'static str> {
        Some(match self {
            Self::InCore => return None,
            Self::ProbeStrides => "strides that probe one by one",
            Self::CollectPieces => "pieces partitioned by key",
            Self::FirstOfPieces => "pieces of which the first rows stay",
            Self::WritePieces => "pieces written down for a sort",
            Self::SplitStrides(_) => "strides partitioned by hash bits",
        })
    }
}

impl Finishing {
    /// What the portions are; `None` where there is one.
    pub(in crate::exec) fn portions(self) -> Option<&'static str> {
        Some(match self {
            Self::InCore => return None,
            Self::SplitIndex(_) => "partitions of an index",
            Self::JoinPartitions => "pairs of partitions",
            Self::AggregateParts => "parts of all keys",
        })
    }
}

impl Sorting {
    /// What the portions are; `None` where there is one.
    pub(in crate::exec) fn portions(self) -> Option<&'static str> {
        Some(match self {
            Self::InCore => return None,
            Self::Pieces | Self::Ranges => "ranges of keys",
            Self::FirstOfPieces => "pieces of which the first rows stay",
        })
    }
}

/// What portions are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum PortionOf {
    /// A join.
    Join,
    /// A group-by.
    Groups,
    /// A sort.
    Sort,
    /// Rows on their way to one of these.
    Input,
}

/// The portions of a step, for EXPLAIN ANALYZE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct StepPortions {
    pub(in crate::exec) step: usize,
    pub(in crate::exec) what: &'static str,
    pub(in crate::exec) count: u64,
}

impl fmt::Display for StepPortions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} portions: {}", self.count, self.what)
    }
}
