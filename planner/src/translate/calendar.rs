//! Functions of dates, times and timestamps, and arithmetic with intervals.

use std::sync::Arc;

use arrow::compute::kernels::cast_utils::IntervalUnit;
use arrow::datatypes::{DataType, IntervalDayTime, IntervalMonthDayNano, TimeUnit};
use datafusion::functions::datetime::date_bin::DateBinFunc;
use datafusion::functions::datetime::date_part::DatePartFunc;
use datafusion::functions::datetime::date_trunc::DateTruncFunc;
use datafusion::functions::datetime::from_unixtime::FromUnixtimeFunc;
use datafusion::functions::datetime::to_date::ToDateFunc;
use datafusion::functions::datetime::to_local_time::ToLocalTimeFunc;
use datafusion::functions::datetime::to_timestamp::{
    ToTimestampFunc, ToTimestampMicrosFunc, ToTimestampMillisFunc, ToTimestampNanosFunc,
    ToTimestampSecondsFunc,
};
use datafusion::functions::datetime::to_unixtime::ToUnixtimeFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, CastExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Calendar, DatePart, Expr, LocalSpan, Node, Span, Zone};

use super::cast::converted;
use super::{Scope, boxed, node};
use crate::interval_product::interval_product;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, case, cast};

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// The device's form of a call; `None` for what is no function of dates and times.
pub(super) fn function(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Option<Node>, Reason> {
    let function = expr.fun().inner();
    if function.is::<DatePartFunc>() {
        return date_part(expr, data_type, scope).map(Some);
    }
    if function.is::<DateTruncFunc>() {
        return date_trunc(expr, scope).map(Some);
    }
    if function.is::<DateBinFunc>() {
        return date_bin(expr, scope).map(Some);
    }
    if let ([value], true) = (expr.args(), function.is::<ToLocalTimeFunc>()) {
        return local(node(value, scope)?).map(|value| Some(value.node));
    }
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let casts = function.is::<ToTimestampSecondsFunc>()
        || function.is::<ToTimestampMillisFunc>()
        || function.is::<ToTimestampMicrosFunc>()
        || function.is::<ToTimestampNanosFunc>()
        || function.is::<FromUnixtimeFunc>()
        || function.is::<ToDateFunc>();
    let unix = function.is::<ToUnixtimeFunc>();
    let nanoseconds = function.is::<ToTimestampFunc>();
    if !(casts || unix || nanoseconds) {
        return Ok(None);
    }
    let name = expr.name();
    let [value, format @ ..] = expr.args() else {
        return refuse(format!("{name} without an argument"));
    };
    let value = node(value, scope)?;
    let from = value.data_type.clone();
    let number =
        from.is_integer() || from.is_floating() && !nanoseconds && !function.is::<ToDateFunc>();
    let time = matches!(from, DataType::Timestamp(..))
        || matches!(from, DataType::Date32 | DataType::Date64) && !casts
        || matches!(from, DataType::Date32 | DataType::Date64) && function.is::<ToDateFunc>();
    // The second argument of from_unixtime is the zone, which the type has.
    let formatted = !format.is_empty() && !function.is::<FromUnixtimeFunc>();
    if formatted || !(number || time) {
        return refuse(format!("{name} of {from} runs on the CPU"));
    }
    let steps = match (unix, nanoseconds) {
        _ if from.is_floating() => vec![DataType::Int64, data_type.clone()],
        (true, _) if !number => vec![seconds, DataType::Int64],
        (_, true) if number => vec![seconds, data_type.clone()],
        _ => vec![data_type.clone()],
    };
    steps
        .into_iter()
        .try_fold(value, |value, to| converted(value, &to, false))
        .map(|value| Some(value.node))
}

fn date_part(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let [part, value] = expr.args() else {
        return refuse("date_part without two arguments");
    };
    let Some(name) = string(part) else {
        return refuse("date_part of a field that is not constant");
    };
    let Some(part) = field(name) else {
        return refuse(format!("date_part('{name}') runs on the CPU"));
    };
    let expected = match part {
        DatePart::Epoch => DataType::Float64,
        DatePart::Nanosecond => DataType::Int64,
        _ => DataType::Int32,
    };
    let value = node(value, scope)?;
    // The epoch is the same in all zones.
    let value = match part {
        DatePart::Epoch => value,
        _ => local(value)?,
    };
    if let DataType::Duration(unit) = value.data_type
        && *data_type == expected
        && let Some(of) = part_of_duration(part, &value, unit)
    {
        return Ok(of.node);
    }
    let possible = match value.data_type {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => true,
        DataType::Time32(_) | DataType::Time64(_) => part.is_of_time() || part == DatePart::Epoch,
        _ => false,
    };
    if !possible || *data_type != expected {
        return refuse(format!(
            "date_part('{name}') of {} runs on the CPU",
            value.data_type
        ));
    }
    let value = Box::new(value);
    Ok(Node::DatePart { part, value })
}

/// All of a duration in weeks, days, hours, minutes or seconds, cut towards zero, as Arrow counts them: NULL past 32 bits. The epoch has the
/// part of a second as well, where all nanoseconds together are a number of 32 bits, as DataFusion has it. `None` for other parts.
fn part_of_duration(part: DatePart, value: &Expr, unit: TimeUnit) -> Option<Expr> {
    let second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let seconds = match part {
        DatePart::Week => 7 * 86_400,
        DatePart::Day => 86_400,
        DatePart::Hour => 3_600,
        DatePart::Minute => 60,
        DatePart::Second | DatePart::Epoch => 1,
        _ => return None,
    };
    let number = |number: i64| Expr::literal(ScalarValue::Int64(Some(number)));
    let of_number = |op, a: &Expr, b: i64, to| binary(op, a.clone(), number(b), to);
    let ticks = cast(value.clone(), DataType::Int64);
    let whole = of_number(BinaryOp::Divide, &ticks, second * seconds, DataType::Int64);
    let whole = Expr {
        data_type: DataType::Int32,
        nullable: true,
        node: Node::Cast {
            value: Box::new(whole),
            safe: true,
        },
    };
    if part != DatePart::Epoch {
        return Some(whole);
    }
    let whole = cast(whole, DataType::Float64);
    if unit == TimeUnit::Second {
        return Some(whole);
    }
    let nanoseconds = 1_000_000_000 / second;
    let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
    let short = binary(
        BinaryOp::And,
        of_number(
            BinaryOp::GtEq,
            &ticks,
            least / nanoseconds,
            DataType::Boolean,
        ),
        of_number(
            BinaryOp::LtEq,
            &ticks,
            most / nanoseconds,
            DataType::Boolean,
        ),
        DataType::Boolean,
    );
    let rest = of_number(BinaryOp::Modulo, &ticks, second, DataType::Int64);
    let rest = cast(rest, DataType::Float64);
    let second = Expr::literal(ScalarValue::Float64(Some(second as f64)));
    let rest = binary(BinaryOp::Divide, rest, second, DataType::Float64);
    let zero = Expr::literal(ScalarValue::Float64(Some(0.0)));
    let rest = case(short, rest, zero);
    Some(binary(BinaryOp::Add, whole, rest, DataType::Float64))
}

/// DataFusion's names of calendar fields: Arrow's interval units with their synonyms, then Postgres' own.
fn field(name: &str) -> Option<DatePart> {
    let unquoted = name
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.strip_suffix(['\'', '"']))
        .unwrap_or(name);
    if let Ok(unit) = unquoted.parse::<IntervalUnit>() {
        return Some(match unit {
            IntervalUnit::Year => DatePart::Year,
            IntervalUnit::Month => DatePart::Month,
            IntervalUnit::Week => DatePart::Week,
            IntervalUnit::Day => DatePart::Day,
            IntervalUnit::Hour => DatePart::Hour,
            IntervalUnit::Minute => DatePart::Minute,
            IntervalUnit::Second => DatePart::Second,
            IntervalUnit::Millisecond => DatePart::Millisecond,
            IntervalUnit::Microsecond => DatePart::Microsecond,
            IntervalUnit::Nanosecond => DatePart::Nanosecond,
            _ => return None,
        });
    }
    Some(match unquoted.to_lowercase().as_str() {
        "isoyear" => DatePart::IsoYear,
        "qtr" | "quarter" => DatePart::Quarter,
        "doy" => DatePart::DayOfYear,
        "dow" => DatePart::DayOfWeek,
        "isodow" => DatePart::IsoDayOfWeek,
        "epoch" => DatePart::Epoch,
        _ => return None,
    })
}

