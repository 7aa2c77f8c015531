//! Joins by ranges: conditions that compare the sides become bands of an index that is sorted by one of them.
//!
//! `a.x BETWEEN b.lo AND b.hi` sorts the rows of `a` by `x`, behind their equality keys if there are some, and each row of `b`
//! finds the first and the last of them by binary search: pairs that fail the comparison are never made.

use std::cmp::Reverse;

use arrow::datatypes::DataType;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::graph::{Band, Bound, ProbeKind};

use super::side::{Side, SideOrder, sides};
use super::{Columns, Lowerer, OpenPipeline};
use crate::choose::join::band::{BandWorkload, choose};
use crate::config::RangeJoins;
use crate::reason::Reason;
use crate::rel::expr::{columns, renumber, same, substitute};
use crate::rel::{BuildSide, Join, JoinKind, RelKind, RelRef};
use crate::translate::is_value;

/// A join whose matches lie in a range of one side's order.
pub(super) struct BandedJoin {
    /// The join without the comparisons that the band makes.
    join: Join,
    build: BuildSide,
    order: SideOrder,
    band: Band,
}

/// A comparison between the sides, as an end of a band over one of them.
struct Comparison {
    /// Number of the condition.
    conjunct: usize,
    /// The side that is sorted.
    build: BuildSide,
    /// By what, over its columns.
    order: Expr,
    /// Of the other side, over its columns.
    bound: Bound,
    /// Matches lie above it.
    is_lower: bool,
}

impl Lowerer<'_> {
    /// The join as one by a band, where a condition compares the sides and that is cheaper than testing pairs.
    pub(super) fn banded_join(
        &self,
        rel: &RelRef,
        join: &Join,
        needed: &Columns,
    ) -> Option<BandedJoin> {
        if self.input.range_joins == RangeJoins::Pairs || join.null_equal {
            return None;
        }
        let candidates = comparisons(join);
        let mut bands: Vec<BandedJoin> = candidates
            .iter()
            .map(|first| band_of(first, &candidates, join))
            .filter(|banded| banded.is_possible())
            .collect();
        let rows = |banded: &BandedJoin| {
            self.input.estimator.rows(match banded.build {
                BuildSide::Left => &banded.join.left,
                BuildSide::Right => &banded.join.right,
            })
        };
        // Two ends leave fewer pairs than one; of sides that are alike the smaller one is sorted.
        bands.sort_by(|a, b| {
            let ends = |banded: &BandedJoin| Reverse(banded.band.bounds().count());
            ends(a).cmp(&ends(b)).then(rows(a).total_cmp(&rows(b)))
        });
        let mut banded = bands.into_iter().next()?;
        let (left, right) = sides(join, needed);
        if self.is_unique_side(&left, &right) || self.is_unique_side(&right, &left) {
            // Keys leave one row to test.
            return None;
        }
        let (build, probe) = match banded.build {
            BuildSide::Left => (&left, &right),
            BuildSide::Right => (&right, &left),
        };
        let estimator = self.input.estimator;
        let candidates = match join.on.is_empty() {
            true => estimator.rows(build.rel),
            false => estimator.repeats(build.rel, &build.keys),
        };
        let key_bits = build.keys.iter().map(|key| self.bits(build.rel, key));
        let workload = BandWorkload {
            build_rows: estimator.rows(build.rel),
            probe_rows: estimator.rows(probe.rel),
            candidates,
            matches: estimator.rows(rel),
            bits: key_bits.sum::<u32>() + self.bits(build.rel, &banded.order.value),
        };
        let forced = self.input.range_joins == RangeJoins::Sorted;
        banded.order.reason = choose(forced, &workload, self.input.machine)?;
        Some(banded)
    }

    /// The same where the conditions are a filter of the pairs of `input`.
    pub(super) fn filtered_band(
        &self,
        rel: &RelRef,
        input: &RelRef,
        (conjuncts, needed): (&[Expr], &Columns),
    ) -> Option<BandedJoin> {
        let RelKind::Join(join) = &input.kind else {
            return None;
        };
        if join.kind != JoinKind::Inner {
            return None;
        }
        let mut filtered = join.clone();
        filtered.residual.extend_from_slice(conjuncts);
        self.banded_join(rel, &filtered, needed)
    }

    /// The rows of a join by a band.
    pub(super) fn join_by_band(
        &mut self,
        rel: &RelRef,
        banded: &BandedJoin,
        needed: &Columns,
    ) -> Result<OpenPipeline, Reason> {
        let join = &banded.join;
        let (mut left, mut right) = sides(join, needed);
        let (build, probe) = match banded.build {
            BuildSide::Left => (&mut left, &mut right),
            BuildSide::Right => (&mut right, &mut left),
        };
        build.order = Some(banded.order.clone());
        probe.band = Some(banded.band.clone());
        match (join.kind, banded.build) {
            (JoinKind::Inner, _) => self.inner(rel, join, &left, &right),
            (JoinKind::Left, BuildSide::Right) => self.left(rel, join, &left, &right),
            (JoinKind::Left | JoinKind::Full, _) => self.preserve_build(rel, join, &left, &right),
            (JoinKind::Semi | JoinKind::Anti, BuildSide::Left) => {
                self.mark_left(rel, join, &left, &right)
            }
            (JoinKind::Semi, _) => self.probe_right(rel, join, &left, &right, ProbeKind::Semi),
            (JoinKind::Mark, _) => self.probe_right(rel, join, &left, &right, ProbeKind::Mark),
            _ => self.probe_right(rel, join, &left, &right, ProbeKind::Anti),
        }
    }
}

