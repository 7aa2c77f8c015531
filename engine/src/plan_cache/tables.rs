//! The tables of a cached plan, and whether they are unchanged.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::functions_table::all_default_table_functions;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use super::functions::Functions;
use super::listing::Listing;
use super::moments::Moments;
use super::shelf::Source;
#[cfg(feature = "delta")]
use crate::delta::DeltaProvider;
use crate::fragments;
use crate::memory_table::MemoryTable;

/// All tables of one query, its functions, and what it computes of the time of day.
#[derive(Debug)]
pub(super) struct Tables {
    /// What the names in the text stand for.
    named: Vec<(TableReference, Arc<dyn TableProvider>)>,
    /// What the scans of the plan read, before views are looked into.
    scanned: Vec<Arc<dyn TableProvider>>,
    functions: Functions,
    moments: Moments,
    /// What is in the tables that are read, also by views.
    contents: Vec<Contents>,
}

/// What a table holds.
#[derive(Debug)]
enum Contents {
    /// A table in memory that was never written to.
    AsMade(Arc<dyn TableProvider>),
    /// The partitions of a table in memory.
    Memory(Arc<dyn TableProvider>, Vec<Partition>),
    /// The files of each location.
    Files(Arc<dyn TableProvider>, Vec<Listing>),
    /// The version of a table of Delta Lake.
    #[cfg(feature = "delta")]
    Delta(Arc<dyn TableProvider>, u64),
}

/// The batches of a partition of a table in memory.
#[derive(Debug)]
struct Partition {
    batches: usize,
    pieces: Vec<Arc<Piece>>,
}

/// Up to [`PIECE`] batches.
#[derive(Debug)]
struct Piece {
    /// The first one's number in its partition.
    first: usize,
    /// Kept alive, so that equal addresses mean the same columns.
    batches: Vec<RecordBatch>,
    /// Of every batch its rows, the number of its columns, and their addresses.
    numbers: Vec<usize>,
}

/// Batches that one task compares: a few dozen microseconds.
const PIECE: usize = 1024;

impl Partition {
    fn new(batches: &[RecordBatch]) -> Self {
        let pieces = batches.chunks(PIECE).enumerate();
        Self {
            batches: batches.len(),
            pieces: pieces
                .map(|(number, batches)| Arc::new(Piece::new(number * PIECE, batches.to_vec())))
                .collect(),
        }
    }
}

impl Piece {
    fn new(first: usize, batches: Vec<RecordBatch>) -> Self {
        let mut numbers = Vec::new();
        for batch in &batches {
            numbers.extend([batch.num_rows(), batch.num_columns()]);
            numbers.extend(batch.columns().iter().map(address));
        }
        Self {
            first,
            batches,
            numbers,
        }
    }

