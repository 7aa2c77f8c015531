//! Arithmetic, comparisons and three-valued logic.

use arrow::datatypes::DataType;

use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::{GpuError, Result};
use crate::expr::{BinaryOp, Expr};

/// Scale of a decimal, 0 for anything else.
fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, s) | DataType::Decimal64(_, s) | DataType::Decimal128(_, s) => *s,
        _ => 0,
    }
}

pub(in crate::codegen) fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)
    )
}

fn power_of_ten(exponent: i32) -> Result<i128> {
    u32::try_from(exponent)
        .ok()
        .and_then(|e| 10i128.checked_pow(e))
        .ok_or_else(|| GpuError::Unsupported(format!("rescaling a decimal by 10^{exponent}")))
}

/// The three operations that are the same for integers and decimals of one scale.
#[derive(Clone, Copy)]
enum Ring {
    Add,
    Subtract,
    Multiply,
}

impl Ring {
    fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "sub",
            Self::Multiply => "mul",
        }
    }

    fn range(self, a: Range, b: Range) -> Option<Range> {
        match self {
            Self::Add => a.plus(b),
            Self::Subtract => a.minus(b),
            Self::Multiply => a.times(b),
        }
    }
}

impl Emitter<'_> {
    pub(in crate::codegen) fn binary(
        &mut self,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
        data_type: &DataType,
    ) -> Result<Value> {
        use BinaryOp::*;
        let (l, r) = (self.emit(left)?, self.emit(right)?);
        match op {
            And | Or => Ok(self.logic(op, &l, &r)),
            Eq | NotEq | Lt | LtEq | Gt | GtEq | TotalEq | TotalLt => self.comparison(op, &l, &r),
            IsDistinctFrom | IsNotDistinctFrom => self.distinct_from(op, &l, &r),
            Add | Subtract | Multiply | Divide | Modulo => {
                if l.c_type == CType::F32 || l.c_type == CType::F64 {
                    return self.float_arithmetic(op, &l, &r);
                }
                self.numbers_only(&l, &r)?;
                let (ls, rs) = (scale_of(&left.data_type), scale_of(&right.data_type));
                let bounds = self.bounds(data_type)?;
                match op {
                    Multiply => self.ring(Ring::Multiply, &l, &r, data_type, bounds),
                    Add | Subtract => {
                        let scale = ls.max(rs);
                        let l = self.scale_up(l, i32::from(scale) - i32::from(ls), bounds)?;
                        let r = self.scale_up(r, i32::from(scale) - i32::from(rs), bounds)?;
                        let ring = if op == Add { Ring::Add } else { Ring::Subtract };
                        self.ring(ring, &l, &r, data_type, bounds)
                    }
                    Divide if is_decimal(data_type) => {
                        // Arrow: the quotient has scale s1 + 4 (cut at the type's largest scale).
                        let shift = i32::from(scale_of(data_type)) - i32::from(ls) + i32::from(rs);
                        let l = self.scale_up(l, shift.max(0), bounds)?;
                        let r = self.scale_up(r, (-shift).max(0), bounds)?;
                        self.quotient(&l, &r, false, bounds)
                    }
                    Divide => self.quotient(&l, &r, false, bounds),
                    _ => {
                        let scale = ls.max(rs);
                        let l = self.scale_up(l, i32::from(scale) - i32::from(ls), bounds)?;
                        let r = self.scale_up(r, i32::from(scale) - i32::from(rs), bounds)?;
                        self.quotient(&l, &r, true, bounds)
                    }
                }
            }
            ShiftRight => self.shift_right(&l, &r, data_type),
            ShiftLeft => self.shift_left(&l, &r, data_type),
            BitAnd | BitOr | BitXor => self.bitwise(op, &l, &r, data_type),
        }
    }

    pub(super) fn numbers_only(&self, l: &Value, r: &Value) -> Result<()> {
        let number = |v: &Value| v.c_type.is_integer() && matches!(v.meaning, Meaning::Number);
        if number(l) && number(r) {
            Ok(())
        } else {
            unsupported("arithmetic on values that are not numbers")
        }
    }

    /// Every value the logical type can hold.
    pub(in crate::codegen) fn bounds(&self, data_type: &DataType) -> Result<Range> {
        Range::of_type(data_type)
            .ok_or_else(|| GpuError::Unsupported(format!("integer arithmetic on {data_type}")))
    }

    /// Multiply by a power of ten, as decimals of different scales are aligned.
    pub(in crate::codegen) fn scale_up(
        &mut self,
        value: Value,
        exponent: i32,
        bounds: Range,
    ) -> Result<Value> {
        if exponent == 0 {
            return Ok(value);
        }
        let factor = power_of_ten(exponent)?;
        let text = self.integer(factor);
        let range = Range::point(factor);
        let c_type = CType::for_range(range);
        let text = self.bind(c_type, text);
        let factor = Value {
            text,
            c_type,
            range,
            valid: None,
            meaning: Meaning::Number,
        };
        self.checked_ring(Ring::Multiply, &value, &factor, bounds)
    }

    fn ring(
        &mut self,
        op: Ring,
        l: &Value,
        r: &Value,
        data_type: &DataType,
        bounds: Range,
    ) -> Result<Value> {
        let checked = is_decimal(data_type)
            || matches!(data_type, DataType::Timestamp(..) | DataType::Duration(_));
        if checked {
            return self.checked_ring(op, l, r, bounds);
        }
        if let Some(range) = op.range(l.range, r.range).filter(|x| x.within(bounds)) {
            return Ok(self.exact_ring(op, l, r, range));
        }
        // Integers wrap at the width of their type: compute modulo 2^64 and cut.
        let text = format!("(u64){} {} (u64){}", l.text, op.symbol(), r.text);
        let (c_type, text) = self.cut(data_type, &text);
        let text = self.bind(c_type, text);
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        Ok(Value {
            text,
            c_type,
            range: bounds,
            valid,
            meaning: Meaning::Number,
        })
    }

    /// An operation whose result is known to fit.
    fn exact_ring(&mut self, op: Ring, l: &Value, r: &Value, range: Range) -> Value {
        let c_type = CType::for_range(range).max(l.c_type).max(r.c_type);
        let text = format!(
            "{} {} {}",
            self.widen(l, c_type),
            op.symbol(),
            self.widen(r, c_type)
        );
        let text = self.bind(c_type, text);
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        // An operand may have needed a wider type than the result does.
        Value {
            text,
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        }
        .narrowed(self)
    }

    /// An operation that faults when it leaves `bounds`, the native integer of a decimal.
    fn checked_ring(&mut self, op: Ring, l: &Value, r: &Value, bounds: Range) -> Result<Value> {
        if let Some(range) = op.range(l.range, r.range).filter(|x| x.within(bounds)) {
            return Ok(self.exact_ring(op, l, r, range));
        }
        let (a, b) = (self.widen(l, CType::I128), self.widen(r, CType::I128));
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        let overflow = format!("{}_overflows({a}, {b})", op.name());
        self.fault(&overflow, valid.as_deref(), "WL_FAULT_OVERFLOW");
        let text = self.bind(CType::I128, format!("wrap_{}({a}, {b})", op.name()));
        self.fault_outside(&text, valid.as_deref(), bounds, "WL_FAULT_OVERFLOW");
        Ok(Value {
            text,
            c_type: CType::I128,
            range: bounds,
            valid,
            meaning: Meaning::Number,
        }
        .narrowed(self))
    }

    /// Fault when a 128-bit value lies outside `bounds`.
    pub(in crate::codegen) fn fault_outside(
        &mut self,
        text: &str,
        valid: Option<&str>,
        bounds: Range,
        fault: &str,
    ) {
        if bounds == Range::FULL {
            return;
        }
        let (min, max) = (self.integer(bounds.min), self.integer(bounds.max));
        self.fault(&format!("{text} < {min} || {text} > {max}"), valid, fault);
    }

    fn quotient(&mut self, l: &Value, r: &Value, remainder: bool, bounds: Range) -> Result<Value> {
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        let c_type = l.c_type.max(r.c_type);
        let mut unusable = Vec::new();
        if r.range.contains(0) {
            let zero = format!("{} == 0", r.text);
            self.fault(&zero, valid.as_deref(), "WL_FAULT_DIVIDE_BY_ZERO");
            unusable.push(zero);
        }
        // The smallest value by -1 overflows when dividing; its remainder is 0.
        if r.range.contains(-1) && l.range.min <= bounds.min {
            let smallest = self.integer(bounds.min);
            let overflow = format!("({} == -1 && {} == {smallest})", r.text, l.text);
            if !remainder || is_fallible_remainder(bounds) {
                self.fault(&overflow, valid.as_deref(), "WL_FAULT_OVERFLOW");
            }
            unusable.push(overflow);
        }
        let (a, mut b) = (self.widen(l, c_type), self.widen(r, c_type));
        if !unusable.is_empty() {
            let usable = self.bind_bool(format!("!({})", unusable.join(" || ")));
            b = format!("safe_divisor<{}>({b}, {usable})", c_type.name());
        }
        let (text, range) = if remainder {
            let largest = i128::try_from(r.range.magnitude()).unwrap_or(i128::MAX);
            let range = Range {
                min: if l.range.min < 0 { -largest } else { 0 },
                max: if l.range.max > 0 { largest } else { 0 },
            };
            let text = match c_type {
                CType::I128 => format!("remainder_of({a}, {b})"),
                _ => format!("{a} % {b}"),
            };
            (text, range)
        } else {
            (quotient(c_type, &a, &b), l.range.divide(r.range))
        };
        let text = self.bind(c_type, text);
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        }
        .narrowed(self))
    }

    fn float_arithmetic(&mut self, op: BinaryOp, l: &Value, r: &Value) -> Result<Value> {
        if l.c_type != r.c_type {
            return Err(GpuError::Internal(
                "float operands of different width".into(),
            ));
        }
        let text = match op {
            BinaryOp::Add => format!("{} + {}", l.text, r.text),
            BinaryOp::Subtract => format!("{} - {}", l.text, r.text),
            BinaryOp::Multiply => format!("{} * {}", l.text, r.text),
            BinaryOp::Divide => format!("{} / {}", l.text, r.text),
            _ => format!("fmod({}, {})", l.text, r.text),
        };
        let text = self.bind(l.c_type, text);
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        Ok(Value {
            text,
            c_type: l.c_type,
            range: Range::FULL,
            valid,
            meaning: Meaning::Number,
        })
    }

    pub(in crate::codegen) fn negate(
        &mut self,
        operand: &Expr,
        data_type: &DataType,
    ) -> Result<Value> {
        let value = self.emit(operand)?;
        if matches!(value.c_type, CType::F32 | CType::F64) {
            let text = self.bind(value.c_type, format!("-{}", value.text));
            return Ok(Value { text, ..value });
        }
        let zero = Value {
            text: "0".to_string(),
            c_type: CType::I32,
            range: Range::point(0),
            valid: None,
            meaning: Meaning::Number,
        };
        let bounds = self.bounds(data_type)?;
        self.numbers_only(&zero, &value)?;
        self.ring(Ring::Subtract, &zero, &value, data_type, bounds)
    }

    pub(in crate::codegen) fn logic(&mut self, op: BinaryOp, l: &Value, r: &Value) -> Value {
        let (symbol, decided) = if op == BinaryOp::And {
            ("&&", "!")
        } else {
            ("||", "")
        };
        let text = self.bind_bool(format!("{} {symbol} {}", l.text, r.text));
        let valid = match (&l.valid, &r.valid) {
            (None, None) => None,
            (a, b) => {
                // Known when both are known, or when one known side decides alone.
                let (lv, rv) = (
                    a.as_deref().unwrap_or("true"),
                    b.as_deref().unwrap_or("true"),
                );
                Some(self.bind_bool(format!(
                    "({lv} && {rv}) || ({lv} && {decided}{}) || ({rv} && {decided}{})",
                    l.text, r.text
                )))
            }
        };
        // An unknown side holds an arbitrary bit: make the value right whenever it is known.
        let text = match &valid {
            None => text,
            Some(_) if op == BinaryOp::And => self.bind_bool(format!(
                "({} && {}) && ({} && {})",
                l.valid_text(),
                l.text,
                r.valid_text(),
                r.text
            )),
            Some(_) => self.bind_bool(format!(
                "({} && {}) || ({} && {})",
                l.valid_text(),
                l.text,
                r.valid_text(),
                r.text
            )),
        };
        Value::boolean(text, valid)
    }

    /// Two values as C++ operands that compare as SQL orders them; floats by the function `order`.
    fn comparable(&mut self, l: &Value, r: &Value, order: &str) -> Result<(String, String)> {
        // A NULL literal compares with anything; its text is never looked at.
        if l.is_null() || r.is_null() {
            return Ok(("0".into(), "0".into()));
        }
        match (&l.meaning, &r.meaning) {
            (Meaning::Number, Meaning::Number) => {}
            (Meaning::Code(_), Meaning::Code(_)) => {
                let (l, r) = self.unify_codes(l, r)?;
                return Ok((l.text, r.text));
            }
            _ => return needs_codes("comparison of strings from different columns"),
        }
        if l.c_type.is_integer() && r.c_type.is_integer() {
            let c_type = l.c_type.max(r.c_type);
            return Ok((self.widen(l, c_type), self.widen(r, c_type)));
        }
        if l.c_type != r.c_type {
            return Err(GpuError::Internal("comparison of different kinds".into()));
        }
        Ok(match l.c_type {
            CType::F32 | CType::F64 => (
                format!("{order}({})", l.text),
                format!("{order}({})", r.text),
            ),
            _ => (l.text.clone(), r.text.clone()),
        })
    }

    pub(in crate::codegen) fn comparison(
        &mut self,
        op: BinaryOp,
        l: &Value,
        r: &Value,
    ) -> Result<Value> {
        let order = match op {
            BinaryOp::TotalEq | BinaryOp::TotalLt => "total_order",
            _ => "comparison_order",
        };
        let (a, b) = self.comparable(l, r, order)?;
        let symbol = match op {
            BinaryOp::Eq | BinaryOp::TotalEq => "==",
            BinaryOp::NotEq => "!=",
            BinaryOp::Lt | BinaryOp::TotalLt => "<",
            BinaryOp::LtEq => "<=",
            BinaryOp::Gt => ">",
            _ => ">=",
        };
        let text = self.bind_bool(format!("{a} {symbol} {b}"));
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        Ok(Value::boolean(text, valid))
    }

    fn distinct_from(&mut self, op: BinaryOp, l: &Value, r: &Value) -> Result<Value> {
        let (a, b) = self.comparable(l, r, "comparison_order")?;
        let (lv, rv) = (l.valid_text(), r.valid_text());
        let same = format!("({lv} == {rv} && (!{lv} || {a} == {b}))");
        let text = if op == BinaryOp::IsNotDistinctFrom {
            same
        } else {
            format!("!{same}")
        };
        let text = self.bind_bool(text);
        Ok(Value::boolean(text, None))
    }
}

impl Value {
    /// The same value in the narrowest type that holds its range.
    pub(in crate::codegen) fn narrowed(self, emitter: &mut Emitter<'_>) -> Self {
        let narrow = CType::for_range(self.range);
        if !self.c_type.is_integer() || narrow >= self.c_type {
            return self;
        }
        let text = emitter.bind(narrow, format!("({}){}", narrow.name(), self.text));
        Self {
            text,
            c_type: narrow,
            ..self
        }
    }
}

/// Arrow takes the remainder of integers with wrapping (MIN % -1 = 0) but of decimals with a check.
fn is_fallible_remainder(bounds: Range) -> bool {
    bounds == Range::FULL
}

/// `a` by `b`, both of this type, in C++.
pub(in crate::codegen) fn quotient(c_type: CType, a: &str, b: &str) -> String {
    match c_type {
        CType::I128 => format!("divide({a}, {b})"),
        _ => format!("{a} / {b}"),
    }
}
