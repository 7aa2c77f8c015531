//! The parts of a plan that devices can run over shares of a table, with what that gains.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::chain::{Beside, LeafKey, Path, chain};
use super::price::{Columns, Means, Worth, yielded};
use crate::devices::pieces::{Pieces, overlapping};
use crate::devices::price::{bytes_of, column_bytes};
use crate::devices::table::Shareable;

/// A part of a plan, and the leaf below it that is dealt out.
#[derive(Debug)]
pub(super) struct Cut {
    /// From the root of the plan to the part.
    pub(super) path: Path,
    pub(super) part: Arc<dyn ExecutionPlan>,
    /// From the root of the part to the leaf.
    pub(super) leaf: Path,
    /// Bytes of its columns.
    pub(super) bytes: f64,
    /// Leaves of which each device reads the files in the range of its piece.
    pub(super) beside: Vec<Beside>,
    pub(super) worth: Worth,
    /// The rows of all devices, as they are expected.
    pub(super) rows: f64,
    /// Operators above go over the rows again.
    pub(super) merged: bool,
    /// What reads the part merges its partitions in their order.
    pub(super) in_order: bool,
    /// How many of its rows are wanted.
    pub(super) fetch: Option<usize>,
}

impl Cut {
    /// So many rows met in an earlier run.
    pub(super) fn met(&mut self, rows: f64) {
        self.rows = rows;
        if self.merged {
            self.worth = self.worth.with_rows(rows);
        }
    }
}

/// A leaf of a plan that can be dealt out.
struct Leaf {
    path: Path,
    plan: Arc<dyn ExecutionPlan>,
    bytes: f64,
    key: Option<LeafKey>,
    /// Those of the key, by piece.
    ranges: Vec<Option<(i128, i128)>>,
}

/// All ways to cut the plan for these devices.
pub(super) fn cuts(plan: &Arc<dyn ExecutionPlan>, means: Means) -> Vec<Cut> {
    let mut search = Search {
        means,
        columns: columns_of(plan),
        leaves: Vec::new(),
        cuts: Vec::new(),
    };
    search.find_leaves(plan, &mut Vec::new());
    search.visit(plan, &mut Vec::new(), (Above::Nothing, None), true);
    search.cuts
}

/// The columns that a plan reads.
fn columns_of(plan: &Arc<dyn ExecutionPlan>) -> Columns {
    let mut read = 0.0;
    let mut held = HashMap::new();
    note_columns(plan, &mut |column, bytes| {
        read += bytes;
        held.insert(column, bytes);
    });
    let held = held.values().sum();
    Columns { read, held }
}

/// Notes each column of each leaf with its bytes, by its table and name.
fn note_columns(plan: &Arc<dyn ExecutionPlan>, note: &mut dyn FnMut((String, String), f64)) {
    if let Some(table) = Shareable::in_any_order(plan) {
        let name = table.identity();
        for (field, bytes) in plan
            .schema()
            .fields()
            .iter()
            .zip(column_bytes(plan, &table))
        {
            note((name.clone(), field.name().clone()), bytes as f64);
        }
    }
    for child in plan.children() {
        note_columns(child, note);
    }
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
    means: Means,
    columns: Columns,
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
        let Some(table) = Shareable::in_any_order(plan).filter(|table| table.parts() > 1) else {
            return;
        };
        let mut leaf = Leaf {
            path: at.clone(),
            plan: Arc::clone(plan),
            bytes: bytes_of(plan, &table) as f64,
            key: None,
            ranges: Vec::new(),
        };
        if let Shareable::Files(scan, files) = table
            && let Some(key) = Pieces::of(files, self.means.devices).key
            && let Some(column) = leaf_column(scan, key.column)
        {
            let complete = key.complete;
            leaf.key = Some(LeafKey { column, complete });
            leaf.ranges = key.ranges;
        }
        self.leaves.push(leaf);
    }

    /// `plain`: nothing above goes over the rows again.
    fn visit(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        at: &mut Path,
        (above, fetch): (Above, Option<usize>),
        plain: bool,
    ) {
        if above != Above::Counts {
            self.cut_at(plan, at, (above == Above::Merges, fetch), plain);
        }
        let plain = plain
            && (plan.is::<ProjectionExec>()
                || plan.is::<CoalescePartitionsExec>()
                || plan.is::<AnalyzeExec>());
        for (number, child) in plan.children().into_iter().enumerate() {
            at.push(number);
            self.visit(child, at, (above_of(plan, child), plan.fetch()), plain);
            at.pop();
        }
    }

    fn cut_at(
        &mut self,
        part: &Arc<dyn ExecutionPlan>,
        path: &[usize],
        (in_order, fetch): (bool, Option<usize>),
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
            let mut spared = leaf.bytes * (1.0 - 1.0 / self.means.devices as f64);
            beside.retain(|beside| {
                let mut leaves = self.leaves.iter();
                let other = leaves.find(|l| l.path.strip_prefix(path) == Some(&*beside.path));
                let bytes = other.map_or(0.0, |other| {
                    other.bytes * spared_in_ranges(&other.plan, beside.column, &leaf.ranges)
                });
                spared += bytes;
                bytes > 0.0
            });
            let rows = match fetch {
                Some(fetch) => (fetch * self.means.devices) as f64,
                None => yielded(part, self.means.devices),
            };
            let counted = if plain { 0.0 } else { rows };
            let cut = Cut {
                path: path.to_vec(),
                part: Arc::clone(part),
                leaf: below.to_vec(),
                bytes: leaf.bytes,
                beside,
                worth: Worth::of(&self.means, self.columns, spared, counted),
                rows,
                merged: !plain,
                in_order,
                fetch,
            };
            found.push(cut);
        }
        self.cuts.extend(found);
    }
}

/// Of each part one way: of those that save about the same the one that deals out the largest table, whose shares serve other
/// queries as well.
pub(super) fn best_of_parts(mut cuts: Vec<Cut>) -> Vec<Cut> {
    let mut best = Vec::new();
    while let Some(cut) = cuts.first() {
        let path = cut.path.clone();
        let (same, others): (Vec<_>, Vec<_>) = cuts.into_iter().partition(|cut| cut.path == path);
        let most = same.iter().map(|cut| cut.worth.saved());
        let least = 0.95 * most.fold(0.0, f64::max);
        let saving = same.into_iter().filter(|cut| cut.worth.saved() >= least);
        best.extend(saving.max_by(|a, b| a.bytes.total_cmp(&b.bytes)));
        cuts = others;
    }
    best
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

/// The part of a table's bytes that no device reads of the files outside its range.
fn spared_in_ranges(
    leaf: &Arc<dyn ExecutionPlan>,
    column: usize,
    ranges: &[Option<(i128, i128)>],
) -> f64 {
    let Some(Shareable::Files(scan, files)) = Shareable::in_any_order(leaf) else {
        // Nothing tells the ranges.
        return 0.0;
    };
    let Some(column) = table_column(scan, column) else {
        return 0.0;
    };
    let bytes = |files: &[PartitionedFile]| {
        let sizes = files.iter().map(|file| file.object_meta.size as f64);
        sizes.sum::<f64>()
    };
    let read = ranges
        .iter()
        .map(|range| bytes(&overlapping(&files, column, *range)));
    let most = read.reduce(f64::max).unwrap_or(f64::INFINITY);
    (1.0 - most / bytes(&files).max(1.0)).max(0.0)
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
