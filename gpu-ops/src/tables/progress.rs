//! Progress of a table load: kernels may start on the rows already in place.
//!
//! While files are read, the loader notes which units are in place. Once the first one is, and every requested column
//! has a known layout, the expected table is offered. A query that takes the offer waits for the rows it processes,
//! and at the end for the outcome of the load: its results count only if the table matches the offer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::loaded::LoadedTable;
use super::preallocated::PreallocatedTable;
use crate::column::{Column, Written};
use crate::device::{Device, Event, Stream};
use crate::error::{GpuError, Result};

/// How often a waiting thread checks whether its query was stopped.
const LOOK: Duration = Duration::from_millis(10);

/// The progress of one load. It does not hold the table's memory once it is settled.
pub(crate) struct LoadProgress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By unit: the end of its rows, and whether it is in place.
    units: Vec<(usize, bool)>,
    /// Units in place with all before them, …
    begun: usize,
    /// … and their rows.
    rows: usize,
    /// An event behind the copies of all units in place.
    copied: Option<Event>,
    /// Receives the offer.
    offer: Option<oneshot::Sender<Arc<LoadedTable>>>,
    /// The offer, until it is compared with the loaded table.
    expected: Option<Arc<LoadedTable>>,
    /// Did the table match the offer?
    kept: Option<bool>,
}

/// A column of the offer.
pub(super) enum Coming {
    /// It was resident before.
    Resident(Arc<Column>),
    /// It is the `n`-th of those that are loaded.
    Loaded(usize),
}

/// The offer of a load, and its receiver.
pub(super) struct Offer {
    pub(super) arrival: Arc<LoadProgress>,
    /// By column of the request.
    pub(super) columns: Vec<Coming>,
}

/// Withdraws the offer of a load when it is dropped, since nobody continues it.
pub(crate) struct WithdrawOnDrop(pub(crate) Arc<LoadProgress>);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl LoadProgress {
    /// The progress of a load that is about to begin, and the receiver of its offer, which gets an error if there is
    /// none, at the latest when the load is settled.
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

    /// The offered rows will not come, or nobody will confirm them.
    pub(crate) fn withdraw(&self) {
        self.end(|_| false);
    }

    /// The load is over: its table, if there is one, matches the offer or not.
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

    /// Is the load over, and did its table match the offer?
    pub(crate) fn has_kept(&self) -> bool {
        self.state.lock().kept == Some(true)
    }

    /// Are all rows before row `end` in place?
    pub(crate) fn has(&self, end: u64) -> bool {
        self.state.lock().rows as u64 >= end
    }

    /// Wait until all rows before row `end` are in place. Work queued on `stream` afterwards sees them. False when
    /// later rows are still to come.
    ///
    /// # Errors
    /// [`GpuError::NotAsExpected`] when they will not come; [`GpuError::Stopped`]; [`GpuError::Device`].
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

    /// Wait until the table is known to match the offer.
    ///
    /// # Errors
    /// [`GpuError::NotAsExpected`] when it does not; [`GpuError::Stopped`].
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
    /// A unit was written, by copies that are queued on `stream`.
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

    /// The expected table; `None` when some column is unknown.
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
            ..LoadedTable::default()
        }))
    }
}

/// Does a table match the expected one?
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
