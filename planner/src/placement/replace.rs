//! Construction of the placed plan: fragment nodes are inserted, and partitioning and order that operators above rely
//! on are restored.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateOutputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use warpline_gpu::exec::{FragmentOptions, GpuFragmentExec, SecondPlan, in_partitions_of};
use warpline_gpu::runtime::Runtime;

use super::classify::{Classification, Kind};
use super::source_partitions::is_partitioned_by_source;
use crate::config::WarplineConfig;
use crate::rel::convert::exchange;

/// Most rows that operators above a fragment may receive without counting as a fallback.
pub const MAX_TAIL_ROWS: usize = 8192;

/// Makes the plan of a fragment in smaller parts, should the fragment as it is turn out to be no work for a device.
pub(super) type Second<'a> = &'a dyn Fn(&Arc<dyn ExecutionPlan>) -> Result<Option<SecondPlan>>;

/// The plan of `classification` with a node for each fragment.
pub(super) fn replace(
    classification: Classification,
    runtime: &Arc<Runtime>,
    config: &WarplineConfig,
    second: Second<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Replacement {
        runtime,
        second,
        options: options_of(config)?,
    }
    .node(classification, &mut Vec::new(), Partitions::Declared)
}

/// The options of fragments planned with `config`.
///
/// # Errors
/// When the directory for spilled rows cannot be used.
pub(super) fn options_of(config: &WarplineConfig) -> Result<FragmentOptions> {
    Ok(FragmentOptions {
        require_gpu: config.require_gpu,
        profile: config.metrics,
        overlap_load: config.overlap_load,
        cold: config.cold,
        parquet: config.parquet,
        blocks: config.blocks as u64,
        concurrency: config.concurrency,
        share: config.share_queries,
        settings: config.of_query().into(),
        spill: config.spill()?,
        ..FragmentOptions::default()
    })
}

/// What an operator's consumers make of the number of its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partitions {
    /// An exchange above takes any number.
    Any,
    /// One satisfies DataFusion's operators; whoever reads a plan that was cut asks for those that it declares.
    Declared,
    /// An operator above combines them with those of others.
    Counted,
}

struct Replacement<'a> {
    runtime: &'a Arc<Runtime>,
    /// The plan of a fragment in smaller parts.
    second: Second<'a>,
    /// Options of a fragment without operators above it.
    options: FragmentOptions,
}

impl Replacement<'_> {
    /// `tail`: the operators between here and the root, or up to the next fallback.
    fn node(
        &self,
        node: Classification,
        tail: &mut Vec<String>,
        partitions: Partitions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Classification {
            plan,
            kind,
            children,
            ..
        } = node;
        if let Kind::Fragment(fragment, inputs) = kind {
            // Inputs are read once.
            let second = match fragment.combines() && inputs.plans().next().is_none() {
                true => (self.second)(&plan)?,
                false => None,
            };
            let options = FragmentOptions {
                max_tail_rows: (!tail.is_empty()).then_some(MAX_TAIL_ROWS),
                tail: (!tail.is_empty()).then(|| tail.join(", ")),
                second,
                ..self.options.clone()
            };
            let runtime = Arc::clone(self.runtime);
            let targets: Vec<_> = inputs.plans().map(Arc::clone).collect();
            let leaves: Vec<_> = targets
                .iter()
                .filter_map(|input| inputs.leaf(input))
                .collect();
            let original = match targets.is_empty() {
                true => Arc::clone(&plan),
                false => graft(Arc::clone(&plan), &targets, &leaves)?,
            };
            let exec = GpuFragmentExec::try_new(fragment, original, runtime, options)?;
            // What the inputs leave of rows on a device is told by themselves, and so are their operators.
            let inputs = children.into_iter();
            let inputs = inputs.map(|input| self.node(input, &mut Vec::new(), Partitions::Any));
            let exec = exec.over(inputs.collect::<Result<_>>()?);
            return restore(Arc::new(exec), &plan, partitions);
        }
        // Children of a refused two-phase aggregation hang below its partial phase, and both phases
        // must stay as they are unless something below was replaced.
        if fragment_free(&children) {
            return Ok(plan);
        }
        let mut outer;
        let tail = match kind {
            // Above a fallback no one counts rows: the query has a fallback already.
            Kind::Heavy(_) => {
                outer = Vec::new();
                &mut outer
            }
            _ => tail,
        };
        let depth = tail.len();
        if let Kind::Tail(reason) = kind {
            let name = plan.name();
            tail.push(match reason {
                Some(reason) => format!("{name} ({reason})"),
                None => name.to_string(),
            });
        }
        let below = partitions_below(&plan, partitions);
        let targets: Vec<_> = children.iter().map(|c| Arc::clone(&c.plan)).collect();
        let mut replaced = Vec::with_capacity(children.len());
        for child in children {
            replaced.push(self.node(child, tail, below)?);
        }
        tail.truncate(depth);
        if has_siblings(&plan) {
            replaced = together(&targets, replaced)?;
        }
        let placed = graft(Arc::clone(&plan), &targets, &replaced)?;
        // Fragments below have one.
        let changed = placed.output_partitioning().partition_count()
            != plan.output_partitioning().partition_count();
        match changed && partitions == Partitions::Declared {
            true => restore(placed, &plan, partitions),
            false => Ok(placed),
        }
    }
}

