//! Variances, standard deviations, covariances and correlations, in two passes: the means of each group, then the
//! sums of products of what its rows differ from them by.
//!
//! DataFusion updates both at once (Welford); sums of squares alone, which one pass could add up, lose all digits where values
//! are large and alike.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::correlation::Correlation;
use datafusion::functions_aggregate::covariance::{CovariancePopulation, CovarianceSample};
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::aggregate::{Call, Grouping};
use super::beside::beside_groups;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{all_of, binary, case, cast, is_not_null, is_true, null};
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, may_fault, translate};

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
        } else {
            return None;
        })
    }

    fn arguments(self) -> usize {
        match self {
            Self::CovariancePopulation | Self::CovarianceSample | Self::Correlation => 2,
            _ => 1,
        }
    }

    /// The pairs of arguments of whose differences products are summed.
    fn products(self) -> &'static [(usize, usize)] {
        match self {
            Self::CovariancePopulation | Self::CovarianceSample => &[(0, 1)],
            Self::Correlation => &[(0, 1), (0, 0), (1, 1)],
            _ => &[(0, 0)],
        }
    }
}

/// A call of such a function.
#[derive(Debug, Clone)]
pub(super) struct MomentCall {
    moment: Moment,
    /// Of type Float64.
    arguments: Vec<Expr>,
    /// Rows count for which it is true: those that the call filters, with all arguments.
    counts: Option<Expr>,
    name: String,
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
    if call.is_distinct() {
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
    if arguments.iter().any(may_fault) {
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
        name: call
            .human_display()
            .unwrap_or_else(|| call.name())
            .to_string(),
    }))
}

/// The groups: keys, then what the calls compute, some of which are of these functions.
pub(super) fn grouped(grouping: &Grouping, calls: &[Call]) -> Result<RelRef, Reason> {
    let moments = || {
        calls.iter().filter_map(|call| match call {
            Call::Moment(call) => Some(call),
            Call::Plain(_) | Call::Truth(_) => None,
        })
    };
    let means = moments().flat_map(|call| {
        call.arguments.iter().map(|argument| AggregateCall {
            function: AggregateFunction::Avg,
            argument: Some(argument.clone()),
            filter: call.counts.clone(),
            distinct: false,
            return_type: FLOAT,
            name: format!("mean of {}", call.name),
        })
    });
    let (rows, means) = beside_groups(grouping, means.collect());
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
            Call::Truth(call) => {
                summed.push(call.clone());
                values.push(Value::Truth(at));
            }
            Call::Moment(call) => {
                let differences: Vec<Expr> = call
                    .arguments
                    .iter()
                    .zip(means.by_ref())
                    .map(|(argument, mean)| {
                        binary(BinaryOp::Subtract, argument.clone(), mean, FLOAT)
                    })
                    .collect();
                summed.push(AggregateCall {
                    function: AggregateFunction::Count,
                    argument: None,
                    filter: call.counts.clone(),
                    distinct: false,
                    return_type: DataType::Int64,
                    name: format!("count of {}", call.name),
                });
                for (a, b) in call.moment.products() {
                    let (a, b) = (differences[*a].clone(), differences[*b].clone());
                    summed.push(AggregateCall {
                        function: AggregateFunction::Sum,
                        argument: Some(binary(BinaryOp::Multiply, a, b, FLOAT)),
                        filter: call.counts.clone(),
                        distinct: false,
                        return_type: FLOAT,
                        name: call.name.clone(),
                    });
                }
                values.push(Value::Moment(call, at));
            }
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
    Truth(usize),
    Moment(&'a MomentCall, usize),
}

impl Value<'_> {
    fn of(&self, groups: &RelRef, first: usize) -> Result<(Expr, String), Reason> {
        let column = |at: usize| groups.column(first + at);
        let name = |at: usize| groups.columns[first + at].name.clone();
        Ok(match self {
            Self::Plain(at) => (column(*at), name(*at)),
            Self::Truth(at) => (cast(column(*at), DataType::Boolean), name(*at)),
            Self::Moment(call, at) => {
                let sums: Vec<Expr> = (0..call.moment.products().len())
                    .map(|i| column(at + 1 + i))
                    .collect();
                (
                    finished(call.moment, column(*at), &sums)?,
                    call.name.clone(),
                )
            }
        })
    }
}

/// The function of a group of `count` rows with these sums of products.
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
            let varies = [&sums[1], &sums[2]]
                .map(|sum| binary(BinaryOp::NotEq, sum.clone(), float(0.0), DataType::Boolean));
            let value = over(
                &over(&sums[0], root(sums[1].clone())),
                root(sums[2].clone()),
            );
            let value = match all_of(varies) {
                Some(varies) => case(varies, value, null(&FLOAT)?),
                None => value,
            };
            (value, 2)
        }
    };
    let enough = binary(
        BinaryOp::GtEq,
        count,
        Expr::literal(ScalarValue::Int64(Some(least))),
        DataType::Boolean,
    );
    Ok(case(enough, value, null(&FLOAT)?))
}

fn root(value: Expr) -> Expr {
    Expr {
        nullable: value.nullable,
        data_type: FLOAT,
        node: Node::Math {
            function: MathFunction::Sqrt,
            arguments: vec![value],
        },
    }
}
