//! Values inside a generated kernel: their C++ type, range and validity.

use std::sync::Arc;

use super::range::Range;
use crate::column::{Column, Dictionary};

/// C++ type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CType {
    /// `bool`.
    Bool,
    /// 32-bit signed integer; also dictionary codes.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 128-bit signed integer.
    I128,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
}

impl CType {
    /// Name in `simt.cuh`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// The narrowest integer that holds `range`.
    pub fn for_range(range: Range) -> Self {
        if range.within(Range::new(i32::MIN.into(), i32::MAX.into())) {
            Self::I32
        } else if range.within(Range::new(i64::MIN.into(), i64::MAX.into())) {
            Self::I64
        } else {
            Self::I128
        }
    }

    /// 32-bit registers one value takes.
    pub fn registers(self) -> usize {
        match self {
            Self::Bool | Self::I32 | Self::F32 => 1,
            Self::I64 | Self::F64 => 2,
            Self::I128 => 4,
        }
    }

    /// True for I32, I64 and I128.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::I128)
    }
}

/// What the bits of a value stand for beyond a plain number.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// The number itself: integer, unscaled decimal, days …
    Number,
    /// Position in a sorted dictionary.
    Code(Arc<Dictionary>),
    /// Row of a resident string column: a string that has not been read yet.
    Row(Arc<Column>),
    /// A short string, packed into the number (see [`crate::codegen::pack`]): `chars` characters at most, of `bits` bits each.
    /// Numbers order as their strings.
    Packed { chars: u8, bits: u8 },
}

/// A value at one place of the generated text.
#[derive(Debug, Clone)]
pub(in crate::codegen) struct Value {
    /// A C++ variable.
    pub(in crate::codegen) text: String,
    /// Its type.
    pub(in crate::codegen) c_type: CType,
    /// Its values, for integers and codes; meaningless for floats.
    pub(in crate::codegen) range: Range,
    /// A C++ `bool` variable that is true when the value is not NULL; `None`: never NULL.
    pub(in crate::codegen) valid: Option<String>,
    /// What it stands for.
    pub(in crate::codegen) meaning: Meaning,
}

impl Value {
    pub(in crate::codegen) fn boolean(text: String, valid: Option<String>) -> Self {
        Self {
            text,
            c_type: CType::Bool,
            range: Range::new(0, 1),
            valid,
            meaning: Meaning::Number,
        }
    }

    /// Is it NULL in every row, by what the plan says?
    pub(in crate::codegen) fn is_null(&self) -> bool {
        self.valid.as_deref() == Some("false")
    }

    /// C++ text that is true when the value is not NULL.
    pub(in crate::codegen) fn valid_text(&self) -> &str {
        self.valid.as_deref().unwrap_or("true")
    }
}
