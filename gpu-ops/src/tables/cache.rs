//! Cache of resident columns, shared by all sessions, with least-recently-used eviction.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use parking_lot::Mutex;

use super::elements::ElementsOf;
use super::entries::{
    Anchor, Form, Found, Resident, State, Table, TableKey, Wanted, describe, is_pinned, missing_of,
    numbers, wanted,
};
use super::load::{ColumnRequest, LoadFor, LoadRequest, changed_meanwhile, unexpected};
use super::loaded::LoadedTable;
use super::parquet_kernels::ParquetKernels;
use super::parquet_lanes::SharedLanes;
use super::progress::{Coming, LoadProgress, Offer};
use super::read::blocking;
use super::source::{Kind, TableSource};
use super::units::Units;
use crate::column::{Column, ColumnRoom, StringPolicy};
use crate::device::Stream;
use crate::device::traced::TracedDevice;
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::parquet::ParquetReader;

/// One entry of [`TableCache::resident`].
#[derive(Debug, Clone)]
pub struct ResidentColumn {
    /// The table's name.
    pub table: String,
    /// The column's name.
    pub column: String,
    /// The encoding, e.g. `integer(2 bytes, base 19000)`.
    pub encoding: String,
    /// Rows.
    pub rows: usize,
    /// Bytes of device memory.
    pub bytes: usize,
    /// Bytes of host memory.
    pub host_bytes: usize,
    /// Requests served without loading.
    pub hits: u64,
    /// Neither evicted nor moved to host memory.
    pub pinned: bool,
}

/// Keeps loaded columns between queries; see the module's documentation.
pub struct TableCache {
    pub(super) pool: Arc<MemoryPool>,
    /// For columns that do not fit in device memory.
    pub(super) host: Option<Arc<MemoryPool>>,
    pub(super) policy: StringPolicy,
    /// Records loads while a trace is taken.
    pub(super) traced: Option<Arc<TracedDevice>>,
    /// The kernels that decode parquet pages.
    pub(super) parquet: Arc<ParquetKernels>,
    /// Page-locked memory that their files are read into.
    pub(super) lanes: Arc<SharedLanes>,
    pub(super) state: Mutex<State>,
}

impl TableCache {
    /// An empty cache on the pool's device; strings get sorted dictionaries while they repeat, or where
    /// a request needs codes.
    pub fn new(pool: Arc<MemoryPool>) -> Self {
        Self::with_string_policy(pool, StringPolicy::Auto)
    }

