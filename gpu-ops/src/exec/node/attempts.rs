//! One run of a fragment for one query, tried until there is enough memory for it or nothing more to try.

use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::node::flights::{FlightKey, Flights, Joined};
use crate::exec::node::inputs::{Collected, InputLimits, collect};
use crate::exec::node::ladder::{Ladder, Rung};
use crate::exec::node::loads::is_small;
use crate::exec::node::report::FragmentReport;
use crate::exec::node::shared::Shared;
use crate::exec::node::threads::{guarded, on_thread};
use crate::exec::output::host::{Delivered, Host};
use crate::exec::prepare::compile::warm_up;
use crate::memory::{Budget, Turn};
use crate::parquet::ChunkCounts;
use crate::query::{Query, StopOnDrop};
use crate::runtime::slots::Slot;
use crate::tables::{InputRows, LoadedTable};
use crate::trace::{HostSpan, Track, Work};

/// Runs of others that may fail before a fragment waits for none any more.
const MOST_FLIGHTS: usize = 3;

/// How the rows of a run are handed to others that ask for the same.
#[derive(Debug)]
pub(in crate::exec) struct Sharing<T> {
    pub(in crate::exec) copy: fn(&T) -> Delivered,
    pub(in crate::exec) take: fn(Delivered) -> T,
}

impl<T> Clone for Sharing<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sharing<T> {}

/// Times that a policy may ask for its columns in another encoding.
const MOST_RELOADS: usize = 4;

/// One run of a fragment for one query, with all that is tried when memory is short.
pub(in crate::exec) struct FragmentRun {
    pub(in crate::exec) shared: Arc<Shared>,
    pub(in crate::exec) context: Arc<TaskContext>,
    pub(in crate::exec) profile: bool,
    pub(in crate::exec) query: Arc<Query>,
    /// Whoever waits for the run may go away: then nothing more is queued for it.
    stop: Arc<StopOnDrop>,
    pub(in crate::exec) ladder: Ladder,
    load_ms: f64,
    columns_loaded: usize,
    columns_grown: usize,
    /// Chunks of parquet files that were decoded for it.
    chunks: ChunkCounts,
    /// The rows of its inputs.
    pub(in crate::exec) inputs: Vec<Arc<InputRows>>,
    /// A run may begin before all of its columns have come: once, what it takes is not to be tried again.
    pub(in crate::exec) may_overlap: bool,
}

impl FragmentRun {
    pub(in crate::exec) fn new(
        shared: &Arc<Shared>,
        context: Arc<TaskContext>,
        profile: bool,
    ) -> Self {
        let query = Query::begin_with(shared.runtime.stop_signal());
        Self {
            shared: Arc::clone(shared),
            context,
            profile,
            stop: Arc::new(StopOnDrop(Arc::clone(&query))),
            query,
            ladder: Ladder::new(Budget::TIGHTENINGS),
            load_ms: 0.0,
            columns_loaded: 0,
            columns_grown: 0,
            chunks: ChunkCounts::default(),
            inputs: Vec::new(),
            may_overlap: shared.options.overlap_load && !shared.room.results_may_spill(),
        }
    }

    /// Run the inputs, while the tables are loaded. The query takes its turn for the load alone: operators of the inputs may
    /// have to wait for theirs.
    pub(in crate::exec) async fn gather(
        &mut self,
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &Arc<TaskContext>,
    ) -> Result<Arc<Collected>> {
        if inputs.is_empty() {
            return Ok(Arc::default());
        }
        let limits = InputLimits {
            memory: self.shared.runtime.host_pool().budget().inputs() as usize,
            spill: self.shared.options.spill.clone(),
        };
        let collecting = collect(inputs, context, limits);
        let loading = async {
            // What goes wrong is met again by the run.
            if let Err(error) = self.load_ahead().await {
                log::debug!("loading beside the inputs: {error}");
            }
            Ok::<(), GpuError>(())
        };
        let (mut collected, ()) = tokio::try_join!(collecting, loading)?;
        self.inputs.clone_from(&collected.rows);
        if collected.left_to_cpu.is_none() {
            let rows: Vec<usize> = collected.rows.iter().map(|rows| rows.rows).collect();
            let tables = self.shared.runtime.tables();
            collected.left_to_cpu = self.shared.policy.declines(&rows, tables);
        }
        Ok(Arc::new(collected))
    }

