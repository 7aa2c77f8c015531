//! Times of which only days, hours, minutes or seconds matter: they have few values where the times themselves have many.
//!
//! `to_char(at, '%Y-%m')` and `CAST(date_trunc('hour', at) AS VARCHAR)` are looked up by the number of the day or hour: half a year of
//! nanoseconds has 182 days and 4,368 hours.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions::datetime::date_bin::DateBinFunc;
use datafusion::functions::datetime::date_trunc::DateTruncFunc;
use datafusion::functions::datetime::to_char::ToCharFunc;
use datafusion::functions::datetime::{date_trunc, to_local_time};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpline_gpu::expr::{BinaryOp, Expr};

use super::calendar::{constant, interval, nanoseconds_a_tick, string};
use super::{Scope, node};
use crate::rel::expr::{binary, cast};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The expression, whose texts of timestamps in a constant format are those of the timestamps cut to what the format shows.
pub(super) fn cut_to_formats(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let cut = Arc::clone(expr).transform_up(|e| {
        let Some(call) = e.downcast_ref::<ScalarFunctionExpr>() else {
            return Ok(Transformed::no(e));
        };
        let (true, [value, format]) = (call.fun().inner().is::<ToCharFunc>(), call.args()) else {
            return Ok(Transformed::no(e));
        };
        let DataType::Timestamp(_, zone) = value.data_type(schema)? else {
            return Ok(Transformed::no(e));
        };
        let Some(span) = string(format).and_then(shown) else {
            return Ok(Transformed::no(e));
        };
        let call = |function, arguments| {
            let options = Arc::new(ConfigOptions::default());
            ScalarFunctionExpr::try_new(function, arguments, schema, options).map(Arc::new)
        };
        // Texts of these formats do not tell the zone.
        let value: Arc<dyn PhysicalExpr> = match zone {
            Some(_) => call(to_local_time(), vec![Arc::clone(value)])?,
            None => Arc::clone(value),
        };
        let cut = call(date_trunc(), vec![lit(span), value])?;
        let arguments = vec![cut as _, Arc::clone(format)];
        Ok(Transformed::yes(e.with_new_children(arguments)?))
    })?;
    Ok(cut.data)
}

/// The shortest span that a format of `strftime` shows; `None` where it shows parts of a second, or something else.
fn shown(format: &str) -> Option<&'static str> {
    let mut finest = 0;
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        if next != '%' {
            continue;
        }
        let mut specifier = rest.next()?;
        // How numbers are padded.
        if matches!(specifier, '-' | '_' | '0') {
            specifier = rest.next()?;
        }
        finest = finest.max(match specifier {
            'Y' | 'C' | 'y' | 'q' | 'm' | 'b' | 'B' | 'h' | 'd' | 'e' | 'a' | 'A' | 'w' | 'u'
            | 'U' | 'W' | 'G' | 'g' | 'V' | 'j' | 'D' | 'x' | 'F' | 'v' | 't' | 'n' | '%' => 0,
            'H' | 'k' | 'I' | 'l' | 'P' | 'p' => 1,
            'M' | 'R' => 2,
            'S' | 'T' | 'X' | 'r' | 'c' | 's' => 3,
            _ => return None,
        });
    }
    ["day", "hour", "minute", "second"].get(finest).copied()
}

/// How a time is had again from the number of its span.
pub(super) struct Spans {
    /// Ticks of a span.
    ticks: i64,
    data_type: DataType,
}

impl Spans {
    /// The time at the beginning of the span whose number is a column.
    pub(super) fn begin(&self, number: Column) -> Arc<dyn PhysicalExpr> {
        let ticks = BinaryExpr::new(Arc::new(number), Operator::Multiply, lit(self.ticks));
        let cast = CastExpr::new(Arc::new(ticks), self.data_type.clone(), None);
        Arc::new(cast)
    }
}

/// The number of the span in which a time lies that is cut to its begin; `None` for other expressions.
pub(super) fn number(expr: &Arc<dyn PhysicalExpr>, scope: &mut Scope<'_>) -> Option<(Expr, Spans)> {
    let span = span(expr)?;
    let data_type = expr.data_type(scope.schema).ok()?;
    let DataType::Timestamp(_, None) = data_type else {
        return None;
    };
    let ticks = span / nanoseconds_a_tick(&data_type)?;
    let begin = cast(node(expr, scope).ok()?, DataType::Int64);
    let ticks_each = Expr::literal(ticks.into());
    let number = binary(BinaryOp::Divide, begin, ticks_each, DataType::Int64);
    Some((number, Spans { ticks, data_type }))
}

/// Nanoseconds of which the values of an expression are multiples, a second at least.
fn span(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let function = call.fun().inner();
    match call.args() {
        [to, _] if function.is::<DateTruncFunc>() => match &*string(to)?.to_lowercase() {
            "second" => Some(SECOND),
            "minute" => Some(MINUTE),
            "hour" => Some(HOUR),
            "day" | "week" | "month" | "quarter" | "year" => Some(DAY),
            _ => None,
        },
        [stride, _] if function.is::<DateBinFunc>() => {
            let stride = interval(constant(stride)?)?;
            let days = i64::from(stride.days).checked_mul(DAY)?;
            let nanoseconds = days.checked_add(stride.nanoseconds)?;
            let possible = stride.months == 0 && nanoseconds > 0 && nanoseconds % SECOND == 0;
            possible.then_some(nanoseconds)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn formats_show_spans() {
        for (format, span) in [
            ("%Y-%m", Some("day")),
            ("100%% %-d.%_m.%y, week %V", Some("day")),
            ("", Some("day")),
            ("%d %I %p", Some("hour")),
            ("%H:%M", Some("minute")),
            ("%F %T", Some("second")),
            ("%s", Some("second")),
            ("%T%.3f", None),
            ("%f", None),
            ("%Y %Z", None),
            ("%:z", None),
            ("%", None),
        ] {
            assert_eq!(shown(format), span, "{format}");
        }
    }
}