fn date_trunc(expr: &ScalarFunctionExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let [to, value] = expr.args() else {
        return refuse("date_trunc without two arguments");
    };
    let Some(to) = string(to).map(str::to_lowercase) else {
        return refuse("date_trunc to what is not constant");
    };
    let value = boxed(value, scope)?;
    let Some(nanoseconds) = nanoseconds_a_tick(&value.data_type) else {
        return refuse(format!("date_trunc of {} runs on the CPU", value.data_type));
    };
    let fine = match to.as_str() {
        "microsecond" => Some(1_000),
        "millisecond" => Some(1_000_000),
        "second" => Some(1_000_000_000),
        "minute" => Some(60_000_000_000),
        "hour" => Some(3_600_000_000_000),
        "day" => Some(DAY),
        _ => None,
    };
    let timestamp = matches!(value.data_type, DataType::Timestamp(..));
    let zone = zone(&value.data_type)?;
    let clocks = zone.filter(|zone| !zone.is_utc());
    if let Some(span) = fine {
        if !timestamp && span == DAY {
            return refuse(format!(
                "date_trunc('{to}') of {} runs on the CPU",
                value.data_type
            ));
        }
        if span <= nanoseconds {
            return Ok(value.node);
        }
        // Hours of a zone may begin at any minute.
        let coarse = span >= 3_600_000_000_000;
        let function = match clocks {
            Some(zone) if coarse => Calendar::LocalStart {
                zone,
                span: match span {
                    DAY => LocalSpan::Day,
                    _ => LocalSpan::Hour,
                },
            },
            _ => Calendar::Bin {
                stride: span / nanoseconds,
                origin: 0,
                // As DataFusion has it for hours and days of a zone alone.
                in_nanoseconds: coarse && zone.is_some(),
            },
        };
        return Ok(Node::Calendar { function, value });
    }
    let span = match to.as_str() {
        "week" => Span::Week,
        "month" => Span::Month,
        "quarter" => Span::Quarter,
        "year" => Span::Year,
        _ => return refuse(format!("date_trunc('{to}') runs on the CPU")),
    };
    if !timestamp {
        return refuse(format!(
            "date_trunc('{to}') of {} runs on the CPU",
            value.data_type
        ));
    }
    let function = match clocks {
        Some(zone) => Calendar::LocalStart {
            zone,
            span: LocalSpan::Calendar(span),
        },
        None => Calendar::Truncate(span),
    };
    Ok(Node::Calendar { function, value })
}

