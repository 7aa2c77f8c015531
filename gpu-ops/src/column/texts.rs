//! Arrays of strings, of characters or of bytes, as lists of their bytes.

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};

use crate::error::{GpuError, Result};

/// The strings of an array, whatever kind of array it is.
#[derive(Clone, Copy)]
pub(crate) enum Texts<'a> {
    Small(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
    SmallBytes(&'a BinaryArray),
    LargeBytes(&'a LargeBinaryArray),
    BytesView(&'a BinaryViewArray),
    FixedBytes(&'a FixedSizeBinaryArray),
}

impl<'a> Texts<'a> {
    /// # Errors
    /// [`GpuError::Internal`] when the array holds no strings.
    pub(crate) fn new(array: &'a dyn Array) -> Result<Self> {
        if let Some(array) = array.as_string_opt::<i32>() {
            Ok(Self::Small(array))
        } else if let Some(array) = array.as_string_opt::<i64>() {
            Ok(Self::Large(array))
        } else if let Some(array) = array.as_string_view_opt() {
            Ok(Self::View(array))
        } else if let Some(array) = array.as_binary_opt::<i32>() {
            Ok(Self::SmallBytes(array))
        } else if let Some(array) = array.as_binary_opt::<i64>() {
            Ok(Self::LargeBytes(array))
        } else if let Some(array) = array.as_binary_view_opt() {
            Ok(Self::BytesView(array))
        } else if let Some(array) = array.as_fixed_size_binary_opt() {
            Ok(Self::FixedBytes(array))
        } else {
            Err(GpuError::Internal(format!(
                "strings of type {}",
                array.data_type()
            )))
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
            Self::View(array) => array.len(),
            Self::SmallBytes(array) => array.len(),
            Self::LargeBytes(array) => array.len(),
            Self::BytesView(array) => array.len(),
            Self::FixedBytes(array) => array.len(),
        }
    }

    /// The bytes of string `i`.
    pub(crate) fn get(&self, i: usize) -> &'a [u8] {
        match self {
            Self::Small(array) => array.value(i).as_bytes(),
            Self::Large(array) => array.value(i).as_bytes(),
            Self::View(array) => array.value(i).as_bytes(),
            Self::SmallBytes(array) => array.value(i),
            Self::LargeBytes(array) => array.value(i),
            Self::BytesView(array) => array.value(i),
            Self::FixedBytes(array) => array.value(i),
        }
    }
}
