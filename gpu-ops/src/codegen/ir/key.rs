//! How one key is packed and unpacked.

use arrow::datatypes::DataType;

use super::value::{Meaning, Value};

/// How one key is packed and unpacked.
#[derive(Debug, Clone)]
pub struct KeyPlan {
    /// Logical type of the key.
    pub data_type: DataType,
    /// What the numbers stand for.
    pub meaning: Meaning,
    /// Smallest value; codes count from it.
    pub min: i128,
    /// True when code 0 stands for NULL and values count from 1.
    pub nullable: bool,
    /// Number of codes.
    pub domain: u128,
    /// Dense placements: the group number is the sum of `code * stride`.
    pub stride: u64,
    /// Hash placements: word of the packed key.
    pub word: usize,
    /// Hash placements: lowest bit in the word.
    pub shift: u32,
    /// Bits of a code. Of more than 64 the lowest 64 are a word of their own.
    pub bits: u32,
    /// Hash placements, codes of more than 64 bits: word and lowest bit of what is above these.
    pub(in crate::codegen) high: (usize, u32),
    pub(in crate::codegen) value: Value,
}

impl KeyPlan {
    /// Does a code take more than a word?
    pub(in crate::codegen) fn is_wide(&self) -> bool {
        self.bits > 64
    }

    /// C++ type of a code.
    pub(in crate::codegen) fn code_type(&self) -> &'static str {
        if self.is_wide() { "u128" } else { "u64" }
    }

    /// C++ text of the smallest value modulo the width of a code.
    pub(in crate::codegen) fn min_text(&self) -> String {
        let low = self.min as u64;
        if self.is_wide() {
            format!("(((u128){}ull << 64) | {low}ull)", (self.min >> 64) as u64)
        } else {
            format!("{low}ull")
        }
    }

    /// C++ text of the code of a value, from the value's text: counted from the smallest value modulo the width of a
    /// code, in which every domain fits. `first` is the code of the smallest value.
    pub(in crate::codegen) fn code_of(&self, value: &str, first: u32) -> String {
        let mut text = format!("({}){value}", self.code_type());
        if self.min != 0 {
            text = format!("({text} - {})", self.min_text());
        }
        if first != 0 {
            text = format!("({text} + {first}u)");
        }
        text
    }
}
