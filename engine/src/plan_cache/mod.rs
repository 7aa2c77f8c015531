//! Plan cache: physical plans of earlier queries, so that hot queries do not spend milliseconds in planning.
//!
//! A plan is found by the query's text and used only if planning anew would give the same plan:
//! - the session has the same settings, functions, rules, catalogs and object stores ([`snapshot`]);
//! - every table that the text names resolves to the same `TableProvider`, and the data behind each provider is what
//!   the plan was made over: the same batches of a memory table, the same files, unchanged on disk, of a table of
//!   files ([`listing`]), the same version of a table of Delta Lake ([`tables`]);
//! - the query is a plain `SELECT` without functions whose value depends on the time or on chance ([`eligible`]).
//!
//! Plans of which a part runs on the CPU in operators that keep state between runs are not kept, but their fragments are: the
//! next plan of the text is made anew, and its fragments take over the kernels and sizes of the earlier ones. A plan is
//! taken out of the cache while it runs, so no two runs share one: runs of the same text at the same time each have their
//! own, and later find as many in the cache. Statements that change data, tables or settings empty it.

mod eligible;
mod learned;
mod listing;
mod snapshot;
mod tables;
mod text;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::{DataFrame, SessionContext};
use datafusion::sql::parser::Statement;
use parking_lot::Mutex;
use warpline_planner::WarplineConfig;

pub(crate) use self::listing::listed_files;
use self::snapshot::Snapshot;
use self::tables::Tables;
use crate::{create_table, fragments};

/// Most plans of one text that wait for their next run.
const IDLE_PLANS: usize = 4;

/// Capacity of a session's plan cache; 0 when it is off, or when the CPU answers all.
fn capacity_of(context: &SessionContext) -> usize {
    let state = context.state_ref();
    let state = state.read();
    match state.config_options().extensions.get::<WarplineConfig>() {
        Some(settings) if settings.plan_cache => settings.plan_cache_size,
        _ => 0,
    }
}

/// How the plan cache of a session has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanCacheStats {
    /// Queries that ran a plan of an earlier one.
    pub hits: u64,
    /// Queries that could have, had there been a valid plan.
    pub misses: u64,
    /// Texts with a plan.
    pub entries: usize,
}

/// The plans of one session.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// What the session was when the entries were made; all of them belong to it.
    snapshot: Option<Arc<Snapshot>>,
    entries: HashMap<String, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    tables: Arc<Tables>,
    idle: Vec<Kept>,
    used: u64,
}

/// What is left of a run for the next one of the same text.
#[derive(Debug)]
enum Kept {
    /// A plan that can run again.
    Plan(Arc<dyn ExecutionPlan>),
    /// The fragments of a plan that cannot, in the plan's order.
    Fragments(Vec<Arc<dyn ExecutionPlan>>),
}

impl Entry {
    /// Is it of a text whose plans can run again?
    fn has_plan(&self) -> bool {
        !matches!(self.idle.first(), Some(Kept::Fragments(_)))
    }
}

/// A query's plan, ready to run once; [`PlanCache::finished`] takes it back.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan.
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// What it runs in.
    pub(crate) task: Arc<TaskContext>,
    /// Whether an earlier query had it made.
    pub(crate) cached: bool,
    keep: Option<Keep>,
}

impl Planned {
    /// A plan that is not kept.
    pub(crate) fn once(plan: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>) -> Self {
        Self {
            plan,
            task,
            cached: false,
            keep: None,
        }
    }
}

/// EXPLAIN ANALYZE, planned so that whatever can be counted is; `None` for any other statement.
///
/// DataFusion plans what is analysed as if it were run alone, so no rule can tell, and the settings have to.
async fn analyzed(context: &SessionContext, sql: &str) -> Result<Option<Planned>> {
    let explains = sql
        .split_whitespace()
        .next()
        .is_some_and(|word| word.eq_ignore_ascii_case("explain"));
    if !explains {
        return Ok(None);
    }
    let mut state = context.state();
    let logical = state.create_logical_plan(sql).await?;
    if !matches!(logical, LogicalPlan::Analyze(_)) {
        return Ok(None);
    }
    let extensions = &mut state.config_mut().options_mut().extensions;
    if let Some(settings) = extensions.get_mut::<WarplineConfig>() {
        settings.metrics = true;
    }
    let frame = DataFrame::new(state, logical);
    let task = Arc::new(frame.task_ctx());
    Ok(Some(Planned::once(
        frame.create_physical_plan().await?,
        task,
    )))
}

