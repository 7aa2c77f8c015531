//! How one column of a result lies in memory, and the narrowest layout that holds a value.

use arrow::datatypes::DataType;

use super::range::Range;
use super::value::{CType, Meaning, Value};

/// How one column of a result lies in memory: a plain array, and with `nullable` a byte a row
/// (1 = not null) beside it. Null rows hold code 0.
#[derive(Debug, Clone)]
pub struct ColumnLayout {
    /// Logical type.
    pub data_type: DataType,
    /// Storage: unsigned codes `value - base` in 1, 2, 4 or 8 bytes, or the signed value itself in 16; floats
    /// as they are in 4 or 8 bytes; booleans as a byte.
    pub width: u8,
    /// True for floats.
    pub float: bool,
    /// Added to every code.
    pub base: i128,
    /// All values lie here (with 0 for nulls: `base`).
    pub range: Range,
    /// What the numbers stand for.
    pub meaning: Meaning,
    /// A validity byte a row.
    pub nullable: bool,
}

impl ColumnLayout {
    /// The C++ type in which kernels store it.
    pub fn storage(&self) -> &'static str {
        match (self.float, self.width) {
            (true, 4) => "f32",
            (true, _) => "f64",
            (false, 1) => "u8",
            (false, 2) => "u16",
            (false, 4) => "u32",
            (false, 8) => "u64",
            (false, _) => "i128",
        }
    }

    /// The code that all rows have, where there is but one value.
    pub fn only_code(&self) -> Option<i128> {
        let one = !self.float && !self.nullable && self.range.min == self.range.max;
        one.then(|| self.range.min - self.base)
    }

    /// The C++ type of a pointer to it.
    pub fn pointer(&self) -> String {
        format!("{}*", self.storage())
    }

    /// The C++ type of its values in kernels.
    pub fn c_type(&self) -> CType {
        match (&self.data_type, self.float, self.width) {
            (_, true, 4) => CType::F32,
            (_, true, _) => CType::F64,
            (DataType::Boolean, ..) => CType::Bool,
            _ => CType::for_range(self.range),
        }
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
