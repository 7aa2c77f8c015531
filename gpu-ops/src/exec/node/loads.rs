//! Loads of a fragment's tables: small ones beside each other, large ones one after the other.
//!
//! A load of a small table waits most of the time: for footers, for the one warp that has the last page, for what the device tells
//! of a column. A large one keeps all readers of the session and the link busy, and has page-locked memory for all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::join_all;
use futures::poll;

use crate::column::ColumnRoom;
use crate::device::{Stream, StreamLease};
use crate::error::{GpuError, Result};
use crate::exec::node::attempts::FragmentRun;
use crate::exec::prepare::sorter::DeviceSorter;
use crate::pipeline::ScanSource;
use crate::tables::{ColumnRequest, LoadFor, LoadProgress, LoadedTable};

/// Bytes of the files of a table that counts as small.
const SMALL: u64 = 256 << 20;

/// What all scans of one load share.
#[derive(Clone)]
pub(in crate::exec) struct Loading {
    /// What columns may take of device memory.
    room: ColumnRoom,
    work: LoadFor,
}

/// Tables by the number of their scan.
pub(in crate::exec) type Loaded = Vec<(usize, Arc<LoadedTable>)>;

/// A load on its way.
type Coming<'a> = Pin<Box<dyn Future<Output = Result<(usize, Arc<LoadedTable>)>> + Send + 'a>>;

/// Loads of small tables that have begun.
#[derive(Default)]
pub(in crate::exec) struct SmallLoads<'a> {
    loaded: Loaded,
    coming: Vec<Coming<'a>>,
    failed: Option<GpuError>,
}

impl SmallLoads<'_> {
    /// Is there something to wait for?
    pub(in crate::exec) fn are_coming(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Wait for all of them, also where one fails: what others have begun is theirs to end.
    ///
    /// # Errors
    /// The first of theirs.
    pub(in crate::exec) async fn complete(mut self) -> Result<Loaded> {
        for loaded in join_all(self.coming).await {
            match loaded {
                Ok(loaded) => self.loaded.push(loaded),
                Err(error) => self.failed = self.failed.or(Some(error)),
            }
        }
        self.failed.map_or(Ok(self.loaded), Err)
    }
}

/// May a table be loaded beside others?
pub(in crate::exec) fn is_small(scan: &ScanSource) -> bool {
    scan.table.file_bytes().is_some_and(|bytes| bytes <= SMALL)
}

impl FragmentRun {
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

    /// The same on a stream of its own, which is leased meanwhile.
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device makes no stream.
    pub(in crate::exec) fn loading_apart(
        &self,
        loading: &Loading,
    ) -> Result<(Loading, StreamLease)> {
        let lease = self.shared.runtime.lease_stream()?;
        let mut apart = loading.clone();
        apart.work.stream = lease.of(self.query.cancel());
        Ok((apart, lease))
    }

    /// Begin loads of the small tables among these scans. Those that are resident are there at once; of the others all but the first
    /// have streams of their own.
    pub(in crate::exec) async fn load_small<'a>(
        &'a self,
        scans: &'a [ScanSource],
        among: impl IntoIterator<Item = usize>,
        loading: &'a Loading,
    ) -> SmallLoads<'a> {
        let mut loads = SmallLoads::default();
        for number in among {
            let scan = &scans[number];
            let mut load: Coming<'_> = match loads.are_coming() {
                false => {
                    Box::pin(
                        async move { Ok((number, self.load_scan(scan, None, loading).await?)) },
                    )
                }
                true => Box::pin(async move {
                    let (loading, _lease) = self.loading_apart(loading)?;
                    Ok((number, self.load_scan(scan, None, &loading).await?))
                }),
            };
            match poll!(load.as_mut()) {
                Poll::Ready(Ok(loaded)) => loads.loaded.push(loaded),
                Poll::Ready(Err(error)) => {
                    loads.failed = Some(error);
                    break;
                }
                Poll::Pending => loads.coming.push(load),
            }
        }
        loads
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
}