fn date_bin(expr: &ScalarFunctionExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let reason = || Reason::new("date_bin by what is no constant span of time runs on the CPU");
    let (stride, value, origin) = match expr.args() {
        [stride, value] => (stride, value, 0),
        [stride, value, origin] => match constant(origin) {
            Some(ScalarValue::TimestampNanosecond(Some(origin), _)) => (stride, value, *origin),
            _ => return Err(reason()),
        },
        _ => return Err(reason()),
    };
    let stride = constant(stride).and_then(interval).ok_or_else(reason)?;
    let value = boxed(value, scope)?;
    // Of all zones by the ticks of UTC.
    let nanoseconds = match value.data_type {
        DataType::Timestamp(..) => nanoseconds_a_tick(&value.data_type),
        _ => None,
    };
    let days = i64::from(stride.days).checked_mul(DAY);
    let stride_nanoseconds = days.and_then(|days| days.checked_add(stride.nanoseconds));
    match (nanoseconds, stride_nanoseconds) {
        (Some(tick), Some(stride_nanoseconds @ 1..))
            if stride.months == 0 && stride_nanoseconds % tick == 0 && origin % tick == 0 =>
        {
            let function = Calendar::Bin {
                stride: stride_nanoseconds / tick,
                origin: origin / tick,
                in_nanoseconds: true,
            };
            Ok(Node::Calendar { function, value })
        }
        _ => Err(reason()),
    }
}

