//! The sides of a join that is done in parts: where their rows lie.

use crate::exec::portions::partitioned::Partitioned;

/// Room for the rows of a partition comes in so many sizes.
const SIZES: u64 = 8;

/// A side of a join in partitions of equal hash bits.
pub(in crate::exec) struct SplitSide {
    pub(in crate::exec) rows: Partitioned,
    /// The share of both sides that may stay on the device.
    pub(in crate::exec) kept: f64,
}

/// Rows to make room for where `rows` are to lie together, when at most `largest` do: sets of about the same size get the same,
/// so that each takes the memory of one before it.
pub(in crate::exec) fn room_for(rows: u64, largest: u64) -> u64 {
    let step = largest.div_ceil(SIZES).max(1);
    rows.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::frame::storage::Store;
    use crate::exec::portions::chunks::Chunk;

    #[test]
    fn partitions_of_about_the_same_size_get_the_same_room() {
        let chunk = |offsets: &[u32]| Chunk::here((Store::default(), offsets.to_vec()));
        let chunks = vec![
            chunk(&[0, 400, 795, 795, 800]),
            chunk(&[0, 395, 805, 810, 810]),
        ];
        let split = Partitioned::of(2, chunks);
        assert_eq!(
            [0, 1, 2, 3].map(|number| split.rows_of_one(number)),
            [795, 805, 5, 5]
        );
        assert_eq!(split.largest(), 805);
        assert_eq!(
            [795, 805, 5, 0].map(|rows| room_for(rows, split.largest())),
            [808, 808, 101, 101]
        );
    }
}
