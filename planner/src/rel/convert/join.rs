//! Joins: keys, residual conditions and which side is preserved.

use arrow::datatypes::Schema;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use warpline_gpu::expr::Expr;

use super::{beside, in_order};
use crate::reason::{Reason, refuse};
use crate::rel::expr::{one_zero, renumber, split};
use crate::rel::{Join, JoinKind, Rel, RelRef};
use crate::translate::{Scope, is_string, is_value, translate};

pub(super) fn hash(exec: &HashJoinExec, left: &RelRef, right: &RelRef) -> Result<RelRef, Reason> {
    let join = Sides {
        left,
        right,
        on: exec.on(),
        filter: exec.filter(),
        null_equal: exec.null_equality() == NullEquality::NullEqualsNull,
        null_aware: exec.null_aware,
    };
    let rel = join.rel(*exec.join_type())?;
    Ok(match &exec.projection {
        Some(projection) => Rel::select(rel, projection),
        None => rel,
    })
}

pub(super) fn sort_merge(
    exec: &SortMergeJoinExec,
    left: &RelRef,
    right: &RelRef,
) -> Result<RelRef, Reason> {
    Sides {
        left,
        right,
        on: exec.on(),
        filter: exec.filter().as_ref(),
        null_equal: exec.null_equality() == NullEquality::NullEqualsNull,
        null_aware: false,
    }
    .rel(exec.join_type())
}

pub(super) fn nested_loop(
    exec: &NestedLoopJoinExec,
    left: &RelRef,
    right: &RelRef,
) -> Result<RelRef, Reason> {
    let rel = Sides {
        left,
        right,
        on: &[],
        filter: exec.filter(),
        null_equal: false,
        null_aware: false,
    }
    .rel(*exec.join_type())?;
    Ok(match exec.projection() {
        Some(projection) => Rel::select(rel, projection),
        None => rel,
    })
}

pub(super) fn cross(left: &RelRef, right: &RelRef) -> RelRef {
    Rel::join(Join {
        left: left.clone(),
        right: right.clone(),
        kind: JoinKind::Inner,
        on: vec![],
        residual: vec![],
        null_equal: false,
        build: None,
    })
}

struct Sides<'a> {
    left: &'a RelRef,
    right: &'a RelRef,
    on: &'a [(PhysicalExprRef, PhysicalExprRef)],
    filter: Option<&'a JoinFilter>,
    null_equal: bool,
    null_aware: bool,
}

impl Sides<'_> {
    fn rel(&self, join_type: JoinType) -> Result<RelRef, Reason> {
        let kind = match join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left | JoinType::Right => JoinKind::Left,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi | JoinType::RightSemi => JoinKind::Semi,
            JoinType::LeftAnti | JoinType::RightAnti if self.null_aware => JoinKind::NullAwareAnti,
            JoinType::LeftAnti | JoinType::RightAnti => JoinKind::Anti,
            JoinType::LeftMark | JoinType::RightMark => JoinKind::Mark,
        };
        if self.null_aware && (kind != JoinKind::NullAwareAnti || self.filter.is_some()) {
            return refuse("a NULL-aware join of this shape runs on the CPU");
        }
        let swapped = matches!(
            join_type,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        );
        let mut on = self.keys()?;
        let residual = self.residual(swapped)?;
        let (mut left, mut right) = (self.left, self.right);
        if swapped {
            std::mem::swap(&mut left, &mut right);
            on = on.into_iter().map(|(l, r)| (r, l)).collect();
        }
        let rel = Rel::join(Join {
            left: left.clone(),
            right: right.clone(),
            kind,
            on,
            residual,
            null_equal: self.null_equal,
            build: None,
        });
        if swapped && kind == JoinKind::Left {
            // The plan's columns are those of its left side first.
            let (l, r) = (self.left.columns.len(), self.right.columns.len());
            let order: Vec<usize> = (r..r + l).chain(0..r).collect();
            return Ok(Rel::select(rel, &order));
        }
        Ok(rel)
    }

    fn keys(&self) -> Result<Vec<(Expr, Expr)>, Reason> {
        let (ls, rs) = (self.left.schema(), self.right.schema());
        let mut on = Vec::with_capacity(self.on.len());
        for (left, right) in self.on {
            let left = translate(left, &mut Scope::whole(&ls))?;
            let right = translate(right, &mut Scope::whole(&rs))?;
            check_key(&left, &right)?;
            on.push((one_zero(left), one_zero(right)));
        }
        Ok(on)
    }

    /// The condition beyond the keys, over the left columns, then the right ones (the other way round if swapped).
    fn residual(&self, swapped: bool) -> Result<Vec<Expr>, Reason> {
        let Some(filter) = self.filter else {
            return Ok(vec![]);
        };
        let schema: &Schema = filter.schema();
        let places = filter.column_indices();
        let translated = translate(filter.expression(), &mut Scope::whole(schema))?;
        if places.len() < schema.fields().len() {
            return refuse("a join condition over columns that the sides lack");
        }
        let (l, r) = (self.left.columns.len(), self.right.columns.len());
        if places.iter().any(|p| p.side == JoinSide::None) {
            return refuse("a join condition over a mark runs on the CPU");
        }
        let place = |p: &ColumnIndex| match (p.side, swapped) {
            (JoinSide::Right, false) => l + p.index,
            (JoinSide::Left, true) => r + p.index,
            _ => p.index,
        };
        // The filter's own schema may say "nullable" where the sides know better, never the other way.
        debug_assert!(beside(self.left, self.right).fields().len() == l + r);
        let mut conjuncts = Vec::new();
        split(
            renumber(&translated, &|i| place(&places[i])),
            &mut conjuncts,
        );
        Ok(in_order(conjuncts))
    }
}

fn check_key(left: &Expr, right: &Expr) -> Result<(), Reason> {
    let (l, r) = (&left.data_type, &right.data_type);
    let strings = is_string(l) && is_string(r);
    let values = l == r && is_value(l);
    if strings || values {
        return Ok(());
    }
    refuse(format!("a join of {l} with {r} runs on the CPU"))
}
