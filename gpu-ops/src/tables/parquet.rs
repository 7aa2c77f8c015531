//! Loads of parquet columns that the device decodes: tasks on all readers, chunks that go back to the CPU, columns
//! finished from both.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::FieldRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::listing::PartitionedFile;
use parking_lot::Mutex;

use super::cache::TableCache;
use super::entries::numbers;
use super::files::FileTable;
use super::load::{LoadRequest, Reader, stopped};
use super::parquet_chunks::{ChunkSource, ParquetTable, RowGroup, values_in};
use super::parquet_finish::{Finished, finish};
use super::preallocated::{SharedPools, purpose};
use super::read::blocking;
use crate::column::{Column, DeviceColumn, Segment, StringPolicy, is_text};
use crate::device::{Device, Stream};
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::parquet::{
    Begun, ChunkCounts, ChunkTask, Decoder, LANE_BYTES, Lanes, Outcome, ParquetReader, Places,
    Reason, cpu_is_sooner,
};
use crate::query::Query;
use crate::trace::Work;

/// What a task has of the file at most where pages are not large, unless one chunk has more: what a thread reads in some 10 ms.
const MOST_TASK_BYTES: u64 = 32 << 20;
/// What a task has at least, where there is as much: less would not hide what a launch and a copy cost.
const LEAST_TASK_BYTES: u64 = 2 << 20;
/// Tasks of a thread that the device works on while the thread reads the next. A page is decompressed by one warp, which
/// takes longer than reading: that is why there are several.
const IN_FLIGHT: usize = 3;
/// Threads that read at most: the link carries no more from there on, and each has page-locked memory.
const MOST_READERS: usize = 32;
/// Slabs of a thread: one is filled while the other is copied.
const LANES: usize = 2;

/// What a device made of the columns of a request.
pub(super) struct Decoded {
    pub(super) rows: usize,
    /// By wanted column; `None`: the CPU has to load it.
    pub(super) columns: Vec<Option<Arc<Column>>>,
    /// Of the columns that are there, and of those that are not the reasons.
    pub(super) counts: ChunkCounts,
}

/// A column on its way.
pub(super) struct Coming {
    /// In the list of wanted columns.
    pub(super) wanted: usize,
    pub(super) column: DeviceColumn,
}

/// Chunks that are decoded together: their row groups, and their columns in the list of those that come.
#[derive(Default)]
struct Task {
    chunks: Vec<(usize, usize)>,
    /// Of the file.
    bytes: u64,
    /// Of device memory until they are decoded, about.
    scratch: u64,
}

impl Task {
    /// Its chunks in a table, of which these columns come.
    fn chunks_of<'a>(&self, table: &'a ParquetTable, columns: &[Coming]) -> Vec<&'a ChunkSource> {
        let chunks = self.chunks.iter().filter_map(|(group, column)| {
            let wanted = columns[*column].wanted;
            table.groups[*group].chunks[wanted].as_ref().ok()
        });
        chunks.collect()
    }
}

/// A chunk that the CPU has to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    column: usize,
    group: usize,
    reason: Reason,
}

/// What workers share.
struct Shared<'a> {
    table: &'a ParquetTable,
    columns: &'a [Coming],
    tasks: &'a [Task],
    decoder: &'a Decoder<'a>,
    /// Slabs of the threads.
    lanes: Option<Arc<Places>>,
    next: AtomicUsize,
    failed: AtomicBool,
    refused: Mutex<Vec<Refused>>,
}

impl TableCache {
    /// Does the device decode, by the setting?
    pub(super) fn decodes(&self, reader: ParquetReader) -> bool {
        match reader {
            ParquetReader::Cpu => false,
            ParquetReader::Device => true,
            // In the emulator every lane is a coroutine: a price there would say nothing of a device.
            ParquetReader::Auto => !self.pool.device().info().emulated,
        }
    }