impl BandedJoin {
    /// Can this side be built for a join of this kind?
    fn is_possible(&self) -> bool {
        match (self.join.kind, self.build) {
            (JoinKind::NullAwareAnti, _) => false,
            (JoinKind::Inner | JoinKind::Semi | JoinKind::Anti, _) => true,
            (JoinKind::Left | JoinKind::Full, BuildSide::Left) => true,
            // Rows that fail another condition with all of their matches would have to come with NULLs.
            (JoinKind::Left, BuildSide::Right) => self.join.residual.is_empty(),
            (JoinKind::Full, BuildSide::Right) => false,
            (JoinKind::Mark, side) => side == BuildSide::Right,
        }
    }
}

/// The conditions that compare a value of one side with one of the other, once for each side that could be sorted.
fn comparisons(join: &Join) -> Vec<Comparison> {
    let n = join.left.columns.len();
    let mut found = Vec::new();
    for (conjunct, condition) in join.residual.iter().enumerate() {
        let Node::Binary { op, left, right } = &condition.node else {
            continue;
        };
        let (is_greater, inclusive) = match op {
            BinaryOp::Lt => (false, false),
            BinaryOp::LtEq => (false, true),
            BinaryOp::Gt => (true, false),
            BinaryOp::GtEq => (true, true),
            _ => continue,
        };
        // What can fail is evaluated for pairs alone, as DataFusion does.
        if condition.may_fault() || !is_ordered(left, right) {
            continue;
        }
        let (Some(of_left), Some(of_right)) = (side_of(left, n), side_of(right, n)) else {
            continue;
        };
        if of_left == of_right {
            continue;
        }
        let within = |expr: &Expr, side| match side {
            BuildSide::Left => expr.clone(),
            BuildSide::Right => renumber(expr, &|c| c - n),
        };
        let sides = [
            ((left, of_left), (right, of_right), is_greater),
            ((right, of_right), (left, of_left), !is_greater),
        ];
        found.extend(
            sides.map(|((order, build), (bound, probe), is_lower)| Comparison {
                conjunct,
                build,
                order: within(order, build),
                bound: Bound {
                    value: within(bound, probe),
                    inclusive,
                },
                is_lower,
            }),
        );
    }
    found
}

/// The band that begins with a comparison: with the first other end over the same value, if there is one.
fn band_of(first: &Comparison, all: &[Comparison], join: &Join) -> BandedJoin {
    let side = match first.build {
        BuildSide::Left => &join.left,
        BuildSide::Right => &join.right,
    };
    let other = all.iter().find(|other| {
        other.build == first.build
            && other.is_lower != first.is_lower
            && is_same_value(&other.order, &first.order, side)
    });
    let end = |is_lower: bool| {
        let ends = [Some(first), other];
        let mut ends = ends.into_iter().flatten();
        ends.find(|c| c.is_lower == is_lower)
            .map(|c| c.bound.clone())
    };
    let made = |conjunct: usize| {
        conjunct == first.conjunct || other.is_some_and(|other| conjunct == other.conjunct)
    };
    let mut rest = join.clone();
    rest.build = Some(first.build);
    rest.residual = join
        .residual
        .iter()
        .enumerate()
        .filter(|(conjunct, _)| !made(*conjunct))
        .map(|(_, condition)| condition.clone())
        .collect();
    BandedJoin {
        join: rest,
        build: first.build,
        order: SideOrder {
            value: first.order.clone(),
            reason: String::new(),
        },
        band: Band {
            lower: end(true),
            upper: end(false),
        },
    }
}

/// Do two expressions over `rel` have the same value? DataFusion computes one that a condition has twice in two columns.
fn is_same_value(a: &Expr, b: &Expr, rel: &RelRef) -> bool {
    if same(a, b) {
        return true;
    }
    match &rel.kind {
        RelKind::Filter { input, .. } => is_same_value(a, b, input),
        RelKind::Project { input, exprs } => match (substitute(a, exprs), substitute(b, exprs)) {
            (Ok(a), Ok(b)) => is_same_value(&a, &b, input),
            _ => false,
        },
        _ => false,
    }
}

/// The side whose columns an expression reads; `None` for both or neither.
fn side_of(expr: &Expr, n: usize) -> Option<BuildSide> {
    let read = columns(expr);
    let (first, last) = (read.first()?, read.last()?);
    match (*last < n, *first >= n) {
        (true, _) => Some(BuildSide::Left),
        (_, true) => Some(BuildSide::Right),
        _ => None,
    }
}

/// Are the values of both numbers of one kind, dates or times, whose codes are in their order?
fn is_ordered(a: &Expr, b: &Expr) -> bool {
    let of = |t: &DataType| is_value(t) && *t != DataType::Boolean;
    a.data_type == b.data_type && of(&a.data_type)
}

impl Side<'_> {
    /// The expressions that are evaluated for each of its rows: keys, the value by which it is sorted, the ends of its band.
    pub(super) fn evaluated(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|order| &order.value);
        let band = self.band.iter().flat_map(Band::values);
        self.keys.iter().chain(order).chain(band)
    }

    /// Its band over the scope of a pipeline that yields its rows.
    pub(super) fn band_over(&self, open: &OpenPipeline) -> Result<Option<Box<Band>>, Reason> {
        let over = |value: &Expr| substitute(value, &open.columns);
        let band = self.band.as_ref().map(|band| band.try_map(over));
        Ok(band.transpose()?.map(Box::new))
    }
}
