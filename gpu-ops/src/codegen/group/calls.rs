//! Aggregate calls as accumulators: which of them a group's state holds, and how results come from them.
//!
//! Equal accumulators are kept once, so `SUM(x)`, `AVG(x)` and `COUNT(x)` share.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};

use super::distinct::DistinctSets;
use crate::codegen::ir::accumulator::{Accumulator, StateKind};
use crate::codegen::ir::aggregates::{AccumulatorPlan, CallPlan};
use crate::codegen::ir::layout::layout_of;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::value::operators::is_decimal;
use crate::codegen::value::scalar::Emitter;
use crate::error::{GpuError, Result};
use crate::pipeline::{AggregateCall, AggregateFunction};

impl AccumulatorPlan {
    fn add(&mut self, new: Accumulator) -> usize {
        let same = |a: &Accumulator| {
            a.kind == new.kind && a.condition == new.condition && a.value == new.value
        };
        if let Some(index) = self.accumulators.iter().position(same) {
            return index;
        }
        self.accumulators.push(new);
        self.accumulators.len() - 1
    }

    fn plain(&mut self, kind: StateKind, condition: &str, value: &str, partial: CType) -> usize {
        self.add(Accumulator {
            kind,
            narrow: kind == StateKind::Seen,
            base: 0,
            split: 0,
            tells: false,
            one_sign: false,
            offset: 0,
            condition: condition.to_string(),
            value: value.to_string(),
            partial,
        })
    }

    /// Count the rows for which `condition` (C++) holds: `rows` at most, of which one thread sees `thread_rows`.
    fn count(&mut self, condition: &str, rows: u64, thread_rows: u64) -> usize {
        let partial = if thread_rows <= i32::MAX as u64 {
            CType::I32
        } else {
            CType::I64
        };
        let index = self.plain(StateKind::Count, condition, "1", partial);
        self.accumulators[index].narrow = rows <= u32::MAX.into();
        index
    }

    /// Note whether there is a row for which `condition` (C++) holds.
    pub(in crate::codegen) fn seen(&mut self, condition: &str) -> usize {
        self.plain(StateKind::Seen, condition, "1u", CType::I32)
    }

    /// Plan one call over the row at hand; `rows` bounds the rows of the whole input.
    pub(in crate::codegen) fn call(
        &mut self,
        emitter: &mut Emitter<'_>,
        call: &AggregateCall,
        rows: u64,
        thread_rows: u64,
        sets: &mut DistinctSets,
    ) -> Result<()> {
        let mut condition = "alive".to_string();
        if let Some(filter) = &call.filter {
            let value = emitter.emit(filter)?;
            let test = emitter.is_true(&value);
            condition = emitter.bind_bool(format!("alive && {test}"));
        }
        // Rows that the FILTER leaves out are not evaluated by DataFusion: they cannot fault.
        let guard = call.filter.is_some().then(|| condition.clone());
        let argument = call
            .argument
            .as_ref()
            .map(|argument| emitter.emit_guarded(argument, guard))
            .transpose()?;
        if let Some(valid) = argument.as_ref().and_then(|a| a.valid.clone()) {
            condition = emitter.bind_bool(format!("{condition} && {valid}"));
        }
        if let (Some(value), Some(expr)) = (&argument, &call.argument)
            && !self.arguments.iter().any(|(text, _)| *text == value.text)
        {
            let stored = layout_of(value, &expr.data_type);
            let bytes = u32::from(stored.width) + u32::from(stored.nullable);
            self.arguments.push((value.text.clone(), bytes));
        }
        // Extremes do not care how often a value comes.
        let counts = matches!(
            call.function,
            AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg
        );
        if let (true, true, Some(value), Some(expr)) =
            (call.distinct, counts, &argument, &call.argument)
        {
            condition = sets.first(emitter, value, &expr.data_type, &condition)?;
        }
        let argument_type = call.argument.as_ref().map(|a| a.data_type.clone());
        let meaning = argument
            .as_ref()
            .map_or(Meaning::Number, |a| a.meaning.clone());
        let c_type = argument.as_ref().map_or(CType::I64, |a| a.c_type);
        let argument_range = argument.as_ref().map_or(Range::point(0), |a| a.range);
        let count = match call.function {
            AggregateFunction::Count => None,
            AggregateFunction::Avg => Some(self.count(&condition, rows, thread_rows)),
            _ => Some(self.seen(&condition)),
        };
        let mut magnitude = None;
        let value = match (call.function, argument) {
            (AggregateFunction::Count, _) => self.count(&condition, rows, thread_rows),
            (AggregateFunction::Sum | AggregateFunction::Avg, Some(v)) => {
                let argument_type = argument_type.as_ref().unwrap_or(&DataType::Null);
                let index = self.sum(&v, argument_type, condition, rows, thread_rows)?;
                let total = v.range.magnitude().checked_mul(u128::from(rows));
                if call.function == AggregateFunction::Avg
                    && self.accumulators[index].kind == StateKind::Sum128
                    && !sums_wrap(argument_type)
                    && total.is_none_or(|t| t > i128::MAX as u128)
                {
                    let known = self.accumulators[index].condition.clone();
                    let absolute = format!("({0} < 0 ? -(f64){0} : (f64){0})", v.text);
                    magnitude =
                        Some(self.plain(StateKind::SumFloat, &known, &absolute, CType::F64));
                }
                index
            }
            (AggregateFunction::Min, Some(v)) => {
                self.extreme(emitter, StateKind::Min, &v, condition)?
            }
            (AggregateFunction::Max, Some(v)) => {
                self.extreme(emitter, StateKind::Max, &v, condition)?
            }
            (AggregateFunction::Any, Some(v)) => {
                self.extreme(emitter, StateKind::Any, &v, condition)?
            }
            (
                AggregateFunction::BitAnd | AggregateFunction::BitOr | AggregateFunction::BitXor,
                Some(v),
            ) => self.bits(call, &v, &condition)?,
            (function, None) => {
                return Err(GpuError::Internal(format!(
                    "{function:?} without an argument"
                )));
            }
        };
        let return_type = call.return_type.clone();
        let range = result_range(call.function, argument_range, &return_type, rows);
        self.calls.push(CallPlan {
            c_type,
            range,
            function: call.function,
            value,
            count,
            magnitude,
            argument_type,
            meaning,
            return_type,
        });
        Ok(())
    }

