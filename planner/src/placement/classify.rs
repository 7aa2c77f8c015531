//! What each operator of a plan is to the placement: fragment, tail, fallback or mere plumbing.

use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use warpline_gpu::machine::Machine;

use super::MAX_TAIL_ROWS;
use super::report::{CpuOperator, PlacementReportExec};
use crate::config::WarplineConfig;
use crate::policy::FragmentPlanner;
use crate::reason::Reason;
use crate::rel::convert::{exchange, is_constant, is_substantial, raw_aggregate};

/// The reason of an operator whose only obstacle is below it.
const INPUT_FROM_CPU: &str = "an input of it comes from the CPU";

/// What an operator is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Runs on the device with all below it.
    Fragment(Arc<FragmentPlanner>),
    /// Moves, renames or concatenates rows.
    Plumbing,
    /// Computes row by row or orders: harmless over a few rows that have left the device. What it
    /// does, and why the device does not.
    Tail(&'static str, Option<String>),
    /// Does real work; the text says why it is done on the CPU.
    Heavy(String),
    /// Reads a table; the text says why the device cannot, if it cannot.
    Scan(Option<String>),
    /// Yields constants or facts about the session.
    Constant,
}

/// An operator, what it is and what its rows are made of.
#[derive(Debug)]
pub(super) struct Classification {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) kind: Kind,
    pub(super) children: Vec<Classification>,
    /// Rows of a table come out without having been on the device.
    pub(super) table_rows: bool,
    /// Rows of a fragment come out.
    pub(super) device_rows: bool,
}

impl Classification {
    /// Classify `plan` from the root down; nothing below a fragment is looked at.
    pub(super) fn of(
        plan: &Arc<dyn ExecutionPlan>,
        config: &WarplineConfig,
        machine: &Arc<Machine>,
    ) -> Self {
        let mut kind = kind_of(plan, config, machine);
        let below = match (&kind, plan.downcast_ref::<AggregateExec>()) {
            (Kind::Fragment(_), _) => vec![],
            // Both phases of a refused aggregation share one reason.
            (_, Some(root)) if is_final(root) => match raw_aggregate(root) {
                Ok(raw) => vec![raw.input()],
                Err(_) => plan.children(),
            },
            _ => plan.children(),
        };
        let children: Vec<_> = below
            .into_iter()
            .map(|child| Self::of(child, config, machine))
            .collect();
        if let Kind::Heavy(reason) = &mut kind
            && reason == INPUT_FROM_CPU
            && let Some(obstacle) = children.iter().find_map(Self::obstacle)
        {
            *reason += &format!(" ({obstacle})");
        }
        if let Kind::Tail(_, reason @ None) = &mut kind {
            let unreadable = children.iter().find_map(Self::unreadable);
            *reason = unreadable.map(str::to_owned);
        }
        let (table_rows, device_rows) = match &kind {
            Kind::Fragment(_) => (false, true),
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

    /// Why the first operator here or below that has a reason of its own stays on the CPU.
    fn obstacle(&self) -> Option<&str> {
        match &self.kind {
            Kind::Heavy(reason) if !reason.starts_with(INPUT_FROM_CPU) => Some(reason),
            Kind::Tail(_, Some(reason)) | Kind::Scan(Some(reason)) => Some(reason),
            Kind::Fragment(_) => None,
            _ => self.children.iter().find_map(Self::obstacle),
        }
    }

    /// Why the device cannot read a table here or below, where no operator between says why it stays on the CPU.
    fn unreadable(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scan(reason) => reason.as_deref(),
            Kind::Fragment(_) | Kind::Heavy(_) | Kind::Tail(_, Some(_)) => None,
            _ => self.children.iter().find_map(Self::unreadable),
        }
    }

    /// True when any part of the plan reads a table.
    pub(super) fn reads_tables(&self) -> bool {
        self.table_rows || self.device_rows || self.children.iter().any(Self::reads_tables)
    }

    /// Every operator that stays on the CPU, equal ones counted together.
    pub(super) fn cpu_operators(&self) -> Vec<CpuOperator> {
        let mut found = Vec::new();
        self.collect(&mut found);
        if !found.iter().any(|o| o.fallback) && self.table_rows {
            let mut reason = if self.device_rows {
                "table rows reach the result without a device operator".to_string()
            } else {
                "no device operator in the query".to_string()
            };
            if let Some(obstacle) = self.unreadable() {
                reason += &format!(" ({obstacle})");
            }
            add(&mut found, "DataSourceExec", &reason, true);
        }
        found
    }

    fn collect(&self, found: &mut Vec<CpuOperator>) {
        let name = self.plan.name();
        let from_table = self.children.iter().any(|c| c.table_rows);
        let from_device = self.children.iter().any(|c| c.device_rows);
        match &self.kind {
            Kind::Tail(what, reason) if from_table => {
                let mut text = format!("{what} over table rows run on the CPU");
                if let Some(reason) = reason {
                    text += &format!(" ({reason})");
                }
                add(found, name, &text, true);
            }
            Kind::Tail(..) if from_device => {
                add(
                    found,
                    name,
                    &format!("over at most {MAX_TAIL_ROWS} rows that already left the device"),
                    false,
                );
            }
            Kind::Heavy(reason) if from_table || from_device => add(found, name, reason, true),
            _ => {}
        }
        for child in &self.children {
            child.collect(found);
        }
    }
}

fn add(found: &mut Vec<CpuOperator>, operator: &str, reason: &str, fallback: bool) {
    match found
        .iter_mut()
        .find(|o| o.operator == operator && o.reason == reason)
    {
        Some(same) => same.count += 1,
        None => found.push(CpuOperator {
            operator: operator.to_string(),
            reason: reason.to_string(),
            count: 1,
            fallback,
        }),
    }
}

/// An aggregation whose output is final.
fn is_final(aggregate: &AggregateExec) -> bool {
    !matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::PartialReduce
    )
}

