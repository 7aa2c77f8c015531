//! What expressions yield for the strings of a dictionary: kept while the kernels of a program are made, and for later programs where
//! the dictionary is large.
//!
//! A plan often has an expression more than once: in a filter, in the filter of a subquery, as a group key. Other queries have it again,
//! with other filters. Over a dictionary of millions of strings each evaluation takes a tenth of a second and more.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::ScalarUDFImpl;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use parking_lot::Mutex;

use crate::column::{Dictionary, distinct_strings};
use crate::error::Result;
use crate::memory::memory_of_host;

/// Dictionaries of fewer strings are evaluated again by each program: it takes no time to speak of.
const LARGE: usize = 1 << 14;

/// What is kept for later programs takes this part of the host's memory at most.
const PART_OF_HOST: usize = 16;

/// The value for each string of a dictionary, and the one for NULL behind them.
#[derive(Debug)]
pub(in crate::codegen) struct Results {
    pub(super) values: ArrayRef,
    /// For which of them the expression fails, where it does: their values are others' ones.
    pub(super) fails: Option<Vec<bool>>,
    /// Of strings: each one once, and which of them each value is.
    coded: OnceLock<(Arc<Dictionary>, Vec<i32>)>,
}

impl Results {
    pub(super) fn new(values: ArrayRef, fails: Option<Vec<bool>>) -> Arc<Self> {
        Arc::new(Self {
            values,
            fails,
            coded: OnceLock::new(),
        })
    }

    /// The distinct strings, and which of them each value is.
    ///
    /// # Errors
    /// Those of [`distinct_strings`].
    pub(super) fn coded(&self) -> Result<&(Arc<Dictionary>, Vec<i32>)> {
        if let Some(coded) = self.coded.get() {
            return Ok(coded);
        }
        let (values, codes) = distinct_strings(&self.values)?;
        let coded = (Arc::new(Dictionary { values }), codes);
        Ok(self.coded.get_or_init(|| coded))
    }

    fn bytes(&self) -> usize {
        let coded = self.coded.get().map_or(0, |(dictionary, codes)| {
            dictionary.values.get_array_memory_size() + size_of_val(codes.as_slice())
        });
        let fails = self.fails.as_ref().map_or(0, Vec::len);
        self.values.get_array_memory_size() + fails + coded
    }
}

/// One list for all kernels of a program.
#[derive(Debug, Clone, Default)]
pub(in crate::codegen) struct Evaluated(Rc<RefCell<Vec<Known>>>);

#[derive(Debug)]
struct Known {
    function: Arc<dyn PhysicalExpr>,
    dictionary: Arc<Dictionary>,
    data_type: DataType,
    results: Arc<Results>,
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
        evaluate: impl FnOnce() -> Result<(ArrayRef, Option<Vec<bool>>)>,
    ) -> Result<Arc<Results>> {
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
            .map(|known| Arc::clone(&known.results));
        if let Some(results) = found {
            return Ok(results);
        }
        let kept = match dictionary.len() >= LARGE {
            true => KEPT.lock().find(function, dictionary, data_type),
            false => None,
        };
        let results = match kept {
            Some(results) => results,
            None => {
                let (values, fails) = evaluate()?;
                let results = Results::new(values, fails);
                if dictionary.len() >= LARGE {
                    let of = Of::new(function, dictionary, data_type);
                    KEPT.lock().put(of, Arc::clone(&results));
                }
                results
            }
        };
        self.0.borrow_mut().push(Known {
            function: Arc::clone(function),
            dictionary: Arc::clone(dictionary),
            data_type: data_type.clone(),
            results: Arc::clone(&results),
        });
        Ok(results)
    }
}

/// For all programs of the process.
static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(|| {
    Mutex::new(Kept {
        entries: VecDeque::new(),
        most_bytes: memory_of_host() / PART_OF_HOST,
    })
});

/// What was used last is at the end.
#[derive(Debug)]
struct Kept {
    entries: VecDeque<(Of, Arc<Results>)>,
    most_bytes: usize,
}

/// An expression over a dictionary that may be gone.
#[derive(Debug)]
struct Of {
    function: Arc<dyn PhysicalExpr>,
    /// Two functions of a user may bear one name and look alike.
    calls: Vec<Arc<dyn ScalarUDFImpl>>,
    dictionary: Weak<Dictionary>,
    data_type: DataType,
}

