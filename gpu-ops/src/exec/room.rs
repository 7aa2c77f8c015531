//! How device memory is shared between the columns and the results of a fragment: less for columns each time results found
//! no room, and host memory for results in the end.

use std::sync::atomic::{AtomicU8, Ordering};

use super::spread::part_bytes;
use crate::column::ColumnRoom;
use crate::pipeline::GroupRoom;

/// By level: the share of the budget that the columns of a query may take, in quarters.
const QUARTERS: [usize; 3] = [3, 1, 0];
/// Times that the room for columns can be made tighter.
pub(super) const TIGHTENINGS: u32 = QUARTERS.len() as u32 - 1;

/// The level at which a fragment runs; it does not go up again, so that later runs begin where the last one succeeded.
#[derive(Debug, Default)]
pub(super) struct RoomLevel(AtomicU8);

impl RoomLevel {
    fn level(&self) -> usize {
        usize::from(self.0.load(Ordering::Relaxed)).min(QUARTERS.len() - 1)
    }

    /// What columns may take of a budget of so many bytes.
    pub(super) fn for_columns(&self, budget: usize) -> ColumnRoom {
        ColumnRoom::of(budget / 4 * QUARTERS[self.level()])
    }

    /// May results lie in host memory?
    pub(super) fn results_may_spill(&self) -> bool {
        self.level() + 1 == QUARTERS.len()
    }

    /// The run found no room: less for columns from now on. False when there was no more to give.
    pub(super) fn tighten(&self) -> bool {
        let order = Ordering::Relaxed;
        let next = |level: u8| (usize::from(level) + 1 < QUARTERS.len()).then_some(level + 1);
        self.0.fetch_update(order, order, next).is_ok()
    }
}

/// What group-bys may take of a budget of so many bytes where it is short: half of it for a table of states, beside strides
/// and what else the pipeline reads.
pub(super) fn group_room(budget: usize) -> GroupRoom {
    GroupRoom {
        states: budget as u64 / 2,
        part: part_bytes(budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_make_room_until_results_spill() {
        let level = RoomLevel::default();
        assert!(level.for_columns(400).take(300));
        assert!(!level.for_columns(400).take(301));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(level.for_columns(400).take(100));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(!level.for_columns(400).take(1));
        assert!(level.results_may_spill());
        assert!(!level.tighten());
    }
}