    fn sum(
        &mut self,
        value: &Value,
        data_type: &DataType,
        condition: String,
        rows: u64,
        thread_rows: u64,
    ) -> Result<usize> {
        if matches!(value.c_type, CType::F32 | CType::F64) {
            let text = format!("(f64){}", value.text);
            return Ok(self.plain(StateKind::SumFloat, &condition, &text, CType::F64));
        }
        let summable = data_type.is_integer() || is_decimal(data_type);
        if !summable || !value.c_type.is_integer() || !matches!(value.meaning, Meaning::Number) {
            return unsupported(format!("SUM over {data_type}"));
        }
        let magnitude = value.range.magnitude();
        let fits = |rows: u64, max: i128| {
            magnitude
                .checked_mul(u128::from(rows))
                .is_some_and(|total| total <= max as u128)
        };
        let kind = if is_decimal(data_type) && !fits(rows, i64::MAX.into()) {
            StateKind::Sum128
        } else {
            StateKind::Sum64
        };
        let partial = if fits(thread_rows, i32::MAX.into()) {
            CType::I32
        } else if kind == StateKind::Sum64 || fits(thread_rows, i64::MAX.into()) {
            CType::I64
        } else {
            CType::I128
        };
        let index = self.plain(kind, &condition, &value.text, partial);
        let no_zero = value.range.min > 0 || value.range.max < 0;
        self.accumulators[index].one_sign =
            kind == StateKind::Sum64 && no_zero && fits(rows, i64::MAX.into());
        // Sums of `rows` values of `low` bits fit 64 bits, and so do sums of what is above them.
        let low = rows.leading_zeros();
        let most = i128::from(i64::MAX) << low.min(60);
        if kind == StateKind::Sum128 && (8..=60).contains(&low) && fits(rows, most) {
            self.accumulators[index].split = low;
        }
        Ok(index)
    }

    /// BIT_AND, BIT_OR or BIT_XOR. What all values have is what none lacks.
    fn bits(&mut self, call: &AggregateCall, value: &Value, condition: &str) -> Result<usize> {
        if !value.c_type.is_integer() || !call.return_type.is_integer() {
            return unsupported(format!(
                "{} over {}",
                call.function.name(),
                call.return_type
            ));
        }
        let narrow = call.return_type.primitive_width().is_some_and(|w| w <= 4);
        let t = if narrow { "u32" } else { "u64" };
        let (kind, text) = match call.function {
            AggregateFunction::BitAnd => (StateKind::Or, format!("~({t}){}", value.text)),
            AggregateFunction::BitOr => (StateKind::Or, format!("({t}){}", value.text)),
            _ => (StateKind::Xor, format!("({t}){}", value.text)),
        };
        let index = self.plain(kind, condition, &text, CType::I64);
        self.accumulators[index].narrow = narrow;
        Ok(index)
    }

