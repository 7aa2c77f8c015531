//! Plan cache: physical plans of earlier queries, so that hot queries do not spend milliseconds in planning.
//!
//! A plan is found by the query's text and used only if planning anew would give the same plan:
//! - the session has the same settings, functions, rules, catalogs and object stores ([`snapshot`]);
//! - every table that the text names resolves to the same `TableProvider`, and the data behind each provider is what
//!   the plan was made over: the same batches of a memory table, the same files, unchanged on disk, of a table of
//!   files ([`listing`]), the same version of a table of Delta Lake ([`tables`]);
//! - the query is a plain `SELECT` without functions whose value depends on chance ([`eligible`]);
//! - what it computes of the time of day is what it would be now, as with `current_date` all day ([`moments`]).
//!
//! Plans of which a part runs on the CPU in operators that keep state between runs are not kept, but their fragments are: the
//! next plan of the text is made anew, and its fragments take over the kernels and sizes of the earlier ones. A plan is
//! taken off its [`shelf`] while it runs, so no two runs share one: runs of the same text at the same time each have their
//! own, and later find as many there. Statements that change data, tables or settings empty the shelf of the session.
//!
//! A statement with parameters has no text that tells all. It is found by its logical plan, in which the parameters have values.
//! Sessions of a server share plans over the tables that all of them have ([`common`]).

mod common;
mod eligible;
mod functions;
mod learned;
mod listing;
mod moments;
mod shelf;
mod snapshot;
mod tables;
mod text;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::{DataFrame, SessionContext};
use datafusion::sql::parser::Statement;
use parking_lot::Mutex;
use warpline_gpu::runtime::Runtime;
use warpline_planner::{WarplineConfig, statements};

pub(crate) use self::common::CommonPlans;
use self::common::Membership;
pub(crate) use self::listing::listed_files;
use self::shelf::{Kept, Shelf, Source, Waiting};
use self::snapshot::Snapshot;
use self::tables::Tables;
use crate::{create_table, fragments};

/// Most plans of one source that wait for their next run, in a session of its own.
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
    /// The devices of the session.
    runtimes: Vec<Arc<Runtime>>,
    current: Mutex<Option<Arc<Current>>>,
    common: OnceLock<Membership>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a session is, and the plans that are right for it.
#[derive(Debug)]
struct Current {
    snapshot: Snapshot,
    own: Arc<Shelf>,
    common: Option<Arc<Shelf>>,
}

impl Current {
    /// Where plans may lie.
    fn shelves(&self) -> impl Iterator<Item = &Arc<Shelf>> {
        std::iter::once(&self.own).chain(&self.common)
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
    let logical = statements::plan_text(&state, sql).await?;
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
    let logical = statements::plan(state, statement).await?;
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
    shelf: Arc<Shelf>,
    source: Source,
    tables: Arc<Tables>,
    capacity: usize,
    /// Whether the plan can run again, or only what its fragments know is of use.
    reusable: bool,
}

/// What there is of earlier runs.
enum Found {
    Plan(Planned),
    Fragments(Vec<Arc<dyn ExecutionPlan>>),
}

impl PlanCache {
    /// An empty one of a session on these devices.
    pub(crate) fn new(runtimes: Vec<Arc<Runtime>>) -> Self {
        Self {
            runtimes,
            ..Self::default()
        }
    }

    /// How it has done so far.
    pub(crate) fn stats(&self) -> PlanCacheStats {
        let current = self.current.lock().clone();
        let shelves = current.iter().flat_map(|current| current.shelves());
        PlanCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            entries: shelves.map(|shelf| shelf.plans()).sum(),
        }
    }

    /// Forgets the plans of this session and with them the data and device memory that they hold.
    pub(crate) fn clear(&self) {
        let current = self.current.lock().clone();
        if let Some(current) = current {
            current.own.clear();
        }
    }

    /// From now on plans over these tables, which sessions that are opened like this one have as well, are those of all of them.
    pub(crate) fn share(
        &self,
        plans: &Arc<CommonPlans>,
        tables: &[Arc<dyn TableProvider>],
        context: &SessionContext,
    ) {
        let membership = Membership::new(plans, tables, context);
        if self.common.set(membership).is_ok() {
            *self.current.lock() = None;
        }
    }

