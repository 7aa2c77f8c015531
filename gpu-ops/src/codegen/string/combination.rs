//! Expressions over values of which there are few, evaluated once per combination of them and looked up.
//!
//! DataFusion itself evaluates the expression over every combination of the values that its inputs can have: the strings of
//! a dictionary, the two Booleans, the integers or dates of a small range, and NULL. So any deterministic function of
//! them runs exactly as on the CPU.

use std::ops::Range as Span;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal32Array, Decimal64Array, Decimal128Array, Int32Array,
    Int64Array, RecordBatch, UInt32Array, UInt64Array,
};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;

use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::string::evaluated::Results;
use crate::codegen::value::scalar::Emitter;
use crate::column::{as_logical, map};
use crate::error::{GpuError, Result};
use crate::expr::{Expr, evaluate_batch, one_null};

/// Most combinations that are evaluated: the table of their results stays in the cache of a device.
const MOST_COMBINATIONS: usize = 1 << 20;

/// Combinations that one thread evaluates at a time.
const EVALUATED: usize = 1 << 16;

/// The values that an input can have.
struct Domain {
    /// Every value once, as DataFusion knows it.
    values: ArrayRef,
    /// C++ text of the place of the row's value among them.
    place: String,
}

impl Emitter<'_> {
    pub(in crate::codegen) fn per_combination(
        &mut self,
        inputs: &[Expr],
        function: &Arc<dyn PhysicalExpr>,
    ) -> Result<Value> {
        let values = inputs.iter().map(|input| self.emit(input));
        let values: Vec<Value> = values.collect::<Result<_>>()?;
        if let Some(sought) = Self::seeks(function, inputs, &values) {
            return self.sought(&sought, &values);
        }
        let mut domains = Vec::with_capacity(inputs.len());
        let mut combinations = 1usize;
        for (value, input) in values.iter().zip(inputs) {
            let domain = self.domain(value, input, function, MOST_COMBINATIONS)?;
            combinations = match combinations.checked_mul(domain.values.len()) {
                Some(product @ 0..=MOST_COMBINATIONS) => product,
                _ => return too_many(function),
            };
            domains.push(domain);
        }
        let mut entry = "0".to_string();
        for domain in &domains {
            entry = match domain.values.len() {
                1 => entry,
                _ if entry == "0" => domain.place.clone(),
                values => {
                    let values = self.integer(values as i128);
                    format!("({entry} * {values} + {})", domain.place)
                }
            };
        }
        let entry = self.bind(CType::I32, entry);
        let results = evaluate(function, &domains, combinations)?;
        let has_null = results.null_count() > 0;
        self.looked_up(&Results::new(results, None), &entry, has_null)
    }

    /// All that `value` can be, at most `most` values.
    fn domain(
        &mut self,
        value: &Value,
        input: &Expr,
        function: &Arc<dyn PhysicalExpr>,
        most: usize,
    ) -> Result<Domain> {
        let data_type = &input.data_type;
        if value.is_null() {
            return Ok(Domain {
                values: one_null(data_type)?,
                place: "0".into(),
            });
        }
        let (known, place) = match &value.meaning {
            Meaning::Code(dictionary) => {
                let strings = &dictionary.values;
                if strings.len() > most {
                    return too_many(function);
                }
                let strings = as_logical(Arc::clone(strings), data_type)?;
                (strings, value.text.clone())
            }
            Meaning::Number if value.c_type == CType::Bool => {
                let both: ArrayRef = Arc::new(BooleanArray::from(vec![false, true]));
                (both, format!("(i32){}", value.text))
            }
            Meaning::Number if value.c_type.is_integer() => {
                let size = value.range.size().and_then(|n| usize::try_from(n).ok());
                let Some(size) = size.filter(|size| *size <= most) else {
                    return too_many(function);
                };
                let numbers = numbers(value.range, data_type)?;
                let least = self.integer(value.range.min);
                let size = self.integer(size as i128);
                // Right modulo the width; a value that nobody asks for may lie anywhere.
                let place = format!("(u64){} - (u64){least}", value.text);
                let place = format!("({place} < (u64){size} ? (i32)({place}) : 0)");
                (numbers, place)
            }
            Meaning::Number => {
                return unsupported(format!("{function} of {data_type} runs on the CPU"));
            }
            Meaning::Row(_) | Meaning::Packed { .. } => {
                return needs_codes("expressions over several values");
            }
        };
        // Rows of a dictionary without strings have code 0, which is then that of NULL.
        if value.valid.is_none() && !known.is_empty() {
            return Ok(Domain {
                values: known,
                place,
            });
        }
        let null = known.len();
        let place = match &value.valid {
            Some(valid) => format!("({valid} ? {place} : {null})"),
            None => "0".into(),
        };
        let nothing = one_null(data_type)?;
        Ok(Domain {
            values: concat(&[&*known, &*nothing])?,
            place: self.bind(CType::I32, place),
        })
    }
}

