//! Rows with what is computed over the group that each belongs to: a grouping that is joined back.

use std::sync::Arc;

use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use super::grouping::Grouping;
use crate::rel::{Join, JoinKind, Rel, RelRef};

/// The rows of `grouping`, and the columns with what `calls` compute over each one's group, which follow the rows' own.
pub(super) fn beside_groups(
    grouping: &Grouping,
    calls: Vec<AggregateCall>,
) -> (RelRef, std::ops::Range<usize>) {
    let Grouping { input, keys, names } = grouping;
    let aggregate = Aggregate {
        keys: keys.clone(),
        calls,
    };
    let groups = Rel::aggregate(Arc::clone(input), aggregate, names);
    with_groups(grouping, groups)
}

/// The rows of `grouping`, and the columns of `groups`, the groups that they belong to: keys, then values. Rows have each one group.
pub(super) fn with_groups(grouping: &Grouping, groups: RelRef) -> (RelRef, std::ops::Range<usize>) {
    let Grouping { input, keys, .. } = grouping;
    let first = input.columns.len() + keys.len();
    let rows = match keys.is_empty() {
        true => Rel::scalar(Arc::clone(input), groups),
        false => Rel::join(Join {
            left: Arc::clone(input),
            on: (keys.iter().enumerate())
                .map(|(i, key)| (key.clone(), groups.column(i)))
                .collect(),
            null_equal: keys.iter().any(|key| key.nullable),
            right: groups,
            kind: JoinKind::Inner,
            residual: vec![],
            build: None,
        }),
    };
    let columns = first..rows.columns.len();
    (rows, columns)
}
