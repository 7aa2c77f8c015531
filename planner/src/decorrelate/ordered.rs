//! Subqueries whose rows a comparison with the row around chooses: the latest row before it (an as-of join), a total of what came before.
//!
//! `SELECT bid FROM quotes q WHERE q.symbol = t.symbol AND q.time <= t.time ORDER BY q.time DESC LIMIT 1`, joined by its conditions, makes
//! a pair of any two rows that fulfil them, as many as the square of a symbol's rows, and drops all but one of each trade. In one
//! order of the values around and the rows below, the row that is asked for is the last one before each value, and an aggregate of
//! the chosen rows is a running one. So the subquery becomes windows over the union of both: n log n, whatever the keys are.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::nth_value::last_value_udwf;
use datafusion::logical_expr::expr::{
    NullTreatment, Sort as SortExpr, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, FetchType, Join, JoinType, LogicalPlan, Operator,
    Projection, SkipType, Union, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, lit, when,
};
use datafusion::scalar::ScalarValue;

use super::domain::{Outer, RUNNING, fresh};
use super::push::{Push, Pushed, filtered, is_outer, joined};
use super::scope::{free, has_outer, refers};
use super::values::replaced;
use super::{Made, Names, columns, named};

/// The aggregates whose running values windows have, and which pass over NULL.
const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];

/// How the rows of a subquery and the values around it meet.
struct Meeting {
    /// The rows, under their own conditions.
    rows: LogicalPlan,
    /// The columns that the subquery has of them, and what these are.
    outputs: Vec<(Column, Expr)>,
    /// Values of the rows, and those around that equal them.
    keys: Vec<(Expr, Expr)>,
    /// Comparisons that are no equalities.
    ranges: Vec<Range>,
}

/// A value of a row below that lies on one side of a value around.
#[derive(Clone)]
struct Range {
    below: Expr,
    op: Operator,
    around: Expr,
}

impl Range {
    /// Are the rows chosen those up to a value, and not those from there?
    fn is_up_to(&self) -> bool {
        matches!(self.op, Operator::Lt | Operator::LtEq)
    }

    /// Do rows of the value itself belong to them?
    fn is_inclusive(&self) -> bool {
        matches!(self.op, Operator::LtEq | Operator::GtEq)
    }
}

/// Values around and rows below in one plan.
struct Merged {
    plan: LogicalPlan,
    /// The outer values; NULL in rows below.
    values: Vec<Column>,
    /// What both have of the keys.
    keys: Vec<Column>,
    /// What they are ordered by.
    order: Column,
    /// 0 for a row below, 1 for a value around.
    side: Column,
    /// What was asked for of the rows below; NULL in values around.
    payload: Vec<Column>,
}

/// The outer values in a plan, and whether none of them is NULL.
struct Values {
    columns: Vec<Column>,
    known: bool,
}

/// The nearest row of each value around.
struct Nearest {
    /// All values around, each with what windows have of the rows before it.
    plan: LogicalPlan,
    /// Whether there is such a row.
    is_found: Expr,
    /// What the columns of the subquery are of it.
    outputs: Vec<(Column, Expr)>,
    values: Values,
}

/// A lateral join with the nearest row: the left side's rows themselves are put in one order with those of the right side. `None`
/// where the right side is something else.
pub(super) fn lateral_join(
    join: &Join,
    condition: Option<&Expr>,
    names: &Names,
) -> Made<Option<LogicalPlan>> {
    let Some((outputs, sorts, input)) = first_row(&join.right)? else {
        return Ok(None);
    };
    let outer = Outer::row_by_row(&join.left)?;
    let push = Push {
        outer: &outer,
        names,
    };
    let Some(nearest) = push.nearest_or_none(sorts, input)? else {
        return Ok(None);
    };
    let mut known: Vec<(Column, Expr)> = Vec::with_capacity(join.schema.fields().len());
    for (column, expr) in outputs {
        known.push((column, over(expr, &nearest.outputs)?));
    }
    let of_left = outer.columns.iter().cloned();
    known.extend(of_left.zip(columns(&nearest.values.columns)));
    let mut is_found = nearest.is_found;
    if let Some(condition) = condition {
        is_found = is_found.and(over(condition.clone(), &known)?);
    }
    let of_right = join.right.schema().columns().len();
    let (rows, exprs) = match join.join_type {
        JoinType::Inner => (filtered(nearest.plan, is_found)?, known),
        JoinType::Left => {
            let found = |(place, (column, expr)): (usize, (Column, Expr))| -> Made<_> {
                Ok(match place < of_right {
                    true => (column, when(is_found.clone(), expr).end()?),
                    false => (column, expr),
                })
            };
            let exprs = known.into_iter().enumerate().map(found);
            (nearest.plan, exprs.collect::<Made<_>>()?)
        }
        _ => return Ok(None),
    };
    let exprs = exprs.into_iter().map(|(column, expr)| named(expr, &column));
    let projection = Projection::try_new(exprs.collect(), Arc::new(rows))?;
    Ok(Some(LogicalPlan::Projection(projection)))
}

