//! DISTINCT in calls over values that no two rows of a group share.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use super::groups::determining;
use crate::rel::expr::as_column;
use crate::rel::{Rel, RelKind, RelRef};
use crate::stats::{Estimator, Proof};

/// The aggregation `rel` without DISTINCT where it says nothing; `None` where it always does.
pub(super) fn told(rel: &RelRef, estimator: &Estimator<'_>) -> Option<RelRef> {
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return None;
    };
    let keys: BTreeSet<usize> = aggregate.keys.iter().filter_map(determining).collect();
    let once = |call: &AggregateCall| {
        let column = call.argument.as_ref().and_then(told_apart_by);
        column.is_some_and(|column| {
            let known = keys.iter().copied().chain([column]).collect();
            estimator.unique(input, &known, Proof::Certain)
        })
    };
    let mut calls = aggregate.calls.clone();
    let mut found = false;
    for call in calls.iter_mut().filter(|call| call.distinct) {
        if once(call) {
            call.distinct = false;
            found = true;
        }
    }
    found.then(|| {
        let keys = aggregate.keys.clone();
        Arc::new(Rel {
            kind: RelKind::Aggregate {
                input: Arc::clone(input),
                aggregate: Aggregate { keys, calls },
            },
            columns: rel.columns.clone(),
        })
    })
}

/// The column that has other values wherever `expr` has others that are not NULL.
fn told_apart_by(expr: &Expr) -> Option<usize> {
    if let Node::Case {
        branches,
        otherwise,
    } = &expr.node
    {
        let is_null = |e: &Expr| matches!(&e.node, Node::Literal(value) if value.is_null());
        let values = branches.iter().map(|(_, value)| value);
        let mut values = values.chain(otherwise.as_deref()).filter(|e| !is_null(e));
        let column = values.next().and_then(determining)?;
        return values
            .all(|e| as_column(e) == Some(column))
            .then_some(column);
    }
    determining(expr)
}
