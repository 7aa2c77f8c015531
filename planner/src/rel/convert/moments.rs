//! Variances, standard deviations, covariances, correlations and linear regressions, in two passes: the means of each
//! group, then the sums of products of what its rows differ from them by.
//!
//! DataFusion updates both at once (Welford); sums of squares alone, which one pass could add up, lose all digits where values
//! are large and alike. A mean lies between the least and the greatest value, so that a column that does not vary differs from
//! it by nothing, as in DataFusion.

mod states;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::correlation::Correlation;
use datafusion::functions_aggregate::covariance::{CovariancePopulation, CovarianceSample};
use datafusion::functions_aggregate::regr::Regr;
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::aggregate::Call;
use super::beside::beside_groups;
use super::grouping::Grouping;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{all_of, binary, case, cast, is_not_null, is_true, null, or_zero};
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, translate};

pub(super) use states::{has_state, is_correlation, of_states};

const FLOAT: DataType = DataType::Float64;

/// The functions, over one or two arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    VariancePopulation,
    VarianceSample,
    DeviationPopulation,
    DeviationSample,
    CovariancePopulation,
    CovarianceSample,
    Correlation,
    /// Of `regr_…(y, x)`.
    Regression(Regression),
}

/// What a regression line of pairs is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Regression {
    Slope,
    Intercept,
    Count,
    R2,
    MeanX,
    MeanY,
    SumXX,
    SumYY,
    SumXY,
}

impl Regression {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "regr_slope" => Self::Slope,
            "regr_intercept" => Self::Intercept,
            "regr_count" => Self::Count,
            "regr_r2" => Self::R2,
            "regr_avgx" => Self::MeanX,
            "regr_avgy" => Self::MeanY,
            "regr_sxx" => Self::SumXX,
            "regr_syy" => Self::SumYY,
            "regr_sxy" => Self::SumXY,
            _ => return None,
        })
    }
}

impl Moment {
    fn of(call: &AggregateFunctionExpr) -> Option<Self> {
        let function = call.fun().inner();
        Some(if function.is::<VariancePopulation>() {
            Self::VariancePopulation
        } else if function.is::<VarianceSample>() {
            Self::VarianceSample
        } else if function.is::<StddevPop>() {
            Self::DeviationPopulation
        } else if function.is::<Stddev>() {
            Self::DeviationSample
        } else if function.is::<CovariancePopulation>() {
            Self::CovariancePopulation
        } else if function.is::<CovarianceSample>() {
            Self::CovarianceSample
        } else if function.is::<Correlation>() {
            Self::Correlation
        } else if function.is::<Regr>() {
            Self::Regression(Regression::of(call.fun().name())?)
        } else {
            return None;
        })
    }

    fn arguments(self) -> usize {
        match self {
            Self::CovariancePopulation
            | Self::CovarianceSample
            | Self::Correlation
            | Self::Regression(_) => 2,
            _ => 1,
        }
    }

    /// The pairs of arguments of whose differences products are summed.
    fn products(self) -> &'static [(usize, usize)] {
        match self {
            Self::CovariancePopulation | Self::CovarianceSample => &[(0, 1)],
            Self::Correlation => &[(0, 1), (0, 0), (1, 1)],
            Self::Regression(of) => match of {
                Regression::Slope | Regression::Intercept => &[(0, 1), (1, 1)],
                Regression::R2 => &[(0, 1), (1, 1), (0, 0)],
                Regression::SumXX => &[(1, 1)],
                Regression::SumYY => &[(0, 0)],
                Regression::SumXY => &[(0, 1)],
                Regression::Count | Regression::MeanX | Regression::MeanY => &[],
            },
            _ => &[(0, 0)],
        }
    }

    /// The arguments whose means are part of the value.
    fn means(self) -> &'static [usize] {
        match self {
            Self::Regression(Regression::Intercept) => &[0, 1],
            Self::Regression(Regression::MeanX) => &[1],
            Self::Regression(Regression::MeanY) => &[0],
            _ => &[],
        }
    }
}

/// The states that a call merges, in place of rows.
#[derive(Debug, Clone)]
struct States {
    /// Rows that a state stands for.
    rows: Expr,
    /// Its sums of products, by arguments.
    products: Vec<((usize, usize), Expr)>,
}

/// A call of such a function.
#[derive(Debug, Clone)]
pub(super) struct MomentCall {
    moment: Moment,
    /// Of type Float64; of states, their means.
    pub(super) arguments: Vec<Expr>,
    /// It merges these.
    states: Option<States>,
    /// Rows count for which it is true: those that the call filters, with all arguments.
    pub(super) counts: Option<Expr>,
    /// Each value of the argument counts once.
    pub(super) distinct: bool,
    name: String,
}

