//! What expressions yield for the strings of a dictionary, kept while the kernels of a program are made.
//!
//! A plan often has an expression more than once: in a filter, in the filter of a subquery, as a group key. Over a dictionary of millions
//! of strings each evaluation takes a tenth of a second.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;

use crate::column::Dictionary;
use crate::error::Result;

/// One list for all kernels of a program.
#[derive(Debug, Clone, Default)]
pub(in crate::codegen) struct Evaluated(Rc<RefCell<Vec<Known>>>);

#[derive(Debug)]
struct Known {
    function: Arc<dyn PhysicalExpr>,
    dictionary: Arc<Dictionary>,
    data_type: DataType,
    results: ArrayRef,
}

impl Evaluated {
    /// What `function` yields over `dictionary`, read as `data_type`: found, or by `evaluate`.
    ///
    /// # Errors
    /// Those of `evaluate`.
    pub(super) fn get(
        &self,
        function: &Arc<dyn PhysicalExpr>,
        dictionary: &Arc<Dictionary>,
        data_type: &DataType,
        evaluate: impl FnOnce() -> Result<ArrayRef>,
    ) -> Result<ArrayRef> {
        let is_it = |known: &Known| {
            Arc::ptr_eq(&known.dictionary, dictionary)
                && known.data_type == *data_type
                && known.function.as_ref() == function.as_ref()
        };
        let found = self
            .0
            .borrow()
            .iter()
            .find(|known| is_it(known))
            .map(|k| Arc::clone(&k.results));
        if let Some(results) = found {
            return Ok(results);
        }
        let results = evaluate()?;
        self.0.borrow_mut().push(Known {
            function: Arc::clone(function),
            dictionary: Arc::clone(dictionary),
            data_type: data_type.clone(),
            results: Arc::clone(&results),
        });
        Ok(results)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::error::GpuError;
    use arrow::array::{Int32Array, StringArray};
    use datafusion::physical_expr::expressions::{Column, lit};

    #[test]
    fn the_same_is_evaluated_once_and_nothing_else_is_taken_for_it() {
        let strings = || {
            Arc::new(Dictionary {
                values: Arc::new(StringArray::from(vec!["a"])),
            })
        };
        let (one, other) = (strings(), strings());
        let column = |name| Arc::new(Column::new(name, 0)) as Arc<dyn PhysicalExpr>;
        let (narrow, wide): (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>) = (lit(1i32), lit(1i64));
        let cases = [
            (column("x"), &one, DataType::Utf8),
            (column("x"), &other, DataType::Utf8),
            (column("x"), &one, DataType::Utf8View),
            (column("y"), &one, DataType::Utf8),
            // These are shown alike.
            (narrow, &one, DataType::Utf8),
            (wide, &one, DataType::Utf8),
        ];
        let evaluated = Evaluated::default();
        let fails = || Err(GpuError::Internal("test".into()));
        let (function, dictionary, data_type) = &cases[0];
        assert!(
            evaluated
                .get(function, dictionary, data_type, fails)
                .is_err()
        );
        for (number, (function, dictionary, data_type)) in cases.iter().enumerate() {
            let array: ArrayRef = Arc::new(Int32Array::from(vec![number as i32]));
            let made = || Ok(Arc::clone(&array));
            let got = evaluated
                .get(function, dictionary, data_type, made)
                .unwrap();
            assert!(Arc::ptr_eq(&got, &array), "case {number} is new");
            let again = evaluated
                .clone()
                .get(function, dictionary, data_type, fails);
            assert!(
                Arc::ptr_eq(&again.unwrap(), &array),
                "case {number} is known"
            );
        }
    }
}