    /// Why the CPU decodes each of these columns; `None` for those that the device decodes, most of their chunks at least.
    fn refusals(
        &self,
        table: &ParquetTable,
        columns: usize,
        reader: ParquetReader,
        threads: usize,
    ) -> Vec<Option<Reason>> {
        let of_metadata = |wanted: usize| {
            let chunks = table.groups.iter().map(|group| &group.chunks[wanted]);
            let reasons: Vec<Reason> = chunks.filter_map(|c| c.as_ref().err().copied()).collect();
            let most = reasons.len() * 2 > table.groups.len() || table.rows == 0;
            most.then(|| reasons.first().copied().unwrap_or(Reason::NoRange))
        };
        let mut refusals: Vec<Option<Reason>> = (0..columns).map(of_metadata).collect();
        if reader == ParquetReader::Auto {
            let open: Vec<usize> = (0..columns).filter(|c| refusals[*c].is_none()).collect();
            let sizes: Vec<_> = open.iter().map(|wanted| table.sizes(*wanted)).collect();
            let sooner = cpu_is_sooner(&sizes, threads, self.parquet.are_loaded());
            for (wanted, _) in open.into_iter().zip(sooner).filter(|(_, sooner)| *sooner) {
                refusals[wanted] = Some(Reason::Price);
            }
        }
        refusals
    }

