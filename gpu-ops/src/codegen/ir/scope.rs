//! The scope of a kernel's expressions: where each column's values come from and how they are decoded.
//!
//! Column `i` is an array `c{i}` of one raw value for each of the thread's rows `k`, and, when it can be
//! NULL, a mask `n{i}` of one bit a row. The writer loads both when the first step needs them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::DataType;

use super::program::ColumnLayout;
use super::range::Range;
use super::value::{CType, Meaning, Value};
use crate::codegen::value::scalar::{Emitter, needs_codes};
use crate::column::{Column, Encoding};
use crate::error::Result;
use crate::graph::ResultId;

/// One column of a kernel's scope.
#[derive(Debug, Clone)]
pub(in crate::codegen) struct ScopeColumn {
    pub(in crate::codegen) shape: Shape,
    pub(in crate::codegen) access: Access,
    /// There is a mask `n{i}`.
    pub(in crate::codegen) nullable: bool,
}

/// What the raw values of a column are.
#[derive(Debug, Clone)]
pub(in crate::codegen) enum Shape {
    /// Codes of a resident column.
    Resident(Arc<Column>),
    /// Codes of a result's column.
    Stored(ColumnLayout),
    /// The values themselves.
    Computed {
        data_type: DataType,
        c_type: CType,
        range: Range,
        meaning: Meaning,
    },
    /// A bit mask variable, one bit a row.
    Mask(String),
}

/// How raw values get into `c{i}`.
#[derive(Debug, Clone)]
pub(in crate::codegen) enum Access {
    /// The thread's rows of the scanned table: pointers `c{i}`, `n{i}`.
    Scan,
    /// The thread's rows of a result.
    Direct { result: ResultId, column: usize },
    /// Rows `entry[k]` of a result, for the rows in `mask`.
    Gather {
        result: ResultId,
        column: usize,
        entry: String,
        mask: String,
    },
    /// Row 0 of a result, NULL when it has none.
    Broadcast { result: ResultId, column: usize },
    /// Computed by statements; `{c}` and `{n}` stand for the array and the mask.
    Lines(Vec<String>),
    /// Nothing to load.
    None,
}

impl ScopeColumn {
    /// Logical type of the values.
    pub(in crate::codegen) fn data_type(&self) -> DataType {
        match &self.shape {
            Shape::Resident(column) => column.data_type.clone(),
            Shape::Stored(layout) => layout.data_type.clone(),
            Shape::Computed { data_type, .. } => data_type.clone(),
            Shape::Mask(_) => DataType::Boolean,
        }
    }

    /// A column of the scanned table.
    pub(in crate::codegen) fn resident(column: &Arc<Column>) -> Self {
        Self {
            nullable: column.validity.is_some(),
            shape: Shape::Resident(Arc::clone(column)),
            access: Access::Scan,
        }
    }
}

/// String columns that values refer to by row; one list for all kernels of a program.
#[derive(Debug, Clone, Default)]
pub(in crate::codegen) struct Bases(Rc<RefCell<Vec<Arc<Column>>>>);

impl Bases {
    /// Number of `column`, for [`crate::codegen::Slot::Base`].
    pub(in crate::codegen) fn number(&self, column: &Arc<Column>) -> usize {
        let mut list = self.0.borrow_mut();
        match list.iter().position(|c| Arc::ptr_eq(c, column)) {
            Some(number) => number,
            None => {
                list.push(Arc::clone(column));
                list.len() - 1
            }
        }
    }

    /// All of them, in order.
    pub(in crate::codegen) fn into_columns(self) -> Vec<Arc<Column>> {
        self.0.borrow().clone()
    }
}

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

/// How a value that a kernel computes is kept in a result.
pub(in crate::codegen) fn layout_of(value: &Value, data_type: &DataType) -> ColumnLayout {
    let nullable = value.valid.is_some();
    let layout = |width: u8, float: bool, base: i128, range: Range| ColumnLayout {
        data_type: data_type.clone(),
        width,
        float,
        base,
        range,
        meaning: value.meaning.clone(),
        nullable,
    };
    match value.c_type {
        CType::Bool => layout(1, false, 0, Range::new(0, 1)),
        CType::F32 => layout(4, true, 0, Range::FULL),
        CType::F64 => layout(8, true, 0, Range::FULL),
        _ => {
            let (width, base) = narrowest(value.range);
            layout(width, false, base, value.range)
        }
    }
}

/// Bytes and base of the codes that hold every value of `range`.
pub(in crate::codegen) fn narrowest(range: Range) -> (u8, i128) {
    let fits = |span: i128| match span {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ if span >= 0 && span <= i128::from(u64::MAX) => 8,
        _ => 16,
    };
    let Some(span) = range.max.checked_sub(range.min) else {
        return (16, 0);
    };
    let width = fits(span);
    if width == 16 {
        return (16, 0);
    }
    if range.min >= 0 && fits(range.max) == width {
        return (width, 0);
    }
    (width, range.min)
}
