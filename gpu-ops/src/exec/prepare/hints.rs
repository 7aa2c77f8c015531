//! What a run learns about the sizes of its results, for the runs that follow.

use crate::exec::prepare::join_bits::JoinBits;
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::primitives::Rooms;

/// What a run found out about a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::exec) struct Hint {
    /// Rows or entries.
    pub(in crate::exec) rows: u64,
    /// Pairs of a `Matches` result.
    pub(in crate::exec) pairs: u64,
    /// Slots that were enough.
    pub(in crate::exec) slots: u64,
    /// Slots that were enough for the set of each DISTINCT call.
    pub(in crate::exec) distinct_slots: Vec<u64>,
    /// The bits that a side of a join was partitioned by, …
    pub(in crate::exec) bits: JoinBits,
    /// … and the rows of its largest partitions; zeros of what was not.
    pub(in crate::exec) largest: Rooms,
}

/// The sizes that a result gets for what an earlier run found out; slots of indexes follow once their rows are there.
pub(in crate::exec) fn sizes_by(shape: &Shape, hint: &Hint) -> Sizes {
    match shape {
        Shape::Groups { regrouped, .. } => Sizes {
            capacity: match regrouped {
                Some(_) => with_slack(hint.rows),
                None => 0,
            },
            slots: hint.slots,
            distinct_slots: hint.distinct_slots.clone(),
            ..Sizes::default()
        },
        Shape::Index(index) if !index.appends() => Sizes {
            capacity: index.domain,
            ..Sizes::default()
        },
        _ => Sizes {
            capacity: with_slack(hint.rows),
            ..Sizes::default()
        },
    }
}

/// A little more than last time; counts cannot change over the same columns, but nothing relies on it.
pub(in crate::exec) fn with_slack(rows: u64) -> u64 {
    rows.saturating_add(rows / 8).saturating_add(64)
}