    /// Make the tables resident.
    async fn load_ahead(&self) -> Result<()> {
        let _turn = self.begin(false).await?;
        let lease = self.shared.runtime.lease_stream()?;
        let stream = lease.of(self.query.cancel());
        let loading = self.loading(&stream);
        let scans = self.shared.policy.scans();
        let tables = (0..scans.len()).filter(|scan| scans[*scan].table.is_cacheable());
        let (small, large): (Vec<usize>, Vec<_>) = tables.partition(|scan| is_small(&scans[*scan]));
        let small = self.load_small(scans, small, &loading).await;
        let large = async {
            for scan in large {
                self.load_scan(&scans[scan], None, &loading).await?;
            }
            Ok::<_, GpuError>(())
        };
        let (small, large) = tokio::join!(small.complete(), large);
        small?;
        large
    }

    /// Load, prepare and run; the rows are delivered while they are on the device. What is refused for want of memory is
    /// tried again on the next rung of the ladder.
    pub(in crate::exec) async fn run<T: Send + 'static>(
        &mut self,
        deliver: impl Fn(&Frame<'_>, &Host) -> Result<T> + Clone + Send + 'static,
        sharing: Option<Sharing<T>>,
    ) -> Result<(T, FragmentReport)> {
        warm_up(&self.shared.runtime);
        let mut turn = Arc::new(self.begin(false).await?);
        loop {
            // The columns stay while room is made for the rest: loading them again is what takes longest.
            let mut columns = Vec::new();
            let error = match self.attempt(&deliver, &mut columns, &turn, sharing).await {
                Err(error) => error,
                done => return done,
            };
            match self.ladder.next(&error) {
                Rung::Evict => {
                    log::info!("{error}: trying again alone, with nothing else kept");
                    self.shared.read_sizes();
                    drop(turn);
                    turn = Arc::new(self.begin(true).await?);
                    let runtime = Arc::clone(&self.shared.runtime);
                    on_thread(move || runtime.evict()).await??;
                }
                Rung::OutOfCore(_) if self.shared.room.tighten() => {
                    log::info!("{error}: trying again with less room for columns");
                }
                Rung::OutOfCore(_) | Rung::Cpu => return Err(error),
            }
        }
    }

    /// The query's turn to use the device: `alone`, if the others end in time.
    async fn begin(&self, alone: bool) -> Result<Turn> {
        let pool = Arc::clone(self.shared.runtime.pool());
        if !alone && let Some(turn) = pool.try_begin(&self.query) {
            return Ok(turn);
        }
        let query = Arc::clone(&self.query);
        on_thread(move || {
            if alone && let Some(turn) = pool.begin_alone(&query)? {
                return Ok(turn);
            }
            pool.begin(&query)
        })
        .await?
    }