    /// The plan that an earlier query of this text left, if it is still right. Nothing is planned.
    ///
    /// # Errors
    /// What looking at tables reports.
    pub(crate) async fn kept(
        &self,
        context: &SessionContext,
        sql: &str,
    ) -> Result<Option<Planned>> {
        let capacity = capacity_of(context);
        if capacity == 0 {
            return Ok(None);
        }
        let source = Source::Text(text::normalised(sql));
        let current = self.current(context);
        // What others left of it is for whoever plans it anew.
        if !current.shelves().any(|shelf| shelf.has_plan(&source)) {
            return Ok(None);
        }
        Ok(
            match self.found(context, &current, &source, capacity).await? {
                Some(Found::Plan(planned)) => Some(planned),
                Some(Found::Fragments(_)) | None => None,
            },
        )
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
            let statement = statements::parsed(&state, sql)?;
            Ok::<_, DataFusionError>((state, statement))
        };
        let capacity = capacity_of(context);
        if capacity == 0 {
            self.clear();
            let (state, statement) = parse()?;
            return unkept(context, &state, statement).await;
        }
        let source = Source::Text(text::normalised(sql));
        let current = self.current(context);
        let learned = match self.found(context, &current, &source, capacity).await? {
            Some(Found::Plan(planned)) => return Ok(Some(planned)),
            Some(Found::Fragments(fragments)) => fragments,
            None => vec![],
        };
        let (state, statement) = parse()?;
        if !eligible::is_query(&statement) {
            if eligible::changes_something(&statement) {
                self.clear();
            }
            return unkept(context, &state, statement).await;
        }
        let names = Some(state.resolve_table_references(&statement)?);
        let logical = statements::plan(&state, statement).await?;
        let made = self.miss(
            context,
            &state,
            (source, names),
            logical,
            &current,
            capacity,
        );
        let planned = made.await?;
        learned::take_over(&planned.plan, &learned);
        Ok(Some(planned))
    }

    /// The plan of a statement that is planned so far, the values of its parameters in their places: an earlier one if it is still
    /// right, else a new one.
    ///
    /// # Errors
    /// What planning reports, and the statement's own errors where it is one that runs when it is planned.
    pub(crate) async fn plan_logical(
        &self,
        context: &SessionContext,
        logical: LogicalPlan,
    ) -> Result<Planned> {
        let capacity = capacity_of(context);
        if capacity == 0 || !eligible::is_repeatable(&logical)? {
            let frame = context.execute_logical_plan(logical).await?;
            let task = Arc::new(frame.task_ctx());
            return Ok(Planned::once(frame.create_physical_plan().await?, task));
        }
        let logical = Arc::new(logical);
        let source = Source::Plan(Arc::clone(&logical));
        let current = self.current(context);
        let learned = match self.found(context, &current, &source, capacity).await? {
            Some(Found::Plan(planned)) => return Ok(planned),
            Some(Found::Fragments(fragments)) => fragments,
            None => vec![],
        };
        let (state, logical) = (context.state(), logical.as_ref().clone());
        let made = self.miss(context, &state, (source, None), logical, &current, capacity);
        let planned = made.await?;
        learned::take_over(&planned.plan, &learned);
        Ok(planned)
    }

    async fn miss(
        &self,
        context: &SessionContext,
        state: &SessionState,
        (source, names): (Source, Option<Vec<TableReference>>),
        logical: LogicalPlan,
        current: &Current,
        capacity: usize,
    ) -> Result<Planned> {
        // Noted before the physical plan reads them: what changes in between makes the notes, and with them the plan,
        // out of date at its next use.
        let tables = match eligible::is_repeatable(&logical)? {
            true => Tables::of(context, state, names, &logical).await?,
            false => None,
        };
        if tables.as_ref().is_some_and(Tables::have_parquet) {
            let threads = state.config().target_partitions();
            let caches = self.runtimes.iter().map(|runtime| runtime.tables());
            caches.for_each(|tables| tables.expect_parquet(threads));
        }
        let frame = context.execute_logical_plan(logical).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let reusable = eligible::is_reusable(&plan);
        if let Some(tables) = tables.as_ref().filter(|_| reusable) {
            tables.spare_looks(&plan);
        }
        let keep = tables.map(|tables| Keep {
            shelf: Arc::clone(self.shelf_for(current, &tables)),
            source,
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

    /// Where a new plan over these tables belongs.
    fn shelf_for<'a>(&self, current: &'a Current, tables: &Tables) -> &'a Arc<Shelf> {
        let common = current.common.as_ref().zip(self.common.get());
        match common {
            Some((shelf, membership)) if membership.may_share(tables) => shelf,
            _ => &current.own,
        }
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
        let tables = keep.tables;
        let waiting = Waiting { tables, kept };
        keep.shelf.put(keep.source, waiting, keep.capacity);
    }

    /// What the session is now. When it is not what it was, its own plans go.
    fn current(&self, context: &SessionContext) -> Arc<Current> {
        let state = context.state_ref();
        let state = state.read();
        let mut current = self.current.lock();
        match &*current {
            Some(current) if current.snapshot.is_of(&state) => Arc::clone(current),
            _ => {
                let common = self.common.get();
                let now = Arc::new(Current {
                    snapshot: Snapshot::new(&state),
                    own: Shelf::new(IDLE_PLANS),
                    common: common.and_then(|common| common.shelf(&state)),
                });
                *current = Some(Arc::clone(&now));
                now
            }
        }
    }

    /// What earlier runs of the source left that is still right.
    async fn found(
        &self,
        context: &SessionContext,
        current: &Current,
        source: &Source,
        capacity: usize,
    ) -> Result<Option<Found>> {
        let state = &current.snapshot.state;
        for (at, shelf) in current.shelves().enumerate() {
            let Some(Waiting { tables, kept }) = shelf.take(source) else {
                continue;
            };
            let is_common = at > 0;
            let meant = tables.are_of(source, context).await
                && (!is_common || tables.have_functions_of(state));
            if !meant && is_common {
                // Right for others.
                shelf.put(source.clone(), Waiting { tables, kept }, capacity);
                continue;
            }
            if !meant || !tables.still_hold(state).await {
                shelf.forget(source);
                continue;
            }
            return Ok(Some(match kept {
                Kept::Fragments(fragments) => Found::Fragments(fragments),
                Kept::Plan(plan) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    fragments::note_unchanged(&plan);
                    Found::Plan(Planned {
                        plan: reset_plan_states(plan)?,
                        task: Arc::clone(&current.snapshot.task),
                        cached: true,
                        keep: Some(Keep {
                            shelf: Arc::clone(shelf),
                            source: source.clone(),
                            tables,
                            capacity,
                            reusable: true,
                        }),
                    })
                }
            }));
        }
        Ok(None)
    }
}