impl MomentCall {
    /// What `function` computes of the rows that count.
    fn state(&self, function: AggregateFunction, argument: Option<Expr>) -> AggregateCall {
        AggregateCall {
            function,
            return_type: match function {
                AggregateFunction::Count => DataType::Int64,
                _ => FLOAT,
            },
            argument,
            filter: self.counts.clone(),
            distinct: false,
            name: format!("{} of {}", function.name(), self.name),
        }
    }

    /// The rows that count.
    fn rows(&self) -> AggregateCall {
        match &self.states {
            None => self.state(AggregateFunction::Count, None),
            Some(states) => AggregateCall {
                return_type: DataType::Int64,
                ..self.state(AggregateFunction::Sum, Some(states.rows.clone()))
            },
        }
    }

    /// The sum of an argument over the rows that count.
    fn sum(&self, argument: Expr) -> AggregateCall {
        let summed = match &self.states {
            None => argument,
            Some(states) => {
                let rows = cast(states.rows.clone(), FLOAT);
                binary(BinaryOp::Multiply, rows, argument, FLOAT)
            }
        };
        self.state(AggregateFunction::Sum, Some(summed))
    }

    /// What [`Self::mean`] is made of.
    fn of_mean(&self, argument: &Expr) -> Vec<AggregateCall> {
        let of = |function| self.state(function, Some(argument.clone()));
        let mut calls = match self.states {
            None => vec![of(AggregateFunction::Avg)],
            Some(_) => vec![self.sum(argument.clone()), self.rows()],
        };
        if !is_mean_exact(argument) {
            calls.extend([AggregateFunction::Min, AggregateFunction::Max].map(of));
        }
        calls
    }

    /// The mean of an argument, of as many of the `values` of [`Self::of_mean`].
    fn mean(&self, argument: &Expr, values: &mut impl Iterator<Item = Expr>) -> Option<Expr> {
        let first = values.next()?;
        let mean = match self.states {
            None => first,
            Some(_) => {
                let rows = cast(values.next()?, FLOAT);
                binary(BinaryOp::Divide, first, rows, FLOAT)
            }
        };
        match is_mean_exact(argument) {
            true => Some(mean),
            false => Some(between(mean, values.next()?, values.next()?)),
        }
    }

    /// The sum of products of these arguments' `differences` from their means.
    fn product(&self, (a, b): (usize, usize), differences: &[Expr]) -> Option<AggregateCall> {
        let (x, y) = (differences.get(a)?.clone(), differences.get(b)?.clone());
        let product = binary(BinaryOp::Multiply, x, y, FLOAT);
        let summed = match &self.states {
            None => product,
            Some(states) => {
                let known = |(pair, _): &&((usize, usize), Expr)| *pair == (a, b);
                let (_, within) = states.products.iter().find(known)?;
                let rows = cast(states.rows.clone(), FLOAT);
                let apart = binary(BinaryOp::Multiply, rows, product, FLOAT);
                binary(BinaryOp::Add, within.clone(), apart, FLOAT)
            }
        };
        Some(self.state(AggregateFunction::Sum, Some(summed)))
    }
}

fn name_of(call: &AggregateFunctionExpr) -> String {
    let name = call.human_display().unwrap_or_else(|| call.name());
    name.to_string()
}

/// The call, if it is of such a function.
pub(super) fn call(
    call: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    scope: &mut Scope<'_>,
) -> Result<Option<MomentCall>, Reason> {
    let Some(moment) = Moment::of(call) else {
        return Ok(None);
    };
    let name = call.fun().name();
    let distinct = call.is_distinct();
    if distinct && !matches!(moment, Moment::VariancePopulation | Moment::VarianceSample) {
        return refuse(format!("{name}(DISTINCT …) runs on the CPU"));
    }
    let filter = filter.map(|filter| translate(filter, scope)).transpose()?;
    let mut arguments = Vec::with_capacity(2);
    for argument in call.expressions() {
        let argument = translate(&argument, scope)?;
        arguments.push(match argument.data_type {
            DataType::Float64 => argument,
            _ => cast(argument, FLOAT),
        });
    }
    if arguments.len() != moment.arguments() {
        return refuse(format!(
            "{name} of {} arguments runs on the CPU",
            arguments.len()
        ));
    }
    // They are evaluated for all rows of a group, also those that a filter leaves out.
    if arguments.iter().any(Expr::may_fault) {
        return refuse(format!(
            "{name} of an expression that can fail runs on the CPU"
        ));
    }
    let known = arguments.iter().filter(|argument| argument.nullable);
    let known = known.cloned().map(is_not_null);
    let filter = filter.into_iter().filter(|filter| !is_true(filter));
    Ok(Some(MomentCall {
        moment,
        counts: all_of(filter.chain(known)),
        arguments,
        states: None,
        distinct,
        name: name_of(call),
    }))
}