type FirstRow<'p> = (Vec<(Column, Expr)>, &'p [SortExpr], &'p LogicalPlan);

/// The columns of a plan that is the first row of an order, by those of what is ordered; the order, and that.
fn first_row(plan: &LogicalPlan) -> Made<Option<FirstRow<'_>>> {
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => first_row(&subquery.subquery)?,
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((outputs, sorts, input)) = first_row(&alias.input)? else {
                return Ok(None);
            };
            let names = alias.schema.columns().into_iter();
            let outputs = names.zip(outputs.into_iter().map(|(_, expr)| expr));
            Some((outputs.collect(), sorts, input))
        }
        LogicalPlan::Projection(projection) => {
            let Some((outputs, sorts, input)) = first_row(&projection.input)? else {
                return Ok(None);
            };
            projected(projection, &outputs)?.map(|outputs| (outputs, sorts, input))
        }
        LogicalPlan::Sort(sort) if sort.fetch == Some(1) => {
            Some((own(&sort.input), &*sort.expr, sort.input.as_ref()))
        }
        LogicalPlan::Limit(limit) => {
            let (skip, fetch) = (limit.get_skip_type()?, limit.get_fetch_type()?);
            let (SkipType::Literal(0), FetchType::Literal(Some(1))) = (skip, fetch) else {
                return Ok(None);
            };
            match limit.input.as_ref() {
                LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                    Some((own(&sort.input), &*sort.expr, sort.input.as_ref()))
                }
                // The columns of a projection may be less than what its rows are ordered by.
                LogicalPlan::Projection(projection) => match projection.input.as_ref() {
                    LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                        projected(projection, &own(&sort.input))?
                            .map(|outputs| (outputs, &*sort.expr, sort.input.as_ref()))
                    }
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    })
}

/// The columns of a plan as what they are.
fn own(plan: &LogicalPlan) -> Vec<(Column, Expr)> {
    let columns = plan.schema().columns().into_iter();
    columns
        .map(|column| (column.clone(), Expr::Column(column)))
        .collect()
}

/// The columns of a projection by those of what `below` says of its input; `None` where they depend on more.
fn projected(
    projection: &Projection,
    below: &[(Column, Expr)],
) -> Made<Option<Vec<(Column, Expr)>>> {
    let mut outputs = Vec::with_capacity(projection.expr.len());
    for (column, expr) in projection
        .schema
        .columns()
        .into_iter()
        .zip(&projection.expr)
    {
        let expr = expr.clone().unalias();
        if expr.contains_outer() || expr.is_volatile() {
            return Ok(None);
        }
        outputs.push((column, over(expr, below)?));
    }
    Ok(Some(outputs))
}

