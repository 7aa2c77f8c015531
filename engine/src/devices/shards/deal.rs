//! A plan a device: each with its share of the table that is dealt out, placed where it runs.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use warpline_gpu::exec::TimeLimit;
use warpline_planner::config::Reentry;
use warpline_planner::{FragmentPlanner, ShardPlan, Shards, WarplineConfig};

use super::cuts::{Cut, best_of_parts, cuts, table_column};
use super::exec::{ShardsExec, ShardsLeaf};
use super::learned::{Expected, FEW, Learned};
use super::price::Means;
use crate::device::Member;
use crate::devices::handed::own;
use crate::devices::pieces::{Pieces, overlapping};
use crate::devices::price::HELD;
use crate::devices::table::{Shareable, partitions, parts, scan_of};
use crate::fragments::fragments;

/// Deals plans out to the devices of a session.
#[derive(Debug, Default)]
pub(crate) struct Deal {
    learned: Learned,
}

/// How a session shares queries out.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    devices: usize,
    /// Whatever it costs.
    forced: bool,
}

impl Deal {
    /// The plan with parts that devices run side by side; `None` where one device, or stages, do better.
    ///
    /// # Errors
    /// What placing the parts reports.
    pub(crate) fn dealt(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        members: &[Member],
        options: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let config = WarplineConfig::of(options);
        let Some(first) = members.first() else {
            return Ok(None);
        };
        // Its result is read by expressions that the parts would be separated from.
        if config.shard_plan == ShardPlan::Stages || has(plan, "ScalarSubqueryExec") {
            return Ok(None);
        }
        let wanted = match config.shards {
            Shards::Force(devices) => Wanted {
                devices: devices.min(members.len()),
                forced: true,
            },
            Shards::Auto => Wanted {
                devices: members.len(),
                forced: false,
            },
        };
        if wanted.devices < 2 {
            return Ok(None);
        }
        let taken = self.taken(plan, first, &config, wanted);
        let options = without_limit(options);
        let mut dealt = Arc::clone(plan);
        let mut nodes = Vec::new();
        let mut many = false;
        for (cut, expected) in taken {
            let few = expected.few;
            let members = &members[..wanted.devices];
            let Some(shards) = shards(&cut, members, &options, expected)? else {
                continue;
            };
            let leaf: Arc<dyn ExecutionPlan> = Arc::new(ShardsLeaf::of(&shards, nodes.len()));
            nodes.push(shards);
            dealt = replaced(&dealt, &cut.path, &mut |_| Ok(Arc::clone(&leaf)))?;
            many |= !few;
            if few {
                dealt = in_one_partition(&dealt, &cut.path)?;
            }
            if cut.path.is_empty() && partitions(&cut.part) == 1 {
                dealt = Arc::new(CoalescePartitionsExec::new(dealt));
            }
        }
        if nodes.is_empty() {
            return Ok(None);
        }
        if many {
            // The first device goes on with the rows of all.
            dealt = first.placement.optimize(dealt, &on_device(&options))?;
        } else if reads_tables(&dealt) {
            if config.require_gpu {
                // One device runs all of it.
                return Ok(None);
            }
            // What is beside the shares runs where it would without them.
            dealt = first.placement.optimize(dealt, &options)?;
        }
        let dealt = dealt.transform_up(|node| {
            let leaf = node.downcast_ref::<ShardsLeaf>();
            let shards = leaf.and_then(|leaf| nodes.get(leaf.number()));
            Ok(match shards {
                Some(shards) => Transformed::yes(Arc::clone(shards)),
                None => Transformed::no(node),
            })
        })?;
        Ok(Some(dealt.data))
    }