impl Of {
    fn new(
        function: &Arc<dyn PhysicalExpr>,
        dictionary: &Arc<Dictionary>,
        data_type: &DataType,
    ) -> Self {
        Self {
            function: Arc::clone(function),
            calls: calls(function),
            dictionary: Arc::downgrade(dictionary),
            data_type: data_type.clone(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.calls.iter().zip(&other.calls);
        self.dictionary.ptr_eq(&other.dictionary)
            && self.data_type == other.data_type
            && self.function.as_ref() == other.function.as_ref()
            && self.calls.len() == other.calls.len()
            && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// The functions that an expression calls, in its order.
fn calls(function: &Arc<dyn PhysicalExpr>) -> Vec<Arc<dyn ScalarUDFImpl>> {
    let mut found = Vec::new();
    // The closure never fails, so neither does the walk.
    let _ = function.apply(|part| {
        if let Some(call) = part.downcast_ref::<ScalarFunctionExpr>() {
            found.push(Arc::clone(call.fun().inner()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

impl Kept {
    fn find(
        &mut self,
        function: &Arc<dyn PhysicalExpr>,
        dictionary: &Arc<Dictionary>,
        data_type: &DataType,
    ) -> Option<Arc<Results>> {
        let of = Of::new(function, dictionary, data_type);
        let place = self
            .entries
            .iter()
            .position(|(known, _)| known.is_same(&of))?;
        let entry = self.entries.remove(place)?;
        let results = Arc::clone(&entry.1);
        self.entries.push_back(entry);
        Some(results)
    }

    fn put(&mut self, of: Of, results: Arc<Results>) {
        self.entries
            .retain(|(known, _)| known.dictionary.strong_count() > 0 && !known.is_same(&of));
        self.entries.push_back((of, results));
        let mut bytes: usize = self.entries.iter().map(|(_, kept)| kept.bytes()).sum();
        while bytes > self.most_bytes
            && let Some((_, oldest)) = self.entries.pop_front()
        {
            bytes -= oldest.bytes();
        }
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
            let made = || Ok((Arc::clone(&array), None));
            let got = evaluated
                .get(function, dictionary, data_type, made)
                .unwrap();
            assert!(Arc::ptr_eq(&got.values, &array), "case {number} is new");
            let again = evaluated
                .clone()
                .get(function, dictionary, data_type, fails);
            assert!(
                Arc::ptr_eq(&again.unwrap().values, &array),
                "case {number} is known"
            );
        }
    }
    #[test]
    fn large_dictionaries_are_evaluated_once_for_all_programs() {
        let strings = (0..LARGE).map(|number| number.to_string());
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(strings));
        let dictionary = Arc::new(Dictionary { values });
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("kept for all", 0));
        let doubled: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
        let made = || Ok((Arc::clone(&doubled), None));
        let fails = || Err(GpuError::Internal("test".into()));
        let get = |dictionary: &Arc<Dictionary>| {
            Evaluated::default().get(&column, dictionary, &DataType::Utf8, fails)
        };
        assert!(get(&dictionary).is_err());
        let first = Evaluated::default();
        let first = first.get(&column, &dictionary, &DataType::Utf8, made);
        let (first, again) = (first.unwrap(), get(&dictionary).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(first.coded().unwrap().1, [0, 1, 0]);
        let (one, other) = (first.coded().unwrap(), again.coded().unwrap());
        assert!(Arc::ptr_eq(&one.0, &other.0));
        // The same strings elsewhere are another dictionary.
        let values = Arc::clone(&dictionary.values);
        assert!(get(&Arc::new(Dictionary { values })).is_err());
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("x", 0));
        let dictionaries: Vec<Arc<Dictionary>> = (0..3)
            .map(|_| {
                let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
                Arc::new(Dictionary { values })
            })
            .collect();
        let results = || Results::new(Arc::new(Int32Array::from(vec![1; 1000])), None);
        let mut kept = Kept {
            entries: VecDeque::new(),
            most_bytes: 2 * results().bytes(),
        };
        let of = |dictionary: &Arc<Dictionary>| Of::new(&column, dictionary, &DataType::Utf8);
        kept.put(of(&dictionaries[0]), results());
        kept.put(of(&dictionaries[1]), results());
        let find = |kept: &mut Kept, of: usize| {
            kept.find(&column, &dictionaries[of], &DataType::Utf8)
                .is_some()
        };
        assert!(find(&mut kept, 0));
        kept.put(of(&dictionaries[2]), results());
        assert_eq!(
            [0, 1, 2].map(|number| find(&mut kept, number)),
            [true, false, true]
        );
        drop(dictionaries);
        kept.put(
            of(&Arc::new(Dictionary {
                values: Arc::new(StringArray::from(vec!["b"])),
            })),
            results(),
        );
        assert_eq!(kept.entries.len(), 1);
    }
}