    /// MIN or MAX. Over floats DataFusion has two rules. Ungrouped, it takes the first or last value of the IEEE
    /// total order (arrow's `min` and `max`). Grouped, it starts from the largest or smallest finite value and any
    /// value takes the place of a NaN, so infinities alone become finite, NaN alone stays NaN, and next to other
    /// values NaN counts as if it came first (`PrimitiveGroupsAccumulator` of datafusion-functions-aggregate).
    fn extreme(
        &mut self,
        emitter: &mut Emitter<'_>,
        kind: StateKind,
        value: &Value,
        condition: String,
    ) -> Result<usize> {
        if value.c_type == CType::I128 {
            let (kind, function) = match kind {
                StateKind::Min => (StateKind::Min128, "min_key128"),
                _ => (StateKind::Max128, "max_key128"),
            };
            let code = format!("{function}({})", value.text);
            return Ok(self.plain(kind, &condition, &code, CType::I128));
        }
        let number = match value.c_type {
            CType::F32 | CType::F64 => {
                let order = match (self.grouped, kind) {
                    (false, _) | (_, StateKind::Any) => "total_order",
                    (true, StateKind::Min) => "grouped_min_order",
                    (true, _) => "grouped_max_order",
                };
                format!("{order}({})", value.text)
            }
            _ => value.text.clone(),
        };
        let range = match value.c_type {
            // The orders of groups' values leave the ends of the integers out, which belong to NaNs.
            CType::F32 if self.grouped && kind != StateKind::Any => {
                Some(Range::new(i128::from(i32::MIN) + 2, i32::MAX.into()))
            }
            CType::F32 | CType::F64 => None,
            _ => Some(value.range),
        };
        // Codes from 1 on.
        let narrow = range.filter(|r| r.size().is_some_and(|size| size < u32::MAX.into()));
        let base = narrow.map_or(0, |r| if kind == StateKind::Min { r.max } else { r.min });
        let code = match (narrow, kind) {
            (None, StateKind::Min) => format!("min_key((i64){number})"),
            (None, _) => format!("max_key((i64){number})"),
            // Modulo 2^32, in which the codes fit.
            (Some(_), StateKind::Min) => {
                format!("{}u - (u32){number}", (base as u32).wrapping_add(1))
            }
            (Some(_), _) => format!("(u32){number} - {}u", (base as u32).wrapping_sub(1)),
        };
        // The name of a variable is all that later statements need.
        let known = |(k, n, _): &&(StateKind, String, String)| *k == kind && *n == number;
        let name = match self.codes.iter().find(known) {
            Some((_, _, name)) => name.clone(),
            None => {
                let name = format!("key{}", emitter.state.variables);
                emitter.state.variables += 1;
                let t = if narrow.is_some() { "u32" } else { "u64" };
                emitter.lines.push(format!("const {t} {name} = {code};"));
                self.codes.push((kind, number, name.clone()));
                name
            }
        };
        Ok(self.add(Accumulator {
            kind,
            narrow: narrow.is_some(),
            base,
            split: 0,
            tells: false,
            one_sign: false,
            offset: 0,
            condition,
            value: name,
            partial: CType::I64,
        }))
    }
}

/// Does DataFusion add the values of AVG up in 128 bits at most, whatever that comes to? It does where 13 more digits than
/// the type has still fit (`AVG_SUM_HEADROOM_DIGITS` of its `average.rs`), and in 256 bits elsewhere.
pub(in crate::codegen) fn sums_wrap(argument: &DataType) -> bool {
    const HEADROOM: u8 = 13;
    match argument {
        DataType::Decimal128(precision, _) => precision + HEADROOM <= DECIMAL128_MAX_PRECISION,
        _ => true,
    }
}

/// The values that an aggregate over at most `rows` values of `argument` can have.
fn result_range(
    function: AggregateFunction,
    argument: Range,
    return_type: &DataType,
    rows: u64,
) -> Range {
    let rows = i128::from(rows);
    match function {
        AggregateFunction::Count => Range::new(0, rows),
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Any => argument,
        AggregateFunction::BitAnd | AggregateFunction::BitOr | AggregateFunction::BitXor => {
            Range::of_type(return_type).unwrap_or(Range::FULL)
        }
        AggregateFunction::Sum | AggregateFunction::Avg => {
            let total = Range::new(0, rows).times(argument).unwrap_or(Range::FULL);
            let of_type = Range::of_type(return_type).unwrap_or(Range::FULL);
            // A sum that can leave its type wraps to any value of it.
            if total.within(of_type) {
                total
            } else {
                of_type
            }
        }
    }
}
