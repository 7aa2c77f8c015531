//! FinishedIndex indexes that stay on the device between queries.

use crate::exec::frame::storage::Store;
use crate::exec::prepare::covering::{Covering, index_room};
use crate::exec::prepare::shapes::Sizes;
use crate::memory::{KeptResult, KeptResults};

/// A finished index.
#[derive(Debug, Clone)]
pub(in crate::exec) struct FinishedIndex {
    pub(in crate::exec) store: Store,
    pub(in crate::exec) sizes: Sizes,
    /// Entries.
    pub(in crate::exec) count: u64,
    /// Some row had a NULL key.
    pub(in crate::exec) null_key: bool,
}

/// One index that is kept.
#[derive(Debug)]
struct Kept {
    what: Covering,
    index: FinishedIndex,
    bytes: usize,
}

impl KeptResult for Kept {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_idle(&self) -> bool {
        self.index.store.is_idle()
    }
}

/// The index, if it is there.
pub(in crate::exec) fn find(indexes: &KeptResults, what: &Covering) -> Option<FinishedIndex> {
    indexes.find(|kept: &Kept| (kept.what.is(what) && what.lives()).then(|| kept.index.clone()))
}

/// Keep an index that all queued work has finished with, unless it takes too much of `budget` bytes.
pub(in crate::exec) fn keep(
    indexes: &KeptResults,
    what: Covering,
    index: FinishedIndex,
    budget: usize,
) {
    let bytes = index.store.bytes();
    if bytes > index_room(budget) {
        return;
    }
    let stays = {
        let what = what.clone();
        move |kept: &Kept| kept.what.lives() && !kept.what.is(&what)
    };
    indexes.keep(Kept { what, index, bytes }, stays);
}
