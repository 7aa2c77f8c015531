//! Tables of files, identified by store, paths, sizes and times.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    CsvSource, FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::execution::TaskContext;
use datafusion::object_store::ObjectMeta;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    DynamicFilterTracking, PhysicalExpr, conjunction_opt, split_conjunction,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::disk::unchanged_on_disk;
use super::sealed::ChosenRows;
use super::struct_fields::StructFields;
use super::units::Units;
use super::whole_files::{unsupported, whole_files};
use crate::error::{GpuError, Result};

/// Rows a batch: large enough that the work per batch does not count, small enough for the caches.
const BATCH_ROWS: usize = 1 << 16;
/// Units of work a reader gets on average, so that none is left alone at the end.
const UNITS_PER_READER: u64 = 4;
/// Files whose state is asked for at a time.
const HEADS_AT_ONCE: usize = 32;

/// The files of a table and how to read them, free of predicate, limit and order.
pub(super) struct FileTable {
    /// The scan without predicate and limit.
    pub(super) config: FileScanConfig,
    /// Whole files, by path, as they were listed.
    files: Arc<[PartitionedFile]>,
    /// Table column `column_of_output[i]` is column `i` of `config`.
    column_of_output: Vec<usize>,
    /// May files be read by byte ranges?
    pub(super) splittable: bool,
    /// The identity that the files give the table as they were listed.
    key: FileKey,
    looks: Looks,
    /// The table's columns, and the fields of its structs.
    pub(super) fields: Arc<StructFields>,
}

/// Looks at the files by whoever keeps the plan, which save the next load a look of its own.
#[derive(Default)]
struct Looks {
    /// All of the files are looked at before each run.
    at_all: AtomicBool,
    /// When they were seen to be as they were listed, if nobody has made use of that yet.
    unchanged: Mutex<Option<Instant>>,
}

/// For so long a look at files stands for one by the run itself: a plan that waits longer before it runs has its files looked at again.
const FRESH: Duration = Duration::from_secs(1);

/// A scan of files: the table, and what the scan does with its rows.
pub(super) struct FileScan {
    pub(super) table: FileTable,
    /// Output column `i` of the scan is table column `column_of_output[i]`.
    pub(super) column_of_output: Vec<usize>,
    /// What the scan applies exactly and loading does not.
    pub(super) exact_filter: Option<Arc<dyn PhysicalExpr>>,
}

/// Identity of a table of files. It is hashed once, and clones of a key are told to be equal without reading it.
#[derive(Debug, Clone)]
pub(super) struct FileKey {
    of: Arc<KeyParts>,
    hash: u64,
}

/// What makes the identity of a table of files.
#[derive(Debug, PartialEq, Eq, Hash)]
struct KeyParts {
    store: String,
    /// Everything but the files that decides about the rows.
    format: Arc<str>,
    files: Vec<FileStamp>,
}

/// Identity of a file at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileStamp {
    path: String,
    partition_values: String,
    size: u64,
    modified_ns: i128,
    e_tag: Option<String>,
    version: Option<String>,
    /// Which rows of it; `None` for all.
    rows: Option<ChosenRows>,
}

impl PartialEq for FileKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.of, &other.of) || self.of == other.of)
    }
}

impl Eq for FileKey {}

impl Hash for FileKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl FileKey {
    fn new(store: &str, format: &Arc<str>, files: &[PartitionedFile]) -> Self {
        let stamps = files.iter().map(|file| FileStamp {
            partition_values: format!("{:?}", file.partition_values),
            rows: file.extension::<ChosenRows>().cloned(),
            ..stamp_of(&file.object_meta)
        });
        let of = KeyParts {
            store: store.into(),
            format: Arc::clone(format),
            files: stamps.collect(),
        };
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        Self {
            of: Arc::new(of),
            hash: hasher.finish(),
        }
    }

    fn files(&self) -> &[FileStamp] {
        &self.of.files
    }

    /// Are both keys of files of one store, read in the same way?
    fn is_like(&self, other: &Self) -> bool {
        self.of.store == other.of.store && self.of.format == other.of.format
    }

    /// Are some of these the files of `other` at another time?
    pub(super) fn supersedes(&self, other: &Self) -> bool {
        if !self.is_like(other) {
            return false;
        }
        let place = |file: &FileStamp| (file.path.clone(), file.rows.clone());
        let now: HashMap<_, &FileStamp> = self.files().iter().map(|f| (place(f), f)).collect();
        let rewritten = |file: &FileStamp| now.get(&place(file)).is_some_and(|now| *now != file);
        other.files().iter().any(rewritten)
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files().len()
    }

