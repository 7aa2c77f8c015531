//! What the functions of a window are: read from DataFusion's expressions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::bool_and_or::{BoolAnd, BoolOr};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf, nth_value_udwf};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{WindowFrame, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Literal};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::column::is_opaque;
use warpline_gpu::primitives::RunningCombine;

use super::frame::{Bound, Frame};
use super::{aggregate_of, check_filter};
use crate::decorrelate::last_known;
use crate::reason::{Reason, refuse};
use crate::translate::is_decimal;

/// The type in which extremes of another one run: truths are 0 and 1, floats the longer ones.
pub(super) fn runs_as(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Boolean => Some(DataType::Int8),
        DataType::Float32 => Some(DataType::Float64),
        _ => None,
    }
}

/// Rows or tiles that no table has. Numbers beyond say the same, and sums with them stay within 64 bits.
const FAR: i64 = 1 << 40;

/// A function of a window, with where its arguments are among all.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) kind: Kind,
    /// The first of its arguments.
    pub(super) argument: usize,
    pub(super) frame: Frame,
    pub(super) data_type: DataType,
    /// Only rows with a value of the argument count.
    pub(super) ignores_nulls: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(i64),
    /// The row so many before this one, or a value where there is none.
    Lag(i64, ScalarValue),
    FirstValue,
    LastValue,
    /// From 1, from the last row where negative.
    NthValue(i64),
    CountRows,
    Count,
    Sum,
    Average,
    /// Of decimals.
    DecimalAverage,
    Extreme(RunningCombine),
    /// A variance, or its root.
    Variance {
        sample: bool,
        root: bool,
    },
}

impl Kind {
    /// Is it the same whichever of several peers comes first?
    fn is_of_peers(&self) -> bool {
        matches!(
            self,
            Self::Rank | Self::DenseRank | Self::PercentRank | Self::CumeDist
        )
    }
}

/// Is it a built-in function? A user's function may bear the name of one.
fn is(function: &WindowUDF, built_in: &Arc<WindowUDF>) -> bool {
    function == built_in.as_ref()
}

