//! Aggregates of all rows on one side of a value around.

use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Aggregate, Expr, WindowFunctionDefinition, lit};

use super::super::push::{Push, Pushed, filtered};
use super::super::{Made, columns, named};
use super::merged::Values;

/// The aggregates whose running values windows have, and which pass over NULL.
const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];

impl Push<'_> {
    /// An aggregate of all rows that a comparison chooses; `None` where they are not chosen so.
    pub(in crate::decorrelate) fn running(
        &mut self,
        aggregate: &Aggregate,
    ) -> Made<Option<Pushed>> {
        if !aggregate.group_expr.is_empty() {
            return Ok(None);
        }
        let Some(meeting) = self.meeting(&aggregate.input)? else {
            return Ok(None);
        };
        let [range] = &*meeting.ranges else {
            return Ok(None);
        };
        let mut payload = vec![lit(true)];
        let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
        for call in &aggregate.aggr_expr {
            let Expr::AggregateFunction(call) = call.clone().unalias() else {
                return Ok(None);
            };
            let params = call.params;
            let is_plain = !params.distinct
                && params.filter.is_none()
                && params.order_by.is_empty()
                && params.null_treatment.is_none();
            if !is_plain || !AGGREGATES.contains(&call.func.name()) {
                return Ok(None);
            }
            let first = payload.len();
            for argument in params.args {
                payload.push(meeting.over_rows(argument)?);
            }
            if payload[first..].iter().any(|expr| expr.contains_outer()) {
                return Ok(None);
            }
            calls.push((
                WindowFunctionDefinition::AggregateUDF(call.func),
                first..payload.len(),
            ));
        }
        let merged = self.merged(&meeting, range, payload)?;
        let count = WindowFunctionDefinition::AggregateUDF(count_udaf());
        let calls = [(count, 0..1)].into_iter().chain(calls);
        let calls: Vec<WindowFunction> = calls
            .map(|(function, arguments)| {
                let arguments = columns(&merged.payload[arguments]);
                merged.before(function, arguments, range, vec![])
            })
            .collect();
        let names = calls.iter().map(|_| self.names.next_running()).collect();
        let (plan, results) = self.windowed(&merged, calls, names)?;
        // A value around that is NULL comes behind all rows.
        let is_there = Expr::Column(merged.order.clone()).is_not_null();
        let has_rows = Expr::Column(results[0].clone()).gt(lit(0_i64));
        let is_asked = merged.is_around().and(is_there).and(has_rows);
        let outputs = aggregate.schema.columns();
        let outputs = outputs.iter().zip(&results[1..]);
        let outputs = outputs.map(|(column, result)| named(Expr::Column(result.clone()), column));
        let values = Values {
            known: self.meets_no_null(&meeting),
            columns: merged.values,
        };
        self.answered(&values, filtered(plan, is_asked)?, outputs.collect())
            .map(Some)
    }
}
