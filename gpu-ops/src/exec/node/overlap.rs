//! Runs over a table of which the first rows have come, while others are read.
//!
//! The tables of a fragment are loaded, the largest one after all others that are not small. When the loader offers that one as it
//! is going to be ([`LoadProgress`]) and the others are there, the fragment is planned, compiled and run on a stream of its own:
//! kernels go over it in strides, each as soon as its rows lie in their place. Before any row is delivered the run waits for the
//! table, and is worth nothing when that turns out otherwise: then the fragment is run as if there had been no offer.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::node::attempts::FragmentRun;
use crate::exec::node::loads::{Loaded, is_small};
use crate::exec::node::report::FragmentReport;
use crate::exec::node::threads::on_thread;
use crate::exec::output::host::Host;
use crate::exec::prepare::bind::OverlapScan;
use crate::tables::{LoadProgress, LoadedTable, WithdrawOnDrop};
use crate::trace::Work;

/// What a run made of the tables before they were loaded; `None` when there was none, or when it is worth nothing.
type Outcome<T> = Option<Result<(T, FragmentReport)>>;

/// All tables, by the order of their scans.
fn in_order(mut some: Loaded, others: Loaded) -> Vec<Arc<LoadedTable>> {
    some.extend(others);
    some.sort_unstable_by_key(|(scan, _)| *scan);
    some.into_iter().map(|(_, table)| table).collect()
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
        let others = (0..scans.len()).filter(|scan| Some(*scan) != largest);
        let (small, large): (Vec<usize>, _) = others.partition(|scan| is_small(&scans[*scan]));
        let small = self.load_small(scans, small, &loading).await;
        let (loading, _lease) = match small.are_coming() {
            true => {
                let (loading, lease) = self.loading_apart(&loading)?;
                (loading, Some(lease))
            }
            false => (loading.clone(), None),
        };
        let load = async |scan: usize, arrival: Option<&Arc<LoadProgress>>| {
            self.load_scan(&scans[scan], arrival, &loading).await
        };
        let large = async {
            let mut loaded = Loaded::with_capacity(large.len());
            for scan in large {
                loaded.push((scan, load(scan, None).await?));
            }
            Ok::<_, GpuError>(loaded)
        };
        let Some(scan) = largest else {
            let (small, large) = tokio::join!(small.complete(), large);
            return Ok((in_order(small?, large?), None));
        };
        let (arrival, offer) = LoadProgress::new();
        let _withdraw = WithdrawOnDrop(Arc::clone(&arrival));
        let (before, others) = oneshot::channel();
        let arriving = async {
            let large = large.await?;
            // Who waits for them has given up only where another load has failed.
            let _ = before.send(large);
            let loaded = load(scan, Some(&arrival)).await;
            arrival.settle(loaded.as_deref().ok());
            loaded
        };
        let running = async {
            let small = small.complete().await?;
            let Ok(large) = others.await else {
                return Ok((vec![], None));
            };
            let others = in_order(small, large);
            let Ok(offered) = offer.await else {
                return Ok((others, None));
            };
            let mut tables = others.clone();
            tables.insert(scan, offered);
            let arrival = Arc::clone(&arrival);
            let overlap = OverlapScan { scan, arrival };
            let run = self.run_overlapped(overlap, tables, deliver.clone());
            Ok((others, Some(run.await)))
        };
        // Also after an error: what overlaps the load holds memory of the load.
        let (loaded, others): (_, Result<_>) = tokio::join!(arriving, running);
        let (loaded, (mut tables, outcome)) = (loaded?, others?);
        tables.insert(scan, loaded);
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