fn too_many<T>(function: &Arc<dyn PhysicalExpr>) -> Result<T> {
    unsupported(format!(
        "{function} over values that have more than {MOST_COMBINATIONS} combinations runs on the CPU"
    ))
}

/// The integers of `range` as values of `data_type`.
fn numbers(range: Range, data_type: &DataType) -> Result<ArrayRef> {
    let all = || range.min..=range.max;
    let not_one = || GpuError::Unsupported(format!("values beyond those of {data_type}"));
    let narrow = || {
        all()
            .map(|n| i32::try_from(n).map_err(|_| not_one()))
            .collect::<Result<Vec<_>>>()
    };
    let wide = || {
        all()
            .map(|n| i64::try_from(n).map_err(|_| not_one()))
            .collect::<Result<Vec<_>>>()
    };
    let raw: ArrayRef = match data_type {
        DataType::Date32 | DataType::Time32(_) => Arc::new(Int32Array::from(narrow()?)),
        DataType::UInt64 => {
            let values = all().map(|n| u64::try_from(n).map_err(|_| not_one()));
            Arc::new(UInt64Array::from(values.collect::<Result<Vec<_>>>()?))
        }
        DataType::Decimal32(precision, scale) => {
            let values = Decimal32Array::from(narrow()?);
            return Ok(Arc::new(
                values.with_precision_and_scale(*precision, *scale)?,
            ));
        }
        DataType::Decimal64(precision, scale) => {
            let values = Decimal64Array::from(wide()?);
            return Ok(Arc::new(
                values.with_precision_and_scale(*precision, *scale)?,
            ));
        }
        DataType::Decimal128(precision, scale) => {
            let values = Decimal128Array::from(all().collect::<Vec<_>>());
            return Ok(Arc::new(
                values.with_precision_and_scale(*precision, *scale)?,
            ));
        }
        _ => Arc::new(Int64Array::from(wide()?)),
    };
    let options = arrow::compute::CastOptions {
        safe: false,
        ..Default::default()
    };
    Ok(arrow::compute::cast_with_options(
        &raw, data_type, &options,
    )?)
}

/// The expression over every combination, the last input's values changing fastest.
fn evaluate(
    function: &Arc<dyn PhysicalExpr>,
    domains: &[Domain],
    combinations: usize,
) -> Result<ArrayRef> {
    let fields: Vec<Field> = domains
        .iter()
        .enumerate()
        .map(|(i, domain)| Field::new(format!("input{i}"), domain.values.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let parts = (0..combinations).step_by(EVALUATED);
    let parts: Vec<Span<usize>> = parts
        .map(|start| start..combinations.min(start + EVALUATED))
        .collect();
    let results = map(parts, |part| {
        let mut columns = Vec::with_capacity(domains.len());
        // Combinations after which a value changes.
        let mut run = combinations;
        for domain in domains {
            let values = domain.values.len();
            run /= values;
            let places = part.clone().map(|at| (at / run % values) as u32);
            let places = UInt32Array::from_iter_values(places);
            columns.push(take(&domain.values, &places, None)?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        evaluate_batch(function, &batch)
    })?;
    let results = results.into_iter().collect::<Result<Vec<_>>>()?;
    let results: Vec<&dyn Array> = results.iter().map(|part| &**part).collect();
    Ok(concat(&results)?)
}