/// The groups: keys, then what the calls compute, some of which are of these functions.
pub(super) fn grouped(grouping: &Grouping, calls: &[Call]) -> Result<RelRef, Reason> {
    let moments = || {
        calls.iter().filter_map(|call| match call {
            Call::Moment(call) => Some(call),
            Call::Plain(_) | Call::Cast(..) | Call::Ranked(_) => None,
        })
    };
    // Of those alone that ask for products.
    let centred = moments().filter(|call| !call.moment.products().is_empty());
    let means = centred.flat_map(|call| {
        let arguments = call.arguments.iter();
        arguments.flat_map(|argument| call.of_mean(argument))
    });
    let means: Vec<AggregateCall> = means.collect();
    let (rows, means) = match means.is_empty() {
        true => (Arc::clone(&grouping.input), 0..0),
        false => beside_groups(grouping, means),
    };
    let mut means = means.map(|i| rows.column(i));

    let mut summed = Vec::new();
    let mut values: Vec<Value> = Vec::with_capacity(calls.len());
    for call in calls {
        let at = summed.len();
        match call {
            Call::Plain(call) => {
                summed.push(call.clone());
                values.push(Value::Plain(at));
            }
            Call::Cast(call, data_type) => {
                summed.push(call.clone());
                values.push(Value::Cast(at, data_type));
            }
            Call::Moment(call) => {
                let products = call.moment.products();
                let mut differences: Vec<Expr> = Vec::with_capacity(2);
                for argument in call.arguments.iter().filter(|_| !products.is_empty()) {
                    let Some(mean) = call.mean(argument, &mut means) else {
                        return refuse(format!("{} lacks a mean", call.name));
                    };
                    let own = argument.clone();
                    differences.push(binary(BinaryOp::Subtract, own, mean, FLOAT));
                }
                summed.push(call.rows());
                for pair in products {
                    let Some(product) = call.product(*pair, &differences) else {
                        return refuse(format!("{} lacks a sum of products", call.name));
                    };
                    summed.push(product);
                }
                for of in call.moment.means() {
                    let of = call.arguments[*of].clone();
                    summed.push(match call.states {
                        None => call.state(AggregateFunction::Avg, Some(of)),
                        Some(_) => call.sum(of),
                    });
                }
                values.push(Value::Moment(call, at));
            }
            Call::Ranked(_) => return refuse("an order of rows below their means"),
        }
    }
    let aggregate = Aggregate {
        keys: grouping.keys.clone(),
        calls: summed,
    };
    let groups = Rel::aggregate(rows, aggregate, &grouping.names);
    let first = grouping.keys.len();
    let keys = (0..first).map(|i| Ok((groups.column(i), grouping.names[i].clone())));
    let values = values.iter().map(|value| value.of(&groups, first));
    let columns = keys.chain(values).collect::<Result<Vec<_>, Reason>>()?;
    Ok(Rel::project(groups, columns))
}

/// A column of the groups, by where its states begin.
enum Value<'a> {
    Plain(usize),
    Cast(usize, &'a DataType),
    Moment(&'a MomentCall, usize),
}

impl Value<'_> {
    fn of(&self, groups: &RelRef, first: usize) -> Result<(Expr, String), Reason> {
        let column = |at: usize| groups.column(first + at);
        let name = |at: usize| groups.columns[first + at].name.clone();
        Ok(match self {
            Self::Plain(at) => (column(*at), name(*at)),
            Self::Cast(at, data_type) => (cast(column(*at), (*data_type).clone()), name(*at)),
            Self::Moment(call, at) => {
                let moment = call.moment;
                let (products, means) = (moment.products().len(), moment.means().len());
                let mut count = column(*at);
                let mut sums: Vec<Expr> =
                    (0..products + means).map(|i| column(at + 1 + i)).collect();
                if call.states.is_some() {
                    count = or_zero(count)?;
                    let rows = cast(count.clone(), FLOAT);
                    for mean in &mut sums[products..] {
                        *mean = binary(BinaryOp::Divide, mean.clone(), rows.clone(), FLOAT);
                    }
                }
                (finished(moment, count, &sums)?, call.name.clone())
            }
        })
    }
}