    /// The cuts that are made, with what is expected of each.
    fn taken(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        first: &Member,
        config: &WarplineConfig,
        wanted: Wanted,
    ) -> Vec<(Cut, Expected)> {
        let text = displayable(plan.as_ref()).indent(false).to_string();
        let machine = first.runtime.machine();
        let means = Means {
            devices: wanted.devices,
            read: machine.read,
            link: machine.link,
            room: first.runtime.pool().statistics().budget as f64 * HELD,
        };
        let found = best_of_parts(cuts(plan, means)).into_iter();
        let mut found: Vec<(Cut, Expected)> = found
            .map(|mut cut| {
                let part = format!("{:?} of {text}", cut.path);
                if let Some(rows) = self.learned.rows(&part) {
                    cut.met(rows as f64);
                }
                let expected = Expected {
                    few: cut.rows <= FEW as f64 || !cut.merged,
                    most: match wanted.forced || !cut.merged {
                        true => u64::MAX,
                        false => cut.worth.most_rows(),
                    },
                    part,
                    learned: self.learned.clone(),
                };
                (cut, expected)
            })
            .collect();
        if !wanted.forced {
            found.retain(|(cut, _)| cut.worth.gain() > 0.0);
        }
        // Whatever it costs: as much as can be shared, from the root down.
        let worth = |cut: &Cut| match wanted.forced {
            true => cut.worth.saved(),
            false => cut.worth.gain(),
        };
        found.sort_by(|a, b| worth(&b.0).total_cmp(&worth(&a.0)));
        let mut taken: Vec<(Cut, Expected)> = Vec::new();
        for (cut, expected) in found {
            let apart = |(other, _): &(Cut, Expected)| {
                !cut.path.starts_with(&other.path) && !other.path.starts_with(&cut.path)
            };
            if taken.iter().all(apart) && FragmentPlanner::try_new(&cut.part, config).is_ok() {
                taken.push((cut, expected));
            }
        }
        taken
    }
}

/// Does it read a table beside the shares?
fn reads_tables(plan: &Arc<dyn ExecutionPlan>) -> bool {
    Shareable::in_any_order(plan).is_some() || plan.children().into_iter().any(reads_tables)
}

fn has(plan: &Arc<dyn ExecutionPlan>, name: &str) -> bool {
    plan.name() == name || plan.children().into_iter().any(|child| has(child, name))
}

/// The time limit is that of the whole query.
fn without_limit(options: &ConfigOptions) -> ConfigOptions {
    let mut options = options.clone();
    if let Some(settings) = options.extensions.get_mut::<WarplineConfig>() {
        settings.time_limit = TimeLimit::default();
    }
    options
}

/// What is above the parts runs on a device, whatever the rest of the session's settings say: it goes on with what devices yield.
fn on_device(options: &ConfigOptions) -> ConfigOptions {
    let mut options = options.clone();
    if let Some(settings) = options.extensions.get_mut::<WarplineConfig>() {
        settings.reentry = Reentry::On;
        settings.require_gpu = false;
    }
    options
}

/// The node for a part of a plan, with a plan for each device; `None` where the devices would leave it to the CPU.
fn shards(
    cut: &Cut,
    members: &[Member],
    options: &ConfigOptions,
    expected: Expected,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let leaf = node_at(&cut.part, &cut.leaf)?;
    let shares = parts(leaf, members.len())?;
    let key = match Shareable::in_any_order(leaf) {
        Some(Shareable::Files(_, files)) => Pieces::of(files, members.len()).key,
        _ => None,
    };
    let mut plans = Vec::with_capacity(members.len());
    for (number, (member, share)) in members.iter().zip(shares).enumerate() {
        if !in_same_order(leaf, &share) {
            return Ok(None);
        }
        let mut plan = replaced(&cut.part, &cut.leaf, &mut |_| Ok(Arc::clone(&share)))?;
        for beside in &cut.beside {
            let range = key.as_ref().and_then(|key| key.ranges.get(number).copied());
            if let Some(range) = range {
                plan = replaced(&plan, &beside.path, &mut |leaf| {
                    Ok(in_range(leaf, beside.column, range))
                })?;
            }
        }
        let plan = gathered(own(plan)?, cut);
        plans.push(member.placement.optimize(plan, options)?);
    }
    if plans.iter().all(|plan| fragments(plan).is_empty()) {
        return Ok(None);
    }
    let devices = members.iter().map(|member| member.id().to_string());
    let dealt = told(cut, leaf, members.len())?;
    let node = ShardsExec::try_new(plans, devices.collect(), dealt, expected)?;
    Ok(Some(Arc::new(node)))
}

