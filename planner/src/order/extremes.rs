//! Rewrites EXISTS with a comparison to a join with the smallest and largest value of each key.
//!
//! `EXISTS (SELECT … FROM R WHERE R.k = L.k AND R.b <> L.a)` visits the rows of `R` with the key of a row of `L`
//! until one differs, or the rows of `L` for each one of `R`. When a key has very many rows on both sides, that is
//! their product. Some `b` of a group differs from `a` exactly when the smallest or the largest does:
//!
//! ```text
//! L ⋉ R on k where a <> b   =   L ⋉ γ(R; k; min(b), max(b)) on k where a <> min or a <> max
//! ```
//!
//! and likewise `a < b` is `a < max`, `a > b` is `a > min`. NULLs agree: a NULL `b` neither matches nor is an extreme, a NULL
//! `a` compares with nothing, and a group without values has NULL extremes, which match nothing either. So the same holds
//! for NOT EXISTS and for EXISTS as a value, and without keys, where the other side is one group.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::extremes_together::together;
use crate::rel::expr::{columns, renumber};
use crate::rel::walk::bottom_up;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::Estimator;

/// Average rows with the key of a row from which on groups pay.
const MANY: f64 = 64.0;
/// … when probe rows share keys.
const SEVERAL: f64 = 2.0;

/// `rel` with such joins rewritten where keys repeat often; one over another becomes one of both where that is possible.
pub(super) fn by_extremes(rel: &RelRef, estimator: &Estimator<'_>) -> RelRef {
    // Joins with groups so far.
    let mut made: Vec<RelRef> = Vec::new();
    bottom_up(rel, |rel| {
        let RelKind::Join(join) = &rel.kind else {
            return rel;
        };
        let Some(with_groups) = repeats(join, estimator).then(|| grouped(join)).flatten() else {
            return rel;
        };
        if made.iter().any(|first| Arc::ptr_eq(first, &join.left))
            && let RelKind::Join(first) = &join.left.kind
            && let Some(both) = together(&with_groups, first)
        {
            return both;
        }
        let joined = Rel::join(with_groups);
        made.push(Arc::clone(&joined));
        joined
    })
}

/// Do the keys of both sides repeat so often that visiting their rows is too expensive?
fn repeats(join: &Join, estimator: &Estimator<'_>) -> bool {
    if join.on.is_empty() {
        // All rows have one key: the other side is one group, whose row is always there.
        return estimator.rows(&join.right) > MANY;
    }
    let (ours, theirs): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    // Rows of a key on one side only are gone over once.
    estimator.repeats(&join.right, &theirs) > MANY && estimator.repeats(&join.left, &ours) > SEVERAL
}

/// The join with the groups of its right side.
fn grouped(join: &Join) -> Option<Join> {
    let kind = matches!(join.kind, JoinKind::Semi | JoinKind::Anti | JoinKind::Mark);
    if !kind {
        return None;
    }
    let n = join.left.columns.len();
    let (mut compared, mut ours, mut theirs) = (None, Vec::new(), Vec::new());
    for conjunct in &join.residual {
        let read = columns(conjunct);
        if read.iter().all(|c| *c < n) {
            ours.push(conjunct.clone());
        } else if read.iter().all(|c| *c >= n) {
            theirs.push(renumber(conjunct, &|c| c - n));
        } else if compared.is_some() {
            // Two comparisons may be met by different rows of a group.
            return None;
        } else {
            compared = Some(comparison(conjunct, n)?);
        }
    }
    let Comparison { op, left, right } = compared?;
    let names: Vec<String> = (0..join.on.len()).map(|i| format!("key{i}")).collect();
    let call = |function: AggregateFunction| AggregateCall {
        function,
        argument: Some(right.clone()),
        filter: None,
        distinct: false,
        return_type: right.data_type.clone(),
        name: format!("{}(…)", function.name()),
    };
    let wanted: &[AggregateFunction] = match op {
        BinaryOp::NotEq => &[AggregateFunction::Min, AggregateFunction::Max],
        BinaryOp::Lt | BinaryOp::LtEq => &[AggregateFunction::Max],
        _ => &[AggregateFunction::Min],
    };
    let aggregate = Aggregate {
        keys: join.on.iter().map(|(_, key)| key.clone()).collect(),
        calls: wanted.iter().copied().map(call).collect(),
    };
    let names: Vec<String> = names
        .into_iter()
        .chain(aggregate.calls.iter().map(|c| c.name.clone()))
        .collect();
    let groups = Rel::aggregate(
        Rel::filter(Arc::clone(&join.right), theirs),
        aggregate,
        &names,
    );
    let keys = join.on.len();
    let with = |place: usize| {
        let extreme = Expr::column(n + keys + place, right.data_type.clone(), true);
        binary(op, left.clone(), extreme)
    };
    let test = (1..wanted.len()).fold(with(0), |test, place| {
        binary(BinaryOp::Or, test, with(place))
    });
    ours.push(test);
    Some(Join {
        left: Arc::clone(&join.left),
        kind: join.kind,
        on: join
            .on
            .iter()
            .enumerate()
            .map(|(i, (key, _))| (key.clone(), groups.column(i)))
            .collect(),
        right: groups,
        residual: ours,
        null_equal: join.null_equal,
        build: join.build,
    })
}

/// `left op right`, of which `left` reads the left side of the join and `right` its right side, by their own numbers.
struct Comparison {
    op: BinaryOp,
    left: Expr,
    right: Expr,
}

fn comparison(conjunct: &Expr, n: usize) -> Option<Comparison> {
    let Node::Binary { op, left, right } = &conjunct.node else {
        return None;
    };
    let swapped = match op {
        BinaryOp::NotEq => BinaryOp::NotEq,
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::LtEq => BinaryOp::GtEq,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::GtEq => BinaryOp::LtEq,
        _ => return None,
    };
    let of_left = |e: &Expr| columns(e).iter().all(|c| *c < n);
    let of_right = |e: &Expr| {
        let read = columns(e);
        !read.is_empty() && read.iter().all(|c| *c >= n)
    };
    let found = if of_left(left) && of_right(right) {
        Comparison {
            op: *op,
            left: left.as_ref().clone(),
            right: renumber(right, &|c| c - n),
        }
    } else if of_left(right) && of_right(left) {
        Comparison {
            op: swapped,
            left: right.as_ref().clone(),
            right: renumber(left, &|c| c - n),
        }
    } else {
        return None;
    };
    // The order that MIN and MAX keep must be that of the comparison: not so with the NaNs of floats, and of strings there
    // may be no order on the device.
    let ordered = found.right.data_type == found.left.data_type
        && (found.right.data_type.is_integer()
            || matches!(
                found.right.data_type,
                DataType::Decimal128(..)
                    | DataType::Date32
                    | DataType::Date64
                    | DataType::Timestamp(..)
            ));
    ordered.then_some(found)
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr {
        nullable: left.nullable || right.nullable,
        data_type: DataType::Boolean,
        node: Node::Binary {
            op,
            left: Box::new(left),
            right: Box::new(right),
        },
    }
}