    /// Load and run once, with the columns in the encodings that the policy asks for.
    async fn attempt<T: Send + 'static>(
        &mut self,
        deliver: &(impl Fn(&Frame<'_>, &Host) -> Result<T> + Clone + Send + 'static),
        columns: &mut Vec<Arc<LoadedTable>>,
        turn: &Arc<Turn>,
        mut sharing: Option<Sharing<T>>,
    ) -> Result<(T, FragmentReport)> {
        let (mut reloads, mut flights) = (0, 0);
        while reloads < MOST_RELOADS {
            let lease = self.shared.runtime.lease_stream()?;
            let stream = lease.of(self.query.cancel());
            let begin = Instant::now();
            let loading = self.traced(Work::Load, "load columns");
            let loaded = self.load(&stream, deliver).await;
            drop(loading);
            self.load_ms += begin.elapsed().as_secs_f64() * 1e3;
            let (tables, outcome) = loaded?;
            for table in &tables {
                self.chunks.add(&table.chunks);
                self.columns_loaded += table.columns_loaded;
                self.columns_grown += table.columns_grown;
            }
            columns.clone_from(&tables);
            let key = match (&sharing, &outcome) {
                (Some(_), None) => FlightKey::of(&self.shared, &tables),
                _ => None,
            };
            let joined = key.map(|key| {
                let flights = self.shared.runtime.attached::<Flights>();
                flights.join(key, &self.stop)
            });
            let pilot = match (joined, sharing) {
                (Some(Joined::Pilot(pilot)), Some(sharing)) => Some((pilot, sharing)),
                (Some(Joined::Passenger(passenger)), Some(of)) => {
                    drop((stream, lease));
                    let pool = Arc::clone(self.shared.runtime.pool());
                    let parked = pool.park(&self.query);
                    let waiting = self.traced(Work::Execute, "wait for an equal query");
                    let landed = passenger.landed().await;
                    drop((parked, waiting));
                    if let Some((delivered, mut report)) = landed {
                        self.complete(&mut report, columns);
                        return Ok(((of.take)(delivered), report));
                    }
                    flights += 1;
                    if flights == MOST_FLIGHTS {
                        sharing = None;
                    }
                    continue;
                }
                _ => None,
            };
            let place = match outcome {
                Some(_) => None,
                None => self.place_at_once(&tables),
            };
            let at_once = place.is_some();
            // Compiling and waiting for the device would block the executor's threads. The task goes on when
            // the query is dropped, so that memory outlives the kernels that use it.
            let task = {
                let (shared, deliver) = (Arc::clone(&self.shared), deliver.clone());
                let (query, profile) = (Arc::clone(&self.query), self.profile);
                let turn = Arc::clone(turn);
                move || {
                    let _entered = query.enter();
                    let outcome = shared.run(&tables, None, &stream, profile, &deliver, place);
                    drop(lease);
                    if let (Some((pilot, sharing)), Ok((output, report))) = (pilot, &outcome) {
                        pilot.land(&(sharing.copy)(output), report);
                    }
                    drop(turn);
                    outcome
                }
            };
            let outcome = match outcome {
                Some(overlapped) => overlapped,
                None => {
                    let _executing = self.traced(Work::Execute, "prepare and run");
                    match at_once {
                        true => guarded(task)?,
                        false => on_thread(task).await?,
                    }
                }
            };
            match outcome {
                Err(GpuError::ReloadScans) => reloads += 1,
                Err(other) => return Err(other),
                Ok((output, mut report)) => {
                    self.note_room(columns);
                    self.complete(&mut report, columns);
                    return Ok((output, report));
                }
            }
        }
        Err(GpuError::Internal(format!(
            "a fragment's columns were asked for in {MOST_RELOADS} encodings"
        )))
    }

    /// A place for a run that is so short that the executor's thread does it itself, as it does the work of an operator on a batch.
    fn place_at_once(&self, tables: &[Arc<LoadedTable>]) -> Option<Slot> {
        match Handle::current().runtime_flavor() {
            // It has others to serve meanwhile.
            RuntimeFlavor::CurrentThread => None,
            _ => self.shared.place_at_once(tables),
        }
    }

    /// Add to a report what was done before the run.
    fn complete(&self, report: &mut FragmentReport, columns: &[Arc<LoadedTable>]) {
        report.load_ms = self.load_ms;
        report.columns_loaded = self.columns_loaded as u64;
        report.columns_grown = self.columns_grown as u64;
        report.parquet_chunks_device = self.chunks.device;
        report.parquet_chunks_cpu = self.chunks.by_cpu();
        let told = Some(&self.chunks).filter(|chunks| !chunks.is_empty());
        report.chunks = told.cloned();
        report.peak_bytes = self.peak(columns);
    }

    /// What a complete run took beside its columns is what the next one is given.
    fn note_room(&self, tables: &[Arc<LoadedTable>]) {
        let columns = tables.iter().flat_map(|table| &table.columns);
        let budget = self.shared.runtime.pool().budget();
        let results = self.query.results_peak();
        self.shared.room.note(budget, columns, results);
    }

    /// A span on the track of this run, if a trace is taken.
    pub(in crate::exec) fn traced(&self, work: Work, name: &str) -> Option<HostSpan> {
        let trace = self.shared.runtime.trace()?;
        Some(trace.host(Track::Fragment(self.query.number()), work, name))
    }

    /// Device memory that the query held at its height, in bytes, with columns that were there before it.
    fn peak(&self, tables: &[Arc<LoadedTable>]) -> usize {
        let columns = tables.iter().flat_map(|table| &table.columns);
        let columns = columns.filter(|column| !column.is_in_host_memory());
        let buffers = columns.flat_map(|column| column.buffers());
        let found = buffers.filter(|buffer| !buffer.is_of(&self.query));
        self.query.peak() + found.map(|buffer| buffer.capacity()).sum::<usize>()
    }

    /// The outcome with what was done for want of memory, which the runtime counts as well.
    pub(in crate::exec) fn finish<T>(
        self,
        outcome: Result<(T, FragmentReport)>,
    ) -> Result<(T, FragmentReport)> {
        let counts = self.ladder.counts(&self.query);
        self.shared.runtime.count_ladder(counts);
        let (output, mut report) = outcome?;
        report.ladder = counts;
        Ok((output, report))
    }
}
