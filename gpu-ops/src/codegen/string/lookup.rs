//! String expressions, evaluated once per distinct value and looked up by code.
//!
//! DataFusion itself evaluates the expression over the dictionary (and over one NULL), so any
//! deterministic function of a string column runs exactly as on the CPU. The results go to the device
//! as a table of one entry a code plus one for NULL; up to 64 booleans travel as two words of
//! the kernel's arguments. Where it fails for some strings another table, of a byte an entry, says so: a row that has one is a fault.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, ToByteSlice};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;

use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::string::entries;
use crate::codegen::string::evaluated::Results;
use crate::codegen::value::scalar::{Emitter, text_type};
use crate::column::{Dictionary, as_logical, is_text, merge_dictionaries, stored, translate_codes};
use crate::error::Result;
use crate::expr::evaluate_fallible;

impl Emitter<'_> {
    pub(in crate::codegen) fn per_distinct(
        &mut self,
        index: usize,
        function: &Arc<dyn PhysicalExpr>,
    ) -> Result<Value> {
        let data_type = &self.columns[index].data_type();
        let input = self.column(index)?;
        let dictionary = match &input.meaning {
            Meaning::Code(dictionary) => dictionary,
            Meaning::Row(column) => {
                let text = self.text_of_row(&input, column);
                return self.text_function(text, function, data_type);
            }
            _ => return needs_codes("expressions over strings that are computed"),
        };
        let evaluated = self.state.evaluated.clone();
        let results = evaluated.get(function, dictionary, data_type, || {
            evaluate_fallible(function, &dictionary.values, data_type)
        })?;
        let entries = results.values.len();
        let valid_input = input.valid.clone();
        let code = input.text.clone();
        let entry = match &valid_input {
            None => self.bind(CType::I32, code),
            Some(valid) => self.bind(CType::I32, format!("{valid} ? {code} : {}", entries - 1)),
        };
        if let Some(fails) = &results.fails {
            let pointer = self.table("const u8*", fails.iter().map(|f| u8::from(*f)).collect());
            let fails = format!("__ldg({pointer} + {entry}) != 0");
            self.fault(&fails, None, "WL_FAULT_CAST");
        }
        // The entry of NULL matters only when the column has nulls.
        let reachable = if valid_input.is_some() {
            entries
        } else {
            entries - 1
        };
        let has_null = entries::has_null(&results.values, reachable);
        self.looked_up(&results, &entry, has_null)
    }

    /// What the results have at `entry`, a C++ variable that is within it; without `has_null` no entry that is NULL is met.
    pub(in crate::codegen) fn looked_up(
        &mut self,
        of: &Results,
        entry: &str,
        has_null: bool,
    ) -> Result<Value> {
        let results = &of.values;
        let entries = results.len();
        if let Some(values) = results.as_boolean_opt() {
            if entries <= 64 {
                let mask = |bit: &dyn Fn(usize) -> bool| {
                    (0..entries)
                        .filter(|i| bit(*i))
                        .fold(0u64, |m, i| m | (1 << i))
                };
                let truth = mask(&|i| values.is_valid(i) && values.value(i));
                let truth = self.state.arguments.literal((truth as i64).into(), false);
                // A shift of 64 bits is two instructions and more.
                let word = if entries <= 32 { "u32" } else { "u64" };
                let text = self.bind_bool(format!("((({word}){truth} >> {entry}) & 1) != 0"));
                let valid = has_null.then(|| {
                    let known = mask(&|i| values.is_valid(i));
                    let known = self.state.arguments.literal((known as i64).into(), false);
                    self.bind_bool(format!("((({word}){known} >> {entry}) & 1) != 0"))
                });
                return Ok(Value::boolean(text, valid));
            }
            let pointer = self.table("const u8*", entries::truths(values));
            let text = self.bind_bool(format!("__ldg({pointer} + {entry}) != 0"));
            let valid = self.lookup_validity(results, entry, has_null);
            return Ok(Value::boolean(text, valid));
        }

        let valid = self.lookup_validity(results, entry, has_null);
        match results.data_type() {
            strings if is_text(strings) => {
                let (distinct, codes) = of.coded()?;
                let (bytes, pointer) = entries::codes(codes, distinct.len());
                let pointer = self.table(pointer, bytes);
                let text = self.bind(CType::I32, format!("(i32)__ldg({pointer} + {entry})"));
                let range = Range::new(0, distinct.len().max(1) as i128 - 1);
                let meaning = Meaning::Code(Arc::clone(distinct));
                Ok(Value {
                    text,
                    c_type: CType::I32,
                    range,
                    valid,
                    meaning,
                })
            }
            DataType::Float64 | DataType::Float32 => {
                let as_f64 = arrow::compute::cast(results, &DataType::Float64)?;
                let values = as_f64.as_primitive::<arrow::datatypes::Float64Type>();
                let bytes = values.values().to_byte_slice().to_vec();
                let pointer = self.table("const f64*", bytes);
                let c_type = if *results.data_type() == DataType::Float64 {
                    CType::F64
                } else {
                    CType::F32
                };
                let text = self.bind(
                    c_type,
                    format!("({})__ldg({pointer} + {entry})", c_type.name()),
                );
                Ok(Value {
                    text,
                    c_type,
                    range: Range::FULL,
                    valid,
                    meaning: Meaning::Number,
                })
            }
            _ => {
                let Some(numbers) = entries::numbers(results)? else {
                    return unsupported(format!(
                        "a string function returning {}",
                        results.data_type()
                    ));
                };
                let range = numbers.range;
                let c_type = CType::for_range(range);
                let pointer = self.table(numbers.pointer, numbers.bytes);
                let text = self.bind(
                    c_type,
                    format!("({})__ldg({pointer} + {entry})", c_type.name()),
                );
                Ok(Value {
                    text,
                    c_type,
                    range,
                    valid,
                    meaning: Meaning::Number,
                })
            }
        }
    }

    /// Two values that are codes as codes of one dictionary, so that they compare as their strings do.
    ///
    /// # Errors
    /// [`GpuError::NeedsCodes`] when a value is no code.
    pub(in crate::codegen) fn unify_codes(
        &mut self,
        a: &Value,
        b: &Value,
    ) -> Result<(Value, Value)> {
        let (Meaning::Code(x), Meaning::Code(y)) = (&a.meaning, &b.meaning) else {
            return needs_codes(
                "strings of different columns together, not all dictionary encoded",
            );
        };
        if Arc::ptr_eq(x, y) {
            return Ok((a.clone(), b.clone()));
        }
        let (merged, of_a, of_b) = merge_dictionaries(x, y)?;
        Ok((
            self.recoded(a, &merged, of_a),
            self.recoded(b, &merged, of_b),
        ))
    }

    /// Codes of several dictionaries as codes of one; other values, and NULL literals, stay as they are.
    ///
    /// # Errors
    /// As [`merge_dictionaries`].
    pub(in crate::codegen) fn one_dictionary(&mut self, values: Vec<Value>) -> Result<Vec<Value>> {
        let mut merged: Option<Arc<Dictionary>> = None;
        for value in &values {
            if let Meaning::Code(own) = &value.meaning {
                merged = Some(match &merged {
                    Some(others) if !Arc::ptr_eq(others, own) => merge_dictionaries(others, own)?.0,
                    _ => Arc::clone(own),
                });
            }
        }
        let Some(merged) = merged else {
            return Ok(values);
        };
        let recoded = values.into_iter().map(|value| match &value.meaning {
            Meaning::Code(own) if !Arc::ptr_eq(own, &merged) => {
                let codes = translate_codes(own, &merged)?;
                Ok(self.recoded(&value, &merged, codes))
            }
            _ => Ok(value),
        });
        recoded.collect()
    }

    /// A constant string: the one code of a dictionary of its own.
    pub(in crate::codegen) fn string_constant(&mut self, text: &ScalarValue) -> Result<Value> {
        let value = stored(&text.to_array()?)?;
        let values = as_logical(value, &text_type(&text.data_type()))?;
        let dictionary = Dictionary { values };
        Ok(Value {
            text: self.bind(CType::I32, "0".into()),
            c_type: CType::I32,
            range: Range::point(0),
            valid: None,
            meaning: Meaning::Code(Arc::new(dictionary)),
        })
    }

    /// A code of another dictionary as one of `merged`: `codes` by code.
    fn recoded(&mut self, value: &Value, merged: &Arc<Dictionary>, codes: Vec<i32>) -> Value {
        let same = codes.iter().enumerate().all(|(i, code)| i as i32 == *code);
        let text = if same {
            value.text.clone()
        } else {
            let text = self.state.recoded(&value.text, codes, 0);
            self.bind(CType::I32, text)
        };
        Value {
            text,
            c_type: CType::I32,
            range: Range::new(0, merged.len().max(1) as i128 - 1),
            valid: value.valid.clone(),
            meaning: Meaning::Code(Arc::clone(merged)),
        }
    }

    pub(in crate::codegen) fn table(&mut self, c_type: &'static str, bytes: Vec<u8>) -> String {
        self.state.table(c_type, bytes)
    }

    fn lookup_validity(
        &mut self,
        results: &ArrayRef,
        entry: &str,
        has_null: bool,
    ) -> Option<String> {
        has_null.then(|| {
            let pointer = self.table("const u8*", entries::validities(results));
            self.bind_bool(format!("__ldg({pointer} + {entry}) != 0"))
        })
    }
}
