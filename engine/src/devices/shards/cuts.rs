//! The parts of a plan that devices can run over shares of a table, with what that gains.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::chain::{Beside, LeafKey, Path, chain};
use super::price::{Worth, yielded};
use crate::devices::pieces::Pieces;
use crate::devices::price::bytes_of;
use crate::devices::table::Shareable;

/// A part of a plan, and the leaf below it that is dealt out.
#[derive(Debug)]
pub(super) struct Cut {
    /// From the root of the plan to the part.
    pub(super) path: Path,
    pub(super) part: Arc<dyn ExecutionPlan>,
    /// From the root of the part to the leaf.
    pub(super) leaf: Path,
    /// Leaves of which each device reads the files in the range of its piece.
    pub(super) beside: Vec<Beside>,
    pub(super) worth: Worth,
    /// The rows of all devices, as they are expected.
    pub(super) rows: f64,
    /// Operators above go over the rows again.
    pub(super) merged: bool,
    /// What reads the part merges its partitions in their order.
    pub(super) in_order: bool,
}

/// A leaf of a plan that can be dealt out.
struct Leaf {
    path: Path,
    bytes: f64,
    key: Option<LeafKey>,
}

/// All ways to cut the plan for so many devices that each read `read` bytes a second.
pub(super) fn cuts(plan: &Arc<dyn ExecutionPlan>, devices: usize, read: f64) -> Vec<Cut> {
    let mut search = Search {
        devices,
        read,
        leaves: Vec::new(),
        cuts: Vec::new(),
    };
    search.find_leaves(plan, &mut Vec::new());
    search.visit(plan, &mut Vec::new(), Above::Nothing, true);
    search.cuts
}

/// What reads a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Above {
    /// It is the root.
    Nothing,
    /// It takes any number of partitions.
    Gathers,
    /// It merges partitions, each in its order.
    Merges,
    /// It counts on the partitions as they are.
    Counts,
}

struct Search {
    devices: usize,
    read: f64,
    leaves: Vec<Leaf>,
    cuts: Vec<Cut>,
}

impl Search {
    fn find_leaves(&mut self, plan: &Arc<dyn ExecutionPlan>, at: &mut Path) {
        for (number, child) in plan.children().into_iter().enumerate() {
            at.push(number);
            self.find_leaves(child, at);
            at.pop();
        }
        if let Some(table) = Shareable::of(plan).filter(|table| table.parts() > 1) {
            let key = match &table {
                Shareable::Files(scan, files) => {
                    let pieces = Pieces::of(files.clone(), self.devices);
                    pieces.key.and_then(|key| {
                        Some(LeafKey {
                            column: leaf_column(scan, key.column)?,
                            complete: key.complete,
                        })
                    })
                }
                Shareable::Batches(_) => None,
            };
            self.leaves.push(Leaf {
                path: at.clone(),
                bytes: bytes_of(plan, &table) as f64,
                key,
            });
        }
    }

    /// `plain`: nothing above goes over the rows again.
    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>, at: &mut Path, above: Above, plain: bool) {
        if above != Above::Counts {
            self.cut_at(plan, at, above == Above::Merges, plain);
        }
        let plain = plain
            && (plan.is::<ProjectionExec>()
                || plan.is::<CoalescePartitionsExec>()
                || plan.is::<AnalyzeExec>());
        for (number, child) in plan.children().into_iter().enumerate() {
            at.push(number);
            self.visit(child, at, above_of(plan, child), plain);
            at.pop();
        }
    }

    fn cut_at(
        &mut self,
        part: &Arc<dyn ExecutionPlan>,
        path: &[usize],
        in_order: bool,
        plain: bool,
    ) {
        let mut found = Vec::new();
        for leaf in &self.leaves {
            let Some(below) = leaf.path.strip_prefix(path) else {
                continue;
            };
            let Some(mut beside) = chain(part, below, leaf.key, in_order) else {
                continue;
            };
            // Of tables that are not of files nothing tells the ranges.
            let of_path = |wanted: &[usize]| {
                let mut leaves = self.leaves.iter();
                leaves.find(|other| other.path.strip_prefix(path) == Some(wanted))
            };
            beside.retain(|beside| of_path(&beside.path).is_some());
            let shared = beside.iter().filter_map(|beside| of_path(&beside.path));
            let dealt = leaf.bytes + shared.map(|other| other.bytes).sum::<f64>();
            let rows = yielded(part, self.devices);
            let counted = if plain { 0.0 } else { rows };
            found.push(Cut {
                path: path.to_vec(),
                part: Arc::clone(part),
                leaf: below.to_vec(),
                beside,
                worth: Worth::of(dealt, self.devices, self.read, counted),
                rows,
                merged: !plain,
                in_order,
            });
        }
        self.cuts.extend(found);
    }
}

fn above_of(plan: &Arc<dyn ExecutionPlan>, child: &Arc<dyn ExecutionPlan>) -> Above {
    if plan.is::<SortPreservingMergeExec>() {
        return Above::Merges;
    }
    let in_order =
        plan.maintains_input_order().contains(&true) && child.output_ordering().is_some();
    let gathers = plan.is::<CoalescePartitionsExec>() || plan.is::<RepartitionExec>();
    match gathers && !in_order {
        true => Above::Gathers,
        false => Above::Counts,
    }
}

/// Where a scan yields a column of its table.
fn leaf_column(scan: &FileScanConfig, column: usize) -> Option<usize> {
    let Some(projection) = scan.file_source.projection() else {
        return Some(column);
    };
    projection.iter().position(|projected| {
        let found = projected.expr.downcast_ref::<Column>();
        found.is_some_and(|found| found.index() == column)
    })
}

/// The column of its table that a scan yields at a place.
pub(super) fn table_column(scan: &FileScanConfig, column: usize) -> Option<usize> {
    let Some(projection) = scan.file_source.projection() else {
        return Some(column);
    };
    let projected = projection.iter().nth(column)?;
    Some(projected.expr.downcast_ref::<Column>()?.index())
}
