//! Threads that read tasks of a load, and launch what they have read in batches.
//!
//! Each thread does what is most urgent: it launches what has been read, where that is enough for the device or nothing else runs
//! there; looks after batches that have ended; reads the next task; or waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::parquet_chunks::{ParquetTable, values_in};
use super::parquet_lanes::LANES;
use super::parquet_tasks::{Coming, IN_FLIGHT, MOST_BATCHES, Task, stream_like};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::parquet::{Batch, Begun, ChunkTask, Decoder, Lanes, Place, Reason};
use crate::query::Query;

/// A batch has so many pages, a warp each, where others run: an eighth of the warps that a large device holds.
const LEAST_PAGES: usize = 1024;
/// How long a thread waits at most until it looks whether there is something to do.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A chunk that the CPU has to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refused {
    pub(super) column: usize,
    pub(super) group: usize,
    pub(super) reason: Reason,
}

/// What threads share.
pub(super) struct Readers<'a> {
    table: &'a ParquetTable,
    columns: &'a [Coming],
    tasks: &'a [Task],
    decoder: &'a Decoder<'a>,
    /// Slabs of the threads.
    lanes: Mutex<Vec<Place>>,
    /// Streams of copies alone, which all threads share.
    copies: [Stream; LANES],
    /// Tasks under way at most.
    most: usize,
    state: Mutex<State<'a>>,
    /// Somebody may find something to do.
    changed: Condvar,
    refused: Mutex<Vec<Refused>>,
}

/// How far the tasks are.
struct State<'a> {
    /// The first that nobody has begun.
    next: usize,
    /// Begun and not finished.
    under_way: usize,
    /// Threads that launch a batch or look after one.
    busy: usize,
    /// Read, but not launched.
    waiting: Vec<(&'a Task, Begun)>,
    /// Pages of those.
    pages: usize,
    running: VecDeque<Running<'a>>,
    /// Streams of no batch.
    streams: Vec<Stream>,
    failed: bool,
}

/// A batch on the device.
struct Running<'a> {
    tasks: Vec<&'a Task>,
    batch: Batch,
    stream: Stream,
}