    /// Decode the columns of parquet files on the device, as far as it can; `None` where it can none of them.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub(super) async fn decode_files(
        &self,
        request: LoadRequest<'_>,
        table: &Arc<FileTable>,
        files: &[PartitionedFile],
    ) -> Result<Option<Decoded>> {
        let LoadRequest {
            source,
            columns,
            room,
            ctx,
            work,
        } = request;
        let wanted = numbers(columns);
        let look = {
            let (table, files) = (Arc::clone(table), files.to_vec());
            let (wanted, ctx) = (wanted.clone(), Arc::clone(ctx));
            // On its own: the reader of damaged metadata may panic.
            SpawnedTask::spawn(async move { table.chunks(&files, &wanted, &ctx).await })
        };
        let chunks = match look.join().await.map_err(stopped).flatten() {
            Ok(Some(chunks)) => Arc::new(chunks),
            Ok(None) => return Ok(None),
            Err(error) => {
                log::debug!("{}: {error}", source.name());
                return Ok(None);
            }
        };
        let mut counts = ChunkCounts::default();
        let fields: Vec<FieldRef> = wanted
            .iter()
            .map(|column| Arc::clone(&source.schema().fields()[*column]))
            .collect();
        let policies = self.policies(columns);
        let pools = SharedPools {
            device: Arc::clone(&self.pool),
            host: self.host.clone(),
            room: room.clone(),
        };
        let workers = ctx.session_config().target_partitions().max(1);
        let mut refused = self.refusals(&chunks, fields.len(), work.parquet, workers);
        let mut kernels = None;
        if refused.iter().any(Option::is_none) {
            let patience = match work.parquet {
                ParquetReader::Auto => chunks.patience(&refused, workers),
                _ => None,
            };
            let (own, device) = (Arc::clone(&self.parquet), Arc::clone(self.pool.device()));
            kernels = blocking(work, move |_| own.get(&device, patience)).await?;
        }
        let Some(kernels) = kernels else {
            refused.iter_mut().for_each(|reason| {
                reason.get_or_insert(Reason::Price);
            });
            for (wanted, reason) in refused.iter().enumerate() {
                refuse(
                    &chunks,
                    wanted,
                    reason.unwrap_or(Reason::NoRange),
                    &mut counts,
                );
            }
            return Ok(Some(Decoded {
                rows: chunks.rows,
                columns: fields.iter().map(|_| None).collect(),
                counts,
            }));
        };
        let trace = self.traced.as_ref().and_then(|device| device.trace());
        // Decode, in the place of each column.
        let decoding = {
            let (chunks, fields, policies) =
                (Arc::clone(&chunks), fields.clone(), policies.clone());
            let (pools, kernels, trace) = (pools.clone(), Arc::clone(&kernels), trace.clone());
            let (name, query) = (source.name().to_owned(), work.query.clone());
            let sorter = work.sorter.clone();
            move |stream: &Stream| {
                let mut counts = ChunkCounts::default();
                let columns = Request {
                    table: &chunks,
                    fields: &fields,
                    policies: &policies,
                    refused: &refused,
                    name: &name,
                    pools: &pools,
                };
                let coming = columns.begin(stream, &mut counts)?;
                if let Some(sorter) = &sorter
                    && coming.iter().any(|coming| coming.column.is_bytes())
                {
                    sorter.prepare();
                }
                let readers = workers.min(MOST_READERS);
                let tasks = tasks_of(&chunks, &coming, readers);
                // Other streams write where this one has made room.
                pools.device.device().synchronize(stream)?;
                let span = |name| Some(trace.as_ref()?.thread(Work::Load, name));
                let slabs = {
                    let _span = span("page-lock slabs");
                    Slabs::new(&chunks, &coming, &tasks, readers, pools.host.as_ref())
                };
                let scratch = {
                    let _span = span("memory of tasks");
                    scratch_of(&tasks, readers, &pools.device)
                };
                let decoder = Decoder {
                    pool: &pools.device,
                    host: pools.host.as_ref(),
                    slabs: slabs.own,
                    scratch,
                    kernels: &kernels,
                    trace,
                };
                let shared = Shared {
                    table: &chunks,
                    columns: &coming,
                    tasks: &tasks,
                    decoder: &decoder,
                    lanes: slabs.lanes,
                    next: AtomicUsize::new(0),
                    failed: AtomicBool::new(false),
                    refused: Mutex::new(refused_before(&chunks, &coming)),
                };
                shared.decode(readers, stream, query.as_ref())?;
                counts.device = coming.iter().map(|coming| coming.column.decoded()).sum();
                let mut refused = shared.refused.into_inner();
                refused.sort_unstable();
                Ok((coming, refused, counts))
            }
        };
        let (coming, refused, told) = blocking(work, decoding).await?;
        counts.add(&told);
        if coming.is_empty() {
            return Ok(Some(Decoded {
                rows: chunks.rows,
                columns: fields.iter().map(|_| None).collect(),
                counts,
            }));
        }
        // The chunks that the device refused, by column.
        let mut segments: Vec<(usize, usize, Segment)> = Vec::new();
        for share in refused.chunk_by(|a, b| a.column == b.column) {
            let at = coming[share[0].column].wanted;
            for refused in share {
                counts.on_cpu(refused.reason, 1);
            }
            let groups: Vec<&RowGroup> = share.iter().map(|r| &chunks.groups[r.group]).collect();
            let units = groups.iter().map(|group| group.unit.clone()).collect();
            let units = table.scan(units, &wanted[at..=at])?;
            let encoding = (fields[at].data_type().clone(), policies[at]);
            let reader = Reader {
                units: Arc::new(units),
                encodings: [encoding].into(),
                ctx: Arc::clone(ctx),
                write: None,
                trace: trace.clone(),
                query: work.query.as_ref().map_or(0, |query| query.number()),
            };
            let Some(packed) = reader.read().await? else {
                return Err(super::load::unexpected());
            };
            let read = packed.columns.into_iter().flatten();
            for (segment, group) in read.zip(groups) {
                if segment.rows() != group.rows {
                    return Ok(None);
                }
                segments.push((share[0].column, group.first, segment));
            }
        }
        let finishing = {
            let count = fields.len();
            let (query, sorter) = (work.query.clone(), work.sorter.clone());
            move |stream: &Stream| {
                let _span = trace
                    .as_ref()
                    .map(|trace| trace.thread(Work::Load, "finish columns"));
                let mut by_column: Vec<Vec<(usize, Segment)>> =
                    coming.iter().map(|_| Vec::new()).collect();
                for (column, first, segment) in segments {
                    by_column[column].push((first, segment));
                }
                let coming = coming.into_iter().zip(by_column).collect();
                let finished = finish(
                    coming,
                    &pools,
                    &kernels,
                    sorter.as_deref(),
                    stream,
                    query.as_ref(),
                )?;
                let mut columns: Vec<Option<Arc<Column>>> = (0..count).map(|_| None).collect();
                for Finished {
                    wanted,
                    decoded,
                    column,
                } in finished
                {
                    match column {
                        Ok(column) => columns[wanted] = Some(Arc::new(column)),
                        Err(reason) => {
                            // The CPU reads them again.
                            counts.device -= decoded;
                            counts.on_cpu(reason, decoded);
                        }
                    }
                }
                Ok((columns, counts))
            }
        };
        let (columns, counts) = blocking(work, finishing).await?;
        Ok(Some(Decoded {
            rows: chunks.rows,
            columns,
            counts,
        }))
    }
}