/// The function of a group of `count` rows with these sums of products, then means.
fn finished(moment: Moment, count: Expr, sums: &[Expr]) -> Result<Expr, Reason> {
    let float = |value: f64| Expr::literal(ScalarValue::Float64(Some(value)));
    let rows = cast(count.clone(), FLOAT);
    let sample = || binary(BinaryOp::Subtract, rows.clone(), float(1.0), FLOAT);
    let over = |sum: &Expr, rows: Expr| binary(BinaryOp::Divide, sum.clone(), rows, FLOAT);
    let (value, least) = match moment {
        Moment::VariancePopulation | Moment::CovariancePopulation => (over(&sums[0], rows), 1),
        Moment::VarianceSample | Moment::CovarianceSample => (over(&sums[0], sample()), 2),
        Moment::DeviationPopulation => (root(over(&sums[0], rows)), 1),
        Moment::DeviationSample => (root(over(&sums[0], sample())), 2),
        Moment::Correlation => {
            // Of a column that does not vary there is none.
            let value = over(
                &over(&sums[0], root(sums[1].clone())),
                root(sums[2].clone()),
            );
            (if_not_zero(&sums[1..3], value)?, 2)
        }
        Moment::Regression(of) => match of {
            Regression::Count => return Ok(cast(count, DataType::UInt64)),
            Regression::MeanX
            | Regression::MeanY
            | Regression::SumXX
            | Regression::SumYY
            | Regression::SumXY => (sums[0].clone(), 1),
            Regression::Slope => (line(&sums[0], &sums[1])?, 2),
            Regression::Intercept => {
                let slope = line(&sums[0], &sums[1])?;
                let rise = binary(BinaryOp::Multiply, slope, sums[3].clone(), FLOAT);
                let base = binary(BinaryOp::Subtract, sums[2].clone(), rise, FLOAT);
                (base, 2)
            }
            Regression::R2 => {
                let per_row = |sum: &Expr| over(sum, rows.clone());
                let [xy, xx, yy] = [0, 1, 2].map(|i| per_row(&sums[i]));
                let square = binary(BinaryOp::Multiply, xy.clone(), xy, FLOAT);
                let both = binary(BinaryOp::Multiply, xx, yy, FLOAT);
                let value = over(&square, both);
                (if_not_zero(&sums[1..3], value)?, 2)
            }
        },
    };
    let enough = binary(
        BinaryOp::GtEq,
        count,
        Expr::literal(ScalarValue::Int64(Some(least))),
        DataType::Boolean,
    );
    Ok(case(enough, value, null(&FLOAT)?))
}

/// The slope of a line, of the sums of products of x and y and of squares of x.
fn line(xy: &Expr, xx: &Expr) -> Result<Expr, Reason> {
    let slope = binary(BinaryOp::Divide, xy.clone(), xx.clone(), FLOAT);
    if_not_zero(std::slice::from_ref(xx), slope)
}

/// `value`, NULL where one of the sums is 0.
fn if_not_zero(sums: &[Expr], value: Expr) -> Result<Expr, Reason> {
    let zero = || Expr::literal(ScalarValue::Float64(Some(0.0)));
    let varies = |sum: &Expr| binary(BinaryOp::NotEq, sum.clone(), zero(), DataType::Boolean);
    Ok(match all_of(sums.iter().map(varies)) {
        Some(varies) => case(varies, value, null(&FLOAT)?),
        None => value,
    })
}

/// Is the sum of equal values so many times each of them? Of integers of 32 bits it is, of as many as there are rows.
fn is_mean_exact(argument: &Expr) -> bool {
    match &argument.node {
        Node::Cast { value, .. } => {
            value.data_type.is_integer()
                && value.data_type.primitive_width().is_some_and(|w| w <= 4)
        }
        _ => false,
    }
}

/// A mean that rounding has not moved beyond the least and the greatest value.
fn between(mean: Expr, least: Expr, greatest: Expr) -> Expr {
    let less = |a: &Expr, b: &Expr| binary(BinaryOp::Lt, a.clone(), b.clone(), DataType::Boolean);
    let below = less(&mean, &least);
    let above = less(&greatest, &mean);
    case(below, least, case(above, greatest, mean))
}

pub(super) fn root(value: Expr) -> Expr {
    Expr {
        nullable: value.nullable,
        data_type: FLOAT,
        node: Node::Math {
            function: MathFunction::Sqrt,
            arguments: vec![value],
        },
    }
}