    /// An empty cache with a policy for strings that need no codes.
    pub fn with_string_policy(pool: Arc<MemoryPool>, policy: StringPolicy) -> Self {
        Self {
            pool,
            host: None,
            policy,
            traced: None,
            parquet: Arc::default(),
            lanes: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// The same with a pool of host memory for columns that do not fit in device memory.
    #[must_use]
    pub fn with_host_memory(self, host: Arc<MemoryPool>) -> Self {
        Self {
            host: Some(host),
            ..self
        }
    }

    /// The same, noting in the traces of a device what it loads.
    #[must_use]
    pub(crate) fn traced_by(self, device: Arc<TracedDevice>) -> Self {
        Self {
            traced: Some(device),
            ..self
        }
    }

    /// Table columns `columns` of `source` on the device, loading those that are not there.
    ///
    /// Reading runs on the current tokio runtime with the session's `target_partitions` readers.
    /// Columns stay on the device at least while the answer lives. No columns are fine: the
    /// answer then has the number of rows. Where `needs_codes[i]` is true (missing entries are
    /// false), `columns[i]` comes dictionary encoded if it holds strings; another form of it may
    /// stay resident beside. The same column twice in one request has one form.
    ///
    /// # Errors
    /// [`GpuError::DataFusion`] when the scan fails, naming the file;
    /// [`GpuError::Unsupported`] when a type or value has no device encoding;
    /// [`GpuError::OutOfDeviceMemory`] when the columns do not fit even after eviction.
    /// The cache stays usable after each of them.
    pub async fn get_or_load(
        &self,
        source: &TableSource,
        columns: &[usize],
        needs_codes: &[bool],
        ctx: Arc<TaskContext>,
        stream: &Stream,
    ) -> Result<Arc<LoadedTable>> {
        let room = ColumnRoom::unlimited();
        self.get_within(source, columns, needs_codes, &room, ctx, stream)
            .await
    }

    /// [`TableCache::get_or_load`] with a choice of who decodes the columns of parquet files.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub async fn get_decoded(
        &self,
        source: &TableSource,
        columns: &[usize],
        needs_codes: &[bool],
        parquet: ParquetReader,
        ctx: Arc<TaskContext>,
        stream: &Stream,
    ) -> Result<Arc<LoadedTable>> {
        let room = ColumnRoom::unlimited();
        let work = LoadFor {
            stream: stream.clone(),
            query: None,
            parquet,
            sorter: None,
        };
        let request = ColumnRequest {
            columns,
            needs_codes,
        };
        self.get_arriving(source, request, &room, None, &ctx, &work)
            .await
    }

    /// [`TableCache::get_or_load`] with at most `room` of device memory: columns beyond that are in host memory, if
    /// there is a pool of it, and move there if they were resident.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub async fn get_within(
        &self,
        source: &TableSource,
        columns: &[usize],
        needs_codes: &[bool],
        room: &ColumnRoom,
        ctx: Arc<TaskContext>,
        stream: &Stream,
    ) -> Result<Arc<LoadedTable>> {
        let work = LoadFor {
            stream: stream.clone(),
            query: None,
            parquet: ParquetReader::Cpu,
            sorter: None,
        };
        let request = ColumnRequest {
            columns,
            needs_codes,
        };
        self.get_arriving(source, request, room, None, &ctx, &work)
            .await
    }