/// Another stream that stops when this one does.
pub(super) fn stream_like(stream: &Stream, device: &dyn Device) -> Result<Stream> {
    let own = device.create_stream()?;
    Ok(match stream.cancel() {
        Some(cancel) => own.of(cancel),
        None => own,
    })
}

/// Count the chunks of a column that the CPU decodes, for this reason or those of their own.
fn refuse(table: &ParquetTable, wanted: usize, reason: Reason, counts: &mut ChunkCounts) {
    for group in &table.groups {
        let own = group.chunks[wanted].as_ref().err();
        counts.on_cpu(own.copied().unwrap_or(reason), 1);
    }
}

/// The columns of a request.
struct Request<'a> {
    table: &'a ParquetTable,
    fields: &'a [FieldRef],
    policies: &'a [StringPolicy],
    refused: &'a [Option<Reason>],
    /// The table's.
    name: &'a str,
    pools: &'a SharedPools,
}

impl Request<'_> {
    /// Room for the columns that are not refused; the chunks of others are counted.
    fn begin(&self, stream: &Stream, counts: &mut ChunkCounts) -> Result<Vec<Coming>> {
        let mut coming = Vec::new();
        for (wanted, field) in self.fields.iter().enumerate() {
            let expected = self.table.columns[wanted];
            if let Some(reason) = self.refused[wanted] {
                refuse(self.table, wanted, reason, counts);
                continue;
            }
            let policy = self.policies[wanted];
            let text = is_text(field.data_type());
            let as_bytes = text
                && (policy == StringPolicy::AlwaysBytes || self.table.has_plain_strings(wanted));
            // Strings are there twice before they are one column.
            let strings = 2 * self.table.uncompressed(wanted) + 8 * self.table.rows as u64;
            let budget = self.pools.device.statistics().budget as u64;
            if as_bytes && strings > budget / 2 {
                refuse(self.table, wanted, Reason::Memory, counts);
                continue;
            }
            let column = DeviceColumn::new(
                field.data_type(),
                self.policies[wanted],
                &purpose(field, self.name),
                self.table.rows,
                (expected, as_bytes),
                &self.pools.column_pools(),
                stream,
            )?;
            match column {
                Some(column) => coming.push(Coming { wanted, column }),
                None if expected.range.is_some() => {
                    refuse(self.table, wanted, Reason::Wide, counts);
                }
                None => refuse(self.table, wanted, Reason::NoRange, counts),
            }
        }
        Ok(coming)
    }
}

/// The chunks of these columns that the metadata refuses.
fn refused_before(table: &ParquetTable, coming: &[Coming]) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (column, coming) in coming.iter().enumerate() {
        for (group, chunks) in table.groups.iter().enumerate() {
            if let Err(reason) = chunks.chunks[coming.wanted] {
                refused.push(Refused {
                    column,
                    group,
                    reason,
                });
            }
        }
    }
    refused
}

