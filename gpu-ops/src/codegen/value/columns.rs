//! A column of the scope as a value: its raw value decoded.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::scalar::Emitter;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::needs_codes;
use crate::codegen::ir::scope::{Access, Shape};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::column::{Column, Encoding};
use crate::error::Result;

impl Emitter<'_> {
    /// The value of scope column `index` at the row at hand.
    pub(in crate::codegen) fn column(&mut self, index: usize) -> Result<Value> {
        let Some(column) = self.columns.get(index) else {
            return Err(crate::error::GpuError::Internal(format!(
                "column {index} is not in scope"
            )));
        };
        let column = column.clone();
        let valid = column
            .nullable
            .then(|| self.bind_bool(format!("((n{index} >> k) & 1) != 0")));
        match &column.shape {
            Shape::Resident(resident) => self.resident(index, resident, valid),
            Shape::Stored(layout) => Ok(self.stored(index, layout, valid)),
            Shape::Computed {
                c_type,
                range,
                meaning,
                ..
            } => {
                let text = self.bind(*c_type, format!("c{index}[k]"));
                Ok(Value {
                    text,
                    c_type: *c_type,
                    range: *range,
                    valid,
                    meaning: meaning.clone(),
                })
            }
            Shape::Mask(mask) => {
                let text = self.bind_bool(format!("(({mask} >> k) & 1) != 0"));
                Ok(Value::boolean(text, valid))
            }
        }
    }

    fn resident(
        &mut self,
        index: usize,
        column: &Arc<Column>,
        valid: Option<String>,
    ) -> Result<Value> {
        let bounds = column
            .statistics
            .range
            .map_or(Range::point(0), |(a, b)| Range::new(a, b));
        if let Some(value) = column.only_value() {
            let range = Range::point(value);
            let c_type = CType::for_range(range);
            let text = self.integer(value);
            let text = self.bind(c_type, format!("({}){text}", c_type.name()));
            let meaning = match &column.encoding {
                Encoding::Dictionary { dictionary, .. } => Meaning::Code(Arc::clone(dictionary)),
                _ => Meaning::Number,
            };
            return Ok(Value {
                meaning,
                ..number(text, c_type, range, valid)
            });
        }
        Ok(match &column.encoding {
            Encoding::Bits => {
                let text = self.bind_bool(format!("((c{index} >> k) & 1) != 0"));
                Value::boolean(text, valid)
            }
            Encoding::Integer { width: 16, .. } => {
                let text = self.bind(CType::I128, format!("c{index}[k]"));
                let range = bounds.union(Range::point(0));
                number(text, CType::I128, range, valid)
            }
            // Rows that are null or past the end hold code 0, that is the value `base`.
            Encoding::Integer { base, .. } => {
                self.offset_code(index, *base, bounds.union(Range::point(*base)), valid)
            }
            Encoding::Float { width } => {
                let c_type = if *width == 4 { CType::F32 } else { CType::F64 };
                let text = self.bind(c_type, format!("c{index}[k]"));
                number(text, c_type, Range::FULL, valid)
            }
            Encoding::Dictionary { dictionary, .. } => {
                let text = self.bind(CType::I32, format!("(i32)c{index}[k]"));
                let range = Range::new(0, dictionary.len().max(1) as i128 - 1);
                let meaning = Meaning::Code(Arc::clone(dictionary));
                Value {
                    meaning,
                    ..number(text, CType::I32, range, valid)
                }
            }
            Encoding::Bytes { .. } => {
                if !matches!(self.columns[index].access, Access::Scan) {
                    return needs_codes("strings that are not dictionary encoded");
                }
                let range = Range::new(0, (column.rows.max(1) - 1) as i128);
                let c_type = CType::for_range(range);
                let text = self.bind(c_type, format!("({})(row + k)", c_type.name()));
                self.state.own_rows.insert(text.clone(), index);
                let meaning = Meaning::Row(Arc::clone(column));
                Value {
                    meaning,
                    ..number(text, c_type, range, valid)
                }
            }
        })
    }

    /// `base + code` in the narrowest type that holds `range`.
    fn offset_code(
        &mut self,
        index: usize,
        base: i128,
        range: Range,
        valid: Option<String>,
    ) -> Value {
        let c_type = CType::for_range(range);
        let unsigned = match c_type {
            CType::I32 => "u32",
            CType::I64 => "u64",
            _ => "u128",
        };
        let mut text = format!("({unsigned})c{index}[k]");
        if base != 0 {
            let base = self.integer(base);
            // Unsigned addition: the sum is right modulo the width, whatever the code.
            text = format!("{text} + ({unsigned})({}){base}", c_type.name());
        }
        let text = self.bind(c_type, format!("({})({text})", c_type.name()));
        number(text, c_type, range, valid)
    }

    fn stored(&mut self, index: usize, layout: &ColumnLayout, valid: Option<String>) -> Value {
        if layout.data_type == DataType::Boolean && matches!(layout.meaning, Meaning::Number) {
            let text = self.bind_bool(format!("c{index}[k] != 0"));
            return Value::boolean(text, valid);
        }
        if layout.float {
            let c_type = layout.c_type();
            let text = self.bind(c_type, format!("c{index}[k]"));
            return number(text, c_type, Range::FULL, valid);
        }
        if layout.width == 16 {
            let text = self.bind(CType::I128, format!("c{index}[k]"));
            return Value {
                meaning: layout.meaning.clone(),
                ..number(text, CType::I128, layout.range, valid)
            };
        }
        let value = self.offset_code(index, layout.base, layout.range, valid);
        Value {
            meaning: layout.meaning.clone(),
            ..value
        }
    }
}

fn number(text: String, c_type: CType, range: Range, valid: Option<String>) -> Value {
    Value {
        text,
        c_type,
        range,
        valid,
        meaning: Meaning::Number,
    }
}
