//! The phases of an aggregation where they run apart: rows to states, states to states, states to values.
//!
//! A state has the columns that DataFusion declares (`state_fields` of each call, behind the keys) with what its accumulators
//! leave in them, so that either side finishes what the other began. A group may come any number of times: DataFusion has it
//! once for each partition, and for each row where grouping does not reduce them.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::functions_aggregate::approx_distinct::ApproxDistinct;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateOutputMode,
};
use datafusion::scalar::ScalarValue;
use warpline_gpu::column::is_opaque;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};
use warpline_gpu::pipeline::{AggregateCall, AggregateFunction};

use super::aggregate::{self, Call, decimal_average};
use super::grouping::{Grouping, grouping};
use super::{Converter, Inputs, grouping_sets, moments, order};
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, case, cast, is_nan, is_not_null, null, or_zero};
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, is_decimal, is_string, is_value};

const FLOAT: DataType = DataType::Float64;

/// What an aggregation is to the rows that its fragment reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase<'a> {
    /// All of it: values of rows.
    Whole(&'a AggregateExec),
    /// A phase alone: to states or of states. Groups come once on the device, so that states need not be merged before they leave.
    Apart(&'a AggregateExec),
}

impl<'a> Phase<'a> {
    /// The phases that `root` ends, above `inputs`.
    pub(crate) fn of(root: &'a AggregateExec, inputs: &Inputs) -> Self {
        let raw = aggregate::raw_aggregate(root, inputs);
        match root.mode().output_mode() {
            AggregateOutputMode::Final => raw.map_or(Self::Apart(root), Self::Whole),
            AggregateOutputMode::Partial => Self::Apart(raw.unwrap_or(root)),
        }
    }

    /// The plan whose rows it reads.
    pub(crate) fn input(self) -> &'a Arc<dyn ExecutionPlan> {
        match self {
            Self::Whole(of) | Self::Apart(of) => of.input(),
        }
    }
}

/// Computes a column from what its calls computed.
type Computed = Box<dyn Fn(&[Expr]) -> Result<Expr, Reason>>;

/// A column of the groups: a part of a call's state, or its value.
pub(super) struct StateColumn {
    pub(super) calls: Vec<Call>,
    pub(super) value: Computed,
}

impl StateColumn {
    /// What one call computes.
    fn of(call: Call) -> Self {
        Self {
            calls: vec![call],
            value: Box::new(|of| column(of, 0)),
        }
    }

    /// The same, 0 where there is none.
    fn or_zero(call: Call) -> Self {
        Self {
            calls: vec![call],
            value: Box::new(|of| or_zero(column(of, 0)?)),
        }
    }
}

fn column(of: &[Expr], at: usize) -> Result<Expr, Reason> {
    let column = of.get(at).cloned();
    column.ok_or_else(|| Reason::new("a state lacks a column"))
}

/// The groups of `root`, one phase of an aggregation, over `input`.
pub(super) fn phase(
    root: &AggregateExec,
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let by = root.group_expr();
    let of_states = root.mode().input_mode() == AggregateInputMode::Partial;
    if of_states && by.has_grouping_set() {
        return refuse("grouping sets over the states of groups run on the CPU");
    }
    let grouping = grouping(by, input, converter)?;
    let keyed = !by.is_true_no_grouping();
    let mut columns = Vec::new();
    // States are behind the keys.
    let mut at = by.num_group_exprs();
    for (call, filter) in root.aggr_expr().iter().zip(root.filter_expr()) {
        let kept = Kept::of(call, keyed)?;
        let states = match of_states {
            // The rows that a filter leaves out are in no state.
            true => {
                let states = states(&kept, &grouping.input, &mut at)?;
                Source::States(states)
            }
            false => Source::Rows(filter.as_ref(), &grouping.input),
        };
        match root.mode().output_mode() {
            AggregateOutputMode::Partial => columns.extend(kept.state(&states)?),
            AggregateOutputMode::Final => columns.push(kept.value(&states)?),
        }
    }
    let rel = computed(root, &grouping, columns)?;
    // Any groups will do. A limit with an order only spares groups that a sort above leaves out.
    match root.limit_options() {
        Some(limit) if root.is_unordered_unfiltered_group_by_distinct() => {
            Ok(order::limit(rel, 0, Some(limit.limit() as u64)))
        }
        _ => Ok(rel),
    }
}