/// The plan in one partition, as a device yields it, with the rows alone that are wanted of it.
fn gathered(plan: Arc<dyn ExecutionPlan>, cut: &Cut) -> Arc<dyn ExecutionPlan> {
    if partitions(&plan) == 1 && cut.fetch.is_none() {
        return plan;
    }
    let order = plan.output_ordering().filter(|_| cut.in_order).cloned();
    match order {
        Some(order) => Arc::new(SortPreservingMergeExec::new(order, plan).with_fetch(cut.fetch)),
        None => Arc::new(CoalescePartitionsExec::new(plan).with_fetch(cut.fetch)),
    }
}

/// What is dealt out, in words.
fn told(cut: &Cut, leaf: &Arc<dyn ExecutionPlan>, count: usize) -> Result<String> {
    let columns = |leaf: &Arc<dyn ExecutionPlan>| {
        let schema = leaf.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        format!("[{}]", names.join(", "))
    };
    let mut text = format!("{} in {count} shards", columns(leaf));
    for beside in &cut.beside {
        let leaf = node_at(&cut.part, &beside.path)?;
        text.push_str(", beside it ");
        text.push_str(&columns(leaf));
    }
    Ok(text)
}

/// The scan of the files that may have rows of the range; as it is where nothing is known of them.
fn in_range(
    leaf: &Arc<dyn ExecutionPlan>,
    column: usize,
    range: Option<(i128, i128)>,
) -> Arc<dyn ExecutionPlan> {
    let Some(Shareable::Files(scan, files)) = Shareable::in_any_order(leaf) else {
        return Arc::clone(leaf);
    };
    let share = table_column(scan, column).map(|column| {
        let files = overlapping(&files, column, range);
        scan_of(scan, files, partitions(leaf))
    });
    match share {
        Some(share) if in_same_order(leaf, &share) => share,
        _ => Arc::clone(leaf),
    }
}

/// Whether operators above may rely on the order of a share as on that of the table.
fn in_same_order(leaf: &Arc<dyn ExecutionPlan>, share: &Arc<dyn ExecutionPlan>) -> bool {
    leaf.output_ordering().is_none() || share.output_ordering() == leaf.output_ordering()
}

/// The exchange above a node whose partitions one thread may merge becomes one that brings them together, as far as nothing above
/// counts on several.
fn in_one_partition(
    plan: &Arc<dyn ExecutionPlan>,
    path: &[usize],
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some((_, above)) = path.split_last() else {
        return Ok(Arc::clone(plan));
    };
    let mut single = true;
    for depth in 0..path.len() {
        single &= node_at(plan, &path[..depth])?.children().len() == 1;
    }
    match single && node_at(plan, above)?.is::<RepartitionExec>() {
        false => Ok(Arc::clone(plan)),
        true => replaced(plan, above, &mut |exchange| {
            let inputs = exchange.children();
            let input = inputs.first().ok_or_else(missing)?;
            Ok(Arc::new(CoalescePartitionsExec::new(Arc::clone(*input))))
        }),
    }
}

fn node_at<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    path: &[usize],
) -> Result<&'a Arc<dyn ExecutionPlan>> {
    let mut node = plan;
    for number in path {
        node = node.children().get(*number).copied().ok_or_else(missing)?;
    }
    Ok(node)
}

fn missing() -> DataFusionError {
    DataFusionError::Internal("a plan has fewer nodes than when it was cut".to_string())
}

/// A node in place of another.
type Replacement<'a> = &'a mut dyn FnMut(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;

/// The plan with another node at the end of the path.
fn replaced(
    plan: &Arc<dyn ExecutionPlan>,
    path: &[usize],
    replacement: Replacement<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some((number, below)) = path.split_first() else {
        return replacement(plan);
    };
    let mut children: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let child = children.get_mut(*number).ok_or_else(missing)?;
    *child = replaced(child, below, replacement)?;
    replace_children_if_necessary(Arc::clone(plan), children)
}
