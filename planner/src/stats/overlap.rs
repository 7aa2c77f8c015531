//! Key overlap of two relations: skew, and the share of one side's keys that the other side has.

use std::sync::Arc;

use warpline_gpu::column::ColumnStatistics;
use warpline_gpu::expr::Expr;

use super::Estimator;
use super::column::base;
use crate::rel::expr::as_column;
use crate::rel::{Join, RelKind, RelRef, ScanTable};

impl Estimator<'_> {
    /// The Zipf exponent of a key: that of its most skewed column, 0 without statistics.
    pub fn skew(&self, rel: &RelRef, keys: &[Expr]) -> f64 {
        keys.iter()
            .map(|key| self.of_expr(rel, key).skew)
            .fold(0.0, f64::max)
    }

    /// The share of the distinct values of the table column behind `left` that the table column behind `right` has,
    /// whatever conditions stand before the join: by the columns' sketches, else by their ranges. 1 (one side refers to
    /// the other) where they are not plain columns of tables.
    pub fn containment(&self, left: (&RelRef, &Expr), right: (&RelRef, &Expr)) -> f64 {
        let of = |(rel, expr): (&RelRef, &Expr)| self.table_column(rel, as_column(expr)?);
        let (Some(left), Some(right)) = (of(left), of(right)) else {
            return 1.0;
        };
        let sketched = match (&left.sketch, &right.sketch) {
            (Some(ours), Some(theirs)) => ours.contained_in(theirs),
            _ => None,
        };
        let strings = |s: &ColumnStatistics| s.ascii;
        match sketched {
            Some(share) => share,
            // Codes of two dictionaries say nothing of each other.
            None if strings(left) || strings(right) => 1.0,
            None => in_range(left.range, right.range),
        }
    }

    /// The shares of the left and of the right keys that the other side's tables have. Of several key columns each
    /// bounds the share.
    ///
    /// Where a table's keys lie beyond the other's range (a calendar of two centuries, sales of five years), conditions on the
    /// table are taken to keep those in the range first: who asks for a year asks for one in which something was sold. Keys that
    /// are missing within the range are as rare among the kept rows as among all.
    pub(super) fn shared_keys(&self, join: &Join) -> (f64, f64) {
        let (left, right) = (&join.left, &join.right);
        join.on
            .iter()
            .fold((1.0, 1.0), |(of_left, of_right): (f64, f64), (l, r)| {
                (
                    of_left.min(self.shared_share((left, l), (right, r))),
                    of_right.min(self.shared_share((right, r), (left, l))),
                )
            })
    }

    /// The share of the keys `left`, as far as conditions keep them, that the table column behind `right` has.
    fn shared_share(&self, left: (&RelRef, &Expr), right: (&RelRef, &Expr)) -> f64 {
        let share = self.containment(left, right);
        let of = |(rel, expr): (&RelRef, &Expr)| self.table_column(rel, as_column(expr)?);
        let (Some(ours), Some(theirs)) = (of(left), of(right)) else {
            return share;
        };
        let in_range = in_range(ours.range, theirs.range);
        if in_range <= 0.0 || ours.ascii || theirs.ascii {
            return share;
        }
        let of_table = |(table, _): (&Arc<ScanTable>, usize)| self.facts.rows(table);
        let rows = as_column(left.1).and_then(|column| table_of(left.0, column));
        let all = base(ours, rows.map_or(1.0, of_table)).distinct;
        let kept = self.of_expr(left.0, left.1).distinct / all;
        let within = (share / in_range).min(1.0);
        within * (in_range / kept.clamp(f64::MIN_POSITIVE, 1.0)).min(1.0)
    }

    /// The statistics of the table column that column `column` of `rel` is.
    fn table_column(&self, rel: &RelRef, column: usize) -> Option<&ColumnStatistics> {
        let (table, column) = table_of(rel, column)?;
        self.facts.column(table, column)
    }
}

/// The table column that column `column` of `rel` is.
fn table_of(rel: &RelRef, column: usize) -> Option<(&Arc<ScanTable>, usize)> {
    match &rel.kind {
        RelKind::Scan { table, columns } => Some((table, *columns.get(column)?)),
        RelKind::Filter { input, .. }
        | RelKind::Sort { input, .. }
        | RelKind::Scalar { input, .. } => table_of(input, column),
        RelKind::Window { input, .. } if column < input.columns.len() => table_of(input, column),
        RelKind::Window { .. } => None,
        RelKind::Project { input, exprs } => table_of(input, as_column(exprs.get(column)?)?),
        RelKind::Join(join) => {
            let n = join.left.columns.len();
            if column < n {
                table_of(&join.left, column)
            } else {
                table_of(&join.right, column - n)
            }
        }
        RelKind::Aggregate { input, aggregate } => {
            table_of(input, as_column(aggregate.keys.get(column)?)?)
        }
        RelKind::One | RelKind::Union(_) => None,
    }
}

/// The share of one range that lies in another.
fn in_range(ours: Option<(i128, i128)>, theirs: Option<(i128, i128)>) -> f64 {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return 1.0;
    };
    let (low, high) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
    if low > high {
        return 0.0;
    }
    let span = |(low, high): (i128, i128)| (high as f64 - low as f64) + 1.0;
    (span((low, high)) / span(ours)).clamp(0.0, 1.0)
}