/// The groups with these columns behind the keys, named and typed as the plan's.
fn computed(
    root: &AggregateExec,
    grouping: &Grouping,
    columns: Vec<StateColumn>,
) -> Result<RelRef, Reason> {
    let by = root.group_expr();
    let schema = root.schema();
    let calls: Vec<Call> = columns.iter().flat_map(|c| c.calls.clone()).collect();
    let keys = schema.fields().len() - columns.len();
    let groups = match by.has_grouping_set() {
        true => {
            let number = schema.field(grouping.keys.len()).data_type().clone();
            grouping_sets::grouped(grouping, by.groups(), &number, &calls)?
        }
        false => aggregate::grouped(grouping, &calls)?,
    };
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for i in 0..keys {
        exprs.push((groups.column(i), groups.columns[i].name.clone()));
    }
    let mut at = keys;
    for (column, field) in columns.iter().zip(&schema.fields()[keys..]) {
        let of: Vec<Expr> = (at..at + column.calls.len())
            .map(|i| groups.column(i))
            .collect();
        at += column.calls.len();
        let value = (column.value)(&of)?;
        let value = match value.data_type == *field.data_type() {
            true => value,
            false => cast(value, field.data_type().clone()),
        };
        exprs.push((value, field.name().clone()));
    }
    Ok(Rel::project(groups, exprs))
}

/// What a phase reads of a call.
enum Source<'a> {
    /// Its arguments, of the rows that a filter leaves.
    Rows(Option<&'a Arc<dyn PhysicalExpr>>, &'a RelRef),
    /// The columns of its state.
    States(Vec<Expr>),
}

/// The columns of a call's state, from column `at` on.
fn states(kept: &Kept<'_>, input: &RelRef, at: &mut usize) -> Result<Vec<Expr>, Reason> {
    let mut states = Vec::with_capacity(kept.fields.len());
    for field in &kept.fields {
        let found = input.columns.get(*at);
        if found.is_none_or(|found| found.data_type != *field.data_type()) {
            return refuse(format!("its input lacks the state of {}", kept.name));
        }
        states.push(input.column(*at));
        *at += 1;
    }
    Ok(states)
}

/// What DataFusion keeps of a group for a call.
struct Kept<'a> {
    call: &'a AggregateFunctionExpr,
    name: String,
    fields: Vec<FieldRef>,
    kind: Kind,
    /// There are keys: then some accumulators keep something else.
    keyed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    /// One column, which the function itself merges.
    One(AggregateFunction),
    /// Count and sum.
    Average,
    /// Rows, means and sums of products of differences from them.
    Moments,
    /// Rows, sums and sums of products.
    CorrelationSums,
}

impl<'a> Kept<'a> {
    fn of(call: &'a AggregateFunctionExpr, keyed: bool) -> Result<Self, Reason> {
        let name = call.human_display().unwrap_or_else(|| call.name());
        let apart = "it runs on the CPU where its phases run apart";
        let fields = call.state_fields()?;
        // Distinct values are kept as lists, which are nothing to be merged by value.
        let is_other = |field: &&FieldRef| {
            let data_type = field.data_type();
            !is_value(data_type) && !is_string(data_type) || is_opaque(data_type)
        };
        if let Some(field) = fields.iter().find(is_other) {
            let data_type = field.data_type();
            return refuse(format!("the state of {name} has a {data_type}: {apart}"));
        }
        let kind = if call.fun().inner().is::<ApproxDistinct>() {
            return refuse(format!("the state of {name} is a sketch: {apart}"));
        } else if moments::has_state(call) {
            match keyed && moments::is_correlation(call) {
                true => Kind::CorrelationSums,
                false => Kind::Moments,
            }
        } else {
            match aggregate::function(call) {
                Ok(AggregateFunction::Count) => Kind::Count,
                Ok(AggregateFunction::Avg) => Kind::Average,
                Ok(function) => Kind::One(function),
                Err(_) => {
                    return refuse(format!(
                        "the device does not merge states of {name}: {apart}"
                    ));
                }
            }
        };
        let columns = match kind {
            Kind::Count | Kind::One(_) => 1,
            Kind::Average => 2,
            Kind::CorrelationSums => 6,
            Kind::Moments => fields.len(),
        };
        if fields.len() != columns {
            return refuse(format!(
                "the state of {name} is another than expected: {apart}"
            ));
        }
        Ok(Self {
            call,
            name: name.to_string(),
            fields,
            kind,
            keyed,
        })
    }

