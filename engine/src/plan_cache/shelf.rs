//! Shelf: the plans that wait for their next run, by what they were made of.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use super::tables::Tables;

/// What a plan was made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// A query's text, normalised.
    Text(String),
    /// A logical plan, of a statement whose parameters have values. It is equal to one over other tables of the same names and
    /// schemas, which [`Tables::are_of`] tells apart.
    Plan(Arc<LogicalPlan>),
}

/// Plans of one session, or of all sessions of a server.
#[derive(Debug)]
pub(super) struct Shelf {
    inner: Mutex<Inner>,
    /// Most plans of one source that wait.
    most_idle: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Source, Entry>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    idle: Vec<Waiting>,
    used: u64,
}

/// What a run left, and the tables it is for. Runs at the same time noted each for itself what the tables hold.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) tables: Arc<Tables>,
    pub(super) kept: Kept,
}

/// What is left of a run for the next one.
#[derive(Debug)]
pub(super) enum Kept {
    /// A plan that can run again.
    Plan(Arc<dyn ExecutionPlan>),
    /// The fragments of a plan that cannot, in the plan's order.
    Fragments(Vec<Arc<dyn ExecutionPlan>>),
}

impl Entry {
    /// Is it of a source whose plans can run again?
    fn has_plan(&self) -> bool {
        let first = self.idle.first().map(|waiting| &waiting.kept);
        !matches!(first, Some(Kept::Fragments(_)))
    }
}

impl Shelf {
    pub(super) fn new(most_idle: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            most_idle,
        })
    }

    /// Sources with a plan that can run again.
    pub(super) fn plans(&self) -> usize {
        let inner = self.inner.lock();
        inner.entries.values().filter(|e| e.has_plan()).count()
    }

    /// Does a plan of the source wait for its next run?
    pub(super) fn has_plan(&self, source: &Source) -> bool {
        let inner = self.inner.lock();
        let entry = inner.entries.get(source);
        entry.is_some_and(|entry| !entry.idle.is_empty() && entry.has_plan())
    }

    pub(super) fn clear(&self) {
        // Dropping plans can be slow: not under the lock.
        let entries = std::mem::take(&mut self.inner.lock().entries);
        drop(entries);
    }

    /// What an earlier run left; taken out, so no two runs share it.
    pub(super) fn take(&self, source: &Source) -> Option<Waiting> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let entry = inner.entries.get_mut(source)?;
        entry.used = clock;
        entry.idle.pop()
    }

    /// Drops what waits for the next run: the tables hold something else by now.
    pub(super) fn forget(&self, source: &Source) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(source);
        let stale = entry.map(|entry| std::mem::take(&mut entry.idle));
        drop(inner);
        drop(stale);
    }

    /// Keeps what a run left. Of more than `capacity` sources the one goes that was not asked for the longest.
    pub(super) fn put(&self, source: Source, waiting: Waiting, capacity: usize) {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let entry = inner.entries.entry(source).or_default();
        entry.used = clock;
        // What finds no room is dropped when the lock is free.
        let mut surplus = None;
        if entry.idle.len() < self.most_idle {
            entry.idle.push(waiting);
        } else {
            surplus = Some(waiting);
        }
        let mut evicted = Vec::new();
        while inner.entries.len() > capacity {
            let oldest = inner.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(source) = oldest.map(|(source, _)| source.clone()) else {
                break;
            };
            evicted.extend(inner.entries.remove(&source));
        }
        drop(inner);
        drop((surplus, evicted));
    }
}
