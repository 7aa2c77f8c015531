//! How device memory is shared between the columns and the results of a fragment: less for columns each time results found
//! no room, and host memory for results in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::column::{Column, ColumnRoom};
use crate::exec::portions::spread::part_bytes;
use crate::exec::portions::strides::SHARE_OF_MEMORY;
use crate::pipeline::GroupRoom;

/// By level: the share of the budget that the columns of a query may take, in quarters.
const QUARTERS: [usize; 3] = [3, 1, 0];
/// Times that the room for columns can be made tighter.
pub(in crate::exec) const TIGHTENINGS: u32 = QUARTERS.len() as u32 - 1;

/// The level at which a fragment runs; it does not go up again, so that later runs begin where the last one succeeded.
#[derive(Debug, Default)]
pub(in crate::exec) struct RoomLevel {
    level: AtomicU8,
    fitted: Mutex<Option<Fitted>>,
}

/// What the last complete run held, in bytes.
#[derive(Debug, Clone, Copy)]
struct Fitted {
    /// The budget within which it did.
    budget: usize,
    /// Its columns in device memory.
    columns: usize,
    /// The most that its results took, without memory for columns that come in strides.
    results: usize,
}

impl Fitted {
    /// What columns may take so that the results find room again: as much as they took then, or what the results leave beside the
    /// share of it that is for strides of other columns.
    fn most_for_columns(&self) -> usize {
        let strides = self.results / (SHARE_OF_MEMORY as usize - 1);
        let left = self.budget.saturating_sub(self.results + strides);
        left.max(self.columns)
    }
}

impl RoomLevel {
    fn level(&self) -> usize {
        usize::from(self.level.load(Ordering::Relaxed)).min(QUARTERS.len() - 1)
    }

    /// What columns may take of a budget of so many bytes. Those of the last run that lie in device memory come first: a run that
    /// exchanged them for others of its columns would move them for nothing, and could end up with more of them and no room for
    /// its results. Others are added while those leave room.
    pub(in crate::exec) fn for_columns(
        &self,
        budget: usize,
        last: impl IntoIterator<Item = Arc<Column>>,
    ) -> ColumnRoom {
        let fitted = *self.fitted.lock();
        let fitted = fitted.filter(|fitted| fitted.budget == budget);
        let most = fitted.map_or(usize::MAX, |fitted| fitted.most_for_columns());
        ColumnRoom::holding(budget / 4 * QUARTERS[self.level()], last, most)
    }

    /// Bytes that the results of the last complete run within this budget took.
    pub(in crate::exec) fn results(&self, budget: usize) -> Option<usize> {
        let fitted = *self.fitted.lock();
        let fitted = fitted.filter(|fitted| fitted.budget == budget);
        fitted.map(|fitted| fitted.results)
    }

    /// A run was complete, with so many bytes of columns in device memory and of results.
    pub(in crate::exec) fn note<'c>(
        &self,
        budget: usize,
        columns: impl IntoIterator<Item = &'c Arc<Column>>,
        results: usize,
    ) {
        let mut seen: Vec<&Arc<Column>> = Vec::new();
        for column in columns {
            if !seen.iter().any(|other| Arc::ptr_eq(other, column)) {
                seen.push(column);
            }
        }
        let columns = seen.iter().map(|column| column.budget_bytes(false)).sum();
        *self.fitted.lock() = Some(Fitted {
            budget,
            columns,
            results,
        });
    }

    /// Be at the level of another one, and know what it knows.
    pub(in crate::exec) fn take_over(&self, other: &Self) {
        let level = other.level.load(Ordering::Relaxed);
        self.level.store(level, Ordering::Relaxed);
        *self.fitted.lock() = *other.fitted.lock();
    }

    /// May results lie in host memory?
    pub(in crate::exec) fn results_may_spill(&self) -> bool {
        self.level() + 1 == QUARTERS.len()
    }

    /// The run found no room: less for columns from now on. False when there was no more to give.
    pub(in crate::exec) fn tighten(&self) -> bool {
        let order = Ordering::Relaxed;
        let next = |level: u8| (usize::from(level) + 1 < QUARTERS.len()).then_some(level + 1);
        self.level.fetch_update(order, order, next).is_ok()
    }
}

/// What group-bys may take of a budget of so many bytes where it is short: half of it for a table of states, beside strides
/// and what else the pipeline reads.
pub(in crate::exec) fn group_room(budget: usize) -> GroupRoom {
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
        assert!(level.for_columns(400, []).take(300));
        assert!(!level.for_columns(400, []).take(301));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(level.for_columns(400, []).take(100));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(!level.for_columns(400, []).take(1));
        assert!(level.results_may_spill());
        assert!(!level.tighten());
    }

    #[test]
    fn results_get_the_room_that_they_had() {
        let level = RoomLevel::default();
        level.note(400, [], 60);
        // Beside the results and a quarter of what they leave to strides.
        assert!(level.for_columns(400, []).take(300));
        level.note(400, [], 240);
        assert!(level.for_columns(400, []).take(80));
        assert!(!level.for_columns(400, []).take(81));
        assert_eq!((level.results(400), level.results(800)), (Some(240), None));
        // Of another budget nothing is known.
        assert!(level.for_columns(800, []).take(600));
    }
}