    /// [`TableCache::get_within`] that reports the progress of the load. The outcome is not reported: the caller
    /// settles it.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub(crate) async fn get_arriving(
        &self,
        source: &TableSource,
        request: ColumnRequest<'_>,
        room: &ColumnRoom,
        arrival: Option<&Arc<LoadProgress>>,
        ctx: &Arc<TaskContext>,
        work: &LoadFor,
    ) -> Result<Arc<LoadedTable>> {
        let ColumnRequest {
            columns,
            needs_codes,
        } = request;
        if let Some(column) = columns
            .iter()
            .find(|c| **c >= source.schema().fields().len())
        {
            return Err(GpuError::Internal(format!(
                "table {} has no column {column}",
                source.name()
            )));
        }
        let wanted = &wanted(source, columns, needs_codes)[..];
        let request = LoadRequest {
            source,
            columns: wanted,
            room,
            ctx,
            work,
        };
        let started = Instant::now();
        // Held until its elements are there.
        let mut elements = None;
        let (key, anchor, files) = match &source.kind {
            Kind::Files(table) => {
                if let Some(key) = table.take_look()
                    && let Some(complete) = self.resident_at(&TableKey::Files(key), wanted, room)
                {
                    return Ok(Arc::new(complete));
                }
                let (files, key) = table.current(ctx).await?;
                let anchor = Anchor::Files {
                    table: Arc::clone(table),
                    order: (0..files.len()).collect(),
                };
                (TableKey::Files(key), anchor, files)
            }
            Kind::Memory(table) => {
                let anchor = || Arc::new(table.anchor());
                let key = TableKey::Memory(table.key());
                match self.anchor(&key) {
                    Some((known, anchor)) => {
                        if let TableKey::Memory(known) = &known {
                            table.adopt(known);
                        }
                        (known, anchor, Arc::default())
                    }
                    None => (key, Anchor::Memory(anchor()), Arc::default()),
                }
            }
            Kind::Elements(of) => {
                let dictionary = self.dictionary_of(of, room, ctx, work).await?;
                let anchor = Anchor::Elements(Arc::new(ElementsOf::anchor(&dictionary)));
                let key = TableKey::Elements(of.key(&dictionary));
                elements = Some(dictionary);
                (key, anchor, Arc::default())
            }
            Kind::Resident(table) => return table.loaded(columns, &self.pool).map(Arc::new),
            Kind::Input(_) => {
                let what = format!("{} has no rows of its own", source.name());
                return Err(GpuError::Internal(what));
            }
            Kind::Plan(plan) => {
                // Dynamic filters and shared work queues keep what an earlier run left in them.
                let fresh = reset_plan_states(Arc::clone(plan))?;
                let units = Units::Plan(fresh, source.fields.reads(columns)?);
                let loaded = self.load(request, units, None, None).await?;
                let loaded = loaded.ok_or_else(unexpected)?;
                return Ok(Arc::new(LoadedTable {
                    load_ms: started.elapsed().as_secs_f64() * 1e3,
                    ..loaded
                }));
            }
        };
        let mut found = self.find(&key, source, &anchor, wanted);
        if let Some(complete) = found.complete().filter(|all| !self.misplaced(all, room)) {
            self.count_hits(&key, wanted);
            return Ok(Arc::new(complete));
        }
        let _loading = found.loading.lock().await;
        // Another session may have loaded them meanwhile.
        drop(std::mem::take(&mut found.columns));
        let mut found = self.find(&key, source, &anchor, wanted);
        let changed = self.settle(&mut found.columns, &found.pinned, room, &work.stream)?;
        self.replace(&key, wanted, &found.columns, &changed);
        if let Some(complete) = found.complete() {
            self.count_hits(&key, wanted);
            let load_ms = started.elapsed().as_secs_f64() * 1e3;
            return Ok(Arc::new(LoadedTable {
                load_ms,
                ..complete
            }));
        }
        let hits = wanted.iter().zip(&found.columns);
        let hits: Vec<Wanted> = hits
            .filter_map(|(w, c)| c.is_some().then_some(*w))
            .collect();
        let files = found.anchor.in_order(&files)?;
        let grown = match &source.kind {
            Kind::Files(table) => self.grow(request, table, &key, &mut found, &files).await?,
            _ => LoadedTable::default(),
        };
        let missing = missing_of(wanted, &found.columns);
        if missing.is_empty()
            && let Some(complete) = found.complete()
        {
            self.count_hits(&key, &hits);
            return Ok(Arc::new(LoadedTable {
                rows: complete.rows,
                columns: complete.columns,
                load_ms: started.elapsed().as_secs_f64() * 1e3,
                ..grown
            }));
        }
        let offer = arrival.map(|arrival| {
            let columns = wanted.iter().zip(&found.columns);
            let columns = columns.map(|(wanted, found)| match found {
                Some(column) => Coming::Resident(Arc::clone(column)),
                None => Coming::Loaded(missing.partition_point(|missing| missing < wanted)),
            });
            Arc::new(Offer {
                arrival: Arc::clone(arrival),
                columns: columns.collect(),
            })
        });
        let rest = LoadRequest {
            columns: &missing,
            ..request
        };
        let loaded = match (&source.kind, &found.anchor) {
            (Kind::Files(table), _) => self.load_files(rest, table, files, offer).await?,
            (Kind::Memory(table), Anchor::Memory(anchor)) => {
                let reads = source.fields.reads(&numbers(&missing))?;
                let units = Units::of_batches(&table.ordered(anchor), reads);
                let loaded = self.load(rest, units, None, None).await?;
                loaded.ok_or_else(unexpected)?
            }
            (Kind::Elements(of), _) => {
                let of = Arc::clone(of);
                let dictionary = elements.ok_or_else(unexpected)?;
                let rows = blocking(work, move |_| of.rows(&dictionary)).await?;
                let reads = source.fields.reads(&numbers(&missing))?;
                let units = Units::of_batches(&[rows], reads);
                let loaded = self.load(rest, units, None, None).await?;
                loaded.ok_or_else(unexpected)?
            }
            _ => return Err(GpuError::Internal("a table changed its kind".into())),
        };
        let mut changed = found.rows.is_some_and(|rows| rows != loaded.rows);
        if let (Kind::Files(table), TableKey::Files(key)) = (&source.kind, &key) {
            changed |= table.current(ctx).await?.1 != *key;
        }
        if changed {
            self.state.lock().tables.remove(&key);
            return Err(changed_meanwhile(source));
        }
        self.count_hits(&key, &hits);
        self.insert(&key, source, &found.anchor, &missing, &loaded);
        let new: HashMap<Wanted, &Arc<Column>> =
            missing.iter().copied().zip(&loaded.columns).collect();
        let columns = wanted.iter().zip(found.columns).map(|(column, resident)| {
            resident.or_else(|| new.get(column).map(|column| Arc::clone(column)))
        });
        let columns = columns.collect::<Option<Vec<_>>>();
        let mut chunks = loaded.chunks.clone();
        chunks.add(&grown.chunks);
        Ok(Arc::new(LoadedTable {
            columns: columns.ok_or_else(|| GpuError::Internal("a column was not loaded".into()))?,
            load_ms: started.elapsed().as_secs_f64() * 1e3,
            bytes_uploaded: loaded.bytes_uploaded + grown.bytes_uploaded,
            columns_grown: grown.columns_grown,
            chunks,
            ..loaded
        }))
    }

    /// The anchor of a known table, and its key in the cache.
    fn anchor(&self, key: &TableKey) -> Option<(TableKey, Anchor)> {
        let state = self.state.lock();
        let (key, table) = state.tables.get_key_value(key)?;
        Some((key.clone(), table.anchor.clone()))
    }

    /// Look the columns up and note their use; a new table gets an entry.
    fn find(
        &self,
        key: &TableKey,
        source: &TableSource,
        anchor: &Anchor,
        columns: &[Wanted],
    ) -> Found {
        let mut state = self.state.lock();
        state.requests += 1;
        let now = state.requests;
        let mut anchor = anchor.clone();
        if !state.tables.contains_key(key) {
            state.drop_stale(key);
            if let (TableKey::Files(files), Anchor::Files { order, .. }) = (key, &mut anchor)
                && let Some(behind) = state.order_behind_known(files)
            {
                *order = behind.into();
            }
        }
        state.table(key, source, &anchor).look_up(columns, now)
    }

    /// The columns of a known table, if all of them are resident and lie where the query wants them, and notes their use.
    fn resident_at(
        &self,
        key: &TableKey,
        columns: &[Wanted],
        room: &ColumnRoom,
    ) -> Option<LoadedTable> {
        let found = {
            let mut state = self.state.lock();
            state.requests += 1;
            let now = state.requests;
            state.tables.get_mut(key)?.look_up(columns, now)
        };
        let complete = found.complete().filter(|all| !self.misplaced(all, room))?;
        self.count_hits(key, columns);
        Some(complete)
    }

    fn count_hits(&self, key: &TableKey, columns: &[Wanted]) {
        let mut state = self.state.lock();
        if let Some(table) = state.tables.get_mut(key) {
            for wanted in columns {
                let at = table.column_key(*wanted);
                if let Some(resident) = at.and_then(|at| table.columns.get_mut(&at)) {
                    resident.hits += 1;
                }
            }
        }
    }

    pub(super) fn insert(
        &self,
        key: &TableKey,
        source: &TableSource,
        anchor: &Anchor,
        columns: &[Wanted],
        loaded: &LoadedTable,
    ) {
        let mut state = self.state.lock();
        let last_used = state.requests;
        let table = state.table(key, source, anchor);
        if !table.anchor.has_order_of(anchor) {
            // It was let go of meanwhile, and is there again with other columns.
            return;
        }
        table.rows = Some(loaded.rows);
        for ((column, codes), loaded) in columns.iter().zip(&loaded.columns) {
            let resident = Resident {
                column: Arc::clone(loaded),
                hits: 0,
                last_used,
                pin: Weak::new(),
            };
            // What the policy would have made as well is nobody's special form.
            let plain = !codes || self.policy.keeps_codes(loaded);
            let form = if plain { Form::Plain } else { Form::Codes };
            table.columns.insert((*column, form), resident);
        }
    }

    /// The columns if all of them are resident, without loading, counting or checking that files
    /// are unchanged: for EXPLAIN, not for answers.
    /// `needs_codes` is that of [`Self::get_or_load`].
    pub fn peek(
        &self,
        source: &TableSource,
        columns: &[usize],
        needs_codes: &[bool],
    ) -> Option<LoadedTable> {
        if let Kind::Resident(table) = &source.kind {
            return table.loaded(columns, &self.pool).ok();
        }
        let elements = match &source.kind {
            Kind::Elements(of) => Some(of.key(&self.resident_dictionary_of(of)?)),
            _ => None,
        };
        let state = self.state.lock();
        let same = |(key, table): &(&TableKey, &Table)| match (&source.kind, key) {
            (Kind::Elements(_), TableKey::Elements(key)) => elements.as_ref() == Some(key),
            (Kind::Memory(wanted), TableKey::Memory(key)) => wanted.key() == *key,
            (Kind::Files(_), TableKey::Files(_)) => {
                *table.name == *source.name && table.fields.schema() == source.fields.schema()
            }
            _ => false,
        };
        let tables = state.tables.iter().filter(same);
        // Of several states of a table the one that was used last.
        let last_used = |table: &Table| table.columns.values().map(|c| c.last_used).max();
        let (_, table) = tables.max_by_key(|(_, table)| last_used(table))?;
        let resident = |wanted: Wanted| {
            Some(Arc::clone(
                &table.columns.get(&table.column_key(wanted)?)?.column,
            ))
        };
        let wanted = wanted(source, columns, needs_codes);
        Some(LoadedTable {
            rows: table.rows?,
            columns: wanted.into_iter().map(resident).collect::<Option<_>>()?,
            load_ms: 0.0,
            bytes_uploaded: 0,
            columns_loaded: 0,
            ..LoadedTable::default()
        })
    }

    /// Forget the columns of a table of files: the next request reads them again, also while queries hold these.
    pub fn forget(&self, source: &TableSource) {
        let mut state = self.state.lock();
        state.tables.retain(|key, table| {
            let same =
                *table.name == *source.name && table.fields.schema() == source.fields.schema();
            !(same && matches!(key, TableKey::Files(_)))
        });
    }

    /// What is on the device, by table and column.
    pub fn resident(&self) -> Vec<ResidentColumn> {
        let state = self.state.lock();
        let mut all: Vec<ResidentColumn> = Vec::new();
        for table in state.tables.values() {
            for ((index, _), resident) in &table.columns {
                all.push(ResidentColumn {
                    table: table.name.to_string(),
                    column: table.fields.column_name(*index),
                    encoding: describe(&resident.column.encoding),
                    rows: resident.column.rows,
                    bytes: resident.column.budget_bytes(false),
                    host_bytes: resident.column.budget_bytes(true),
                    hits: resident.hits,
                    pinned: is_pinned(&resident.pin),
                });
            }
        }
        all.sort_by(|a, b| (&a.table, &a.column).cmp(&(&b.table, &b.column)));
        all
    }

    /// Evict every column that no query uses; returns the freed bytes.
    pub fn clear(&self) -> usize {
        let taken = self.take_idle(usize::MAX, |column| {
            column.budget_bytes(false) + column.budget_bytes(true)
        });
        taken.iter().map(|(_, _, _, bytes)| bytes).sum()
    }
}

impl fmt::Debug for TableCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableCache")
            .field("policy", &self.policy)
            .field("tables", &self.state.lock().tables.len())
            .finish_non_exhaustive()
    }
}
