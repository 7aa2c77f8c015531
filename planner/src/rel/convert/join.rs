//! Joins: keys, residual conditions and which side is preserved.

use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use warpline_gpu::column::is_opaque;
use warpline_gpu::expr::Expr;

use super::fields::{self, Condition};
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
        let (mut left, mut right) = (self.left.clone(), self.right.clone());
        let mut on = self.keys(&mut left, &mut right)?;
        let residual = self.residual(swapped, &mut left, &mut right)?;
        let mut widths = [self.left.columns.len(), self.right.columns.len()];
        if swapped {
            std::mem::swap(&mut left, &mut right);
            widths.reverse();
            on = on.into_iter().map(|(l, r)| (r, l)).collect();
        }
        let all = left.columns.len();
        let rel = Rel::join(Join {
            left,
            right,
            kind,
            on,
            residual,
            null_equal: self.null_equal,
            build: None,
        });
        // Without what conditions read of structs.
        let first = 0..widths[0];
        let second = all..all + widths[1];
        let order: Vec<usize> = match kind {
            // The plan's columns are those of its left side first.
            _ if swapped && kind.yields_right() => second.chain(first).collect(),
            JoinKind::Mark => first.chain([all]).collect(),
            _ if kind.yields_right() => first.chain(second).collect(),
            _ => first.collect(),
        };
        Ok(Rel::select(rel, &order))
    }

    fn keys(&self, left: &mut RelRef, right: &mut RelRef) -> Result<Vec<(Expr, Expr)>, Reason> {
        let (ls, rs): (Vec<_>, Vec<_>) = self.on.iter().cloned().unzip();
        let (with, ls) = fields::beside(left.clone(), &ls)?;
        *left = with;
        let (with, rs) = fields::beside(right.clone(), &rs)?;
        *right = with;
        let schemas = (left.schema(), right.schema());
        let mut on = Vec::with_capacity(self.on.len());
        for (left, right) in ls.iter().zip(&rs) {
            let left = translate(left, &mut Scope::whole(&schemas.0))?;
            let right = translate(right, &mut Scope::whole(&schemas.1))?;
            check_key(&left, &right)?;
            on.push((one_zero(left), one_zero(right)));
        }
        Ok(on)
    }

    /// The condition beyond the keys, over the left columns, then the right ones (the other way round if swapped). The sides get
    /// columns for what it reads of structs.
    fn residual(
        &self,
        swapped: bool,
        left: &mut RelRef,
        right: &mut RelRef,
    ) -> Result<Vec<Expr>, Reason> {
        let Some(filter) = self.filter else {
            return Ok(vec![]);
        };
        let Condition {
            expr,
            schema,
            places,
        } = fields::of_condition(filter, left, right)?;
        let translated = translate(&expr, &mut Scope::whole(&schema))?;
        if places.len() < schema.fields().len() {
            return refuse("a join condition over columns that the sides lack");
        }
        let (l, r) = (left.columns.len(), right.columns.len());
        if places.iter().any(|p| p.side == JoinSide::None) {
            return refuse("a join condition over a mark runs on the CPU");
        }
        let place = |p: &ColumnIndex| match (p.side, swapped) {
            (JoinSide::Right, false) => l + p.index,
            (JoinSide::Left, true) => r + p.index,
            _ => p.index,
        };
        // The filter's own schema may say "nullable" where the sides know better, never the other way.
        debug_assert!(beside(left, right).fields().len() == l + r);
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
    let strings = is_string(l) && is_string(r) && !is_opaque(l) && !is_opaque(r);
    let same = l == r && (is_value(l) || is_string(l));
    if strings || same {
        return Ok(());
    }
    refuse(format!("a join of {l} with {r} runs on the CPU"))
}
