//! Operators on the bits of integers.

use arrow::datatypes::DataType;

use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::Result;
use crate::expr::BinaryOp;

impl Emitter<'_> {
    pub(super) fn bitwise(
        &mut self,
        op: BinaryOp,
        l: &Value,
        r: &Value,
        data_type: &DataType,
    ) -> Result<Value> {
        self.numbers_only(l, r)?;
        let symbol = match op {
            BinaryOp::BitAnd => '&',
            BinaryOp::BitOr => '|',
            _ => '^',
        };
        // Sign extension makes bitwise operations right at any width that holds both
        // operands; the result stays within the operands' type.
        let range = self.bounds(data_type)?;
        let c_type = CType::for_range(range).max(l.c_type).max(r.c_type);
        let text = format!(
            "{} {symbol} {}",
            self.widen(l, c_type),
            self.widen(r, c_type)
        );
        let text = self.bind(c_type, text);
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        })
    }

    pub(super) fn shift_right(
        &mut self,
        l: &Value,
        r: &Value,
        data_type: &DataType,
    ) -> Result<Value> {
        self.numbers_only(l, r)?;
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        let width = bits(data_type)?;
        if let (Ok(bits), true) = (u32::try_from(r.range.min), r.range.max == r.range.min)
            && bits < width
        {
            // No further than the value's own bits, in whichever it is computed.
            let by = bits.min(l.c_type.registers() as u32 * 32 - 1);
            let text = self.bind(l.c_type, format!("{} >> {by}", l.text));
            return Ok(Value {
                text,
                range: Range::new(l.range.min >> bits, l.range.max >> bits),
                valid,
                ..l.clone()
            });
        }
        // Wide enough that no shift reaches its width.
        let c_type = match width {
            64 => l.c_type.max(CType::I64),
            _ => l.c_type.max(CType::I32),
        };
        let value = self.widen(l, c_type);
        let text = format!("{value} >> ((u32){} & {})", r.text, width - 1);
        let range = Range::new(l.range.min.min(0), l.range.max.max(0));
        Ok(Value {
            text: self.bind(c_type, text),
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        }
        .narrowed(self))
    }

    pub(super) fn shift_left(
        &mut self,
        l: &Value,
        r: &Value,
        data_type: &DataType,
    ) -> Result<Value> {
        self.numbers_only(l, r)?;
        let valid = self.both_valid(l.valid.as_deref(), r.valid.as_deref());
        let width = bits(data_type)?;
        // The low bits are right whatever the width above them; the type cuts them.
        let text = format!("(u64){} << ((u32){} & {})", l.text, r.text, width - 1);
        let (c_type, text) = self.cut(data_type, &text);
        Ok(Value {
            text: self.bind(c_type, text),
            c_type,
            range: self.bounds(data_type)?,
            valid,
            meaning: Meaning::Number,
        })
    }

    /// A 64-bit number modulo the width of an integer type.
    pub(super) fn cut(&self, data_type: &DataType, text: &str) -> (CType, String) {
        match data_type {
            DataType::Int8 => (CType::I32, format!("(i32)(i8)({text})")),
            DataType::Int16 => (CType::I32, format!("(i32)(i16)({text})")),
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
                (CType::I32, format!("(i32)({text})"))
            }
            DataType::UInt8 => (CType::I32, format!("(i32)(u8)({text})")),
            DataType::UInt16 => (CType::I32, format!("(i32)(u16)({text})")),
            DataType::UInt32 => (CType::I64, format!("(i64)(u32)({text})")),
            DataType::UInt64 => (CType::I128, format!("(i128)(u64)({text})")),
            _ => (CType::I64, format!("(i64)({text})")),
        }
    }
}

/// Bits of an integer type.
fn bits(data_type: &DataType) -> Result<u32> {
    match data_type.primitive_width() {
        Some(bytes) if data_type.is_integer() => Ok(bytes as u32 * 8),
        _ => unsupported(format!("a shift of {data_type}")),
    }
}
