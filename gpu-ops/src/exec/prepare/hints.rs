//! What a run learns about the sizes of its results, for the runs that follow.

use crate::exec::prepare::join_bits::JoinBits;
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::primitives::{Rooms, slots_for};

/// What a run found out about a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::exec) struct Hint {
    /// Rows or entries.
    pub(in crate::exec) rows: u64,
    /// Pairs of a `Matches` result.
    pub(in crate::exec) pairs: u64,
    /// Slots that are enough.
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

/// Slots for as many groups as were found in a table of `slots`: a quarter of them is taken then, so that nobody walks far. A table
/// much larger than that costs what it takes to clear and to read, and lies in no cache. `found` is 0 where nobody counted.
pub(in crate::exec) fn slots_of_found(slots: u64, found: u64) -> u64 {
    match slots_for(found.saturating_mul(2)).max(LEAST_SLOTS) {
        enough if found > 0 && enough < slots => enough,
        _ => slots,
    }
}

/// A smaller table than of so many slots gains nothing.
const LEAST_SLOTS: u64 = 1 << 12;

/// A little more than last time; counts cannot change over the same columns, but nothing relies on it.
pub(in crate::exec) fn with_slack(rows: u64) -> u64 {
    rows.saturating_add(rows / 8).saturating_add(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_shrink_to_what_was_found_and_never_grow() {
        // Nobody counted.
        assert_eq!(slots_of_found(1 << 20, 0), 1 << 20);
        assert_eq!(slots_of_found(1 << 20, 1), LEAST_SLOTS);
        assert_eq!(slots_of_found(1 << 20, 5_000), 1 << 15);
        assert_eq!(slots_of_found(1 << 20, 1 << 18), 1 << 20);
        assert_eq!(slots_of_found(1 << 20, 1 << 19), 1 << 20);
        assert_eq!(slots_of_found(64, 3), 64);
    }
}