impl Push<'_> {
    /// An aggregate of all rows that a comparison chooses; `None` where they are not chosen so.
    pub(super) fn running(&mut self, aggregate: &Aggregate) -> Made<Option<Pushed>> {
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
                merged.before(function, arguments, range, vec![], None)
            })
            .collect();
        let (plan, results) = self.windowed(&merged, calls, RUNNING)?;
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

    /// Whether a row meets no outer value that is NULL: comparisons leave none.
    fn meets_no_null(&self, meeting: &Meeting) -> bool {
        let keys = meeting.keys.iter().map(|(_, around)| around);
        let around: Vec<&Expr> = keys
            .chain(meeting.ranges.iter().map(|range| &range.around))
            .collect();
        let mut columns = self.outer.columns.iter();
        self.outer.known
            || columns.all(|column| around.iter().any(|around| is_outer(around, column)))
    }

    /// The first row by `sorts` of those that a comparison chooses; `None` where it does not bound what they are sorted by.
    pub(super) fn nearest(
        &mut self,
        sorts: &[SortExpr],
        input: &LogicalPlan,
    ) -> Made<Option<Pushed>> {
        let Some(nearest) = self.nearest_or_none(sorts, input)? else {
            return Ok(None);
        };
        let plan = filtered(nearest.plan, nearest.is_found)?;
        let outputs = nearest.outputs.into_iter();
        let outputs = outputs.map(|(column, value)| named(value, &column));
        self.answered(&nearest.values, plan, outputs.collect())
            .map(Some)
    }

    /// The same beside every value around, also where there is no such row.
    fn nearest_or_none(&self, sorts: &[SortExpr], input: &LogicalPlan) -> Made<Option<Nearest>> {
        let Some((first, ties)) = sorts.split_first() else {
            return Ok(None);
        };
        let Some(meeting) = self.meeting(input)? else {
            return Ok(None);
        };
        let order = meeting.over_rows(first.expr.clone())?;
        // The last up to a value comes first where the order is a descending one.
        let (towards, beyond): (Vec<&Range>, Vec<&Range>) = meeting
            .ranges
            .iter()
            .partition(|range| range.is_up_to() != first.asc);
        let [range] = *towards else {
            return Ok(None);
        };
        if meeting.ranges.iter().any(|range| range.below != order) {
            return Ok(None);
        }
        let ties = ties.iter().map(|tie| {
            let expr = meeting.over_rows(tie.expr.clone())?;
            // The last one is taken.
            Ok(expr.sort(!tie.asc, !tie.nulls_first))
        });
        let ties = ties.collect::<Made<Vec<_>>>()?;
        if ties.iter().any(|tie| tie.expr.contains_outer()) {
            return Ok(None);
        }

        let mut payload = vec![order];
        let mut places = Vec::with_capacity(meeting.outputs.len());
        for (_, expr) in &meeting.outputs {
            let schema = meeting.rows.schema();
            places.push((payload.len(), expr.nullable(schema)?));
            if !expr.nullable(schema)? {
                payload.push(expr.clone());
                continue;
            }
            // A value that is NULL must not be passed over.
            let Ok(default) = ScalarValue::new_default(&expr.get_type(schema)?) else {
                return Ok(None);
            };
            payload.push(coalesce(vec![expr.clone(), Expr::Literal(default, None)]));
            payload.push(expr.clone().is_not_null());
        }
        let first_tie = payload.len();
        payload.extend(ties.iter().map(|tie| tie.expr.clone()));
        let merged = self.merged(&meeting, range, payload)?;
        let ties: Vec<SortExpr> = ties
            .iter()
            .zip(&merged.payload[first_tie..])
            .map(|(tie, column)| Expr::Column(column.clone()).sort(tie.asc, tie.nulls_first))
            .collect();
        let calls = merged.payload[..first_tie].iter().map(|column| {
            let function = WindowFunctionDefinition::WindowUDF(last_value_udwf());
            let argument = vec![Expr::Column(column.clone())];
            let ignoring = Some(NullTreatment::IgnoreNulls);
            merged.before(function, argument, range, ties.clone(), ignoring)
        });
        let (plan, results) = self.windowed(&merged, calls.collect(), "nearest")?;

        // A value around that is NULL comes behind all rows.
        let is_there = Expr::Column(merged.order.clone()).is_not_null();
        let mut is_found = is_there.and(Expr::Column(results[0].clone()).is_not_null());
        for range in beyond {
            let around = self.bound(&range.around, &merged.values)?;
            is_found = is_found.and(compared(Expr::Column(results[0].clone()), range.op, around));
        }
        let mut outputs = Vec::with_capacity(places.len());
        for ((column, _), (place, nullable)) in meeting.outputs.iter().zip(places) {
            let value = Expr::Column(results[place].clone());
            let value = match nullable {
                true => when(Expr::Column(results[place + 1].clone()), value).end()?,
                false => value,
            };
            outputs.push((column.clone(), value));
        }
        Ok(Some(Nearest {
            plan: filtered(plan, merged.is_around())?,
            is_found,
            outputs,
            values: Values {
                known: self.meets_no_null(&meeting),
                columns: merged.values,
            },
        }))
    }

    /// How the rows of a plan meet the values around, if by equalities and comparisons alone.
    fn meeting(&self, plan: &LogicalPlan) -> Made<Option<Meeting>> {
        let outer = &self.outer.columns;
        // What a query further out has is not known here.
        if !free(plan)?.iter().all(|column| outer.contains(column)) {
            return Ok(None);
        }
        let Some((rows, outputs, conditions)) = opened(plan, outer)? else {
            return Ok(None);
        };
        let (mut own, mut keys, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for condition in conditions {
            if !has_outer(&condition, outer)? {
                own.push(condition);
                continue;
            }
            let Some(range) = range_of(&condition) else {
                return Ok(None);
            };
            let data_type = range.below.get_type(rows.schema())?;
            let same = range.around.get_type(rows.schema())? == data_type;
            if !same || range.below.is_volatile() || range.around.is_volatile() {
                return Ok(None);
            }
            match range.op {
                Operator::Eq if has_one_form(&data_type) => keys.push((range.below, range.around)),
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                    if has_one_form(&data_type) =>
                {
                    ranges.push(range);
                }
                _ => return Ok(None),
            }
        }
        let there = keys.iter().map(|(below, _)| below);
        let there = there.chain(ranges.iter().map(|range| &range.below));
        own.extend(there.map(|below| below.clone().is_not_null()));
        let rows = match conjunction(own) {
            Some(own) => filtered(rows, own)?,
            None => rows,
        };
        Ok(Some(Meeting {
            rows,
            outputs,
            keys,
            ranges,
        }))
    }

    /// The values around and the rows below, these with `payload`, of all keys that both have.
    fn merged(&self, meeting: &Meeting, range: &Range, payload: Vec<Expr>) -> Made<Merged> {
        let (domain, values) = self.outer.domain(self.names)?;
        let mut around = Vec::with_capacity(meeting.keys.len() + 1);
        for (_, key) in &meeting.keys {
            around.push(self.bound(key, &values)?);
        }
        around.push(self.bound(&range.around, &values)?);

        // Few values around ask few of the rows: those of other keys need no place in the order.
        let mut rows = meeting.rows.clone();
        if !meeting.keys.is_empty()
            && let Some((asking, values)) = self.outer.again(self.names)?
        {
            let asked = fresh(self.names, meeting.keys.len());
            let mut keys = Vec::with_capacity(asked.len());
            for ((_, key), name) in meeting.keys.iter().zip(&asked) {
                keys.push(named(self.bound(key, &values)?, name));
            }
            let keys = Projection::try_new(keys, Arc::new(asking))?;
            let keys = LogicalPlan::Projection(keys);
            let on = meeting.keys.iter().map(|(below, _)| below.clone());
            let on = on.zip(columns(&asked)).collect();
            rows = joined(Arc::new(rows), Arc::new(keys), JoinType::LeftSemi, on, None)?;
        }

        let nothing = |data_type: &DataType| -> Made<Expr> {
            Ok(Expr::Literal(ScalarValue::try_from(data_type)?, None))
        };
        let mut of_values = columns(&values);
        of_values.extend(around);
        of_values.push(lit(1_i32));
        let mut of_rows = Vec::with_capacity(of_values.len() + payload.len());
        for place in 0..values.len() {
            of_rows.push(nothing(self.outer.data_type(place))?);
        }
        of_rows.extend(meeting.keys.iter().map(|(below, _)| below.clone()));
        of_rows.push(range.below.clone());
        of_rows.push(lit(0_i32));
        for expr in payload {
            of_values.push(nothing(&expr.get_type(rows.schema())?)?);
            of_rows.push(expr);
        }
        let names = fresh(self.names, of_rows.len());
        let side = |exprs: Vec<Expr>, input: LogicalPlan| -> Made<Arc<LogicalPlan>> {
            let exprs = exprs.into_iter().zip(&names);
            let exprs = exprs.map(|(expr, name)| named(expr, name)).collect();
            let projection = Projection::try_new(exprs, Arc::new(input))?;
            Ok(Arc::new(LogicalPlan::Projection(projection)))
        };
        let inputs = vec![side(of_values, domain)?, side(of_rows, rows)?];
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let mut all = plan.schema().columns().into_iter();
        Ok(Merged {
            values: all.by_ref().take(values.len()).collect(),
            keys: all.by_ref().take(meeting.keys.len()).collect(),
            order: all.next().ok_or(super::Stop::Not)?,
            side: all.next().ok_or(super::Stop::Not)?,
            payload: all.collect(),
            plan,
        })
    }

    /// The merged rows with what windows have of them, and these columns.
    fn windowed(
        &self,
        merged: &Merged,
        calls: Vec<WindowFunction>,
        called: &str,
    ) -> Made<(LogicalPlan, Vec<Column>)> {
        let names = calls.iter().map(|_| self.names.next(called));
        let names: Vec<String> = names.collect();
        let calls = calls.into_iter().zip(&names);
        let calls = calls.map(|(call, name)| Expr::WindowFunction(Box::new(call)).alias(name));
        let window = Window::try_new(calls.collect(), Arc::new(merged.plan.clone()))?;
        let results = names.into_iter().map(Column::new_unqualified).collect();
        Ok((LogicalPlan::Window(window), results))
    }

    /// The outputs beside the values that they are of.
    fn answered(&self, of: &Values, plan: LogicalPlan, outputs: Vec<Expr>) -> Made<Pushed> {
        let values = fresh(self.names, of.columns.len());
        let mut exprs = outputs;
        let beside = columns(&of.columns).into_iter().zip(&values);
        exprs.extend(beside.map(|(value, name)| named(value, name)));
        let projection = Projection::try_new(exprs, Arc::new(plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Projection(projection),
            values,
            known: of.known,
        })
    }
}

