//! A table whose rows come one after the other into memory that is theirs already, for kernels that go over those that are there.
//!
//! While files are read, the loader notes which units lie in their place. Once the first does, and every column that was asked for
//! is known as it is going to be, the table is offered as it is expected to be. Whoever takes the offer waits for the rows that
//! it goes over, and at the end for what became of the load: only a table that kept to the offer makes its results good.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::loaded::LoadedTable;
use super::preallocated::PreallocatedTable;
use crate::column::{Column, Written};
use crate::device::{Device, Event, Stream};
use crate::error::{GpuError, Result};

/// Whoever waits looks so often whether its query was stopped.
const LOOK: Duration = Duration::from_millis(10);

/// How far a load has come. Nothing of it holds the table's memory once it is settled.
pub(crate) struct LoadProgress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By unit: the row behind its last, and whether it lies in its place.
    units: Vec<(usize, bool)>,
    /// Units that lie there with all before them, …
    begun: usize,
    /// … and their rows.
    rows: usize,
    /// Behind the copies of all that lies there.
    copied: Option<Event>,
    /// Takes the offer.
    offer: Option<oneshot::Sender<Arc<LoadedTable>>>,
    /// What was offered, until it is compared with what came.
    expected: Option<Arc<LoadedTable>>,
    /// Did the table keep to the offer?
    kept: Option<bool>,
}

/// A column of the offer.
pub(super) enum Coming {
    /// It has been there before.
    Resident(Arc<Column>),
    /// It is the `n`-th of those that are loaded.
    Loaded(usize),
}

/// What a load has to offer, and to whom.
pub(super) struct Offer {
    pub(super) arrival: Arc<LoadProgress>,
    /// By column of the request.
    pub(super) columns: Vec<Coming>,
}

/// Withdraws the offer of a load when it is dropped: nobody goes on with it.
pub(crate) struct WithdrawOnDrop(pub(crate) Arc<LoadProgress>);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl LoadProgress {
    /// Of a load that is to begin, and where its offer goes. The receiver is told of an error when there is none, at the latest
    /// when it is settled.
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<Arc<LoadedTable>>) {
        let (sender, receiver) = oneshot::channel();
        let state = State {
            offer: Some(sender),
            ..State::default()
        };
        let arrival = Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        (Arc::new(arrival), receiver)
    }

    /// What was offered is not going to come, or nobody is going to say whether it did.
    pub(crate) fn withdraw(&self) {
        self.end(|_| false);
    }

    /// The load is over: its table, if there is one, has kept to the offer or not.
    pub(crate) fn settle(&self, loaded: Option<&LoadedTable>) {
        self.end(|expected| loaded.is_some_and(|loaded| keeps(loaded, expected)));
    }

    fn end(&self, kept: impl FnOnce(&LoadedTable) -> bool) {
        let mut state = self.state.lock();
        state.offer = None;
        let expected = state.expected.take();
        if state.kept.is_none() {
            state.kept = Some(expected.as_deref().is_some_and(kept));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Is the load over, and did its table keep to the offer?
    pub(crate) fn has_kept(&self) -> bool {
        self.state.lock().kept == Some(true)
    }

    /// Do all rows before row `end` lie in their place?
    pub(crate) fn has(&self, end: u64) -> bool {
        self.state.lock().rows as u64 >= end
    }

    /// Wait until all rows before row `end` lie in their place. What is queued on `stream` from then on sees them. False when
    /// rows behind them are still to come.
    ///
    /// # Errors
    /// [`GpuError::NotAsExpected`] when they are not going to come; [`GpuError::Stopped`]; [`GpuError::Device`].
    pub(crate) fn wait(&self, end: u64, device: &dyn Device, stream: &Stream) -> Result<bool> {
        let mut state = self.state.lock();
        loop {
            stream.check()?;
            if state.kept == Some(false) {
                return Err(GpuError::NotAsExpected);
            }
            if state.rows as u64 >= end {
                if let Some(copied) = &state.copied {
                    device.wait_event(stream, copied)?;
                }
                return Ok(state.begun == state.units.len());
            }
            self.changed.wait_for(&mut state, LOOK);
        }
    }

    /// Wait until it is known that the table kept to the offer.
    ///
    /// # Errors
    /// [`GpuError::NotAsExpected`] when it did not; [`GpuError::Stopped`].
    pub(crate) fn confirm(&self, stream: &Stream) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            stream.check()?;
            match state.kept {
                Some(true) => return Ok(()),
                Some(false) => return Err(GpuError::NotAsExpected),
                None => self.changed.wait_for(&mut state, LOOK),
            };
        }
    }
}

impl Offer {
    /// A unit has been placed, by copies that are queued on `stream`.
    ///
    /// # Errors
    /// [`GpuError::Device`]; [`GpuError::Unsupported`] when a dictionary outgrows its Arrow type.
    pub(super) fn note(
        &self,
        unit: usize,
        laid: Written,
        places: &PreallocatedTable,
        device: &dyn Device,
        stream: &Stream,
    ) -> Result<()> {
        if laid != Written::InPlace {
            self.arrival.withdraw();
            return Ok(());
        }
        let mut state = self.arrival.state.lock();
        if state.kept.is_some() {
            return Ok(());
        }
        if state.offer.is_some() {
            let Some(table) = self.table(places)? else {
                drop(state);
                self.arrival.withdraw();
                return Ok(());
            };
            state.units = places
                .units()
                .iter()
                .map(|rows| (rows.end, false))
                .collect();
            let table = Arc::new(table);
            state.expected = Some(Arc::clone(&table));
            if let Some(offer) = state.offer.take() {
                // Who does not wait for it any more does without.
                let _ = offer.send(table);
            }
        }
        if let Some((_, here)) = state.units.get_mut(unit) {
            *here = true;
        }
        // Under the lock: of two threads that have placed units, the later event is behind the copies of both.
        state.copied = Some(device.record_event(stream)?);
        while let Some((end, true)) = state.units.get(state.begun).copied() {
            state.rows = end;
            state.begun += 1;
        }
        drop(state);
        self.arrival.changed.notify_all();
        Ok(())
    }

    /// The table as it is going to be; `None` when that is not known of all columns.
    fn table(&self, places: &PreallocatedTable) -> Result<Option<LoadedTable>> {
        let rows = places.all_rows();
        let Some(expected) = places.expected()? else {
            return Ok(None);
        };
        let expected: Vec<Arc<Column>> = expected.into_iter().map(Arc::new).collect();
        let columns = self.columns.iter().map(|column| match column {
            Coming::Resident(column) => (column.rows == rows).then(|| Arc::clone(column)),
            Coming::Loaded(number) => expected.get(*number).cloned(),
        });
        let Some(columns) = columns.collect() else {
            return Ok(None);
        };
        Ok(Some(LoadedTable {
            rows,
            columns,
            load_ms: 0.0,
            bytes_uploaded: 0,
            columns_loaded: 0,
        }))
    }
}

/// Is a table what was expected of it?
fn keeps(loaded: &LoadedTable, expected: &LoadedTable) -> bool {
    loaded.rows == expected.rows
        && loaded.columns.len() == expected.columns.len()
        && loaded
            .columns
            .iter()
            .zip(&expected.columns)
            .all(|(loaded, expected)| Arc::ptr_eq(loaded, expected) || loaded.keeps(expected))
}

impl std::fmt::Debug for LoadProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("LoadProgress")
            .field("rows", &state.rows)
            .field("kept", &state.kept)
            .finish_non_exhaustive()
    }
}
