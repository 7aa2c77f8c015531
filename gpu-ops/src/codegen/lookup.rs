//! String expressions, evaluated once per distinct value and looked up by code.
//!
//! DataFusion itself evaluates the expression over the dictionary (and over one NULL), so any
//! deterministic function of a string column runs exactly as on the CPU. The results go to the device
//! as a table of one entry a code plus one for NULL; up to 64 booleans travel as two words of
//! the kernel's arguments.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::{concat, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;

use super::range::Range;
use super::scalar::{Emitter, integer_of, unsupported};
use super::value::{CType, Meaning, Value};
use crate::column::Dictionary;
use crate::error::{GpuError, Result};

/// Bytes that a launch uploads and passes by name.
#[derive(Debug, Clone)]
pub struct LookupTable {
    /// Name of the pointer among the kernel's arguments.
    pub name: String,
    /// Little-endian entries.
    pub bytes: Vec<u8>,
}

impl Emitter<'_> {
    pub(super) fn per_distinct(
        &mut self,
        index: usize,
        function: &Arc<dyn PhysicalExpr>,
    ) -> Result<Value> {
        let data_type = &self.columns[index].data_type();
        let input = self.column(index)?;
        let Meaning::Code(dictionary) = &input.meaning else {
            return unsupported("expressions over strings that are not dictionary encoded");
        };
        let results = evaluate(function, dictionary, data_type)?;
        let entries = results.len();
        let valid_input = input.valid.clone();
        let code = input.text.clone();
        let entry = match &valid_input {
            None => self.bind(CType::I32, code),
            Some(valid) => self.bind(CType::I32, format!("{valid} ? {code} : {}", entries - 1)),
        };
        // The entry of NULL matters only when the column has nulls.
        let reachable = if valid_input.is_some() {
            entries
        } else {
            entries - 1
        };
        let has_null = (0..reachable).any(|i| results.is_null(i));

        if let Some(values) = results.as_boolean_opt() {
            if entries <= 64 {
                let mask = |bit: &dyn Fn(usize) -> bool| {
                    (0..entries)
                        .filter(|i| bit(*i))
                        .fold(0u64, |m, i| m | (1 << i))
                };
                let truth = mask(&|i| values.is_valid(i) && values.value(i));
                let truth = self.state.arguments.literal((truth as i64).into(), false);
                let text = self.bind_bool(format!("(((u64){truth} >> {entry}) & 1) != 0"));
                let valid = has_null.then(|| {
                    let known = mask(&|i| values.is_valid(i));
                    let known = self.state.arguments.literal((known as i64).into(), false);
                    self.bind_bool(format!("(((u64){known} >> {entry}) & 1) != 0"))
                });
                return Ok(Value::boolean(text, valid));
            }
            let bytes = (0..entries)
                .map(|i| u8::from(values.is_valid(i) && values.value(i)))
                .collect();
            let pointer = self.table("const u8*", bytes);
            let text = self.bind_bool(format!("__ldg({pointer} + {entry}) != 0"));
            let valid = self.lookup_validity(&results, &entry, has_null);
            return Ok(Value::boolean(text, valid));
        }

        let valid = self.lookup_validity(&results, &entry, has_null);
        match results.data_type() {
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Dictionary(..) => {
                let (distinct, codes) = sorted_dictionary(&results)?;
                let bytes = codes.iter().flat_map(|c| c.to_ne_bytes()).collect();
                let pointer = self.table("const i32*", bytes);
                let text = self.bind(CType::I32, format!("__ldg({pointer} + {entry})"));
                let range = Range::new(0, distinct.len().max(1) as i128 - 1);
                let meaning = Meaning::Code(Arc::new(Dictionary { values: distinct }));
                Ok(Value {
                    text,
                    c_type: CType::I32,
                    range,
                    valid,
                    meaning,
                })
            }
            DataType::Float64 | DataType::Float32 => {
                let as_f64 = arrow::compute::cast(&results, &DataType::Float64)?;
                let values = as_f64.as_primitive::<arrow::datatypes::Float64Type>();
                let bytes = values
                    .values()
                    .iter()
                    .flat_map(|v| v.to_ne_bytes())
                    .collect();
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
                let mut numbers = Vec::with_capacity(entries);
                let mut range = Range::point(0);
                for i in 0..entries {
                    let scalar = datafusion::scalar::ScalarValue::try_from_array(&results, i)?;
                    let number = if scalar.is_null() {
                        Some(0)
                    } else {
                        integer_of(&scalar)
                    };
                    let Some(number) = number else {
                        return unsupported(format!(
                            "a string function returning {}",
                            results.data_type()
                        ));
                    };
                    range = range.union(Range::point(number));
                    numbers.push(number);
                }
                let c_type = CType::for_range(range);
                if c_type == CType::I128 {
                    return unsupported("a string function returning 128-bit values");
                }
                let bytes = numbers
                    .iter()
                    .flat_map(|n| (*n as i64).to_ne_bytes())
                    .collect();
                let pointer = self.table("const i64*", bytes);
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

    fn table(&mut self, c_type: &'static str, bytes: Vec<u8>) -> String {
        let name = format!("table{}", self.state.lookups.len());
        let pointer = self.state.arguments.pointer(&name, c_type);
        self.state.lookups.push(LookupTable { name, bytes });
        pointer
    }

    fn lookup_validity(
        &mut self,
        results: &ArrayRef,
        entry: &str,
        has_null: bool,
    ) -> Option<String> {
        has_null.then(|| {
            let bytes = (0..results.len())
                .map(|i| u8::from(results.is_valid(i)))
                .collect();
            let pointer = self.table("const u8*", bytes);
            self.bind_bool(format!("__ldg({pointer} + {entry}) != 0"))
        })
    }
}

/// The expression over every distinct value, then over NULL.
fn evaluate(
    function: &Arc<dyn PhysicalExpr>,
    dictionary: &Dictionary,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let null = new_null_array(dictionary.values.data_type(), 1);
    let input = concat(&[dictionary.values.as_ref(), null.as_ref()])?;
    let input = if input.data_type() == data_type {
        input
    } else {
        arrow::compute::cast(&input, data_type)?
    };
    let schema = Schema::new(vec![Field::new("value", data_type.clone(), true)]);
    let rows = input.len();
    let batch = RecordBatch::try_new(Arc::new(schema), vec![input])?;
    // A value that fails may belong to rows that a filter removes: the CPU knows, as it sees only the others.
    let results = function.evaluate(&batch).map_err(|error| {
        GpuError::Unsupported(format!(
            "{function} fails for one of the column's values ({})",
            error.strip_backtrace()
        ))
    })?;
    Ok(results.into_array(rows)?)
}

/// Distinct non-null strings in byte order, and the code of each input row (0 for NULL).
fn sorted_dictionary(strings: &ArrayRef) -> Result<(ArrayRef, Vec<i32>)> {
    let strings = match strings.data_type() {
        DataType::Dictionary(_, value) => arrow::compute::cast(strings, value)?,
        _ => Arc::clone(strings),
    };
    let plain = arrow::compute::cast(&strings, &DataType::LargeUtf8)?;
    let text = plain.as_string::<i64>();
    let order = sort_to_indices(&plain, None, None)?;
    let mut codes = vec![0i32; text.len()];
    let mut kept = Vec::new();
    let mut previous: Option<&str> = None;
    for row in order
        .values()
        .iter()
        .copied()
        .filter(|r| text.is_valid(*r as usize))
    {
        let value = text.value(row as usize);
        if previous != Some(value) {
            kept.push(row);
            previous = Some(value);
        }
        codes[row as usize] = i32::try_from(kept.len() - 1)
            .map_err(|_| GpuError::Unsupported("more than 2^31 distinct strings".into()))?;
    }
    let indices = arrow::array::UInt32Array::from(kept);
    Ok((take(&strings, &indices, None)?, codes))
}
