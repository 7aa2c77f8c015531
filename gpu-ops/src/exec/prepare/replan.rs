//! What runs of a fragment found out that its next plan must know.

use std::collections::{HashMap, HashSet};

use crate::exec::prepare::shapes::Sizes;

/// What earlier runs found out about a fragment's results, by name.
#[derive(Debug, Clone, Default)]
pub(in crate::exec) struct ReplanFacts {
    /// Builds that are not unique.
    pub(in crate::exec) duplicates: HashSet<String>,
    /// Tables of groups that were too small.
    pub(in crate::exec) outgrown: HashMap<String, Outgrown>,
}

/// Slots of a table of groups, and of the sets of its DISTINCT calls, that are worth a try after fewer were too few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::exec) struct Outgrown {
    pub(in crate::exec) slots: u64,
    pub(in crate::exec) distinct_slots: Vec<u64>,
}

impl Outgrown {
    /// How many more slots are tried.
    const TIMES: u64 = 4;

    /// These slots were too few: those of sets, or those of the table.
    pub(in crate::exec) fn note(&mut self, slots: u64, distinct_slots: &[u64], full_sets: bool) {
        let more = |slots: u64, full: bool| match full {
            true => slots.saturating_mul(Self::TIMES),
            false => slots,
        };
        self.slots = self.slots.max(more(slots, !full_sets));
        self.distinct_slots.resize(distinct_slots.len(), 0);
        for (mine, slots) in self.distinct_slots.iter_mut().zip(distinct_slots) {
            *mine = more(*slots, full_sets).max(*mine);
        }
    }

    /// At least these slots. A table that is not `hashed` has one for each group there may be, whatever its sets of DISTINCT
    /// calls outgrew.
    pub(in crate::exec) fn raise(&self, hashed: bool, sizes: &mut Sizes) {
        if hashed {
            sizes.slots = sizes.slots.max(self.slots);
        }
        for (slots, mine) in sizes.distinct_slots.iter_mut().zip(&self.distinct_slots) {
            *slots = (*slots).max(*mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_small_gets_larger_each_time() {
        let mut outgrown = Outgrown::default();
        outgrown.note(16, &[8], false);
        outgrown.note(32, &[8], false);
        outgrown.note(32, &[8], true);
        let mut sizes = Sizes {
            slots: 64,
            distinct_slots: vec![16],
            ..Sizes::default()
        };
        outgrown.raise(true, &mut sizes);
        assert_eq!((sizes.slots, &sizes.distinct_slots[..]), (128, &[32][..]));
        // One row for all has one slot, however large its sets are.
        let mut sizes = Sizes {
            slots: 1,
            distinct_slots: vec![16],
            ..Sizes::default()
        };
        outgrown.raise(false, &mut sizes);
        assert_eq!((sizes.slots, sizes.distinct_slots), (1, vec![32]));
    }
}