impl Function {
    /// What the device makes of an expression; its arguments are added to `wanted`.
    pub(super) fn of(
        expr: &Arc<dyn WindowExpr>,
        wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self, Reason> {
        let keys = expr.partition_by().len() + expr.order_by().len();
        let argument = wanted.len() - keys;
        let data_type = expr.field()?.data_type().clone();
        if let Some(call) = aggregate_of(expr) {
            check_filter(expr)?;
            check_ordered(expr)?;
            let frame = Frame::of(expr.get_window_frame())?;
            let function = call.fun().inner();
            let truths = function.is::<BoolAnd>() || function.is::<BoolOr>();
            if truths && frame.start != Bound::Unbounded {
                // DataFusion has no answer either.
                return refuse(format!("{} runs on the CPU", expr.name()));
            }
            return Ok(Self {
                kind: aggregate_kind(call, wanted)?,
                argument,
                frame,
                data_type,
                ignores_nulls: false,
            });
        }
        let standard = expr.as_any().downcast_ref::<StandardWindowExpr>();
        let function = standard.and_then(|expr| {
            expr.get_standard_func_expr()
                .as_any()
                .downcast_ref::<WindowUDFExpr>()
        });
        let Some(function) = function else {
            return refuse(format!(
                "the window function {} runs on the CPU",
                expr.name()
            ));
        };
        // Neither is part of the interface.
        let described = format!("{function:?}");
        let reversed = described.contains("is_reversed: true");
        let ignores_nulls =
            described.contains("ignore_nulls: true") || is(function.fun(), &last_known());
        let (kind, frame) = standard_kind(function, expr.get_window_frame(), wanted)?;
        // DataFusion turns an order round to have one sort less: it counts from the other end then, and takes the first value for the last.
        let kind = match kind {
            Kind::NthValue(n) if reversed => Kind::NthValue(-n),
            Kind::Lag(before, otherwise) if reversed => Kind::Lag(-before, otherwise),
            kind => kind,
        };
        if !kind.is_of_peers() {
            check_ordered(expr)?;
        }
        if ignores_nulls && matches!(kind, Kind::Lag(0, _)) {
            return refuse(format!("{} runs on the CPU", expr.name()));
        }
        Ok(Self {
            kind,
            argument,
            frame,
            data_type,
            ignores_nulls,
        })
    }
}

/// Without an order it is nobody's promise which row comes before which.
fn check_ordered(expr: &Arc<dyn WindowExpr>) -> Result<(), Reason> {
    match expr.order_by().is_empty() {
        true => refuse(format!(
            "{} runs on the CPU: its window has no ORDER BY",
            expr.name()
        )),
        false => Ok(()),
    }
}

/// An aggregate over frames; its argument is added to `wanted`.
fn aggregate_kind(
    call: &AggregateFunctionExpr,
    wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<Kind, Reason> {
    let name = call.fun().name();
    let refused = || refuse(format!("{name} over a frame of rows runs on the CPU"));
    let arguments = call.expressions();
    let ([argument], false) = (arguments.as_slice(), call.is_distinct()) else {
        return refused();
    };
    let function = call.fun().inner();
    let return_type = call.field().data_type().clone();
    let kind = if function.is::<Count>() {
        let constant = argument.downcast_ref::<Literal>();
        match constant.is_some_and(|literal| !literal.value().is_null()) {
            true => return Ok(Kind::CountRows),
            false => Kind::Count,
        }
    } else if function.is::<Sum>() {
        match &return_type {
            DataType::Int64 | DataType::UInt64 | DataType::Float64 => Kind::Sum,
            other if is_decimal(other) => Kind::Sum,
            _ => return refused(),
        }
    } else if function.is::<Avg>() {
        match &return_type {
            DataType::Float64 => Kind::Average,
            DataType::Decimal128(..) => Kind::DecimalAverage,
            _ => return refused(),
        }
    } else if function.is::<Min>() || function.is::<BoolAnd>() {
        Kind::Extreme(RunningCombine::Min)
    } else if function.is::<Max>() || function.is::<BoolOr>() {
        Kind::Extreme(RunningCombine::Max)
    } else {
        let (sample, root) = match () {
            () if function.is::<VarianceSample>() => (true, false),
            () if function.is::<VariancePopulation>() => (false, false),
            () if function.is::<Stddev>() => (true, true),
            () if function.is::<StddevPop>() => (false, true),
            () => return refused(),
        };
        let argument = Arc::clone(argument);
        wanted.push(Arc::new(CastExpr::new(argument, DataType::Float64, None)));
        return Ok(Kind::Variance { sample, root });
    };
    if matches!(kind, Kind::Extreme(_)) && is_opaque(&return_type) {
        return refused();
    }
    // In another type while they run.
    let running = matches!(kind, Kind::Extreme(_)).then(|| runs_as(&return_type));
    let argument = Arc::clone(argument);
    wanted.push(match running.flatten() {
        Some(running) => Arc::new(CastExpr::new(argument, running, None)),
        None => argument,
    });
    Ok(kind)
}

/// A function that is no aggregate; its argument is added to `wanted`.
fn standard_kind(
    expr: &WindowUDFExpr,
    frame: &WindowFrame,
    wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<(Kind, Frame), Reason> {
    let function = expr.fun().as_ref();
    let constant = |number: usize| -> Result<Option<ScalarValue>, Reason> {
        match expr.args().get(number) {
            None => Ok(None),
            Some(argument) => match argument.downcast_ref::<Literal>() {
                Some(literal) => Ok(Some(literal.value().clone())),
                None => refuse(format!(
                    "{} with an argument that is not constant runs on the CPU",
                    function.name()
                )),
            },
        }
    };
    let integer = |number: usize| -> Result<Option<i64>, Reason> {
        Ok(match constant(number)? {
            Some(value) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(value) => value,
                _ => None,
            },
            None => None,
        })
    };
    for (built_in, kind) in [
        (row_number_udwf(), Kind::RowNumber),
        (rank_udwf(), Kind::Rank),
        (dense_rank_udwf(), Kind::DenseRank),
        (percent_rank_udwf(), Kind::PercentRank),
        (cume_dist_udwf(), Kind::CumeDist),
    ] {
        if is(function, &built_in) {
            return Ok((kind, Frame::WHOLE));
        }
    }
    if is(function, &ntile_udwf()) {
        return match integer(0)?.filter(|tiles| *tiles > 0) {
            Some(tiles) => Ok((Kind::Ntile(tiles.min(FAR)), Frame::WHOLE)),
            None => refuse("ntile of no tiles runs on the CPU"),
        };
    }
    let Some(argument) = expr.args().first() else {
        return refuse(format!(
            "the window function {} runs on the CPU",
            function.name()
        ));
    };
    let (lag, lead) = (is(function, &lag_udwf()), is(function, &lead_udwf()));
    let kind = if lag || lead {
        let rows = integer(1)?.unwrap_or(1);
        let before = match lag {
            true => rows,
            false => rows.saturating_neg(),
        };
        let before = before.clamp(-FAR, FAR);
        let otherwise = constant(2)?.unwrap_or(ScalarValue::Null);
        (Kind::Lag(before, otherwise), Frame::WHOLE)
    } else if is(function, &first_value_udwf()) {
        (Kind::FirstValue, Frame::of(frame)?)
    } else if is(function, &last_value_udwf()) || is(function, &last_known()) {
        (Kind::LastValue, Frame::of(frame)?)
    } else if is(function, &nth_value_udwf()) {
        match integer(1)?.filter(|n| *n != 0 && *n != i64::MIN) {
            Some(n) => (Kind::NthValue(n.clamp(-FAR, FAR)), Frame::of(frame)?),
            None => return refuse("the nth_value of no number runs on the CPU"),
        }
    } else {
        return refuse(format!(
            "the window function {} runs on the CPU",
            function.name()
        ));
    };
    wanted.push(Arc::clone(argument));
    Ok(kind)
}
