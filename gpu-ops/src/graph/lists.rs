//! Lists of values: the device carries a reference to the rows of a window that have them, the host puts them together at the end.
//!
//! Rows lie in partitions behind a [`Window`](super::Window), the values of one list side by side. What refers to them is a number: the
//! first row in the upper half of 64 bits, the row behind the last in the lower half. It passes joins, sorts and limits as any number;
//! nothing is computed of it. The result of the window stays until the rows of the output, and only theirs, are read from it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use super::ResultId;
use crate::column::REFERENCE;

/// A column of a window's rows of which lists are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListColumn {
    /// Told in the type of what refers to it: no other window of the fragment has it.
    pub id: usize,
    /// Column of the rows.
    pub column: usize,
}

/// A column of the output that refers to lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputList {
    /// Column of the output.
    pub output: usize,
    /// The rows that have the values: a `Sorted` result.
    pub rows: ResultId,
    /// Column of these.
    pub values: usize,
    /// What stands between the values in one string; `None`: they come as a list.
    pub delimiter: Option<String>,
}

/// Key beside it: what stands between the values of a string.
const DELIMITER: &str = "warpline:delimiter";

/// The type of a reference to lists of values of `data_type`.
pub fn list_type(id: usize, data_type: DataType, delimiter: Option<&str>) -> DataType {
    let delimiter = delimiter.map(|text| (DELIMITER.to_string(), text.to_string()));
    let metadata: HashMap<String, String> = delimiter
        .into_iter()
        .chain([(REFERENCE.to_string(), id.to_string())])
        .collect();
    DataType::List(Arc::new(
        Field::new_list_field(data_type, true).with_metadata(metadata),
    ))
}

/// The number of the list that values of a type refer to, and what stands between its values; `None` for every other type.
pub fn list_of(data_type: &DataType) -> Option<(usize, Option<&str>)> {
    let DataType::List(field) = data_type else {
        return None;
    };
    let metadata = field.metadata();
    let id = metadata.get(REFERENCE)?.parse().ok()?;
    Some((id, metadata.get(DELIMITER).map(String::as_str)))
}