    /// Are these the very columns that the partition has? Some ten nanoseconds a batch: far less than to tell the table's
    /// identity from the buffers behind the columns, which planning over it does.
    fn is_in(&self, partition: &[RecordBatch]) -> bool {
        let here = self.first..self.first + self.batches.len();
        let Some(batches) = partition.get(here) else {
            return false;
        };
        let mut rest = self.numbers.as_slice();
        for batch in batches {
            let columns = batch.columns();
            let Some((noted, behind)) = rest.split_at_checked(2 + columns.len()) else {
                return false;
            };
            let same = noted[0] == batch.num_rows()
                && noted[1] == columns.len()
                && columns
                    .iter()
                    .zip(&noted[2..])
                    .all(|(c, a)| address(c) == *a);
            if !same {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }
}

/// Is it DataFusion's function that makes a table of numbers, whose arguments are constants?
fn is_series(state: &SessionState, name: &TableReference) -> bool {
    let TableReference::Bare { table } = name else {
        return false;
    };
    let own = all_default_table_functions().into_iter();
    own.filter(|own| matches!(own.name(), "generate_series" | "range"))
        .any(|own| {
            let known = state.table_functions().get(own.name());
            own.name() == &**table && known.is_some_and(|known| Arc::ptr_eq(known, &own))
        })
}

fn address(column: &ArrayRef) -> usize {
    Arc::as_ptr(column).cast::<()>() as usize
}

impl Tables {
    /// The tables of a query before it is optimised. `names` are those in its text; where it has none, those of its scans. `None` if
    /// one is of a kind whose contents cannot be compared, or is not found by its name again, such as a frame that lives for one query.
    ///
    /// # Errors
    /// What listing the files of a table reports.
    pub(super) async fn of(
        context: &SessionContext,
        state: &SessionState,
        names: Option<Vec<TableReference>>,
        plan: &LogicalPlan,
    ) -> Result<Option<Self>> {
        let Some(moments) = Moments::of(plan, state)? else {
            return Ok(None);
        };
        let (scan_names, scanned): (Vec<_>, Vec<_>) = scans(plan)?.into_iter().unzip();
        let has_text = names.is_some();
        let names = names.unwrap_or(scan_names);
        let mut named = Vec::with_capacity(names.len());
        for (at, name) in names.into_iter().enumerate() {
            if has_text && is_series(state, &name) {
                continue;
            }
            // Other functions that return tables have names as well, and no provider of that name.
            let Ok(provider) = context.table_provider(name.clone()).await else {
                return Ok(None);
            };
            if !has_text && !Arc::ptr_eq(&provider, &scanned[at]) {
                return Ok(None);
            }
            named.push((name, provider));
        }
        let mut providers = Vec::new();
        if !collect(plan, &mut providers)? {
            return Ok(None);
        }
        let mut contents = Vec::with_capacity(providers.len());
        for provider in providers {
            // The numbers are in the text.
            if provider.is::<GenerateSeriesTable>() {
                continue;
            }
            let as_made = provider.downcast_ref().is_some_and(MemoryTable::is_as_made);
            if as_made {
                contents.push(Contents::AsMade(provider));
            } else if let Some(memory) = in_memory(&provider) {
                let batches = batches_of(memory).await;
                contents.push(Contents::Memory(provider, batches));
            } else if let Some(listing) = provider.downcast_ref::<ListingTable>() {
                let mut files = Vec::new();
                for location in listing.table_paths() {
                    files.push(Listing::of(state, listing, location).await?);
                }
                contents.push(Contents::Files(provider, files));
            } else if let Some(noted) = versioned(state, &provider).await? {
                contents.push(noted);
            } else {
                return Ok(None);
            }
        }
        let tables = Self {
            named,
            scanned,
            functions: Functions::of(plan)?,
            moments,
            contents,
        };
        // Providers that are made anew for each query would never be found again.
        Ok(tables.still_named(context).await.then_some(tables))
    }

    /// Are these the tables of a text, or of a plan that is equal to the one they were noted of, in this session?
    pub(super) async fn are_of(&self, source: &Source, context: &SessionContext) -> bool {
        match source {
            Source::Text(_) => self.still_named(context).await,
            Source::Plan(plan) => scans(plan).is_ok_and(|now| {
                let same = |(old, (_, new)): (&_, &(_, _))| Arc::ptr_eq(old, new);
                now.len() == self.scanned.len() && self.scanned.iter().zip(&now).all(same)
            }),
        }
    }

    /// Does the query read tables, all of them `known`?
    pub(super) fn are_all(&self, known: impl Fn(&Arc<dyn TableProvider>) -> bool) -> bool {
        !self.scanned.is_empty() && self.scanned.iter().all(known)
    }

    /// Is one of them a table of parquet files?
    pub(super) fn have_parquet(&self) -> bool {
        self.contents.iter().any(|contents| match contents {
            Contents::Files(provider, _) => provider
                .downcast_ref::<ListingTable>()
                .is_some_and(|table| table.options().format.get_ext() == "parquet"),
            _ => false,
        })
    }

    /// Do the names of the query's functions stand for the same ones in a session?
    pub(super) fn have_functions_of(&self, state: &SessionState) -> bool {
        self.functions.are_of(state)
    }

    /// Do the tables hold the same data, and is what was computed of the time of day the same?
    pub(super) async fn still_hold(&self, state: &SessionState) -> bool {
        if !self.moments.still_hold(state) {
            return false;
        }
        for contents in &self.contents {
            let same = match contents {
                Contents::AsMade(provider) => {
                    provider.downcast_ref().is_some_and(MemoryTable::is_as_made)
                }
                Contents::Memory(provider, batches) => match in_memory(provider) {
                    Some(table) => holds(table, batches).await,
                    None => false,
                },
                Contents::Files(provider, files) => match provider.downcast_ref::<ListingTable>() {
                    Some(table) => list(state, table, files).await,
                    None => false,
                },
                #[cfg(feature = "delta")]
                Contents::Delta(provider, version) => match provider.downcast_ref() {
                    Some(table) => is_at(state, table, *version).await,
                    None => false,
                },
            };
            if !same {
                return false;
            }
        }
        true
    }

    /// Tells the fragments of a plan over these tables which of their files [`Self::still_hold`] looks at: their runs need not.
    pub(super) fn spare_looks(&self, plan: &Arc<dyn ExecutionPlan>) {
        let files = self.contents.iter().flat_map(|contents| match contents {
            Contents::Files(_, listings) => listings.as_slice(),
            _ => &[],
        });
        let files = files.flat_map(Listing::local_files);
        let files: HashMap<_, _> = files.map(|file| (&file.location, file)).collect();
        let looks_at = |file: &ObjectMeta| files.get(&file.location) == Some(&file);
        fragments::note_looks(plan, &looks_at);
    }

    async fn still_named(&self, context: &SessionContext) -> bool {
        for (name, provider) in &self.named {
            match context.table_provider(name.clone()).await {
                Ok(found) if Arc::ptr_eq(&found, provider) => {}
                _ => return false,
            }
        }
        true
    }
}

/// The names of a plan's scans and what they read, in its order.
fn scans(plan: &LogicalPlan) -> Result<Vec<(TableReference, Arc<dyn TableProvider>)>> {
    let mut scans = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            scans.push((scan.table_name.clone(), source_as_provider(&scan.source)?));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

/// The providers of all scans, those of views as well; false when a scan has none.
fn collect(plan: &LogicalPlan, providers: &mut Vec<Arc<dyn TableProvider>>) -> Result<bool> {
    let mut complete = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            match source_as_provider(&scan.source) {
                Ok(provider) => match provider.get_logical_plan() {
                    Some(view) => {
                        complete &= super::eligible::is_timeless(&view)?;
                        complete &= collect(&view, providers)?;
                    }
                    None if providers.iter().any(|p| Arc::ptr_eq(p, &provider)) => {}
                    None => providers.push(provider),
                },
                Err(_) => complete = false,
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(complete)
}

/// The version that a table of Delta Lake is at; `None` for other tables.
///
/// # Errors
/// When its log cannot be read.
#[cfg(feature = "delta")]
async fn versioned(
    state: &SessionState,
    provider: &Arc<dyn TableProvider>,
) -> Result<Option<Contents>> {
    let Some(table) = provider.downcast_ref::<DeltaProvider>() else {
        return Ok(None);
    };
    let version = table.current_version(state).await?;
    Ok(Some(Contents::Delta(Arc::clone(provider), version)))
}

#[cfg(feature = "delta")]
async fn is_at(state: &SessionState, table: &DeltaProvider, version: u64) -> bool {
    let now = table.current_version(state).await;
    now.is_ok_and(|now| now == version)
}

#[cfg(not(feature = "delta"))]
async fn versioned(
    _state: &SessionState,
    _provider: &Arc<dyn TableProvider>,
) -> Result<Option<Contents>> {
    Ok(None)
}

/// The table in memory that this is, or is made of.
fn in_memory(provider: &Arc<dyn TableProvider>) -> Option<&MemTable> {
    let own = provider.downcast_ref().map(MemoryTable::table);
    own.or_else(|| provider.downcast_ref())
}

async fn batches_of(table: &MemTable) -> Vec<Partition> {
    let mut partitions = Vec::with_capacity(table.batches.len());
    for partition in &table.batches {
        partitions.push(Partition::new(&partition.read().await));
    }
    partitions
}

/// Does the table hold what was noted? Large ones are compared by several tasks: what takes time is to wait for memory.
async fn holds(table: &MemTable, noted: &[Partition]) -> bool {
    if table.batches.len() != noted.len() {
        return false;
    }
    let several = noted.iter().map(|p| p.batches).sum::<usize>() > 2 * PIECE;
    let mut tasks = Vec::new();
    for (partition, noted) in table.batches.iter().zip(noted) {
        let batches = partition.read().await;
        if batches.len() != noted.batches {
            return false;
        }
        for piece in &noted.pieces {
            if several {
                let (partition, piece) = (Arc::clone(partition), Arc::clone(piece));
                tasks.push(tokio::spawn(
                    async move { piece.is_in(&partition.read().await) },
                ));
            } else if !piece.is_in(&batches) {
                return false;
            }
        }
    }
    let mut same = true;
    for task in tasks {
        // One that did not end has not seen that they are the same.
        same &= task.await.unwrap_or(false);
    }
    same
}

/// Would planning list the same files at all locations, and are those on this machine as they were?
async fn list(state: &SessionState, table: &ListingTable, noted: &[Listing]) -> bool {
    if table.table_paths().len() != noted.len() {
        return false;
    }
    for (location, noted) in table.table_paths().iter().zip(noted) {
        if !noted.holds(state, table, location).await {
            return false;
        }
    }
    true
}
