//! What threads read of parquet files at a time, and the memory for it.

use std::ops::Range;
use std::sync::Arc;

use super::parquet_chunks::{ChunkSource, ParquetTable};
use super::parquet_lanes::SharedLanes;
use crate::column::DeviceColumn;
use crate::device::{Device, Stream};
use crate::error::Result;
use crate::memory::MemoryPool;
use crate::parquet::{Place, Places};

/// What a task has of the file at most where pages are not large, unless one chunk has more: what a thread reads in some 10 ms.
const MOST_TASK_BYTES: u64 = 32 << 20;
/// What a task has at least, where there is as much: less would not hide what a launch and a copy cost.
const LEAST_TASK_BYTES: u64 = 2 << 20;
/// Tasks of a thread that the device works on while the thread reads the next. A page is decompressed by one warp, which
/// takes longer than reading: that is why there are several.
pub(super) const IN_FLIGHT: usize = 3;
/// Threads that read at most: the link carries no more from there on, and each has page-locked memory.
pub(super) const MOST_READERS: usize = 32;
/// Batches that run at a time at most. With the streams of copies they are as many as the hardware has queues by default.
pub(super) const MOST_BATCHES: usize = 6;

/// A column on its way.
pub(super) struct Coming {
    /// In the list of wanted columns.
    pub(super) wanted: usize,
    pub(super) column: DeviceColumn,
}

/// Chunks that are decoded together: their row groups, and their columns in the list of those that come.
#[derive(Default)]
pub(super) struct Task {
    pub(super) chunks: Vec<(usize, usize)>,
    /// Of the file.
    bytes: u64,
    /// Of device memory until they are decoded, about.
    scratch: u64,
}

impl Task {
    /// Its chunks in a table, of which these columns come.
    pub(super) fn chunks_of<'a>(
        &self,
        table: &'a ParquetTable,
        columns: &[Coming],
    ) -> Vec<&'a ChunkSource> {
        let chunks = self.chunks.iter().filter_map(|(group, column)| {
            let wanted = columns[*column].wanted;
            table.groups[*group].chunks[wanted].as_ref().ok()
        });
        chunks.collect()
    }
}

/// The chunks of these columns that the device decodes, in the order in which files have them.
pub(super) fn tasks_of(table: &ParquetTable, coming: &[Coming], workers: usize) -> Vec<Task> {
    let all = table.groups.iter().flat_map(|group| {
        let chunks = coming.iter().map(|coming| &group.chunks[coming.wanted]);
        chunks.filter_map(|chunk| chunk.as_ref().ok())
    });
    let total: u64 = all.map(|chunk| length(&chunk.bytes)).sum();
    let most = (total / (workers * IN_FLIGHT) as u64)
        .clamp(LEAST_TASK_BYTES, most_task_bytes(table, coming));
    let mut tasks = Vec::new();
    let mut task = Task::default();
    // Of several row groups where theirs are small: a chunk may be one page, which one warp decompresses.
    for (number, group) in table.groups.iter().enumerate().filter(|(_, g)| g.rows > 0) {
        for (column, coming) in coming.iter().enumerate() {
            let Ok(chunk) = &group.chunks[coming.wanted] else {
                continue;
            };
            let more = length(&chunk.bytes);
            if task.bytes > 0 && task.bytes + more > most {
                tasks.push(std::mem::take(&mut task));
            }
            task.chunks.push((number, column));
            task.bytes += more;
            task.scratch += chunk.scratch(group.rows, coming.column.is_bytes());
        }
    }
    if !task.chunks.is_empty() {
        tasks.push(task);
    }
    tasks
}

/// What a task of these columns has of the file at most. A warp has a page: where pages are large a task has few warps, and runs as
/// long as one of them takes, while the hardware has queues for few tasks at a time.
fn most_task_bytes(table: &ParquetTable, coming: &[Coming]) -> u64 {
    /// Pages of this many bytes are not large.
    const PAGE: u64 = 256 << 10;
    /// More would have a thread read too long before the device begins.
    const TIMES: u64 = 4;
    let mut largest = 0;
    for group in &table.groups {
        let chunks = coming.iter().map(|coming| &group.chunks[coming.wanted]);
        let pages = chunks.flatten().map(|chunk| chunk.size(group.rows).page());
        largest = pages.fold(largest, u64::max);
    }
    MOST_TASK_BYTES * (largest / PAGE).clamp(1, TIMES)
}

/// Page-locked memory of a load.
#[derive(Default)]
pub(super) struct Slabs {
    /// For what threads read, which the device decompresses.
    pub(super) lanes: Vec<Place>,
    /// For what is told the device of the pages of tasks, and for the bytes of those that the host decompresses.
    pub(super) own: Vec<Arc<Places>>,
}

impl Slabs {
    pub(super) fn new(
        table: &ParquetTable,
        columns: &[Coming],
        tasks: &[Task],
        readers: usize,
        (shared, host): (&SharedLanes, Option<&Arc<MemoryPool>>),
    ) -> Self {
        /// For the pages of a batch, some ten thousand.
        const PAGES: usize = 1 << 20;
        let Some(host) = host else {
            return Self::default();
        };
        let places = |number: usize, bytes: usize| {
            Places::new(host, number, bytes, "bytes of parquet files")
        };
        let on_host = |task: &&Task| {
            let chunks = task.chunks_of(table, columns);
            chunks.into_iter().any(|c| c.codec.on_device().is_none())
        };
        // A larger task, which is a single chunk, has a slab of its own.
        let most = regular(tasks).filter(on_host).map(|task| task.bytes).max();
        let under_way = (readers * IN_FLIGHT).min(tasks.len());
        let sizes = [
            Some((MOST_BATCHES.min(tasks.len()), PAGES)),
            most.map(|most| (under_way, most as usize)),
        ];
        Self {
            lanes: shared.take(readers.min(tasks.len()), readers, host),
            own: sizes
                .into_iter()
                .flatten()
                .filter_map(|(number, bytes)| places(number, bytes))
                .collect(),
        }
    }
}

/// Places for the scratch of all tasks that are under way at a time, or of some where they would take much of what is free.
pub(super) fn scratch_of(
    tasks: &[Task],
    workers: usize,
    pool: &Arc<MemoryPool>,
) -> Option<Arc<Places>> {
    /// The share of free memory that they may take.
    const SHARE: usize = 8;
    let most = regular(tasks).map(|task| task.scratch).max()?;
    let bytes = usize::try_from(most).ok()?.max(1);
    let places = (workers * IN_FLIGHT).min(tasks.len());
    let places = places.min(pool.available() / SHARE / bytes);
    Places::new(pool, places, bytes, "pages of parquet files")
}

/// The tasks but those that are one large chunk each.
fn regular(tasks: &[Task]) -> impl Iterator<Item = &Task> {
    tasks
        .iter()
        .filter(|task| task.bytes <= MOST_TASK_BYTES || task.chunks.len() > 1)
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Another stream that stops when this one does.
pub(super) fn stream_like(stream: &Stream, device: &dyn Device) -> Result<Stream> {
    let own = device.create_stream()?;
    Ok(match stream.cancel() {
        Some(cancel) => own.of(cancel),
        None => own,
    })
}
