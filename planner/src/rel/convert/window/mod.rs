//! Window functions.
//!
//! Aggregates over whole partitions are groups that are joined back. All others go over rows in the order of their partitions
//! ([`RelKind::Window`](crate::rel::RelKind::Window)): numbering functions are arithmetic on where a row lies; values of other
//! rows are looked up by their number; aggregates over frames are made of values that run through the partition, extremes of
//! sliding frames of a tree over them.
//!
//! [`function`] reads what a function is, [`frame`] which rows it is over, [`value`] makes its value of columns of the window,
//! [`rows`] has these columns.

mod frame;
mod function;
mod number;
mod rows;
mod value;

use std::sync::Arc;

use datafusion::logical_expr::WindowFrameUnits;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr,
};
use warpline_gpu::expr::Expr;

use super::Converter;
use super::aggregate::{calls, grouped};
use super::beside::with_groups;
use super::grouping::Grouping;
use super::ranked::makes_list;
use crate::reason::{Reason, refuse};
use crate::rel::{Rel, RelRef};

/// `input` with a column for each window expression.
pub(super) fn windows(
    exprs: &[Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let width = input.columns.len();
    let mut rows = input;
    let mut values: Vec<Option<(Expr, String)>> = vec![None; exprs.len()];
    for first in 0..exprs.len() {
        if values[first].is_some() {
            continue;
        }
        // Those over the same partitions in the same order share their work.
        let alike = |other: &usize| {
            let (a, b) = (&exprs[first], &exprs[*other]);
            let partitions = a.partition_by().len() == b.partition_by().len()
                && a.partition_by()
                    .iter()
                    .zip(b.partition_by())
                    .all(|(a, b)| a == b);
            partitions && a.order_by() == b.order_by() && is_whole(a) == is_whole(b)
        };
        let members: Vec<usize> = (first..exprs.len()).filter(alike).collect();
        let shared: Vec<&Arc<dyn WindowExpr>> = members.iter().map(|i| &exprs[*i]).collect();
        let (with, found) = match is_whole(&exprs[first]) {
            true => whole(&shared, rows, converter)?,
            false => rows::ordered(&shared, rows, converter)?,
        };
        rows = with;
        for (member, value) in members.into_iter().zip(found) {
            let name = exprs[member].name().to_string();
            values[member] = Some((value, name));
        }
    }
    let own = (0..width).map(|i| (rows.column(i), rows.columns[i].name.clone()));
    let columns = own.chain(values.into_iter().flatten()).collect();
    Ok(Rel::project(Arc::clone(&rows), columns))
}

/// The aggregate function of an expression, if it is one.
fn aggregate_of(expr: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let any = expr.as_any();
    let plain = any.downcast_ref::<PlainAggregateWindowExpr>();
    let plain = plain.map(PlainAggregateWindowExpr::get_aggregate_expr);
    let sliding = || any.downcast_ref::<SlidingAggregateWindowExpr>();
    plain.or_else(|| sliding().map(SlidingAggregateWindowExpr::get_aggregate_expr))
}

/// Is it an aggregate whose frame is the partition, whatever the row?
fn is_whole(expr: &Arc<dyn WindowExpr>) -> bool {
    let frame = expr.get_window_frame();
    let all = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    // Without an order all rows are peers.
    let peers = expr.order_by().is_empty() && frame.units != WindowFrameUnits::Rows;
    aggregate_of(expr).is_some() && (all || peers)
}

/// Aggregates over whole partitions.
fn whole(
    exprs: &[&Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<(RelRef, Vec<Expr>), Reason> {
    let aggregates = exprs.iter().filter_map(|expr| aggregate_of(expr).cloned());
    let aggregates: Vec<Arc<AggregateFunctionExpr>> = aggregates.map(Arc::new).collect();
    exprs.iter().try_for_each(|expr| check_filter(expr))?;
    exprs.iter().try_for_each(|expr| check_order(expr))?;
    let partition = exprs[0].partition_by();
    let (mut input, keys) = converter.translate_all(input, partition)?;
    let filters = vec![None; aggregates.len()];
    let calls = calls(&aggregates, &filters, &mut input, converter)?;
    let names = (0..keys.len()).map(|i| format!("partition {i}")).collect();
    let grouping = Grouping { input, keys, names };
    let groups = grouped(&grouping, &calls)?;
    let (rows, columns) = with_groups(&grouping, groups);
    let values = columns.map(|i| rows.column(i)).collect();
    Ok((rows, values))
}

/// A list over a window is in the window's order.
fn check_order(expr: &Arc<dyn WindowExpr>) -> Result<(), Reason> {
    let list = aggregate_of(expr).is_some_and(makes_list);
    match list && !expr.order_by().is_empty() {
        true => refuse(format!(
            "{} over a window with an order runs on the CPU",
            expr.name()
        )),
        false => Ok(()),
    }
}

/// The filter of an aggregate in a window is no part of its interface.
fn check_filter(expr: &Arc<dyn WindowExpr>) -> Result<(), Reason> {
    match format!("{expr:?}").contains("filter: Some(") {
        true => refuse(format!("{} with a FILTER runs on the CPU", expr.name())),
        false => Ok(()),
    }
}
