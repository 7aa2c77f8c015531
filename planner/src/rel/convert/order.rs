//! Sorts and limits.

use std::sync::Arc;

use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use warpline_gpu::graph::SortKey;

use super::Converter;
use crate::reason::Reason;
use crate::rel::expr::as_column;
use crate::rel::{Rel, RelKind, RelRef};
use crate::translate::check_order;

/// The first `fetch` rows of `input` in an order.
pub(super) fn sort(
    ordering: &LexOrdering,
    fetch: Option<usize>,
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let width = input.columns.len();
    let exprs: Vec<_> = ordering.iter().map(|key| Arc::clone(&key.expr)).collect();
    let (input, translated) = converter.translate_all(input, &exprs)?;
    let mut columns: Vec<_> = (0..width)
        .map(|i| (input.column(i), input.columns[i].name.clone()))
        .collect();
    let mut keys: Vec<SortKey> = Vec::new();
    for (expr, key) in translated.into_iter().zip(ordering.iter()) {
        check_order(&expr)?;
        let column = match as_column(&expr) {
            Some(column) if column < width => column,
            _ => {
                columns.push((expr, format!("order {}", keys.len() + 1)));
                columns.len() - 1
            }
        };
        if keys.iter().all(|k| k.column != column) {
            keys.push(SortKey {
                column,
                descending: key.options.descending,
                nulls_first: key.options.nulls_first,
            });
        }
    }
    // An order of rows that are ordered already replaces the first.
    let input = match &input.kind {
        RelKind::Sort {
            input,
            fetch: None,
            skip: 0,
            ..
        } if columns.len() == width => Arc::clone(input),
        _ if columns.len() == width && input.columns.len() == width => input,
        _ => Rel::project(input, columns),
    };
    let sorted = Rel::sort(input, keys, 0, fetch.map(|f| f as u64));
    Ok(Rel::select(sorted, &(0..width).collect::<Vec<_>>()))
}

/// Some of the rows, of an order if there is one: what the plan promises without a sort is [`promised`] before.
pub(super) fn limit(input: RelRef, skip: u64, fetch: Option<u64>) -> RelRef {
    if skip == 0 && fetch.is_none() {
        return input;
    }
    match &input.kind {
        // Row-wise: the limit below decides over the same rows, next to the order if one is there.
        RelKind::Project {
            input: below,
            exprs,
        } => {
            let exprs = exprs
                .iter()
                .zip(&input.columns)
                .map(|(e, c)| (e.clone(), c.name.clone()))
                .collect();
            Rel::project(limit(Arc::clone(below), skip, fetch), exprs)
        }
        RelKind::Sort {
            input: rows,
            keys,
            skip: first,
            fetch: most,
        } => {
            let left = most.map(|most| most.saturating_sub(skip));
            let fetch = match (left, fetch) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let skip = first.saturating_add(skip);
            Rel::sort(Arc::clone(rows), keys.clone(), skip, fetch)
        }
        _ => Rel::sort(input, vec![], skip, fetch),
    }
}

/// `rel`, which stands for all of `plan`, in the order that the plan promises to whoever reads it.
pub(super) fn promised(plan: &Arc<dyn ExecutionPlan>, rel: RelRef) -> Result<RelRef, Reason> {
    if is_ordered(&rel) || at_most_one_row(&rel) {
        return Ok(rel);
    }
    let Some(ordering) = plan.output_ordering() else {
        return Ok(rel);
    };
    let converter = Converter::default();
    sort(ordering, None, rel, &converter)
}

/// An order at the top, below projections at most, survives to the end.
fn is_ordered(rel: &RelRef) -> bool {
    match &rel.kind {
        RelKind::Project { input, .. } => is_ordered(input),
        RelKind::Sort { keys, .. } => !keys.is_empty(),
        _ => false,
    }
}

fn at_most_one_row(rel: &RelRef) -> bool {
    match &rel.kind {
        RelKind::Project { input, .. } | RelKind::Filter { input, .. } => at_most_one_row(input),
        RelKind::Aggregate { aggregate, .. } => aggregate.keys.is_empty(),
        RelKind::One => true,
        _ => false,
    }
}