impl Meeting {
    /// An expression over the plan as one over the rows.
    fn over_rows(&self, expr: Expr) -> Made<Expr> {
        over(expr, &self.outputs)
    }
}

impl Merged {
    fn is_around(&self) -> Expr {
        Expr::Column(self.side.clone()).eq(lit(1_i32))
    }

    /// A function of the rows that `range` chooses of each value around: those up to it in the order.
    fn before(
        &self,
        function: WindowFunctionDefinition,
        args: Vec<Expr>,
        range: &Range,
        ties: Vec<SortExpr>,
        null_treatment: Option<NullTreatment>,
    ) -> WindowFunction {
        let order = Expr::Column(self.order.clone()).sort(range.is_up_to(), false);
        let side = Expr::Column(self.side.clone()).sort(range.is_inclusive(), false);
        let mut order_by = vec![order, side];
        order_by.extend(ties);
        WindowFunction {
            fun: function,
            params: WindowFunctionParams {
                args,
                partition_by: columns(&self.keys),
                order_by,
                window_frame: WindowFrame::new_bounds(
                    WindowFrameUnits::Rows,
                    WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::CurrentRow,
                ),
                filter: None,
                null_treatment,
                distinct: false,
            },
        }
    }
}

type Opened = (LogicalPlan, Vec<(Column, Expr)>, Vec<Expr>);

