//! Lists, maps and calendar intervals as strings of bytes: kernels compare and group them whole, and never look into them.
//!
//! The bytes are those of Arrow's row format, which has the same ones for equal values, for no others, and leads back to the value. A
//! dictionary of them makes any function of a list one of its code. Their order is not that of SQL, which has several of lists, by where
//! NULL is, so nothing is ordered by them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::row::{RowConverter, SortField};

use super::parallel::{map, shares};
use crate::error::{GpuError, Result};

/// Values of this type lie on the device as the bytes of these.
pub(super) static STORED: DataType = DataType::LargeBinary;

/// Key of the metadata of an item's field: the list is put together at the end, and a number until then.
pub(crate) const REFERENCE: &str = "warpline:list";

/// Are values of the type strings of bytes that nothing looks into?
pub fn is_opaque(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => is_item(item),
        DataType::FixedSizeList(item, 1..) => is_item(item),
        DataType::Map(entries, _) => is_item(entries),
        DataType::Interval(_) => true,
        _ => false,
    }
}

fn is_item(field: &Field) -> bool {
    !field.metadata().contains_key(REFERENCE) && leads_back(field.data_type())
}

/// Does the row format give values of the type back as they were? Of dictionaries and runs it keeps the values alone.
fn leads_back(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| leads_back(field.data_type()))
        }
        nested if nested.is_nested() => is_opaque(nested),
        DataType::Null | DataType::FixedSizeBinary(0) => false,
        _ => !matches!(
            data_type,
            DataType::Dictionary(..) | DataType::RunEndEncoded(..)
        ),
    }
}

/// The array as it is stored: bytes in the place of values that are opaque, any other as it is.
///
/// # Errors
/// [`GpuError::Arrow`] when Arrow has no rows for the type; [`GpuError::Internal`] when a thread panics.
pub(crate) fn stored(array: &ArrayRef) -> Result<ArrayRef> {
    if !is_opaque(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    let converter = converter(array.data_type())?;
    let rows = converter.convert_columns(std::slice::from_ref(array))?;
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let known = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let mut bytes = Vec::with_capacity(rows.size());
    let mut ends = Vec::with_capacity(rows.num_rows() + 1);
    ends.push(0i64);
    for (number, row) in rows.iter().enumerate() {
        if known(number) {
            bytes.extend_from_slice(row.as_ref());
        }
        ends.push(bytes.len() as i64);
    }
    let ends = OffsetBuffer::new(ends.into());
    Ok(Arc::new(LargeBinaryArray::try_new(
        ends,
        bytes.into(),
        nulls,
    )?))
}

/// The values of an opaque type that are stored as these bytes.
///
/// # Errors
/// [`GpuError::Internal`] when they are no bytes; [`GpuError::Arrow`] when Arrow has no rows for the type.
pub(super) fn values(stored: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let bytes = stored.as_binary_opt::<i64>();
    let bytes = bytes.ok_or_else(|| {
        GpuError::Internal(format!("{data_type} stored as {}", stored.data_type()))
    })?;
    let parts = map(shares(bytes.len()), |share| {
        of_bytes(&bytes.slice(share.start, share.len()), data_type)
    })?;
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    match &parts[..] {
        [all] => Ok(Arc::clone(all)),
        parts => {
            let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
            Ok(arrow::compute::concat(&parts)?)
        }
    }
}

fn of_bytes(bytes: &LargeBinaryArray, data_type: &DataType) -> Result<ArrayRef> {
    let converter = converter(data_type)?;
    let null = converter.convert_columns(&[new_null_array(data_type, 1)])?;
    let null = null.row(0);
    let parser = converter.parser();
    // No value is without bytes: what stands in the place of a NULL may be.
    let rows = bytes.iter().map(|bytes| match bytes {
        Some(bytes) if !bytes.is_empty() => parser.parse(bytes),
        _ => null,
    });
    let mut columns = converter.convert_rows(rows)?;
    match (columns.pop(), columns.len()) {
        (Some(values), 0) if values.data_type() == data_type => Ok(values),
        _ => Err(GpuError::Internal(format!("rows are no {data_type}"))),
    }
}

fn converter(data_type: &DataType) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![SortField::new(data_type.clone())])?)
}