    /// The files of `base` in the order of its rows, and behind them the others; `None` unless all of those are among these, as they
    /// are now, and others as well.
    pub(super) fn order_behind(&self, base: &Self, order: &[usize]) -> Option<Vec<usize>> {
        if !self.is_like(base) || !(1..self.len()).contains(&base.len()) {
            return None;
        }
        let mut places: HashMap<&FileStamp, usize> = (self.files().iter()).zip(0..).collect();
        if places.len() != self.len() {
            return None;
        }
        let known = order.iter().map(|at| places.remove(base.files().get(*at)?));
        let mut all = known.collect::<Option<Vec<usize>>>()?;
        let known = all.len();
        all.extend(places.into_values());
        all[known..].sort_unstable();
        Some(all)
    }

    /// Does a file that is not among the first `known` of this order come before one of these in the table, and was not added after
    /// them? Then both are parts of one table that was read in part before, and not a table and what was added to it.
    pub(super) fn precedes_known(&self, order: &[usize], known: usize) -> bool {
        let (known, others) = order.split_at(known.min(order.len()));
        let modified = |at: &usize| self.files().get(*at).map(|file| file.modified_ns);
        let (last, newest) = (known.iter().max(), known.iter().map(modified).max());
        let precedes = |at: &usize| Some(at) < last && Some(modified(at)) <= newest;
        others.iter().any(precedes)
    }

    /// Are the first files, in the order of the rows, those of `base` in the order of its rows, and is there at least one more?
    pub(super) fn begins_with(&self, order: &[usize], base: &Self, base_order: &[usize]) -> bool {
        let of_base = base_order.iter().map(|at| base.files().get(*at));
        let same = of_base
            .zip(order)
            .all(|(file, at)| file == self.files().get(*at));
        same && self.is_like(base) && (1..order.len()).contains(&base_order.len())
    }
}

