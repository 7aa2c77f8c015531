//! Scheduling of queries when memory is short: they wait for others to end, oldest first, for a bounded time.
//!
//! A query that finds no memory, while others run, waits until some is returned. Should all that run wait, nobody would return
//! any: then the youngest of them is refused and gives back what it holds, so that the older ones go on. This is the order of
//! age of wait-die (Rosenkrantz, Stearns and Lewis, TODS 1978), under which no cycle of waiting lasts.
//!
//! Queries that wait for a place on the device, or for another one's answer, return no memory meanwhile either.
//!
//! A query that was refused may ask to run alone: it waits until those that run have ended, and others that come
//! meanwhile wait for it. All waiting ends after the pool's patience.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::query::Query;

/// How long a query waits for memory, or for others to end, at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting query looks whether it was stopped.
const GLANCE: Duration = Duration::from_millis(50);

/// The queries of a pool.
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// Queries that wait for memory; read without the lock whenever memory is returned.
    waiting: AtomicUsize,
}

struct State {
    patience: Duration,
    running: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
    /// These wait for something else than memory: they return none meanwhile.
    parked: BTreeSet<u64>,
    /// Who runs alone, or waits to.
    alone: Option<u64>,
    /// Counts returns of memory while somebody waits.
    returns: u64,
}

/// A query's place among those that run; it ends with the value.
pub struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                patience: PATIENCE,
                running: BTreeSet::new(),
                waiting: BTreeSet::new(),
                parked: BTreeSet::new(),
                alone: None,
                returns: 0,
            }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        self.state.lock().patience = patience;
    }

    /// Begin, unless somebody runs alone.
    pub(super) fn try_begin(self: &Arc<Self>, query: &Query) -> Option<Turn> {
        let mut state = self.state.lock();
        state.alone.is_none().then(|| self.admit(&mut state, query))
    }

    /// Begin after whoever runs alone, or when patience ends.
    ///
    /// # Errors
    /// [`crate::GpuError::Stopped`] while it waits.
    pub(super) fn begin(self: &Arc<Self>, query: &Query) -> Result<Turn> {
        let mut state = self.state.lock();
        let end = Instant::now() + state.patience;
        while state.alone.is_some() && Instant::now() < end {
            query.check()?;
            self.changed.wait_for(&mut state, GLANCE);
        }
        Ok(self.admit(&mut state, query))
    }

    /// Begin when nobody else runs; `None` when patience ended before, or others wait for the same.
    ///
    /// # Errors
    /// [`crate::GpuError::Stopped`] while it waits.
    pub(super) fn begin_alone(self: &Arc<Self>, query: &Query) -> Result<Option<Turn>> {
        let mut state = self.state.lock();
        let end = Instant::now() + state.patience;
        while state.alone.is_some() && Instant::now() < end {
            query.check()?;
            self.changed.wait_for(&mut state, GLANCE);
        }
        if state.alone.is_some() {
            return Ok(None);
        }
        state.alone = Some(query.number());
        while !state.running.is_empty() && Instant::now() < end && query.check().is_ok() {
            self.changed.wait_for(&mut state, GLANCE);
        }
        let stopped = query.check();
        if !state.running.is_empty() || stopped.is_err() {
            state.alone = None;
            self.changed.notify_all();
            return stopped.map(|()| None);
        }
        Ok(Some(self.admit(&mut state, query)))
    }

    fn admit(self: &Arc<Self>, state: &mut State, query: &Query) -> Turn {
        state.running.insert(query.number());
        Turn {
            turns: Arc::clone(self),
            number: query.number(),
        }
    }

    /// Wait until memory was returned and it is this query's turn to try again; false when there is nothing to wait for, or
    /// when patience ends at `end`, which the first call sets.
    ///
    /// # Errors
    /// [`crate::GpuError::Stopped`] while it waits.
    pub(super) fn wait(&self, query: &Query, end: &mut Option<Instant>) -> Result<bool> {
        let number = query.number();
        let mut state = self.state.lock();
        if !state.running.contains(&number) || state.running.len() < 2 {
            return Ok(false);
        }
        let patience = state.patience;
        let end = *end.get_or_insert_with(|| {
            query.count_wait();
            Instant::now() + patience
        });
        state.waiting.insert(number);
        self.waiting.store(state.waiting.len(), Ordering::SeqCst);
        // One more that waits may be the last that ran.
        self.changed.notify_all();
        let seen = state.returns;
        let outcome = loop {
            if let Err(stopped) = query.check() {
                break Err(stopped);
            }
            if state.returns != seen && state.waiting.first() == Some(&number) {
                break Ok(true);
            }
            let all_wait = state.waiting.len() + state.parked.len() == state.running.len();
            if all_wait && state.waiting.last() == Some(&number) {
                break Ok(false);
            }
            if Instant::now() >= end {
                break Ok(false);
            }
            self.changed.wait_for(&mut state, GLANCE);
        };
        state.waiting.remove(&number);
        self.waiting.store(state.waiting.len(), Ordering::SeqCst);
        self.changed.notify_all();
        outcome
    }

    /// A query that runs waits for something else than memory, until the value is dropped.
    pub(super) fn park(self: &Arc<Self>, query: &Query) -> Parked {
        let number = query.number();
        let mut state = self.state.lock();
        if state.running.contains(&number) {
            state.parked.insert(number);
            // One more that waits may be the last that ran.
            self.changed.notify_all();
        }
        Parked {
            turns: Arc::clone(self),
            number,
        }
    }

    /// Memory was returned to the pool.
    pub(super) fn returned(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.state.lock().returns += 1;
            self.changed.notify_all();
        }
    }

    /// Queries that run.
    pub(super) fn running(&self) -> usize {
        self.state.lock().running.len()
    }
}

/// See [`Turns::park`].
#[must_use]
pub(crate) struct Parked {
    turns: Arc<Turns>,
    number: u64,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.turns.state.lock().parked.remove(&self.number);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.running.remove(&self.number);
        state.parked.remove(&self.number);
        if state.alone == Some(self.number) {
            state.alone = None;
        }
        // Who ends has returned what it held.
        state.returns += 1;
        self.turns.changed.notify_all();
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("query", &self.number).finish()
    }
}