    /// The columns of the state.
    fn state(&self, source: &Source<'_>) -> Result<Vec<StateColumn>, Reason> {
        Ok(match self.kind {
            Kind::Count => vec![StateColumn::or_zero(self.count(source)?)],
            Kind::One(function) => vec![StateColumn::of(self.one(function, source)?)],
            Kind::Average => {
                let [count, sum] = self.average(source)?.map(Call::Plain);
                let keyed = self.keyed;
                let rows = StateColumn {
                    calls: vec![count, sum.clone()],
                    value: Box::new(move |of| {
                        let rows = cast(or_zero(column(of, 0)?)?, DataType::UInt64);
                        // Within groups there is no count of no rows.
                        match keyed {
                            true => {
                                let any = is_not_null(column(of, 1)?);
                                Ok(case(any, rows, null(&DataType::UInt64)?))
                            }
                            false => Ok(rows),
                        }
                    }),
                };
                vec![rows, StateColumn::of(sum)]
            }
            Kind::Moments => self.moments(source)?.state_columns(),
            Kind::CorrelationSums => {
                let sums = self.correlation_sums(source)?;
                sums.map(|sum| StateColumn::or_zero(Call::Plain(sum)))
                    .into()
            }
        })
    }

    /// The call's value.
    fn value(&self, source: &Source<'_>) -> Result<StateColumn, Reason> {
        let to = self.call.field().data_type().clone();
        Ok(match self.kind {
            Kind::Count => StateColumn::or_zero(self.count(source)?),
            Kind::One(function) => StateColumn::of(self.one(function, source)?),
            Kind::Average => StateColumn {
                calls: self.average(source)?.map(Call::Plain).into(),
                value: Box::new(move |of| quotient(column(of, 1)?, column(of, 0)?, &to)),
            },
            Kind::Moments => StateColumn::of(Call::Moment(self.moments(source)?)),
            Kind::CorrelationSums => StateColumn {
                calls: self.correlation_sums(source)?.map(Call::Plain).into(),
                value: Box::new(correlation),
            },
        })
    }

    fn count(&self, source: &Source<'_>) -> Result<Call, Reason> {
        Ok(Call::Plain(match source {
            Source::Rows(..) => self.of_rows(AggregateFunction::Count, source)?,
            Source::States(states) => {
                let count = column(states, 0)?;
                self.merged(AggregateFunction::Sum, count, DataType::Int64)
            }
        }))
    }

    fn one(&self, function: AggregateFunction, source: &Source<'_>) -> Result<Call, Reason> {
        let to = self.call.field().data_type().clone();
        let of = match source {
            Source::Rows(..) => self.of_rows(function, source)?,
            Source::States(states) => {
                let state = column(states, 0)?;
                let state = match to {
                    DataType::Boolean => cast(state, aggregate::TRUTH),
                    _ => state,
                };
                let of = state.data_type.clone();
                aggregate::check_argument(self.call, function, &state, &of)?;
                self.merged(function, state, of)
            }
        };
        Ok(match of.return_type == to {
            true => Call::Plain(of),
            false => Call::Cast(of, to),
        })
    }

    /// Count, as Int64, and sum.
    fn average(&self, source: &Source<'_>) -> Result<[AggregateCall; 2], Reason> {
        let summed = self.fields[1].data_type().clone();
        if summed != FLOAT && !is_decimal(&summed) {
            return refuse(format!("{} of {summed} runs on the CPU", self.name));
        }
        match source {
            Source::Rows(..) => {
                let of = self.of_rows(AggregateFunction::Avg, source)?;
                let count = AggregateCall {
                    function: AggregateFunction::Count,
                    return_type: DataType::Int64,
                    ..of.clone()
                };
                let sum = AggregateCall {
                    function: AggregateFunction::Sum,
                    return_type: summed,
                    ..of
                };
                Ok([count, sum])
            }
            Source::States(states) => {
                let count = cast(column(states, 0)?, DataType::Int64);
                let sum = column(states, 1)?;
                Ok([
                    self.merged(AggregateFunction::Sum, count, DataType::Int64),
                    self.merged(AggregateFunction::Sum, sum, summed),
                ])
            }
        }
    }

    fn moments(&self, source: &Source<'_>) -> Result<moments::MomentCall, Reason> {
        let found = match source {
            Source::Rows(filter, input) => {
                let schema = input.schema();
                moments::call(self.call, *filter, &mut Scope::whole(&schema))?
            }
            Source::States(states) => moments::of_states(self.call, states)?,
        };
        found.ok_or_else(|| Reason::new(format!("{} has no such state", self.name)))
    }

