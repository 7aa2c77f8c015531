//! The elements of a column's lists as a table: every list that the column has, or that a function makes of its values, once, in as
//! many rows as it has elements.
//!
//! Rows of the table whose lists these are find their elements by the list itself. The distinct values of a column are those of its
//! dictionary, which is on the host: nothing is read again, and what a list has is taken apart once for all rows that have it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;

use super::source::{Kind, TableSource};
use super::struct_fields::StructFields;
use crate::column::{Dictionary, as_logical, distinct_strings, is_text};
use crate::error::{GpuError, Result};
use crate::expr::evaluate_strings;

/// Whose elements they are.
#[derive(Clone)]
pub(super) struct ElementsOf {
    /// The table …
    pub(super) of: TableSource,
    /// … its column …
    pub(super) column: usize,
    /// … and what makes a list of a value of it, over the value as column 0; the value is the list without it.
    list: Option<Arc<dyn PhysicalExpr>>,
}

/// Elements of the lists that a function makes of the strings of a dictionary, which lives while an [`ElementsAnchor`] does.
#[derive(Debug, Clone)]
pub(super) struct ElementsKey {
    /// Its address.
    dictionary: usize,
    list: Option<Arc<dyn PhysicalExpr>>,
}

/// Keeps the address in a key from being given to another dictionary, without keeping the dictionary.
#[derive(Debug)]
pub(super) struct ElementsAnchor(Weak<Dictionary>);

impl PartialEq for ElementsKey {
    fn eq(&self, other: &Self) -> bool {
        self.dictionary == other.dictionary && self.list == other.list
    }
}

impl Eq for ElementsKey {}

impl Hash for ElementsKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dictionary.hash(state);
    }
}

impl ElementsAnchor {
    /// Is the dictionary gone? Then no column can have it any more.
    pub(super) fn is_dead(&self) -> bool {
        self.0.strong_count() == 0
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl TableSource {
    /// The elements of the lists that `list` makes of the values of a column of strings or lists, which it reads as its column 0; of
    /// the lists of the column without it. Column 0 of the table is the list, never NULL, column 1 an element, and each list of at
    /// least one element is there once: order and number of equal elements are kept.
    ///
    /// `None` when these are no lists, or the table's columns are not kept.
    pub fn elements(&self, column: usize, list: Option<Arc<dyn PhysicalExpr>>) -> Option<Self> {
        if !matches!(
            self.kind,
            Kind::Files(_) | Kind::Memory(_) | Kind::Elements(_)
        ) {
            return None;
        }
        let field = self.schema().fields().get(column)?;
        if !is_text(field.data_type()) {
            return None;
        }
        let schema = match &list {
            Some(list) => {
                let value = Field::new(field.name(), field.data_type().clone(), true);
                schema(&list.data_type(&Schema::new(vec![value])).ok()?)?
            }
            None => schema(field.data_type())?,
        };
        let of = ElementsOf {
            of: self.clone(),
            column,
            list,
        };
        Some(Self::new(
            format!("elements of {}", field.name()).into(),
            Arc::new(StructFields::of(&schema)),
            Kind::Elements(Arc::new(of)),
        ))
    }
}

impl ElementsOf {
    /// Are they the same of the same table?
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.column == other.column && self.list == other.list && self.of.is_same(&other.of)
    }

    pub(super) fn key(&self, dictionary: &Arc<Dictionary>) -> ElementsKey {
        ElementsKey {
            dictionary: Arc::as_ptr(dictionary) as usize,
            list: self.list.clone(),
        }
    }

    pub(super) fn anchor(dictionary: &Arc<Dictionary>) -> ElementsAnchor {
        ElementsAnchor(Arc::downgrade(dictionary))
    }

    /// The rows: all elements of the lists that are these values, or are made of these strings and of NULL. Takes a while.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where a list cannot be made of one of the strings; [`GpuError::Internal`] for what is no list.
    pub(super) fn rows(&self, dictionary: &Dictionary) -> Result<RecordBatch> {
        let column = self.of.schema().field(self.column).data_type();
        let lists = match &self.list {
            Some(list) => {
                let lists = evaluate_strings(list, &dictionary.values, column)?;
                // Different strings may make the same list.
                let (distinct, _) = distinct_strings(&lists)?;
                as_logical(distinct, lists.data_type())?
            }
            None => as_logical(Arc::clone(&dictionary.values), column)?,
        };
        let none = || GpuError::Internal(format!("elements of {}", lists.data_type()));
        let (places, elements) = apart(&lists).ok_or_else(none)?;
        let schema = schema(lists.data_type()).ok_or_else(none)?;
        let lists = take(&lists, &places, None)?;
        Ok(RecordBatch::try_new(schema, vec![lists, elements])?)
    }
}

/// The columns of the elements of lists of this type.
fn schema(list: &DataType) -> Option<SchemaRef> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
        list
    else {
        return None;
    };
    Some(Arc::new(Schema::new(vec![
        Field::new("list", list.clone(), false),
        Field::new("element", item.data_type().clone(), true),
    ])))
}

/// The elements of all lists, none of which is NULL, and the place of each one's list.
fn apart(lists: &ArrayRef) -> Option<(UInt64Array, ArrayRef)> {
    let (ends, elements): (Vec<usize>, &ArrayRef) = match lists.data_type() {
        DataType::List(_) => {
            let lists = lists.as_list::<i32>();
            let ends = lists.offsets().iter().map(|end| *end as usize);
            (ends.collect(), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = lists.as_list::<i64>();
            let ends = lists.offsets().iter().map(|end| *end as usize);
            (ends.collect(), lists.values())
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).ok()?;
            let ends = (0..=lists.len()).map(|list| list * size);
            (ends.collect(), lists.as_fixed_size_list().values())
        }
        _ => return None,
    };
    let (first, last) = (*ends.first()?, *ends.last()?);
    let mut places = Vec::with_capacity(last - first);
    for (place, ends) in ends.windows(2).enumerate() {
        places.extend(std::iter::repeat_n(place as u64, ends[1] - ends[0]));
    }
    Some((places.into(), elements.slice(first, last - first)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::array::{FixedSizeListArray, Int32Array, Int64Array, ListArray};
    use arrow::datatypes::{Int32Type, Int64Type};

    use super::*;

    #[test]
    fn every_element_has_the_place_of_its_list() {
        let lists = [vec![Some(1), None], vec![], vec![Some(3), Some(1), Some(3)]];
        let lists = lists.into_iter().map(Some);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        for from in 0..=3 {
            let some: ArrayRef = Arc::new(lists.slice(from, 3 - from));
            let (places, elements) = apart(&some).unwrap();
            let expected = [0, 0, 2, 2, 2].into_iter().filter(|place| *place >= from);
            let expected: UInt64Array = expected.map(|place| (place - from) as u64).collect();
            assert_eq!(places, expected, "from {from}");
            let all = Int64Array::from(vec![Some(1), None, Some(3), Some(1), Some(3)]);
            let expected = all.slice(5 - places.len(), places.len());
            assert_eq!(elements.as_primitive::<Int64Type>(), &expected);
        }
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..6));
        let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item, 2, values, None));
        let (places, elements) = apart(&pairs.slice(1, 2)).unwrap();
        assert_eq!(places, UInt64Array::from(vec![0, 0, 1, 1]));
        let expected = Int32Array::from_iter_values(2..6);
        assert_eq!(elements.as_primitive::<Int32Type>(), &expected);
        let none: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert!(apart(&none).is_none());
    }
}
