//! How device memory is shared between the columns and the results of a fragment: less for columns each time results found
//! no room, and host memory for results in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::column::{Column, ColumnRoom};
use crate::memory::{Budget, Free};
use crate::pipeline::GroupRoom;

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
    budget: Budget,
    /// Its columns in device memory.
    columns: usize,
    /// The most that its results took, without memory for columns that come in strides.
    results: usize,
}

impl Fitted {
    /// What columns may take so that the results find room again: as much as they took then, or what the results leave beside the
    /// share of it that is for strides of other columns.
    fn most_for_columns(&self) -> usize {
        let results = self.results as u64;
        let taken = results + Free::strides_beside(results);
        let left = self.budget.bytes().saturating_sub(taken) as usize;
        left.max(self.columns)
    }
}

impl RoomLevel {
    fn level(&self) -> u32 {
        u32::from(self.level.load(Ordering::Relaxed)).min(Budget::TIGHTENINGS)
    }

    /// What columns may take of a budget. Those of the last run that lie in device memory come first: a run that
    /// exchanged them for others of its columns would move them for nothing, and could end up with more of them and no room for
    /// its results. Others are added while those leave room.
    pub(in crate::exec) fn for_columns(
        &self,
        budget: Budget,
        last: impl IntoIterator<Item = Arc<Column>>,
    ) -> ColumnRoom {
        let fitted = *self.fitted.lock();
        let fitted = fitted.filter(|fitted| fitted.budget == budget);
        let most = fitted.map_or(usize::MAX, |fitted| fitted.most_for_columns());
        ColumnRoom::holding(budget.columns(self.level()) as usize, last, most)
    }

    /// Bytes that the results of the last complete run within this budget took.
    pub(in crate::exec) fn results(&self, budget: Budget) -> Option<usize> {
        let fitted = *self.fitted.lock();
        let fitted = fitted.filter(|fitted| fitted.budget == budget);
        fitted.map(|fitted| fitted.results)
    }

    /// A run was complete, with so many bytes of columns in device memory and of results.
    pub(in crate::exec) fn note<'c>(
        &self,
        budget: Budget,
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
        self.level() == Budget::TIGHTENINGS
    }

    /// The run found no room: less for columns from now on. False when there was no more to give.
    pub(in crate::exec) fn tighten(&self) -> bool {
        let order = Ordering::Relaxed;
        let next = |level: u8| (u32::from(level) < Budget::TIGHTENINGS).then_some(level + 1);
        self.level.fetch_update(order, order, next).is_ok()
    }
}

/// What group-bys may take where memory is short.
pub(in crate::exec) fn group_room(budget: Budget) -> GroupRoom {
    GroupRoom {
        states: budget.group_states(),
        part: budget.portion(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_make_room_until_results_spill() {
        let level = RoomLevel::default();
        assert!(level.for_columns(Budget::of(400), []).take(300));
        assert!(!level.for_columns(Budget::of(400), []).take(301));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(level.for_columns(Budget::of(400), []).take(100));
        assert!(!level.results_may_spill());
        assert!(level.tighten());
        assert!(!level.for_columns(Budget::of(400), []).take(1));
        assert!(level.results_may_spill());
        assert!(!level.tighten());
    }

    #[test]
    fn results_get_the_room_that_they_had() {
        let level = RoomLevel::default();
        level.note(Budget::of(400), [], 60);
        // Beside the results and a quarter of what they leave to strides.
        assert!(level.for_columns(Budget::of(400), []).take(300));
        level.note(Budget::of(400), [], 240);
        assert!(level.for_columns(Budget::of(400), []).take(80));
        assert!(!level.for_columns(Budget::of(400), []).take(81));
        assert_eq!(
            (
                level.results(Budget::of(400)),
                level.results(Budget::of(800))
            ),
            (Some(240), None)
        );
        // Of another budget nothing is known.
        assert!(level.for_columns(Budget::of(800), []).take(600));
    }
}
