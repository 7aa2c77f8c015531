//! Equal fragments that run at the same time share one run: the first one's, whose rows the others get as well.
//!
//! Fragments are equal when they compute the same ([`Fingerprint`]) over the same columns, by the same settings. Columns are those of
//! the cache, which are replaced when their table changes: whoever comes later and finds others has a run of its own.
//!
//! The run goes on while anybody waits for it. Where it fails, each of the others tries by itself.

use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::column::Column;
use crate::exec::node::report::FragmentReport;
use crate::exec::node::shared::Shared;
use crate::exec::output::host::Delivered;
use crate::graph::Fingerprint;
use crate::query::StopOnDrop;
use crate::tables::LoadedTable;

/// What a run yields that others wait for.
type Landed = (Delivered, FragmentReport);

/// The runs of a device that others may share: attached to its runtime.
#[derive(Debug, Default)]
pub(in crate::exec) struct Flights {
    flying: Mutex<Vec<Arc<Flight>>>,
}

/// A run on its way.
#[derive(Debug)]
struct Flight {
    key: FlightKey,
    /// Held by all who wait for it: nobody can come any more when it is gone.
    interest: Weak<StopOnDrop>,
    waiting: Mutex<Vec<oneshot::Sender<Landed>>>,
}

/// What a run computes, and of what.
#[derive(Debug)]
pub(in crate::exec) struct FlightKey {
    fingerprint: Arc<Fingerprint>,
    schema: SchemaRef,
    settings: Arc<[(String, String)]>,
    tables: Vec<TableKey>,
}

/// The rows of a table and the columns read of it.
type TableKey = (usize, Vec<Arc<Column>>);

impl FlightKey {
    /// Of a fragment over these tables; `None` where its run cannot be another one's.
    pub(in crate::exec) fn of(shared: &Shared, tables: &[Arc<LoadedTable>]) -> Option<Self> {
        let options = &shared.options;
        if !options.share || options.profile {
            return None;
        }
        let tables = tables.iter();
        Some(Self {
            fingerprint: shared.policy.fingerprint()?,
            schema: Arc::clone(&shared.schema),
            settings: Arc::clone(&options.settings),
            tables: tables.map(|t| (t.rows, t.columns.clone())).collect(),
        })
    }
}

impl PartialEq for FlightKey {
    fn eq(&self, other: &Self) -> bool {
        let same_table = |(a, b): (&TableKey, &TableKey)| {
            let mut columns = a.1.iter().zip(&b.1);
            a.0 == b.0 && a.1.len() == b.1.len() && columns.all(|(a, b)| Arc::ptr_eq(a, b))
        };
        self.tables.len() == other.tables.len()
            && self.tables.iter().zip(&other.tables).all(same_table)
            && self.fingerprint == other.fingerprint
            && self.settings == other.settings
            && self.schema == other.schema
    }
}

/// What a fragment does about its run.
pub(in crate::exec) enum Joined {
    /// It runs, and others may wait for it.
    Pilot(Pilot),
    /// It waits for another one's run.
    Passenger(Passenger),
}

/// A run that others may wait for, until it is dropped.
#[derive(Debug)]
pub(in crate::exec) struct Pilot {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
}

/// A place on another one's run.
pub(in crate::exec) struct Passenger {
    landed: oneshot::Receiver<Landed>,
    _interest: Arc<StopOnDrop>,
}

impl Flights {
    /// Wait for an equal run if there is one, else begin one; it is stopped when nobody holds `interest` any more.
    pub(in crate::exec) fn join(
        self: &Arc<Self>,
        key: FlightKey,
        interest: &Arc<StopOnDrop>,
    ) -> Joined {
        let mut flying = self.flying.lock();
        for flight in flying.iter().filter(|flight| flight.key == key) {
            if let Some(interest) = flight.interest.upgrade() {
                let (sender, landed) = oneshot::channel();
                flight.waiting.lock().push(sender);
                return Joined::Passenger(Passenger {
                    landed,
                    _interest: interest,
                });
            }
        }
        let flight = Arc::new(Flight {
            key,
            interest: Arc::downgrade(interest),
            waiting: Mutex::default(),
        });
        flying.push(Arc::clone(&flight));
        Joined::Pilot(Pilot {
            flights: Arc::clone(self),
            flight,
        })
    }
}

impl Pilot {
    /// The run has ended: those who wait get copies of what came of it, which share its rows.
    pub(in crate::exec) fn land(self, delivered: &Delivered, report: &FragmentReport) {
        for waiting in self.leave() {
            let report = FragmentReport {
                shared_runs: 1,
                ..report.clone()
            };
            // Who has gone away needs nothing.
            let _ = waiting.send((delivered.clone(), report));
        }
    }

    /// Nobody can come any more.
    fn leave(&self) -> Vec<oneshot::Sender<Landed>> {
        let mut flying = self.flights.flying.lock();
        flying.retain(|flight| !Arc::ptr_eq(flight, &self.flight));
        drop(flying);
        std::mem::take(&mut *self.flight.waiting.lock())
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Passenger {
    /// The rows of the run; `None` when it failed.
    pub(in crate::exec) async fn landed(self) -> Option<Landed> {
        self.landed.await.ok()
    }
}