/// The plan of a query, or of a statement that writes what a query answers, to run once; `None` for any other statement.
async fn unkept(
    context: &SessionContext,
    state: &SessionState,
    statement: Statement,
) -> Result<Option<Planned>> {
    let creates = eligible::creates_table(&statement);
    if !creates && !eligible::is_query(&statement) && !eligible::writes_rows(&statement) {
        return Ok(None);
    }
    let logical = state.statement_to_plan(statement).await?;
    if creates {
        let plan = create_table::plan(context, &logical).await?;
        return Ok(plan.map(|plan| Planned::once(plan, context.task_ctx())));
    }
    let frame = context.execute_logical_plan(logical).await?;
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    Ok(Some(Planned::once(plan, task)))
}

/// Where a plan goes after its run.
#[derive(Debug)]
struct Keep {
    text: String,
    snapshot: Arc<Snapshot>,
    tables: Arc<Tables>,
    capacity: usize,
    /// Whether the plan can run again, or only what its fragments know is of use.
    reusable: bool,
}

impl PlanCache {
    /// How it has done so far.
    pub(crate) fn stats(&self) -> PlanCacheStats {
        PlanCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            entries: self
                .inner
                .lock()
                .entries
                .values()
                .filter(|entry| entry.has_plan())
                .count(),
        }
    }

    /// Forgets all plans and with them the data and device memory that they hold.
    pub(crate) fn clear(&self) {
        // Dropping plans can be slow: not under the lock.
        let entries = std::mem::take(&mut self.inner.lock().entries);
        drop(entries);
    }

    /// The plan of one query: an earlier one if it is still right, else a new one; a new one for a statement that writes
    /// rows, too. `None` for other statements; the caller then goes the ordinary way.
    ///
    /// # Errors
    /// What parsing and planning report.
    pub(crate) async fn plan(
        &self,
        context: &SessionContext,
        sql: &str,
    ) -> Result<Option<Planned>> {
        if let Some(planned) = analyzed(context, sql).await? {
            return Ok(Some(planned));
        }
        // Plans that are found need no copy of the session's state.
        let parse = || {
            let state = context.state();
            let dialect = state.config_options().sql_parser.dialect;
            let statement = state.sql_to_statement(sql, &dialect)?;
            Ok::<_, DataFusionError>((state, statement))
        };
        let capacity = capacity_of(context);
        if capacity == 0 {
            self.clear();
            let (state, statement) = parse()?;
            return unkept(context, &state, statement).await;
        }
        let text = text::normalised(sql);
        let snapshot = self.snapshot(context);
        let mut learned = Vec::new();
        if let Some((tables, kept)) = self.checkout(&text, &snapshot)
            && tables.still_hold(context, &snapshot.state).await
        {
            match kept {
                Kept::Plan(plan) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    fragments::note_unchanged(&plan);
                    return Ok(Some(Planned {
                        plan: reset_plan_states(plan)?,
                        task: Arc::clone(&snapshot.task),
                        cached: true,
                        keep: Some(Keep {
                            text,
                            snapshot,
                            tables,
                            capacity,
                            reusable: true,
                        }),
                    }));
                }
                Kept::Fragments(fragments) => learned = fragments,
            }
        }
        let (state, statement) = parse()?;
        if !eligible::is_query(&statement) {
            if eligible::changes_something(&statement) {
                self.clear();
            }
            return unkept(context, &state, statement).await;
        }
        let planned = self
            .miss(context, &state, text, statement, snapshot, capacity)
            .await?;
        learned::take_over(&planned.plan, &learned);
        Ok(Some(planned))
    }

    async fn miss(
        &self,
        context: &SessionContext,
        state: &SessionState,
        text: String,
        statement: Statement,
        snapshot: Arc<Snapshot>,
        capacity: usize,
    ) -> Result<Planned> {
        let names = state.resolve_table_references(&statement)?;
        let logical = state.statement_to_plan(statement).await?;
        // Noted before the physical plan reads them: what changes in between makes the notes, and with them the plan,
        // out of date at its next use.
        let tables = match eligible::is_repeatable(&logical)? {
            true => Tables::of(context, state, names, &logical).await?,
            false => None,
        };
        let frame = context.execute_logical_plan(logical).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let reusable = eligible::is_reusable(&plan);
        if let Some(tables) = tables.as_ref().filter(|_| reusable) {
            tables.spare_looks(&plan);
        }
        let keep = tables.map(|tables| Keep {
            text,
            snapshot,
            tables: Arc::new(tables),
            capacity,
            reusable,
        });
        if keep.is_some() && reusable {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Planned {
            plan,
            task,
            cached: false,
            keep,
        })
    }

    /// Takes a plan back after a run. `clean`: it ran to its end without an error, and its fragments ran on the device.
    pub(crate) fn finished(&self, planned: Planned, clean: bool) {
        let Some(keep) = planned.keep.filter(|_| clean) else {
            return;
        };
        let kept = match keep.reusable {
            true => Kept::Plan(planned.plan),
            false => match learned::left_of(&planned.plan) {
                fragments if fragments.is_empty() => return,
                fragments => Kept::Fragments(fragments),
            },
        };
        let evicted = {
            let mut inner = self.inner.lock();
            let current = inner.snapshot.as_ref();
            if current.is_none_or(|current| !Arc::ptr_eq(current, &keep.snapshot)) {
                return;
            }
            inner.clock += 1;
            let clock = inner.clock;
            let entry = inner.entries.entry(keep.text).or_insert_with(|| Entry {
                tables: Arc::clone(&keep.tables),
                idle: Vec::new(),
                used: clock,
            });
            entry.used = clock;
            let mut evicted = Vec::new();
            if !Arc::ptr_eq(&entry.tables, &keep.tables) {
                // Whoever planned later saw the later tables; if that was not this run, the next use will tell.
                entry.tables = Arc::clone(&keep.tables);
                evicted.append(&mut entry.idle);
            }
            if entry.idle.len() < IDLE_PLANS {
                entry.idle.push(kept);
            }
            while inner.entries.len() > keep.capacity {
                let oldest = inner.entries.iter().min_by_key(|(_, entry)| entry.used);
                let Some(text) = oldest.map(|(text, _)| text.clone()) else {
                    break;
                };
                evicted.extend(inner.entries.remove(&text).into_iter().flat_map(|e| e.idle));
            }
            evicted
        };
        drop(evicted);
    }

    /// What the session is now. When it is not what it was, all entries go.
    fn snapshot(&self, context: &SessionContext) -> Arc<Snapshot> {
        let state = context.state_ref();
        let state = state.read();
        let mut inner = self.inner.lock();
        match &inner.snapshot {
            Some(snapshot) if snapshot.is_of(&state) => Arc::clone(snapshot),
            _ => {
                inner.entries.clear();
                let snapshot = Arc::new(Snapshot::new(&state));
                inner.snapshot = Some(Arc::clone(&snapshot));
                snapshot
            }
        }
    }

    /// What an earlier run of the text left, with the tables it is for.
    fn checkout(&self, text: &str, snapshot: &Arc<Snapshot>) -> Option<(Arc<Tables>, Kept)> {
        let mut inner = self.inner.lock();
        if !Arc::ptr_eq(inner.snapshot.as_ref()?, snapshot) {
            return None;
        }
        inner.clock += 1;
        let clock = inner.clock;
        let entry = inner.entries.get_mut(text)?;
        entry.used = clock;
        Some((Arc::clone(&entry.tables), entry.idle.pop()?))
    }
}