impl FileTable {
    /// The same files, as they were listed, read in the same way?
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.column_of_output == other.column_of_output
    }

    /// Whoever keeps the plan looks at files before each run: at those of which `looked_at` is true, local ones as they were listed.
    pub(super) fn note_looks(&self, looked_at: &dyn Fn(&ObjectMeta) -> bool) {
        let all = self.is_local() && self.files.iter().all(|file| looked_at(&file.object_meta));
        self.looks.at_all.store(all, Ordering::Relaxed);
    }

    /// The files that are looked at are as they were listed, for a run that begins.
    pub(super) fn note_unchanged(&self) {
        let all = self.looks.at_all.load(Ordering::Relaxed);
        *self.looks.unchanged.lock() = all.then(Instant::now);
    }

    /// The identity of the table if its files were looked at for this run, which is told once.
    pub(super) fn take_look(&self) -> Option<FileKey> {
        let looked = self.looks.unchanged.lock().take();
        let fresh = looked.is_some_and(|at| at.elapsed() < FRESH);
        fresh.then(|| self.key.clone())
    }

    fn is_local(&self) -> bool {
        self.config.object_store_url.as_str().starts_with("file:")
    }

    /// The table behind a scan of files that has no limit.
    pub(super) fn analyze(config: &FileScanConfig) -> Result<FileScan> {
        let source = config.file_source();
        let schema = source.table_schema();
        if !schema.virtual_columns().is_empty() {
            return Err(unsupported("adds columns that are not in its files"));
        }
        let files = whole_files(&config.file_groups)?;
        let all_columns: Vec<usize> = (0..schema.table_schema().fields().len()).collect();
        let projected = match source.projection() {
            Some(projection) => plain_columns(projection)?,
            None => all_columns.clone(),
        };
        let mut exact_filter = None;
        let (reader, column_of_output): (Arc<dyn FileSource>, _) =
            if let Some(parquet) = as_source::<ParquetSource>(source) {
                exact_filter = exact_predicate(parquet);
                (Arc::new(whole_parquet(parquet)), all_columns)
            } else if source.filter().is_some() {
                return Err(unsupported(&format!(
                    "filters rows inside its {} reader",
                    source.file_type()
                )));
            } else {
                (Arc::clone(source), projected.clone())
            };
        let splittable = matches!(source.file_type(), "parquet" | "csv")
            && source.supports_repartitioning()
            // Positions in the file are no positions among the chosen rows.
            && files.iter().all(|file| file.extensions.is_empty())
            && !config.file_compression_type.is_compressed();
        let format = format!("{}; {}", format_of(config), schema.table_schema());
        let key = FileKey::new(config.object_store_url.as_str(), &format.into(), &files);
        let table = Self {
            config: FileScanConfigBuilder::from(config.clone())
                .with_source(reader)
                .with_file_groups(Vec::new())
                .with_output_ordering(Vec::new())
                .with_output_partitioning(None)
                // Without it a reader may take files that were given to another.
                .with_preserve_order(true)
                .with_batch_size(Some(BATCH_ROWS))
                .build(),
            files: files.into(),
            column_of_output,
            splittable,
            key,
            looks: Looks::default(),
            fields: Arc::new(StructFields::of(schema.table_schema())),
        };
        Ok(FileScan {
            table,
            column_of_output: projected,
            exact_filter,
        })
    }

    /// Bytes of the files, as they were listed.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|file| file.object_meta.size);
        sizes.fold(0, u64::saturating_add)
    }

    pub(super) fn is_parquet(&self) -> bool {
        as_source::<ParquetSource>(self.config.file_source()).is_some()
    }

    pub(super) fn name(&self) -> String {
        let Some(first) = self.files.first() else {
            return "table without files".into();
        };
        match (&first.table_reference, self.files.len()) {
            (Some(reference), _) => reference.to_string(),
            (None, 1) => first.path().to_string(),
            (None, count) => format!("{} and {} more", first.path(), count - 1),
        }
    }

    /// The files as they are now, and the identity they give the table.
    ///
    /// Local files are looked at again, because listings may be cached; others are taken as listed.
    ///
    /// # Errors
    /// [`GpuError::DataFusion`] naming a file that is gone.
    pub(super) async fn current(
        &self,
        ctx: &TaskContext,
    ) -> Result<(Arc<[PartitionedFile]>, FileKey)> {
        let as_listed = || (Arc::clone(&self.files), self.key.clone());
        if !self.is_local() {
            return Ok(as_listed());
        }
        // Asking the store costs a task a file; the file system tells which files to ask about.
        let changed: Vec<usize> = (0..self.files.len())
            .filter(|at| !unchanged_on_disk(&self.files[*at].object_meta))
            .collect();
        if changed.is_empty() {
            return Ok(as_listed());
        }
        let url = &self.config.object_store_url;
        let store = ctx.runtime_env().object_store(url)?;
        let mut files = self.files.to_vec();
        let paths: Vec<_> = changed.iter().map(|at| files[*at].path().clone()).collect();
        let heads: Vec<ObjectMeta> = futures::stream::iter(paths)
            .map(|path| {
                let store = Arc::clone(&store);
                async move {
                    store
                        .get_opts(&path, head_only())
                        .await
                        .map(|result| result.meta)
                }
            })
            .buffered(HEADS_AT_ONCE)
            .try_collect()
            .await
            .map_err(datafusion::error::DataFusionError::from)?;
        for (at, head) in changed.into_iter().zip(heads) {
            let file = &mut files[at];
            if stamp_of(&file.object_meta) != stamp_of(&head) {
                // What was gathered about the old contents no longer holds.
                file.statistics = None;
                file.ordering = None;
                file.object_meta = head;
            }
        }
        let key = FileKey::new(url.as_str(), &self.key.of.format, &files);
        Ok((files.into(), key))
    }

    /// A scan of table columns `columns` of these `units`, which make a partition each.
    pub(super) fn scan(&self, units: Vec<PartitionedFile>, columns: &[usize]) -> Result<Units> {
        let reads = self.fields.reads(columns)?;
        let positions = reads
            .columns
            .iter()
            .map(|column| {
                let position = self.column_of_output.iter().position(|c| c == column);
                position.ok_or_else(|| {
                    GpuError::Internal(format!("table column {column} is not in the scan"))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let schema = self.config.projected_schema()?;
        let projection = ProjectionExprs::from_indices(&positions, &schema);
        let source = self
            .config
            .file_source()
            .try_pushdown_projection(&projection)?;
        let source = source.ok_or_else(|| {
            unsupported(&format!(
                "cannot select columns in its {} reader",
                self.config.file_source().file_type()
            ))
        })?;
        // As locations: a path within its store alone would read as one below the working directory.
        let store = match self.config.object_store_url.as_str() {
            "file:///" => "/",
            store => store,
        };
        let names = units.iter().map(|file| format!("{store}{}", file.path()));
        let names = names.collect();
        let config = FileScanConfigBuilder::from(self.config.clone())
            .with_source(source)
            .with_file_groups(
                units
                    .into_iter()
                    .map(|file| FileGroup::new(vec![file]))
                    .collect(),
            )
            .build();
        Ok(Units::Scan(Arc::new(config), names, reads))
    }

    /// The units of work, in canonical order: whole files, or byte ranges of large ones.
    pub(super) fn split(
        &self,
        files: &[PartitionedFile],
        ctx: &TaskContext,
    ) -> Vec<PartitionedFile> {
        let config = ctx.session_config();
        let readers = config.target_partitions().max(1) as u64;
        let smallest = config.options().optimizer.repartition_file_min_size.max(1) as u64;
        let total: u64 = files.iter().map(|file| file.object_meta.size).sum();
        let unit = total.div_ceil(readers * UNITS_PER_READER).max(smallest);
        let mut units = Vec::new();
        for file in files {
            let size = file.object_meta.size;
            let parts = if self.splittable {
                size.div_ceil(unit).max(1)
            } else {
                1
            };
            if parts == 1 {
                units.push(file.clone());
                continue;
            }
            for part in 0..parts {
                let bounds =
                    [part, part + 1].map(|i| i128::from(size) * i128::from(i) / i128::from(parts));
                units.push(file.clone().with_range(bounds[0] as i64, bounds[1] as i64));
            }
        }
        units
    }
}

fn head_only() -> datafusion::object_store::GetOptions {
    datafusion::object_store::GetOptions {
        head: true,
        ..Default::default()
    }
}

fn stamp_of(meta: &ObjectMeta) -> FileStamp {
    FileStamp {
        path: meta.location.to_string(),
        partition_values: String::new(),
        size: meta.size,
        modified_ns: i128::from(meta.last_modified.timestamp()) * 1_000_000_000
            + i128::from(meta.last_modified.timestamp_subsec_nanos()),
        e_tag: meta.e_tag.clone(),
        version: meta.version.clone(),
        rows: None,
    }
}

/// The table columns of a projection that computes nothing.
fn plain_columns(projection: &ProjectionExprs) -> Result<Vec<usize>> {
    let columns = projection.iter().map(|projected| {
        let column = projected.expr.downcast_ref::<Column>();
        column
            .map(Column::index)
            .ok_or_else(|| unsupported(&format!("computes {} while it reads", projected.expr)))
    });
    columns.collect()
}

pub(super) fn as_source<T: FileSource>(source: &Arc<dyn FileSource>) -> Option<&T> {
    let source: &dyn std::any::Any = source.as_ref();
    source.downcast_ref::<T>()
}

/// The part of a parquet predicate that decides about rows and not only about row groups.
fn exact_predicate(source: &ParquetSource) -> Option<Arc<dyn PhysicalExpr>> {
    if !source.table_parquet_options().global.pushdown_filters {
        return None;
    }
    let predicate = source.filter()?;
    // Dynamic filters of joins and TopK only help: their operators apply them again.
    conjunction_opt(
        split_conjunction(&predicate)
            .into_iter()
            .filter(|part| !DynamicFilterTracking::classify(part).contains_dynamic_filter())
            .cloned(),
    )
}

/// A source for the same files that yields all rows and columns in file order.
fn whole_parquet(source: &ParquetSource) -> ParquetSource {
    let mut options: TableParquetOptions = source.table_parquet_options().clone();
    options.global.pushdown_filters = false;
    let whole =
        ParquetSource::new(source.table_schema().clone()).with_table_parquet_options(options);
    match source.parquet_file_reader_factory() {
        Some(factory) => whole.with_parquet_file_reader_factory(Arc::clone(factory)),
        None => whole,
    }
}

/// File type and the reader's options that change what the rows are.
fn format_of(config: &FileScanConfig) -> String {
    let source = config.file_source();
    let options = if let Some(parquet) = as_source::<ParquetSource>(source) {
        let options = &parquet.table_parquet_options().global;
        format!("{:?}", (&options.coerce_int96, &options.coerce_int96_tz))
    } else if let Some(csv) = as_source::<CsvSource>(source) {
        let flags = (
            csv.has_header(),
            csv.truncate_rows(),
            csv.newlines_in_values(),
        );
        let bytes = (
            csv.delimiter(),
            csv.quote(),
            csv.terminator(),
            csv.escape(),
            csv.comment(),
        );
        format!("{flags:?} {bytes:?}")
    } else {
        String::new()
    };
    // Adapters fill in missing columns; two that are not the same object may do so differently.
    let adapter = config
        .expr_adapter_factory
        .as_ref()
        .map(|factory| Arc::as_ptr(factory).cast::<()>() as usize);
    let compression = &config.file_compression_type;
    format!(
        "{} {compression:?} {options} {adapter:?}",
        source.file_type()
    )
}
