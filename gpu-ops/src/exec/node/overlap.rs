//! Runs over a table of which the first rows have come, while others are read.
//!
//! The tables of a fragment are loaded, the largest one last. When the loader offers that one as it is going to be
//! ([`LoadProgress`]), the fragment is planned, compiled and run on a stream of its own: kernels go over it in strides, each as soon as
//! its rows lie in their place. Before any row is delivered the run waits for the table, and is worth nothing when that turns
//! out otherwise: then the fragment is run as if there had been no offer.

use std::sync::Arc;

use crate::column::ColumnRoom;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::node::attempts::FragmentRun;
use crate::exec::node::report::FragmentReport;
use crate::exec::node::threads::on_thread;
use crate::exec::output::host::Host;
use crate::exec::prepare::bind::OverlapScan;
use crate::exec::prepare::sorter::DeviceSorter;
use crate::pipeline::ScanSource;
use crate::tables::{ColumnRequest, LoadFor, LoadProgress, LoadedTable, WithdrawOnDrop};
use crate::trace::Work;

/// What a run made of the tables before they were loaded; `None` when there was none, or when it is worth nothing.
type Outcome<T> = Option<Result<(T, FragmentReport)>>;

/// What all scans of one load share.
pub(in crate::exec) struct Loading {
    /// What columns may take of device memory.
    room: ColumnRoom,
    work: LoadFor,
}

impl FragmentRun {
    /// The columns of every scan, and the outcome of the run over them if it could begin before they were complete.
    pub(in crate::exec) async fn load<T: Send + 'static>(
        &mut self,
        stream: &Stream,
        deliver: &(impl Fn(&Frame<'_>, &Host) -> Result<T> + Clone + Send + 'static),
    ) -> Result<(Vec<Arc<LoadedTable>>, Outcome<T>)> {
        let shared = Arc::clone(&self.shared);
        let scans = shared.policy.scans();
        let largest = match std::mem::replace(&mut self.may_overlap, false) {
            true => (0..scans.len()).max_by_key(|scan| scans[*scan].table.file_bytes()),
            false => None,
        };
        let largest = largest.filter(|scan| scans[*scan].table.file_bytes().is_some());
        let loading = self.loading(stream);
        let load = async |scan: usize, arrival: Option<&Arc<LoadProgress>>| {
            self.load_scan(&scans[scan], arrival, &loading).await
        };
        let mut tables = Vec::with_capacity(scans.len());
        for scan in (0..scans.len()).filter(|scan| Some(*scan) != largest) {
            // One after the other: each reads with all of the session's readers.
            tables.push(load(scan, None).await?);
        }
        let Some(scan) = largest else {
            return Ok((tables, None));
        };
        let (arrival, offer) = LoadProgress::new();
        let _withdraw = WithdrawOnDrop(Arc::clone(&arrival));
        let arriving = async {
            let loaded = load(scan, Some(&arrival)).await;
            arrival.settle(loaded.as_deref().ok());
            loaded
        };
        let running = async {
            let mut tables = tables.clone();
            tables.insert(scan, offer.await.ok()?);
            let arrival = Arc::clone(&arrival);
            let overlap = OverlapScan { scan, arrival };
            let run = self.run_overlapped(overlap, tables, deliver.clone());
            Some(run.await)
        };
        // Also after an error: what overlaps the load holds memory of the load.
        let (loaded, outcome) = tokio::join!(arriving, running);
        tables.insert(scan, loaded?);
        // What went wrong with a table that kept to its offer has nothing to do with the offer.
        let worth = |outcome: &Result<_>| match outcome {
            Err(error) if !arrival.has_kept() => {
                log::info!("running again, over all of {}: {error}", scans[scan].name);
                false
            }
            _ => true,
        };
        Ok((tables, outcome.filter(worth)))
    }

    /// What one load of all scans goes by.
    pub(in crate::exec) fn loading(&self, stream: &Stream) -> Loading {
        let budget = self.shared.runtime.pool().budget();
        let last = self.shared.last_columns();
        Loading {
            room: self.shared.room.for_columns(budget, last),
            work: LoadFor {
                stream: stream.clone(),
                query: Some(Arc::clone(&self.query)),
                parquet: self.shared.options.parquet,
                sorter: Some(Arc::new(DeviceSorter::of(&self.shared.runtime))),
            },
        }
    }

    /// The columns of one scan.
    pub(in crate::exec) async fn load_scan(
        &self,
        scan: &ScanSource,
        arrival: Option<&Arc<LoadProgress>>,
        Loading { room, work }: &Loading,
    ) -> Result<Arc<LoadedTable>> {
        let tables = self.shared.runtime.tables();
        let context = &self.context;
        let table = &scan.table;
        let request = ColumnRequest {
            columns: &scan.columns,
            needs_codes: &scan.needs_codes,
        };
        let Some(number) = table.input() else {
            let load = tables.get_arriving(table, request, room, arrival, context, work);
            return load.await;
        };
        let rows = self.inputs.get(number).ok_or_else(|| {
            GpuError::Internal(format!("a fragment was not given its input {number}"))
        })?;
        let load = tables.load_input(table, rows, request, room, context, work);
        load.await
    }

    /// Run over tables of which one is still coming.
    ///
    /// The thread is none of those that the executor has for work that blocks: the load needs some of them, and must not wait for
    /// runs that wait for it.
    async fn run_overlapped<T: Send + 'static>(
        &self,
        overlap: OverlapScan,
        tables: Vec<Arc<LoadedTable>>,
        deliver: impl Fn(&Frame<'_>, &Host) -> Result<T> + Send + 'static,
    ) -> Result<(T, FragmentReport)> {
        let (shared, query) = (Arc::clone(&self.shared), Arc::clone(&self.query));
        let profile = self.profile;
        let executing = self.traced(Work::Execute, "prepare and run while rows come");
        let outcome = on_thread(move || {
            let _entered = query.enter();
            let lease = shared.runtime.lease_stream()?;
            let stream = lease.of(query.cancel());
            shared.run(&tables, Some(&overlap), &stream, profile, &deliver, None)
        });
        let outcome = outcome.await;
        drop(executing);
        outcome?
    }
}