fn fragment_free(children: &[Classification]) -> bool {
    children
        .iter()
        .all(|c| !matches!(c.kind, Kind::Fragment(..)) && fragment_free(&c.children))
}

/// `plan` with each descendant in `targets` replaced. Targets are children or, for two-phase aggregations, the input
/// of the partial phase.
fn graft(
    plan: Arc<dyn ExecutionPlan>,
    targets: &[Arc<dyn ExecutionPlan>],
    replaced: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut children = Vec::new();
    for (i, child) in plan.children().into_iter().enumerate() {
        // Position first: the same subplan may be a child twice.
        let at = match targets.get(i) {
            Some(target) if Arc::ptr_eq(target, child) => Some(i),
            _ => targets.iter().position(|target| Arc::ptr_eq(target, child)),
        };
        children.push(match at {
            Some(at) => Arc::clone(&replaced[at]),
            None => graft(Arc::clone(child), targets, replaced)?,
        });
    }
    replace_children_if_necessary(plan, children)
}

/// What is made of the number of partitions of the children of `plan`.
fn partitions_below(plan: &Arc<dyn ExecutionPlan>, above: Partitions) -> Partitions {
    let gathers = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>();
    if gathers {
        return Partitions::Any;
    }
    // One partition satisfies every requirement of a single child; siblings must agree.
    if has_siblings(plan) {
        return Partitions::Counted;
    }
    let passes_on = exchange(plan).is_some() || plan.is::<ProjectionExec>();
    match above {
        Partitions::Any if !passes_on => Partitions::Declared,
        above => above,
    }
}

/// Does `plan` end where a plan is cut: at an exchange, or with the states of groups that something else merges? It reads as many
/// partitions as are declared.
fn ends_at_cut(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate.mode().output_mode() == AggregateOutputMode::Partial;
    }
    match plan.children().as_slice() {
        [input] if plan.is::<ProjectionExec>() => ends_at_cut(input),
        _ => plan.is::<RepartitionExec>(),
    }
}

/// Does `plan` combine partitions of the same number of several children?
fn has_siblings(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.children().len() > 1 && !plan.is::<UnionExec>()
}

/// Repartition siblings that must agree on the partition of each key. Fragments in them are partitioned by hash, so
/// the others must be too.
fn together(
    before: &[Arc<dyn ExecutionPlan>],
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let mut pairs = before.iter().zip(&children);
    if pairs.all(|(before, child)| Arc::ptr_eq(before, child)) {
        return Ok(children);
    }
    let hashed = |child: Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        if !is_partitioned_by_source(&child) {
            return Ok(child);
        }
        let partitioning = child.output_partitioning().clone();
        let exchange = RepartitionExec::try_new(child, partitioning)?;
        Ok(Arc::new(exchange.with_preserve_order()))
    };
    children.into_iter().map(hashed).collect()
}

/// Restore the partitioning of the replaced operator, since a fragment has one partition; the order is kept.
fn restore(
    fragment: Arc<dyn ExecutionPlan>,
    original: &Arc<dyn ExecutionPlan>,
    partitions: Partitions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let needed = match partitions {
        Partitions::Any => false,
        Partitions::Declared => ends_at_cut(original),
        Partitions::Counted => true,
    };
    match needed {
        true => in_partitions_of(fragment, original.output_partitioning()),
        false => Ok(fragment),
    }
}