/// A plan as columns of rows that do not depend on values around, under conditions that may.
fn opened(plan: &LogicalPlan, outer: &[Column]) -> Made<Option<Opened>> {
    if !refers(plan, outer)? {
        return Ok(Some((plan.clone(), own(plan), vec![])));
    }
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => opened(&subquery.subquery, outer)?,
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((rows, outputs, conditions)) = opened(&alias.input, outer)? else {
                return Ok(None);
            };
            let names = alias.schema.columns().into_iter();
            let outputs = names.zip(outputs.into_iter().map(|(_, expr)| expr));
            Some((rows, outputs.collect(), conditions))
        }
        LogicalPlan::Projection(projection) => {
            let Some((rows, below, conditions)) = opened(&projection.input, outer)? else {
                return Ok(None);
            };
            let Some(outputs) = projected(projection, &below)? else {
                return Ok(None);
            };
            Some((rows, outputs, conditions))
        }
        LogicalPlan::Filter(filter) => {
            let Some((rows, outputs, mut conditions)) = opened(&filter.input, outer)? else {
                return Ok(None);
            };
            for condition in split_conjunction(&filter.predicate) {
                if condition.is_volatile() {
                    return Ok(None);
                }
                match over(condition.clone(), &outputs)? {
                    Expr::Between(between) if !between.negated => {
                        let value = *between.expr;
                        conditions.push(value.clone().gt_eq(*between.low));
                        conditions.push(value.lt_eq(*between.high));
                    }
                    condition => conditions.push(condition),
                }
            }
            Some((rows, outputs, conditions))
        }
        _ => None,
    })
}

/// An expression over columns as one over what they are.
fn over(expr: Expr, outputs: &[(Column, Expr)]) -> Made<Expr> {
    replaced(expr, |column| {
        let (_, expr) = outputs.iter().find(|(known, _)| known == column)?;
        Some(expr.clone())
    })
}

/// A comparison of something below with something around.
fn range_of(condition: &Expr) -> Option<Range> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let is_below = |expr: &Expr| !expr.contains_outer() && expr.any_column_refs();
    let is_around = |expr: &Expr| expr.contains_outer() && !expr.any_column_refs();
    let (below, op, around) = if is_below(left) && is_around(right) {
        (left, *op, right)
    } else if is_around(left) && is_below(right) {
        (right, op.swap()?, left)
    } else {
        return None;
    };
    Some(Range {
        below: below.as_ref().clone(),
        op,
        around: around.as_ref().clone(),
    })
}

fn compared(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// Are values that compare as equal one in an order, and among keys? The two zeros of floats are not.
fn has_one_form(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_decimal()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(_, _)
                | DataType::Duration(_)
        )
}