    fn correlation_sums(&self, source: &Source<'_>) -> Result<[AggregateCall; 6], Reason> {
        let lacking = || Reason::new(format!("{} has no such state", self.name));
        match source {
            Source::Rows(..) => {
                let sums = self.moments(source)?.correlation_sums();
                sums.ok_or_else(lacking)
            }
            Source::States(states) => {
                let states: &[Expr; 6] = states.as_slice().try_into().map_err(|_| lacking())?;
                let mut states = states.clone();
                states[0] = cast(states[0].clone(), DataType::Int64);
                Ok(states.map(|state| {
                    let of = state.data_type.clone();
                    self.merged(AggregateFunction::Sum, state, of)
                }))
            }
        }
    }

    /// What `function` computes of the call's arguments.
    fn of_rows(
        &self,
        function: AggregateFunction,
        source: &Source<'_>,
    ) -> Result<AggregateCall, Reason> {
        let Source::Rows(filter, input) = source else {
            return refuse(format!("{} has no arguments here", self.name));
        };
        let schema = input.schema();
        aggregate::aggregate_call(self.call, function, *filter, &mut Scope::whole(&schema))
    }

    /// What `function` makes of a column of states.
    fn merged(&self, function: AggregateFunction, state: Expr, to: DataType) -> AggregateCall {
        AggregateCall {
            function,
            argument: Some(state),
            filter: None,
            distinct: false,
            return_type: to,
            name: self.name.clone(),
        }
    }
}

/// The average of a sum over so many rows; NULL as the sum is.
fn quotient(sum: Expr, rows: Expr, to: &DataType) -> Result<Expr, Reason> {
    let scale = match to {
        DataType::Float64 => {
            let rows = cast(rows, FLOAT);
            return Ok(binary(BinaryOp::Divide, sum, rows, FLOAT));
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => *scale,
        other => return refuse(format!("an average of type {other} runs on the CPU")),
    };
    // The sum, brought to this scale, may be wider than the average.
    let wide = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
    Ok(decimal_average(sum, rows, wide))
}

/// A correlation of rows, x, y, xy, xx and yy, with DataFusion's formula.
fn correlation(of: &[Expr]) -> Result<Expr, Reason> {
    let rows = or_zero(column(of, 0)?)?;
    let [x, y, xy, xx, yy] = [1, 2, 3, 4, 5].map(|i| column(of, i));
    let (x, y, xy, xx, yy) = (x?, y?, xy?, xx?, yy?);
    let float = |op, a: Expr, b: Expr| binary(op, a, b, FLOAT);
    let truth = |op, a: Expr, b: Expr| binary(op, a, b, DataType::Boolean);
    let number = |value: f64| Expr::literal(ScalarValue::Float64(Some(value)));
    let count = cast(rows.clone(), FLOAT);
    let mean = |sum: &Expr| float(BinaryOp::Divide, sum.clone(), count.clone());
    // A sum of products without what the means make of it.
    let centred = |sum: Expr, of: &Expr, mean: Expr| {
        let product = float(BinaryOp::Multiply, of.clone(), mean);
        float(BinaryOp::Subtract, sum, product)
    };
    let numerator = centred(xy, &x, mean(&y));
    let square = float(
        BinaryOp::Multiply,
        centred(xx, &x, mean(&x)),
        centred(yy, &y, mean(&y)),
    );
    let root = Expr {
        nullable: square.nullable,
        data_type: FLOAT,
        node: Node::Math {
            function: MathFunction::Sqrt,
            arguments: vec![square.clone()],
        },
    };
    // Rounding may leave less than nothing, of which there is no root.
    let none = truth(BinaryOp::Lt, square, number(0.0));
    let denominator = case(none, number(f64::NAN), root);
    let varies = truth(BinaryOp::NotEq, denominator.clone(), number(0.0));
    let value = float(BinaryOp::Divide, numerator, denominator);
    let value = case(varies, value, null(&FLOAT)?);
    let two = Expr::literal(ScalarValue::Int64(Some(2)));
    let few = truth(BinaryOp::Lt, rows, two);
    let (x, y) = (is_nan(&x), is_nan(&y));
    let both = truth(BinaryOp::And, x.clone(), y.clone());
    let any = truth(BinaryOp::Or, few, truth(BinaryOp::Or, x, y));
    let known = case(any, null(&FLOAT)?, value);
    Ok(case(both, number(f64::NAN), known))
}
