//! Classification of each operator of a plan: fragment, tail, fallback or pass-through.

use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};

use super::PlacementReportExec;
use super::reentry::{Attempt, MOST_INPUTS, pays, reads_tables, reentered};
use super::surroundings::Surroundings;
use crate::config::Reentry;
use crate::fragment::FragmentPlanner;
use crate::reason::{Rank, Reason};
use crate::rel::convert::{Inputs, Phase, arrivals, exchange, is_arrival, is_constant, own_reason};

/// What an operator is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Runs on the device with all below it but the inputs.
    Fragment(Arc<FragmentPlanner>, Inputs),
    /// Moves, renames or concatenates rows.
    Plumbing,
    /// Computes row by row or sorts: cheap over the few rows that have left the device. The reason why the device
    /// does not, unless an operator below is the cause.
    Tail(Option<Reason>),
    /// Computes what the device does not of the query's output, as rows leave the fragment below. The reason.
    Output(Reason),
    /// Does real work. The reason why the CPU does it, unless an operator below is the cause.
    Heavy(Option<Reason>),
    /// Reads a table. The reason why the device does not.
    Scan(Reason),
    /// Yields constants or facts about the session.
    Constant,
}

/// An operator, its kind and the origin of its rows.
#[derive(Debug)]
pub(super) struct Classification {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) kind: Kind,
    pub(super) children: Vec<Classification>,
    /// Yields rows of a table that have not been on the device.
    pub(super) table_rows: bool,
    /// Yields rows of a fragment.
    pub(super) device_rows: bool,
}

impl Classification {
    /// Classify `plan` from the root down; of what is below a fragment, only its inputs are visited.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>, at: &Surroundings<'_>) -> Self {
        Self::below(plan, at, None, true)
    }

    /// `at_root`: nothing above changes rows. `dear`: the inputs over which a fragment with more operators than are here costs more than it saves.
    fn below(
        plan: &Arc<dyn ExecutionPlan>,
        at: &Surroundings<'_>,
        dear: Option<&Inputs>,
        at_root: bool,
    ) -> Self {
        let (kind, dear) = kind_of(plan, at, dear);
        let below = match (&kind, plan.downcast_ref::<AggregateExec>()) {
            (Kind::Fragment(_, inputs), _) => inputs.plans().collect(),
            // Both phases of a refused aggregation share one reason.
            (_, Some(root)) => vec![Phase::of(root, &Inputs::default()).input()],
            _ => plan.children(),
        };
        let passes = matches!(kind, Kind::Plumbing) || plan.is::<ProjectionExec>();
        let children = below.into_iter().map(|child| {
            if matches!(kind, Kind::Fragment(..)) && is_arrival(child) {
                return Self::arrival(child);
            }
            let same = dear.as_ref().filter(|inputs| inputs.are_below(child));
            Self::below(child, at, same, at_root && passes)
        });
        let children: Vec<_> = children.collect();
        let kind = match kind {
            Kind::Tail(Some(reason))
                if at_root && reason.rank() == Rank::Incapable && is_at_output(plan, &children) =>
            {
                Kind::Output(reason)
            }
            kind => kind,
        };
        let (table_rows, device_rows) = match &kind {
            Kind::Fragment(..) => (false, true),
            Kind::Scan(_) => (true, false),
            Kind::Constant => (false, false),
            _ => (
                children.iter().any(|c| c.table_rows),
                children.iter().any(|c| c.device_rows),
            ),
        };
        Self {
            plan: Arc::clone(plan),
            kind,
            children,
            table_rows,
            device_rows,
        }
    }

    /// Rows from elsewhere, which a fragment takes as they come.
    fn arrival(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan: Arc::clone(plan),
            kind: Kind::Scan(Reason::ranked(Rank::Chosen, "its rows come from elsewhere")),
            children: vec![],
            table_rows: true,
            device_rows: false,
        }
    }

    /// The reason why the operator is not on the device. For a scan, its consumers decide whether the device pays.
    pub(super) fn reason(&self) -> Option<&Reason> {
        match &self.kind {
            Kind::Tail(reason) | Kind::Heavy(reason) => reason.as_ref(),
            Kind::Scan(reason) => Some(reason).filter(|r| r.rank() == Rank::Incapable),
            Kind::Fragment(..) | Kind::Plumbing | Kind::Constant | Kind::Output(_) => None,
        }
    }

    /// True when any part of the plan runs on the device.
    pub(super) fn has_fragments(&self) -> bool {
        matches!(self.kind, Kind::Fragment(..)) || self.children.iter().any(Self::has_fragments)
    }

    /// True when a fragment yields what the query does.
    pub(super) fn is_on_device(&self) -> bool {
        match (&self.kind, self.children.as_slice()) {
            (Kind::Fragment(..), _) => true,
            (Kind::Plumbing, [input]) => input.is_on_device(),
            _ => false,
        }
    }

    /// The same, but for what is computed as rows leave.
    pub(super) fn is_device_output(&self) -> bool {
        match (&self.kind, self.children.as_slice()) {
            (Kind::Fragment(..), _) => true,
            (Kind::Plumbing | Kind::Output(_), [input]) => input.is_device_output(),
            _ => false,
        }
    }

    /// True when a fragment reads columns that are computed for it.
    pub(super) fn computes(&self) -> bool {
        matches!(&self.kind, Kind::Fragment(fragment, _) if fragment.computes())
            || self.children.iter().any(Self::computes)
    }

    /// How many operators stay on the CPU: for reasons of their own, and whatever the reason.
    pub(super) fn on_the_cpu(&self) -> (usize, usize) {
        let refused = self.reason().is_some_and(|r| r.rank() == Rank::Incapable);
        let works = matches!(self.kind, Kind::Tail(_) | Kind::Heavy(_) | Kind::Scan(_));
        let own = (usize::from(refused), usize::from(works));
        let below = self.children.iter().map(Self::on_the_cpu);
        below.fold(own, |(refused, all), below| {
            (refused + below.0, all + below.1)
        })
    }

    /// True when any part of the plan reads a table.
    pub(super) fn reads_tables(&self) -> bool {
        self.table_rows || self.device_rows || self.children.iter().any(Self::reads_tables)
    }
}