/// What a thread does next.
enum Step<'a> {
    Read(&'a Task),
    Launch(Vec<(&'a Task, Begun)>, Stream),
    Finish(Running<'a>),
}

/// Tells the others when its thread panics.
struct Panics<'w, 'a>(&'w Readers<'a>);

impl Drop for Panics<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

impl<'a> Readers<'a> {
    /// The tasks, for so many threads. Streams are like `stream`.
    ///
    /// # Errors
    /// [`GpuError::Device`].
    pub(super) fn new(
        (table, columns): (&'a ParquetTable, &'a [Coming]),
        tasks: &'a [Task],
        decoder: &'a Decoder<'a>,
        lanes: Vec<Place>,
        readers: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let device = decoder.pool.device().as_ref();
        // Made one after the other they have a queue each.
        let copies = [stream_like(stream, device)?, stream_like(stream, device)?];
        let batches = 0..MOST_BATCHES.min(tasks.len());
        let streams = batches.map(|_| stream_like(stream, device));
        let state = State {
            next: 0,
            under_way: 0,
            busy: 0,
            waiting: Vec::new(),
            pages: 0,
            running: VecDeque::new(),
            streams: streams.collect::<Result<_>>()?,
            failed: false,
        };
        Ok(Self {
            table,
            columns,
            tasks,
            decoder,
            lanes: Mutex::new(lanes),
            copies,
            most: readers * IN_FLIGHT,
            state: Mutex::new(state),
            changed: Condvar::new(),
            refused: Mutex::default(),
        })
    }

    /// Work on all tasks by some threads; the chunks that the device does not decode.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`].
    pub(super) fn read(self, readers: usize, query: Option<&Arc<Query>>) -> Result<Vec<Refused>> {
        let readers = readers.min(self.tasks.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..readers)
                .map(|_| {
                    let work = || {
                        let _entered = query.map(Query::enter);
                        let _panics = Panics(&self);
                        let done = self.work();
                        if done.is_err() {
                            self.fail();
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
                    Err(error) => {
                        self.fail();
                        Err(GpuError::Internal(format!("no thread starts: {error}")))
                    }
                };
                outcome = outcome.and(done);
            }
            outcome
        })?;
        Ok(self.refused.into_inner())
    }

    /// Nobody begins anything any more.
    fn fail(&self) {
        self.state.lock().failed = true;
        self.changed.notify_all();
    }

    fn work(&self) -> Result<()> {
        let mut lanes = Lanes::default();
        for copies in &self.copies {
            if let Some(slab) = self.lanes.lock().pop() {
                lanes.add(slab, copies.clone());
            }
        }
        while let Some(step) = self.next()? {
            match step {
                Step::Read(task) => {
                    let begun = self.begin(task, &mut lanes)?;
                    let mut state = self.state.lock();
                    state.pages += begun.pages();
                    state.waiting.push((task, begun));
                }
                Step::Launch(read, stream) => {
                    let (tasks, begun) = read.into_iter().unzip();
                    let batch = self.decoder.launch(begun, &stream)?;
                    let mut state = self.state.lock();
                    state.busy -= 1;
                    state.running.push_back(Running {
                        tasks,
                        batch,
                        stream,
                    });
                }
                Step::Finish(running) => {
                    let tasks = running.tasks.len();
                    let stream = self.finish(running)?;
                    let mut state = self.state.lock();
                    state.busy -= 1;
                    state.under_way -= tasks;
                    state.streams.push(stream);
                }
            }
            self.changed.notify_all();
        }
        Ok(())
    }

    /// What this thread does next, once there is something; `None` when all tasks are finished, or one has failed.
    fn next(&self) -> Result<Option<Step<'a>>> {
        let mut state = self.state.lock();
        loop {
            if state.failed {
                return Ok(None);
            }
            if let Some(step) = self.step(&mut state)? {
                return Ok(Some(step));
            }
            if state.under_way == 0 {
                return Ok(None);
            }
            // Others read what is to be launched, or hold the stream for it.
            self.changed.wait_for(&mut state, LOOK_AGAIN);
        }
    }

    /// What can be done now, if anything; it is noted that somebody does.
    fn step(&self, state: &mut State<'a>) -> Result<Option<Step<'a>>> {
        let next = self.tasks.get(state.next);
        let full = next.is_some_and(|task| state.under_way >= self.most_under_way(task));
        let idle = state.running.is_empty() && state.busy == 0;
        let is_due = state.pages >= LEAST_PAGES || idle || full || next.is_none();
        if is_due
            && !state.waiting.is_empty()
            && let Some(stream) = state.streams.pop()
        {
            state.busy += 1;
            state.pages = 0;
            let read = std::mem::take(&mut state.waiting);
            return Ok(Some(Step::Launch(read, stream)));
        }
        let mut ended = None;
        for (place, running) in state.running.iter().enumerate() {
            if self.decoder.has_ended(&running.batch)? {
                ended = Some(place);
                break;
            }
        }
        // Whoever may not read waits for the oldest.
        let may_read = next.is_some() && !full;
        let ended = ended.or((!may_read).then_some(0));
        if let Some(running) = ended.and_then(|place| state.running.remove(place)) {
            state.busy += 1;
            return Ok(Some(Step::Finish(running)));
        }
        Ok(next.filter(|_| may_read).map(|task| {
            state.next += 1;
            state.under_way += 1;
            Step::Read(task)
        }))
    }

    /// How many tasks may be under way when this one is begun: fewer where memory is short.
    fn most_under_way(&self, task: &Task) -> usize {
        /// What a task takes of device memory, in bytes of its chunks without compression.
        const ROOM: u64 = 3;
        let chunks = task.chunks_of(self.table, self.columns).into_iter();
        let bytes: u64 = chunks.map(|chunk| chunk.uncompressed * ROOM).sum();
        match self.decoder.pool.available() as u64 >= bytes {
            true => self.most,
            false => self.most / IN_FLIGHT,
        }
    }

    fn begin(&self, task: &Task, lanes: &mut Lanes) -> Result<Begun> {
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
        self.decoder.begin(&chunks, &self.copies[0], lanes)
    }

    /// Wait for a batch and note what became of its chunks; its stream is free again.
    fn finish(&self, running: Running<'_>) -> Result<Stream> {
        let Running {
            tasks,
            batch,
            stream,
        } = running;
        let outcomes = self.decoder.finish(batch, &stream)?;
        for (task, outcomes) in tasks.into_iter().zip(outcomes) {
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
        }
        Ok(stream)
    }
}
