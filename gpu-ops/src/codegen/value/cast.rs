//! CAST and TRY_CAST between numbers, dates and timestamps, as Arrow casts them.

use arrow::datatypes::DataType;

use super::calendar::ticks_a_day;
use super::operators::quotient;
use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::column::{is_binary, is_opaque, is_text};
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::list_of;

/// Precision and scale of a decimal.
fn decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            Some((*p, *s))
        }
        _ => None,
    }
}

fn is_of_day(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

impl Emitter<'_> {
    pub(in crate::codegen) fn cast(
        &mut self,
        operand: &Expr,
        to: &DataType,
        safe: bool,
    ) -> Result<Value> {
        let from = &operand.data_type;
        let value = self.emit(operand)?;
        if value.is_null() {
            return Ok(self.null(to));
        }
        // What refers to a list is a number.
        if from == to || *from == DataType::Int64 && list_of(to).is_some() {
            return Ok(value);
        }
        if is_same_strings(from, to) && matches!(value.meaning, Meaning::Code(_)) {
            return Ok(value); // In another Arrow layout.
        }
        if !matches!(value.meaning, Meaning::Number) {
            return needs_codes(format!("CAST from {from} to {to}"));
        }
        if let (Some((_, from_scale)), Some((precision, to_scale))) = (decimal(from), decimal(to)) {
            let shift = i32::from(to_scale) - i32::from(from_scale);
            return self.rescale(value, shift, to, Range::of_precision(precision), safe);
        }
        if let (true, Some((precision, scale))) = (from.is_integer(), decimal(to)) {
            return self.rescale(
                value,
                scale.into(),
                to,
                Range::of_precision(precision),
                safe,
            );
        }
        if let (Some((_, scale)), true) = (decimal(from), to.is_integer()) {
            return self.decimal_to_integer(value, scale, to, safe);
        }
        if to.is_floating() {
            return self.integer_to_float(value, from, to);
        }
        if from.is_floating() && to.is_integer() {
            return self.float_to_integer(value, to, safe);
        }
        if let (true, Some((precision, scale))) = (from.is_floating(), decimal(to)) {
            return self.float_to_decimal(value, precision, scale, safe);
        }
        if *from == DataType::Boolean && to.is_integer() {
            let text = self.bind(CType::I32, format!("(i32){}", value.text));
            return Ok(Value {
                text,
                c_type: CType::I32,
                ..value
            });
        }
        if from.is_integer() && *to == DataType::Boolean {
            let text = self.bind_bool(format!("{} != 0", value.text));
            return Ok(Value::boolean(text, value.valid));
        }
        if let (Some(from_day), Some(to_day)) = (ticks_a_day(from), ticks_a_day(to)) {
            let value = match (is_of_day(from), is_of_day(to)) {
                (false, true) => self.time_of_day(value, from_day)?,
                (true, false) => return unsupported(format!("CAST from {from} to {to}")),
                _ => value,
            };
            return self.calendar(value, from_day, to_day, from, to);
        }
        let is_time = |t: &DataType| {
            use DataType::*;
            matches!(
                t,
                Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_)
            )
        };
        let same_ticks = from.is_integer() && is_time(to) || is_time(from) && to.is_integer();
        if same_ticks || (from.is_integer() && to.is_integer()) {
            let bounds = self.bounds(to)?;
            return self.bounded(value, bounds, safe);
        }
        unsupported(format!("CAST from {from} to {to}"))
    }

    /// Keep a value that lies within `bounds`; outside them NULL (`safe`) or a fault.
    fn bounded(&mut self, value: Value, bounds: Range, safe: bool) -> Result<Value> {
        if value.range.within(bounds) {
            return Ok(value);
        }
        let range = Range {
            min: value.range.min.max(bounds.min).min(bounds.max),
            max: value.range.max.min(bounds.max).max(bounds.min),
        };
        // Bounds beyond the value's own type cannot be met by it and would not fit its width.
        let mut tests = Vec::new();
        if value.range.min < bounds.min {
            let min = self.integer(bounds.min);
            tests.push(format!("{} < {min}", value.text));
        }
        if value.range.max > bounds.max {
            let max = self.integer(bounds.max);
            tests.push(format!("{} > {max}", value.text));
        }
        let outside = tests.join(" || ");
        if safe {
            let inside = format!("{} && !({outside})", value.valid_text());
            let valid = Some(self.bind_bool(inside));
            // Values that became NULL must still lie in the range that later widths rely on.
            let at = valid.clone().unwrap_or_default();
            let filler = self.integer(range.min);
            let text = format!("{at} ? {} : ({}){filler}", value.text, value.c_type.name());
            let text = self.bind(value.c_type, text);
            return Ok(Value {
                text,
                range,
                valid,
                ..value
            }
            .narrowed(self));
        }
        self.fault(&outside, value.valid.clone().as_deref(), "WL_FAULT_CAST");
        // A faulted row's value is discarded with the whole answer, but it must not overflow here.
        let filler = self.integer(range.min);
        let text = format!(
            "({outside}) ? ({}){filler} : {}",
            value.c_type.name(),
            value.text
        );
        let text = self.bind(value.c_type, text);
        Ok(Value {
            text,
            range,
            ..value
        }
        .narrowed(self))
    }

    /// Multiply or divide by a power of ten, then check the target's precision.
    fn rescale(
        &mut self,
        value: Value,
        shift: i32,
        to: &DataType,
        bounds: Range,
        safe: bool,
    ) -> Result<Value> {
        let native = self.bounds(to)?;
        if shift >= 0 {
            if safe && !value.range.within(Range::of_precision(18)) {
                return unsupported(format!("TRY_CAST of wide values to {to}"));
            }
            let scaled = self.scale_up(value, shift, if safe { Range::FULL } else { native })?;
            return self.bounded(scaled, bounds, safe);
        }
        let Some(divisor) = 10i128.checked_pow(shift.unsigned_abs()) else {
            return unsupported(format!("rescaling a decimal by 10^{shift}"));
        };
        let text = self.integer(divisor);
        let c_type = value.c_type.max(CType::for_range(Range::point(divisor)));
        let name = c_type.name();
        let text = format!(
            "div_round_half_up<{name}>(({name}){}, ({name}){text})",
            value.text
        );
        let text = self.bind(c_type, text);
        let range = Range {
            min: value.range.min / divisor - 1,
            max: value.range.max / divisor + 1,
        };
        let scaled = Value {
            text,
            c_type,
            range,
            ..value
        }
        .narrowed(self);
        self.bounded(scaled, bounds, safe)
    }

    fn decimal_to_integer(
        &mut self,
        value: Value,
        scale: i8,
        to: &DataType,
        safe: bool,
    ) -> Result<Value> {
        let bounds = self.bounds(to)?;
        if scale < 0 {
            return unsupported("CAST of decimals with negative scale to integers");
        }
        let Some(divisor) = 10i128.checked_pow(scale.unsigned_abs().into()) else {
            return Err(GpuError::Internal("decimal scale beyond 38".into()));
        };
        if divisor == 1 {
            return self.bounded(value, bounds, safe);
        }
        let text = self.integer(divisor);
        let c_type = value.c_type.max(CType::for_range(Range::point(divisor)));
        let name = c_type.name();
        let [a, b] = [&value.text, &text].map(|operand| format!("({name}){operand}"));
        let text = self.bind(c_type, quotient(c_type, &a, &b));
        let range = Range {
            min: value.range.min / divisor,
            max: value.range.max / divisor,
        };
        let truncated = Value {
            text,
            c_type,
            range,
            ..value
        }
        .narrowed(self);
        self.bounded(truncated, bounds, safe)
    }

    fn integer_to_float(&mut self, value: Value, from: &DataType, to: &DataType) -> Result<Value> {
        let c_type = match to {
            DataType::Float64 => CType::F64,
            DataType::Float32 => CType::F32,
            _ => return unsupported(format!("CAST from {from} to {to}")),
        };
        let text = if let Some((_, scale)) = decimal(from) {
            // Arrow divides the unscaled value, as f64, by the power of ten.
            let power = self.float(10f64.powi(scale.into()));
            format!("({})((f64){} / {power})", c_type.name(), value.text)
        } else if from.is_integer() || from.is_floating() {
            format!("({}){}", c_type.name(), value.text)
        } else {
            return unsupported(format!("CAST from {from} to {to}"));
        };
        let text = self.bind(c_type, text);
        Ok(Value {
            text,
            c_type,
            range: Range::FULL,
            ..value
        })
    }

    /// `round(10^scale * value)`, as Arrow does it; outside the precision NULL (`safe`) or a fault.
    fn float_to_decimal(
        &mut self,
        value: Value,
        precision: u8,
        scale: i8,
        safe: bool,
    ) -> Result<Value> {
        let range = Range::of_precision(precision);
        let power = self.float(10f64.powi(scale.into()));
        let scaled = self.bind(CType::F64, format!("round({power} * (f64){})", value.text));
        // Written so that NaN is outside; 10^precision is less than 2^127.
        let fits = self.bind_bool(format!("{scaled} > -1.7e38 && {scaled} < 1.7e38"));
        let number = self.bind(CType::I128, format!("f64_to_i128({fits} ? {scaled} : 0.0)"));
        let limit = self.integer(range.max);
        let inside = self.bind_bool(format!(
            "{fits} && {number} <= (i128){limit} && {number} >= -(i128){limit}"
        ));
        let valid = if safe {
            Some(self.bind_bool(format!("{} && {inside}", value.valid_text())))
        } else {
            self.fault(
                &format!("!{inside}"),
                value.valid.clone().as_deref(),
                "WL_FAULT_CAST",
            );
            value.valid.clone()
        };
        let c_type = CType::for_range(range);
        let name = c_type.name();
        let text = self.bind(c_type, format!("{inside} ? ({name}){number} : ({name})0"));
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        })
    }

    fn float_to_integer(&mut self, value: Value, to: &DataType, safe: bool) -> Result<Value> {
        let bounds = self.bounds(to)?;
        let min = self.float(bounds.min as f64);
        // 2^n is exact in f64 where 2^n - 1 is not.
        let max = self.float((bounds.max + 1) as f64);
        // Written so that NaN is outside.
        let inside = if bounds.min < -(1 << 52) {
            format!("((f64){0} >= {min} && (f64){0} < {max})", value.text)
        } else {
            format!("float_in_range((f64){}, {min}, {max})", value.text)
        };
        let inside = self.bind_bool(inside);
        let c_type = CType::for_range(bounds);
        let valid = if safe {
            Some(self.bind_bool(format!("{} && {inside}", value.valid_text())))
        } else {
            self.fault(
                &format!("!{inside}"),
                value.valid.clone().as_deref(),
                "WL_FAULT_CAST",
            );
            value.valid.clone()
        };
        let name = c_type.name();
        let text = self.bind(
            c_type,
            format!("{inside} ? ({name}){} : ({name})0", value.text),
        );
        Ok(Value {
            text,
            c_type,
            range: bounds,
            valid,
            meaning: Meaning::Number,
        })
    }

    fn calendar(
        &mut self,
        value: Value,
        from_day: i128,
        to_day: i128,
        from: &DataType,
        to: &DataType,
    ) -> Result<Value> {
        let bounds = self.bounds(to)?;
        if to_day == from_day {
            return Ok(value);
        }
        if to_day > from_day {
            // Exact only while it cannot leave 64 bits; what Arrow does beyond is for the CPU.
            let factor = to_day / from_day;
            let fits = value
                .range
                .times(Range::point(factor))
                .is_some_and(|r| r.within(bounds));
            if !fits {
                return unsupported(format!(
                    "CAST from {from} to {to} near the end of the calendar"
                ));
            }
            let text = self.integer(factor);
            let text = self.bind(CType::I64, format!("(i64){} * (i64){text}", value.text));
            let range = Range {
                min: value.range.min * factor,
                max: value.range.max * factor,
            };
            return Ok(Value {
                text,
                c_type: CType::I64,
                range,
                ..value
            });
        }
        let factor = from_day / to_day;
        // From timestamps to days Arrow goes by the calendar (floor); everything else it truncates.
        let floors = matches!((from, to), (DataType::Timestamp(..), DataType::Date32));
        let (text, range) = if floors {
            let range = Range {
                min: value.range.min.div_euclid(factor),
                max: value.range.max.div_euclid(factor),
            };
            (format!("floor_div((i64){}, {factor}ll)", value.text), range)
        } else {
            let range = Range {
                min: value.range.min / factor,
                max: value.range.max / factor,
            };
            (format!("(i64){} / {factor}ll", value.text), range)
        };
        let text = self.bind(CType::I64, text);
        let coarser = Value {
            text,
            c_type: CType::I64,
            range,
            ..value
        }
        .narrowed(self);
        self.bounded(coarser, bounds, false)
    }
}

/// Has a string of the one type the same bytes as one of the other, whatever they are? Not all bytes are text, or of one length.
fn is_same_strings(from: &DataType, to: &DataType) -> bool {
    if is_opaque(from) || is_opaque(to) {
        return from == to;
    }
    let fixed = matches!(to, DataType::FixedSizeBinary(_));
    is_text(from) && is_text(to) && (is_binary(to) && !fixed || !is_binary(from) && !is_binary(to))
}