/// Is the projection, which stays on the CPU, above nothing but a fragment and exchanges?
fn is_at_output(plan: &Arc<dyn ExecutionPlan>, children: &[Classification]) -> bool {
    plan.is::<ProjectionExec>() && matches!(children, [input] if input.is_device_output())
}

/// What `plan` is, and over which inputs a fragment was too dear for it; it is not priced again where `dear` tells them.
fn kind_of(
    plan: &Arc<dyn ExecutionPlan>,
    at: &Surroundings<'_>,
    dear: Option<&Inputs>,
) -> (Kind, Option<Inputs>) {
    if is_constant(plan.as_ref()) {
        return (Kind::Constant, None);
    }
    if plan.is::<PlacementReportExec>() {
        return (Kind::Plumbing, None);
    }
    let reason = match placed(plan, at) {
        Ok((fragment, inputs)) => return (Kind::Fragment(Arc::new(fragment), inputs), None),
        Err(reason) => reason,
    };
    let dear = match (&reason, dear) {
        (Some(_), _) => None,
        (None, Some(dear)) => Some(dear.clone()),
        (None, None) => match reentered(plan, at) {
            Attempt::Reentered(fragment, inputs) => {
                return (Kind::Fragment(fragment, inputs), None);
            }
            Attempt::Dear(inputs) => Some(inputs),
            Attempt::Impossible => None,
        },
    };
    (on_the_cpu(plan, reason), dear)
}

/// What an operator is that stays on the CPU, for its own reason if there is one.
fn on_the_cpu(plan: &Arc<dyn ExecutionPlan>, reason: Option<Reason>) -> Kind {
    if plan.children().is_empty() {
        let unnamed = || Reason::new("the device does not read it");
        return Kind::Scan(reason.unwrap_or_else(unnamed));
    }
    // An operator below is in the way, which does not mean that this one is not.
    let reason = || reason.or_else(|| own_reason(plan));
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let renames = projection.expr().iter().all(|p| p.expr.is::<Column>());
        return match renames {
            true => Kind::Plumbing,
            false => Kind::Tail(reason()),
        };
    }
    let gathers = plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>();
    if gathers && plan.fetch().is_none() {
        return Kind::Plumbing;
    }
    let tail = gathers
        || plan.is::<SortExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<FilterExec>();
    if tail {
        return Kind::Tail(reason());
    }
    let plumbing = exchange(plan).is_some()
        || plan.is::<UnionExec>()
        || plan.is::<InterleaveExec>()
        || [
            "ScalarSubqueryExec",
            "DataSinkExec",
            "OutputRequirementExec",
            "AnalyzeExec",
        ]
        .contains(&plan.name());
    match plumbing {
        true => Kind::Plumbing,
        false => Kind::Heavy(reason()),
    }
}

/// The fragment that computes `plan` over tables and over what arrives from elsewhere; otherwise the operator's own reason to
/// stay on the CPU, or none when an operator below it is the cause.
fn placed(
    plan: &Arc<dyn ExecutionPlan>,
    at: &Surroundings<'_>,
) -> Result<(FragmentPlanner, Inputs), Option<Reason>> {
    let chosen = |text: String| Some(Reason::ranked(Rank::Chosen, text));
    let mut inputs = arrivals(plan);
    if inputs.len() > MOST_INPUTS {
        inputs = Inputs::default();
    }
    let fragment = FragmentPlanner::over_inputs(plan, &inputs, at.config)
        .map_err(|refusal| Arc::ptr_eq(&refusal.at, plan).then_some(refusal.reason))?
        .on(Arc::clone(&at.machine));
    if fragment.real_tables() == 0 && !inputs.plans().any(reads_tables) {
        return Err(chosen("no table is read".into()));
    }
    if !at.config.require_gpu
        && let Some(prices) = fragment.prices(at.tables, at.cores)
        && !prices.pays()
    {
        return Err(chosen(format!(
            "moving the rows costs more than computing them: {prices}"
        )));
    }
    if !inputs.is_empty() {
        let priced = at.config.reentry == Reentry::Auto && !at.config.require_gpu;
        // How many rows arrive is often known only when they are there: then prices are asked.
        if !inputs.are_estimated() {
            return Ok(match priced {
                true => (fragment.priced_for(at.cores), inputs),
                false => (fragment, inputs),
            });
        }
        if priced && !pays(&fragment, &inputs, at) {
            return Err(chosen(
                "taking the rows that arrive to the device costs more than to go on without it"
                    .into(),
            ));
        }
    }
    match fragment.scanned_rows() {
        Some(rows) if rows < at.config.effective_min_rows() => Err(chosen(format!(
            "the {} {rows} rows are fewer than warpline.min_rows = {}",
            if fragment.tables() == 1 {
                "table's"
            } else {
                "tables'"
            },
            at.config.min_rows
        ))),
        _ => Ok((fragment, inputs)),
    }
}