/// The chunks of these columns that the device decodes, in the order in which files have them.
fn tasks_of(table: &ParquetTable, coming: &[Coming], workers: usize) -> Vec<Task> {
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
struct Slabs {
    /// For what threads read, which the device decompresses.
    lanes: Option<Arc<Places>>,
    /// For what is told the device of the pages of tasks, and for the bytes of those that the host decompresses.
    own: Vec<Arc<Places>>,
}

impl Slabs {
    fn new(
        table: &ParquetTable,
        columns: &[Coming],
        tasks: &[Task],
        readers: usize,
        host: Option<&Arc<MemoryPool>>,
    ) -> Self {
        /// For some thousand pages.
        const PAGES: usize = 256 << 10;
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
        let sizes = [Some(PAGES), most.map(|most| most as usize)];
        Self {
            lanes: places(readers.min(tasks.len()) * LANES, LANE_BYTES),
            own: sizes
                .into_iter()
                .flatten()
                .filter_map(|bytes| places(under_way, bytes))
                .collect(),
        }
    }
}

/// Places for the scratch of all tasks that are under way at a time, or of some where they would take much of what is free.
fn scratch_of(tasks: &[Task], workers: usize, pool: &Arc<MemoryPool>) -> Option<Arc<Places>> {
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

impl Shared<'_> {
    /// Work on all tasks, by some threads, each with a stream of its own.
    fn decode(&self, workers: usize, stream: &Stream, query: Option<&Arc<Query>>) -> Result<()> {
        let workers = workers.min(self.tasks.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    let work = move || {
                        let _entered = query.map(Query::enter);
                        let done = self.work(stream);
                        if done.is_err() {
                            self.failed.store(true, Ordering::Relaxed);
                        }
                        done
                    };
                    let thread = std::thread::Builder::new().name("warpline parquet".into());
                    thread.spawn_scoped(scope, work)
                })
                .collect();
            let mut outcome = Ok(());
            for thread in threads {
                let done = match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| {
                        Err(GpuError::Internal(
                            "a reader of parquet files panicked".into(),
                        ))
                    }),
                    Err(error) => Err(GpuError::Internal(format!("no thread starts: {error}"))),
                };
                outcome = outcome.and(done);
            }
            outcome
        })
    }

    fn work(&self, stream: &Stream) -> Result<()> {
        let device = self.decoder.pool.device().as_ref();
        let mut lanes = Lanes::default();
        for places in self.lanes.iter().flat_map(|places| [places; LANES]) {
            lanes.add(places, stream_like(stream, device)?);
        }
        let mut streams = Vec::new();
        let mut begun: VecDeque<(&Task, Begun, Stream)> = VecDeque::new();
        while !self.failed.load(Ordering::Relaxed) {
            let Some(task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            while begun.len() >= self.in_flight(task) {
                streams.extend(self.finish(begun.pop_front())?);
            }
            let own = match streams.pop() {
                Some(own) => own,
                None => stream_like(stream, device)?,
            };
            let queued = self.begin(task, &own, &mut lanes)?;
            begun.push_back((task, queued, own));
        }
        while !begun.is_empty() {
            self.finish(begun.pop_front())?;
        }
        Ok(())
    }

    /// How many tasks may be under way when this one is begun: fewer where memory is short.
    fn in_flight(&self, task: &Task) -> usize {
        /// What a task takes of device memory, in bytes of its chunks without compression.
        const ROOM: u64 = 3;
        let chunks = task.chunks_of(self.table, self.columns).into_iter();
        let bytes: u64 = chunks.map(|chunk| chunk.uncompressed * ROOM).sum();
        match self.decoder.pool.available() as u64 >= bytes {
            true => IN_FLIGHT,
            false => 1,
        }
    }

    fn begin(&self, task: &Task, stream: &Stream, lanes: &mut Lanes) -> Result<Begun> {
        let mut chunks = Vec::with_capacity(task.chunks.len());
        for (group, column) in &task.chunks {
            let (group, coming) = (&self.table.groups[*group], &self.columns[*column]);
            let Ok(source) = &group.chunks[coming.wanted] else {
                return Err(GpuError::Internal("a chunk that is no task".into()));
            };
            chunks.push(ChunkTask {
                path: Arc::clone(&group.path),
                bytes: source.bytes.clone(),
                codec: source.codec,
                uncompressed: source.uncompressed,
                values: values_in(source.values, coming.column.is_bytes()),
                first_row: group.first,
                rows: group.rows,
                target: coming.column.target(),
            });
        }
        self.decoder.begin(&chunks, stream, lanes)
    }

    /// Wait for a task and note what became of its chunks; its stream is free again.
    fn finish(&self, begun: Option<(&Task, Begun, Stream)>) -> Result<Option<Stream>> {
        let Some((task, begun, stream)) = begun else {
            return Ok(None);
        };
        let outcomes: Vec<Outcome> = self.decoder.finish(begun, &stream)?;
        for ((group, column), outcome) in task.chunks.iter().zip(outcomes) {
            match outcome {
                Ok(facts) => {
                    let group = &self.table.groups[*group];
                    let column = &self.columns[*column].column;
                    column.note(group.first, group.rows, facts)?;
                }
                Err(reason) => self.refused.lock().push(Refused {
                    column: *column,
                    group: *group,
                    reason,
                }),
            }
        }
        Ok(Some(stream))
    }
}
