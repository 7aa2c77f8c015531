//! Strings that a result refers to by row, fetched from their resident column.

use arrow::array::ArrayRef;

use super::decode::as_type;
use super::run_graph::Run;
use crate::codegen::ColumnLayout;
use crate::column::Column;
use crate::error::{GpuError, Result};

/// The strings of output column `index`, whose `rows` row numbers lie on the device.
pub(super) fn gather(
    _run: &Run<'_>,
    _index: usize,
    layout: &ColumnLayout,
    _base: &Column,
    _valid: Option<&[u8]>,
    rows: usize,
) -> Result<ArrayRef> {
    if rows == 0 {
        return as_type(
            arrow::array::new_empty_array(&layout.data_type),
            &layout.data_type,
        );
    }
    Err(GpuError::Unsupported("strings by row in the output".into()))
}
