//! The columns of the states that DataFusion keeps for these functions, and calls that merge them.

use arrow::datatypes::DataType;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};
use warpline_gpu::pipeline::AggregateCall;

use super::super::aggregate::Call;
use super::super::states::StateColumn;
use super::{FLOAT, Moment, MomentCall, Regression, States, name_of};
use crate::reason::Reason;
use crate::rel::expr::{binary, cast, or_zero};

/// A column of the state that DataFusion's accumulator of a function keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// How many rows count.
    Rows,
    /// The mean of an argument.
    Mean(usize),
    /// The sum of products of what two arguments differ from their means by.
    Product(usize, usize),
}

impl Moment {
    /// The columns of the state of its accumulator.
    fn state(self) -> &'static [Part] {
        use Part::{Mean, Product, Rows};
        match self {
            Self::VariancePopulation
            | Self::VarianceSample
            | Self::DeviationPopulation
            | Self::DeviationSample => &[Rows, Mean(0), Product(0, 0)],
            Self::CovariancePopulation | Self::CovarianceSample => {
                &[Rows, Mean(0), Mean(1), Product(0, 1)]
            }
            Self::Correlation => &[
                Rows,
                Mean(0),
                Product(0, 0),
                Mean(1),
                Product(1, 1),
                Product(0, 1),
            ],
            Self::Regression(_) => &[
                Rows,
                Mean(1),
                Mean(0),
                Product(1, 1),
                Product(0, 0),
                Product(0, 1),
            ],
        }
    }
}

impl MomentCall {
    /// The columns of DataFusion's state: 0 where no row counts.
    pub(in crate::rel::convert) fn state_columns(&self) -> Vec<StateColumn> {
        let parts = self.moment.state().iter();
        parts.map(|part| self.state_column(*part)).collect()
    }

    fn state_column(&self, part: Part) -> StateColumn {
        let whole = self.clone();
        match part {
            Part::Rows => StateColumn {
                calls: vec![Call::Plain(self.rows())],
                value: Box::new(|of| Ok(cast(or_zero(first(of)?)?, DataType::UInt64))),
            },
            Part::Mean(i) => {
                let argument = self.arguments[i].clone();
                let calls = self.of_mean(&argument).into_iter().map(Call::Plain);
                StateColumn {
                    calls: calls.collect(),
                    value: Box::new(move |of| {
                        let mean = whole.mean(&argument, &mut of.iter().cloned());
                        or_zero(mean.ok_or_else(|| Reason::new("a state lacks a mean"))?)
                    }),
                }
            }
            Part::Product(a, b) => {
                let of = match (a, b) {
                    (0, 0) => Regression::SumYY,
                    (1, 1) => Regression::SumXX,
                    _ => Regression::SumXY,
                };
                let moment = Moment::Regression(of);
                StateColumn {
                    calls: vec![Call::Moment(Self { moment, ..whole })],
                    value: Box::new(|of| or_zero(first(of)?)),
                }
            }
        }
    }

    /// Sums of the arguments and of their products, which DataFusion keeps of correlations within groups: rows, x, y, xy, xx
    /// and yy.
    pub(in crate::rel::convert) fn correlation_sums(&self) -> Option<[AggregateCall; 6]> {
        let [x, y] = self.arguments.as_slice() else {
            return None;
        };
        if self.moment != Moment::Correlation {
            return None;
        }
        let product = |a: &Expr, b: &Expr| binary(BinaryOp::Multiply, a.clone(), b.clone(), FLOAT);
        Some([
            self.rows(),
            self.sum(x.clone()),
            self.sum(y.clone()),
            self.sum(product(x, y)),
            self.sum(product(x, x)),
            self.sum(product(y, y)),
        ])
    }
}

fn first(of: &[Expr]) -> Result<Expr, Reason> {
    let first = of.first().cloned();
    first.ok_or_else(|| Reason::new("a state lacks a column"))
}

/// Is it a function whose state has rows, means and sums of products, or, of correlations within groups, sums?
pub(in crate::rel::convert) fn has_state(call: &AggregateFunctionExpr) -> bool {
    Moment::of(call).is_some()
}

/// Is it a correlation?
pub(in crate::rel::convert) fn is_correlation(call: &AggregateFunctionExpr) -> bool {
    Moment::of(call) == Some(Moment::Correlation)
}

/// The call over states with these columns, if it is of such a function.
pub(in crate::rel::convert) fn of_states(
    call: &AggregateFunctionExpr,
    columns: &[Expr],
) -> Result<Option<MomentCall>, Reason> {
    let Some(moment) = Moment::of(call) else {
        return Ok(None);
    };
    let mut arguments = vec![None; moment.arguments()];
    let mut products = Vec::new();
    let mut rows = None;
    for (part, column) in moment.state().iter().zip(columns) {
        match part {
            Part::Rows => rows = Some(cast(column.clone(), DataType::Int64)),
            Part::Mean(i) => arguments[*i] = Some(column.clone()),
            Part::Product(a, b) => products.push(((*a, *b), column.clone())),
        }
    }
    let lacking = || Reason::new(format!("the state of {} lacks a column", call.name()));
    let arguments: Option<Vec<Expr>> = arguments.into_iter().collect();
    let rows = rows.ok_or_else(lacking)?;
    let none = Expr::literal(ScalarValue::Int64(Some(0)));
    Ok(Some(MomentCall {
        moment,
        arguments: arguments.ok_or_else(lacking)?,
        counts: Some(binary(BinaryOp::Gt, rows.clone(), none, DataType::Boolean)),
        states: Some(States { rows, products }),
        distinct: false,
        name: name_of(call),
    }))
}