fn kind_of(plan: &Arc<dyn ExecutionPlan>, config: &WarplineConfig, machine: &Arc<Machine>) -> Kind {
    if is_constant(plan.as_ref()) {
        return Kind::Constant;
    }
    if plan.is::<PlacementReportExec>() {
        return Kind::Plumbing;
    }
    let reason = match placed(plan, config, machine) {
        Ok(fragment) => return Kind::Fragment(Arc::new(fragment)),
        Err(reason) => reason,
    };
    if plan.children().is_empty() {
        // Not whether it pays, which is asked of what is done with the rows.
        let refusal = FragmentPlanner::try_new(plan, config).err();
        return Kind::Scan(refusal.map(|refusal| refusal.reason.to_string()));
    }
    let reason = || reason.as_ref().map(ToString::to_string);
    if plan.is::<SortExec>() {
        return Kind::Tail("sorts", reason());
    }
    if plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>() {
        return Kind::Tail("limits", reason());
    }
    if plan.is::<FilterExec>() {
        return Kind::Tail("filters", reason());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let renames = projection.expr().iter().all(|p| p.expr.is::<Column>());
        return if renames {
            Kind::Plumbing
        } else {
            Kind::Tail("projections", reason())
        };
    }
    if plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>() {
        return if plan.fetch().is_some() {
            Kind::Tail("limits", reason())
        } else {
            Kind::Plumbing
        };
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
    if plumbing {
        return Kind::Plumbing;
    }
    Kind::Heavy(reason().unwrap_or_else(|| INPUT_FROM_CPU.to_string()))
}

/// The fragment that computes what `plan` computes; otherwise the operator's own reason to stay on
/// the CPU, none when an operator below it is in the way.
fn placed(
    plan: &Arc<dyn ExecutionPlan>,
    config: &WarplineConfig,
    machine: &Arc<Machine>,
) -> Result<FragmentPlanner, Option<Reason>> {
    let fragment = FragmentPlanner::try_new(plan, config)
        .map_err(|refusal| Arc::ptr_eq(&refusal.at, plan).then_some(refusal.reason))?
        .on(Arc::clone(machine));
    if fragment.tables() == 0 {
        return Err(Some(Reason::new("no table is read")));
    }
    if !config.require_gpu && !is_substantial(fragment.rel()) {
        return Err(Some(Reason::new(
            "moving the rows costs more than computing them",
        )));
    }
    match fragment.scanned_rows() {
        Some(rows) if rows < config.effective_min_rows() => Err(Some(Reason::new(format!(
            "the {} {rows} rows are fewer than warpline.min_rows = {}",
            if fragment.tables() == 1 {
                "table's"
            } else {
                "tables'"
            },
            config.min_rows
        )))),
        _ => Ok(fragment),
    }
}
