//! Parquet columns whose chunks are all decoded, finished some at a time.

use std::sync::Arc;

use parking_lot::Mutex;

use super::parquet_tasks::{Coming, stream_like};
use super::preallocated::SharedPools;
use crate::column::{Column, Segment, StringSorter, map};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::parquet::{Kernels, Reason};
use crate::query::Query;

/// A column whose chunks are all there.
pub(super) struct Finished {
    pub(super) wanted: usize,
    /// Chunks that the device has decoded.
    pub(super) decoded: u64,
    pub(super) column: std::result::Result<Column, Reason>,
}

/// Finish columns, some at a time: what is found out about one is waited for several times, and dictionaries are made by the
/// host. With each come the rows that the CPU has decoded.
pub(super) fn finish(
    coming: Vec<(Coming, Vec<(usize, Segment)>)>,
    pools: &SharedPools,
    kernels: &Kernels,
    sorter: Option<&dyn StringSorter>,
    stream: &Stream,
    query: Option<&Arc<Query>>,
) -> Result<Vec<Finished>> {
    /// Columns at a time.
    const MOST: usize = 4;
    let workers = coming.len().min(MOST);
    let queue = Mutex::new(coming.into_iter());
    let outcomes = map((0..workers).collect(), |_| {
        let _entered = query.map(Query::enter);
        let own = stream_like(stream, pools.device.device().as_ref())?;
        let mut finished = Vec::new();
        loop {
            let next = queue.lock().next();
            let Some((coming, segments)) = next else {
                break;
            };
            finished.push(finish_one(coming, segments, pools, kernels, sorter, &own)?);
        }
        // Other sessions use the columns on streams of their own.
        pools.device.device().synchronize(&own)?;
        Ok(finished)
    })?;
    let finished = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(finished.into_iter().flatten().collect())
}

fn finish_one(
    coming: Coming,
    segments: Vec<(usize, Segment)>,
    pools: &SharedPools,
    kernels: &Kernels,
    sorter: Option<&dyn StringSorter>,
    stream: &Stream,
) -> Result<Finished> {
    let home = pools.column_pools();
    let Coming { wanted, column } = coming;
    let (decoded, text) = (column.decoded(), column.is_text());
    let placed = segments.into_iter().try_for_each(|(first, segment)| {
        column.place(first, segment, &home, &kernels.finish, stream)
    });
    let column = match placed.and_then(|()| column.finish(&home, &kernels.finish, sorter, stream)) {
        Ok(Some(column)) => Ok(column),
        Ok(None) if text => Err(Reason::PlainStrings),
        Ok(None) => Err(Reason::OtherRange),
        Err(GpuError::OutOfDeviceMemory { .. }) => Err(Reason::Memory),
        Err(error) => return Err(error),
    };
    Ok(Finished {
        wanted,
        decoded,
        column,
    })
}
