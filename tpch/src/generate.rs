//! Generates tables in memory, in parallel, and registers them with an engine.
//!
//! Each part of a table is a contiguous range of its keys, so that the partitions of a table are in key order.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use parking_lot::Mutex;

use crate::engine::QueryEngine;
use crate::error::{Result, TpchError};
use crate::progress::RowProgress;
use crate::tables::{Dataset, Table};

/// Rows per generated batch: DataFusion's own batch size, so that no operator slices or merges them.
const BATCH_ROWS: usize = 8192;

/// Fewest expected rows for which a part of a table is worth a thread.
const ROWS_PER_PART: u64 = 50_000;

/// A table in memory: its partitions, each a list of batches in key order.
#[derive(Debug)]
pub struct GeneratedTable {
    /// Which table.
    pub table: Table,
    /// Its rows. There is at least one partition.
    pub partitions: Vec<Vec<RecordBatch>>,
}

/// Number of threads to generate with: one per available core.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Generates tables in memory, of TPC-H where only a scale is given, on `threads` threads, with a progress bar on a terminal.
///
/// Memory: about 1.3 GB per scale for all tables.
///
/// # Errors
/// [`TpchError::Worker`] when a thread fails, [`TpchError::Arrow`] when a batch cannot be made.
pub fn generate(
    tables: &[Table],
    dataset: impl Into<Dataset>,
    threads: usize,
) -> Result<Vec<GeneratedTable>> {
    let dataset = dataset.into();
    let progress = RowProgress::start(
        "Generating",
        tables
            .iter()
            .map(|&table| dataset.expected_rows(table))
            .sum(),
    );
    let parts_of = |table: Table| {
        let useful = usize::try_from(dataset.expected_rows(table).div_ceil(ROWS_PER_PART))
            .unwrap_or(usize::MAX);
        if table.is_fixed() {
            1
        } else {
            useful.clamp(1, threads)
        }
    };
    let parts = list_parts(tables, parts_of);
    let slots: Vec<Mutex<Vec<RecordBatch>>> =
        parts.iter().map(|_| Mutex::new(Vec::new())).collect();
    for_each_part(&parts, threads, &AtomicBool::new(false), |index, part| {
        let mut batches = Vec::new();
        for batch in dataset.batches(part.table, part.number, part.of, BATCH_ROWS) {
            let batch = batch?;
            progress.add(batch.num_rows() as u64);
            batches.push(batch);
        }
        *slots[index].lock() = batches;
        Ok(())
    })?;

    let mut generated: Vec<GeneratedTable> = tables
        .iter()
        .map(|&table| GeneratedTable {
            table,
            partitions: Vec::new(),
        })
        .collect();
    let mut in_order: Vec<_> = parts.iter().zip(slots).collect();
    in_order.sort_by_key(|(part, _)| part.number);
    for (part, slot) in in_order {
        if let Some(table) = generated.iter_mut().find(|table| table.table == part.table) {
            table.partitions.push(slot.into_inner());
        }
    }
    Ok(generated)
}

/// Registers generated tables with the session under test and with its reference.
///
/// # Errors
/// [`TpchError::DataFusion`] when a session refuses the table.
pub fn register(engine: &dyn QueryEngine, tables: Vec<GeneratedTable>) -> Result<()> {
    for GeneratedTable { table, partitions } in tables {
        let provider = engine.table_in_memory(table.schema(), partitions)?;
        engine
            .session()
            .register_table(table.name(), Arc::clone(&provider))?;
        // The reference may share the catalog of the session, and then has the table already.
        if !engine.reference().table_exist(table.name())? {
            engine.reference().register_table(table.name(), provider)?;
        }
    }
    Ok(())
}

/// A range of a table's keys: part `number` (from 1) of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) table: Table,
    pub(crate) number: usize,
    pub(crate) of: usize,
}

/// All parts of all tables, those of the last (and largest) tables first, so that no long part starts last.
pub(crate) fn list_parts(tables: &[Table], parts_of: impl Fn(Table) -> usize) -> Vec<Part> {
    let mut largest_first = tables.to_vec();
    largest_first.sort_by_key(|table| Table::ALL.iter().rev().position(|other| other == table));
    largest_first
        .into_iter()
        .flat_map(|table| {
            let of = parts_of(table);
            (1..=of).map(move |number| Part { table, number, of })
        })
        .collect()
}

/// Runs `work` once for each part on up to `threads` threads; the first error or `cancel` stops the rest.
pub(crate) fn for_each_part(
    parts: &[Part],
    threads: usize,
    cancel: &AtomicBool,
    work: impl Fn(usize, Part) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let first_error: Mutex<Option<TpchError>> = Mutex::new(None);
    let worker = || {
        while !failed.load(Ordering::Relaxed) && !cancel.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&part) = parts.get(index) else { break };
            // A panic of the generator must not take the program down.
            let result =
                catch_unwind(AssertUnwindSafe(|| work(index, part))).unwrap_or_else(|_| {
                    Err(TpchError::Worker(format!(
                        "part {} of {} of table {} panicked",
                        part.number,
                        part.of,
                        part.table.name()
                    )))
                });
            if let Err(error) = result {
                failed.store(true, Ordering::Relaxed);
                first_error.lock().get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(parts.len()) {
            // When the system gives no more threads, those that there are do the work.
            if std::thread::Builder::new()
                .spawn_scoped(scope, worker)
                .is_err()
            {
                break;
            }
        }
        worker();
    });
    match first_error.into_inner() {
        Some(error) => Err(error),
        None if cancel.load(Ordering::Relaxed) => Err(TpchError::Cancelled),
        None => Ok(()),
    }
}