/// A date or timestamp, more or less a constant interval; differences of dates and timestamps. `None` for other arithmetic.
pub(super) fn arithmetic(
    expr: &BinaryExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Option<Node>, Reason> {
    let (left, right) = (expr.left(), expr.right());
    let types = (
        left.data_type(scope.schema)?,
        right.data_type(scope.schema)?,
    );
    let (value, shift, add) = match (expr.op(), &types) {
        (Operator::Plus, (_, DataType::Interval(_))) => (left, right, true),
        (Operator::Plus, (DataType::Interval(_), _)) => (right, left, true),
        (Operator::Minus, (_, DataType::Interval(_))) => (left, right, false),
        (Operator::Minus, (a, b)) if a == b => {
            return difference(expr, a, data_type, scope);
        }
        _ => return Ok(None),
    };
    if let Some(cases) = moved_by_cases(value, *expr.op(), shift)? {
        return node(&cases, scope).map(|moved| Some(moved.node));
    }
    if let Some(product) = shift.downcast_ref::<ScalarFunctionExpr>()
        && product.fun() == interval_product().as_ref()
    {
        return moved_by_product(value, product, add, data_type, scope).map(Some);
    }
    if let Some(cast) = shift.downcast_ref::<CastExpr>()
        && let DataType::Duration(unit) = cast.expr().data_type(scope.schema)?
    {
        return moved_by_duration(value, (cast.expr(), unit), add, data_type, scope).map(Some);
    }
    let Some(constant) = constant(shift) else {
        return refuse("an interval that is not constant runs on the CPU");
    };
    if constant.is_null() {
        return Ok(Some(Node::Literal(ScalarValue::try_from(data_type)?)));
    }
    let value = boxed(value, scope)?;
    let wrong = || {
        let types = format!("{} and {}", types.0, types.1);
        Reason::new(format!("arithmetic of {types} runs on the CPU"))
    };
    let Some(interval) = interval(constant).filter(|_| value.data_type == *data_type) else {
        return Err(wrong());
    };
    let sign = if add { 1 } else { -1 };
    let months = interval.months.checked_mul(sign).ok_or_else(wrong)?;
    let (days, nanoseconds) = (i64::from(interval.days), interval.nanoseconds);
    let sign = i64::from(sign);
    let ticks = match data_type {
        // What is less than a day is cut off, by its magnitude.
        DataType::Date32 => sign.checked_mul(days + nanoseconds / DAY),
        DataType::Timestamp(..) => {
            // Days and months of a zone are not of the same length.
            let clocks = zone(data_type)?.is_some_and(|zone| !zone.is_utc());
            if clocks && (months != 0 || days != 0) {
                return Err(wrong());
            }
            let tick = nanoseconds_a_tick(data_type).ok_or_else(wrong)?;
            let part = sign.checked_mul(nanoseconds).map(|n| n.div_euclid(tick));
            part.and_then(|part| (sign * days).checked_mul(DAY / tick)?.checked_add(part))
        }
        _ => None,
    };
    let function = Calendar::Shift {
        months,
        ticks: ticks.ok_or_else(wrong)?,
    };
    Ok(Some(Node::Calendar { function, value }))
}

/// `value + CASE … THEN INTERVAL 'a' … END` as the CASE of `value + INTERVAL 'a'`; `None` where an interval of it is no constant.
fn moved_by_cases(
    value: &Arc<dyn PhysicalExpr>,
    op: Operator,
    shift: &Arc<dyn PhysicalExpr>,
) -> Result<Option<Arc<dyn PhysicalExpr>>, Reason> {
    let Some(case) = shift.downcast_ref::<CaseExpr>() else {
        return Ok(None);
    };
    let moved = |by: &Arc<dyn PhysicalExpr>| -> Option<Arc<dyn PhysicalExpr>> {
        constant(by)?;
        let (value, by) = (Arc::clone(value), Arc::clone(by));
        Some(Arc::new(BinaryExpr::new(value, op, by)))
    };
    let branches = case.when_then_expr().iter();
    let branches = branches.map(|(when, then)| Some((Arc::clone(when), moved(then)?)));
    let otherwise = case.else_expr().map(moved);
    let (Some(branches), false) = (
        branches.collect::<Option<Vec<_>>>(),
        matches!(otherwise, Some(None)),
    ) else {
        return Ok(None);
    };
    let of = case.expr().map(Arc::clone);
    let moved = CaseExpr::try_new(of, branches, otherwise.flatten())?;
    Ok(Some(Arc::new(moved)))
}

/// A date or timestamp, more or less so many times a constant interval of days and less.
fn moved_by_product(
    value: &Arc<dyn PhysicalExpr>,
    product: &ScalarFunctionExpr,
    add: bool,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let wrong = || {
        let product = product.name();
        Reason::new(format!("an interval {product} runs on the CPU"))
    };
    let [factor, number] = product.args() else {
        return Err(wrong());
    };
    let interval = constant(factor).and_then(interval).ok_or_else(wrong)?;
    let (days, nanoseconds) = (i64::from(interval.days), interval.nanoseconds);
    let (value, number) = (node(value, scope)?, node(number, scope)?);
    let whole = value.data_type == *data_type && number.data_type == DataType::Int64;
    if interval.months != 0 || !whole {
        return Err(wrong());
    }
    let op = match add {
        true => BinaryOp::Add,
        false => BinaryOp::Subtract,
    };
    let times = |number: Expr, ticks: i64| {
        let ticks = Expr::literal(ScalarValue::from(ticks));
        binary(BinaryOp::Multiply, number, ticks, DataType::Int64)
    };
    match data_type {
        DataType::Date32 if nanoseconds == 0 => {
            // So many days that no date has them are an error.
            let number = cast(cast(number, DataType::Int32), DataType::Int64);
            let date = cast(cast(value, DataType::Int32), DataType::Int64);
            let moved = binary(op, date, times(number, days), DataType::Int64);
            Ok(cast(cast(moved, DataType::Int32), DataType::Date32).node)
        }
        DataType::Timestamp(unit, _) => {
            let clocks = zone(data_type)?.is_some_and(|zone| !zone.is_utc());
            let tick = nanoseconds_of(*unit);
            let ticks = days.checked_mul(DAY / tick).ok_or_else(wrong)?;
            let ticks = ticks.checked_add(nanoseconds / tick).ok_or_else(wrong)?;
            if clocks && days != 0 || nanoseconds % tick != 0 {
                return Err(wrong());
            }
            let by = cast(times(number, ticks), DataType::Duration(*unit));
            Ok(binary(op, value, by, data_type.clone()).node)
        }
        _ => Err(wrong()),
    }
}

/// A date or timestamp, more or less a duration that was made an interval, as DataFusion has it of `date - 7`: days of 24 hours. What is less
/// than a day leaves a date as it is.
fn moved_by_duration(
    value: &Arc<dyn PhysicalExpr>,
    (duration, unit): (&Arc<dyn PhysicalExpr>, TimeUnit),
    add: bool,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let wrong = || Reason::new(format!("{data_type} and a duration run on the CPU"));
    let (value, duration) = (node(value, scope)?, node(duration, scope)?);
    if value.data_type != *data_type {
        return Err(wrong());
    }
    let op = match add {
        true => BinaryOp::Add,
        false => BinaryOp::Subtract,
    };
    let ticks = cast(duration, DataType::Int64);
    let by = |op: BinaryOp, number: i64| {
        let number = Expr::literal(ScalarValue::from(number));
        binary(op, ticks.clone(), number, DataType::Int64)
    };
    match data_type {
        DataType::Date32 => {
            let days = by(BinaryOp::Divide, DAY / nanoseconds_of(unit));
            let date = cast(cast(value, DataType::Int32), DataType::Int64);
            let moved = binary(op, date, days, DataType::Int64);
            Ok(cast(cast(moved, DataType::Int32), DataType::Date32).node)
        }
        DataType::Timestamp(tick, _) if nanoseconds_of(unit) >= nanoseconds_of(*tick) => {
            let ratio = nanoseconds_of(unit) / nanoseconds_of(*tick);
            let by = cast(by(BinaryOp::Multiply, ratio), DataType::Duration(*tick));
            Ok(binary(op, value, by, data_type.clone()).node)
        }
        _ => Err(wrong()),
    }
}

/// A difference of two values of the type `operands`: days of dates, a duration of timestamps.
fn difference(
    expr: &BinaryExpr,
    operands: &DataType,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Option<Node>, Reason> {
    let days = *data_type == DataType::Int64;
    let duration = matches!(data_type, DataType::Duration(_));
    let possible = match operands {
        DataType::Date32 | DataType::Date64 => days,
        DataType::Timestamp(..) => duration,
        _ => false,
    };
    if !possible {
        return Ok(None);
    }
    let (left, right) = (node(expr.left(), scope)?, node(expr.right(), scope)?);
    if *operands == DataType::Date64 {
        let (left, right) = (cast(left, DataType::Int64), cast(right, DataType::Int64));
        let milliseconds = binary(BinaryOp::Subtract, left, right, DataType::Int64);
        let day = Expr::literal(ScalarValue::Int64(Some(DAY / 1_000_000)));
        return Ok(Some(
            binary(BinaryOp::Divide, milliseconds, day, DataType::Int64).node,
        ));
    }
    Ok(Some(
        binary(BinaryOp::Subtract, left, right, data_type.clone()).node,
    ))
}

/// The zone of a timestamp type; refuses those that Arrow does not know.
pub(super) fn zone(data_type: &DataType) -> Result<Option<Zone>, Reason> {
    let DataType::Timestamp(_, Some(name)) = data_type else {
        return Ok(None);
    };
    match Zone::parse(name) {
        Some(zone) => Ok(Some(zone)),
        None => refuse(format!("the time zone {name} is not known")),
    }
}

/// Is it a timestamp type whose zone is UTC?
pub(crate) fn is_utc(data_type: &DataType) -> bool {
    zone(data_type).is_ok_and(|zone| zone.is_some_and(Zone::is_utc))
}

/// What the clocks of its zone show at a timestamp; other values as they are.
pub(super) fn local(value: Expr) -> Result<Expr, Reason> {
    let (DataType::Timestamp(unit, _), Some(zone)) = (&value.data_type, zone(&value.data_type)?)
    else {
        return Ok(value);
    };
    let data_type = DataType::Timestamp(*unit, None);
    if zone.is_utc() {
        return Ok(cast(value, data_type));
    }
    let nullable = value.nullable;
    let value = Box::new(value);
    let function = Calendar::Local(zone);
    Ok(Expr {
        node: Node::Calendar { function, value },
        data_type,
        nullable,
    })
}

/// Nanoseconds of a tick of a time or timestamp.
pub(super) fn nanoseconds_a_tick(data_type: &DataType) -> Option<i64> {
    let unit = match data_type {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => unit,
        _ => return None,
    };
    Some(nanoseconds_of(*unit))
}

/// Nanoseconds of a unit.
pub(crate) fn nanoseconds_of(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

pub(super) fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    Some(expr.downcast_ref::<Literal>()?.value())
}

pub(super) fn string(expr: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    constant(expr)?.try_as_str().flatten()
}

/// A constant interval, whatever its type.
pub(super) fn interval(value: &ScalarValue) -> Option<IntervalMonthDayNano> {
    Some(match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => *interval,
        ScalarValue::IntervalYearMonth(Some(months)) => IntervalMonthDayNano::new(*months, 0, 0),
        ScalarValue::IntervalDayTime(Some(IntervalDayTime { days, milliseconds })) => {
            IntervalMonthDayNano::new(0, *days, i64::from(*milliseconds) * 1_000_000)
        }
        _ => return None,
    })
}
