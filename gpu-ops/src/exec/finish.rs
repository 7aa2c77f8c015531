//! From aggregation states to Arrow arrays of the plan's types, as DataFusion finalises them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array,
    Float32Array, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array,
};
use arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DataType, Decimal32Type, Decimal64Type, Decimal128Type, DecimalType,
    SchemaRef, i256,
};

use super::groups::Groups;
use crate::codegen::{CallPlan, KeyPlan, Meaning, StateKind, TilePlan};
use crate::column::{Dictionary, Encoding, decode_codes};
use crate::error::{ArithmeticFault, GpuError, Result};
use crate::pipeline::{AggregateFunction, GroupPlacement};

/// Build the fragment's one batch: keys, then calls.
pub(super) fn finish(
    plan: &TilePlan,
    placement: GroupPlacement,
    groups: &Groups,
    schema: SchemaRef,
) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for key in &plan.keys {
        columns.push(key_column(key, placement, groups)?);
    }
    for call in &plan.aggregates.calls {
        columns.push(call_column(plan, call, groups)?);
    }
    // Layouts that differ only in Arrow's physical type (Utf8 against Utf8View) follow the schema.
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(column)
            } else {
                arrow::compute::cast(&column, field.data_type())
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(groups.rows));
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

fn key_column(key: &KeyPlan, placement: GroupPlacement, groups: &Groups) -> Result<ArrayRef> {
    let hashed = matches!(placement, GroupPlacement::GlobalHash { .. });
    let mask = if key.bits >= 64 {
        u64::MAX
    } else {
        (1 << key.bits) - 1
    };
    let mut codes = Vec::with_capacity(groups.rows);
    let mut valid = Vec::with_capacity(groups.rows);
    for row in 0..groups.rows {
        let packed = groups.key(row);
        let code = if hashed {
            packed[key.word].checked_shr(key.shift).unwrap_or(0) & mask
        } else {
            (u128::from(packed[0] / key.stride) % key.domain) as u64
        };
        valid.push(!key.nullable || code != 0);
        codes.push(if key.nullable {
            code.wrapping_sub(1)
        } else {
            code
        });
    }
    codes
        .iter_mut()
        .zip(&valid)
        .filter(|(_, v)| !**v)
        .for_each(|(c, _)| *c = 0);
    decode_numbers(&key.data_type, &key.meaning, key.min, &codes, &valid)
}

/// Values `base + code` of a logical type.
fn decode_numbers(
    data_type: &DataType,
    meaning: &Meaning,
    base: i128,
    codes: &[u64],
    valid: &[bool],
) -> Result<ArrayRef> {
    let encoding = match meaning {
        Meaning::Code(dictionary) => {
            if dictionary.is_empty() {
                return Ok(arrow::array::new_null_array(data_type, codes.len()));
            }
            Encoding::Dictionary {
                width: 4,
                dictionary: Arc::<Dictionary>::clone(dictionary),
            }
        }
        Meaning::Row(_) => {
            return Err(GpuError::Internal("strings by row in a group state".into()));
        }
        Meaning::Number if *data_type == DataType::Boolean => Encoding::Bits,
        Meaning::Number => Encoding::Integer { width: 8, base },
    };
    let nulls = arrow::buffer::NullBuffer::from(valid.to_vec());
    decode_codes(data_type, &encoding, codes, Some(nulls))
}

fn call_column(plan: &TilePlan, call: &CallPlan, groups: &Groups) -> Result<ArrayRef> {
    let value = &plan.aggregates.accumulators[call.value];
    let count_word = plan.aggregates.accumulators[call.count].word;
    let counts: Vec<u64> = (0..groups.rows)
        .map(|r| groups.state(r)[count_word])
        .collect();
    let valid: Vec<bool> = counts.iter().map(|c| *c != 0).collect();
    let word = |row: usize| groups.state(row)[value.word];
    match call.function {
        AggregateFunction::Count => Ok(Arc::new(Int64Array::from_iter_values(
            counts.iter().map(|c| *c as i64),
        ))),
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Any => {
            let keys = (0..groups.rows)
                .map(|r| {
                    if value.kind == StateKind::Min {
                        !word(r)
                    } else {
                        word(r)
                    }
                })
                .zip(&valid)
                .map(|(key, valid)| if *valid { key } else { 0 });
            extremes(call, keys.collect(), &valid)
        }
        AggregateFunction::Sum | AggregateFunction::Avg => {
            if value.kind == StateKind::SumFloat {
                let averaged = call.function == AggregateFunction::Avg;
                let sums = (0..groups.rows).map(|r| {
                    let sum = f64::from_bits(word(r));
                    valid[r].then(|| {
                        if averaged {
                            sum / counts[r] as f64
                        } else {
                            sum
                        }
                    })
                });
                return Ok(Arc::new(Float64Array::from_iter(sums)));
            }
            let sums = (0..groups.rows)
                .map(|r| {
                    let words = &groups.state(r)[value.word..];
                    let sum = match value.kind {
                        StateKind::Sum128 => {
                            (u128::from(words[1]) << 64 | u128::from(words[0])) as i128
                        }
                        _ => i128::from(words[0] as i64),
                    };
                    valid[r].then_some(sum)
                })
                .collect::<Vec<_>>();
            if call.function == AggregateFunction::Avg {
                averages(call, &sums, &counts)
            } else {
                integers(&call.return_type, &sums)
            }
        }
    }
}

/// Integers or decimals of the result's type; wraps at its width as DataFusion's SUM does.
fn integers(data_type: &DataType, values: &[Option<i128>]) -> Result<ArrayRef> {
    let iter = values.iter();
    Ok(match data_type {
        DataType::Int64 => Arc::new(Int64Array::from_iter(iter.map(|v| v.map(|x| x as i64)))),
        DataType::UInt64 => Arc::new(UInt64Array::from_iter(iter.map(|v| v.map(|x| x as u64)))),
        DataType::Decimal32(p, s) => Arc::new(
            Decimal32Array::from_iter(iter.map(|v| v.map(|x| x as i32)))
                .with_precision_and_scale(*p, *s)?,
        ),
        DataType::Decimal64(p, s) => Arc::new(
            Decimal64Array::from_iter(iter.map(|v| v.map(|x| x as i64)))
                .with_precision_and_scale(*p, *s)?,
        ),
        DataType::Decimal128(p, s) => {
            Arc::new(Decimal128Array::from_iter(iter.copied()).with_precision_and_scale(*p, *s)?)
        }
        DataType::Decimal256(p, s) => Arc::new(
            Decimal256Array::from_iter(iter.map(|v| v.map(i256::from_i128)))
                .with_precision_and_scale(*p, *s)?,
        ),
        other => {
            return Err(GpuError::Unsupported(format!(
                "SUM with a result of type {other}"
            )));
        }
    })
}

/// AVG of decimals: the sum brought to the result's scale, divided by the count, truncated.
fn averages(call: &CallPlan, sums: &[Option<i128>], counts: &[u64]) -> Result<ArrayRef> {
    let scale_of = |t: &DataType| match t {
        DataType::Decimal32(_, s) | DataType::Decimal64(_, s) | DataType::Decimal128(_, s) => {
            Some(*s)
        }
        _ => None,
    };
    let argument_scale = call.argument_type.as_ref().and_then(scale_of);
    let (Some(from), Some(to)) = (argument_scale, scale_of(&call.return_type)) else {
        return Err(GpuError::Unsupported(format!(
            "AVG with a result of type {}",
            call.return_type
        )));
    };
    let shift = u32::try_from(i32::from(to) - i32::from(from))
        .map_err(|_| GpuError::Arithmetic(ArithmeticFault::Overflow))?;
    let factor = i256::from_i128(10i128.pow(shift));
    let average = |(sum, count): (&Option<i128>, &u64)| -> Result<Option<i128>> {
        let Some(sum) = sum else { return Ok(None) };
        let quotient = i256::from_i128(*sum)
            .wrapping_mul(factor)
            .wrapping_div(i256::from_i128((*count).into()));
        let value = quotient
            .to_i128()
            .ok_or(GpuError::Arithmetic(ArithmeticFault::Overflow))?;
        let fits = match &call.return_type {
            DataType::Decimal32(p, s) => i32::try_from(value).is_ok_and(|v| {
                *p <= DECIMAL32_MAX_PRECISION
                    && Decimal32Type::validate_decimal_precision(v, *p, *s).is_ok()
            }),
            DataType::Decimal64(p, s) => i64::try_from(value)
                .is_ok_and(|v| Decimal64Type::validate_decimal_precision(v, *p, *s).is_ok()),
            DataType::Decimal128(p, s) => {
                Decimal128Type::validate_decimal_precision(value, *p, *s).is_ok()
            }
            _ => false,
        };
        if fits {
            Ok(Some(value))
        } else {
            Err(GpuError::Arithmetic(ArithmeticFault::Overflow))
        }
    };
    let values = sums
        .iter()
        .zip(counts)
        .map(average)
        .collect::<Result<Vec<_>>>()?;
    integers(&call.return_type, &values)
}

/// Keys of `max_key` back to values.
fn extremes(call: &CallPlan, keys: Vec<u64>, valid: &[bool]) -> Result<ArrayRef> {
    const SIGN: u64 = 1 << 63;
    let data_type = call.argument_type.as_ref().unwrap_or(&call.return_type);
    match data_type {
        DataType::Float64 => {
            let values = keys.iter().zip(valid).map(|(key, valid)| {
                let ordered = (key ^ SIGN) as i64;
                valid.then(|| {
                    f64::from_bits((ordered ^ (((ordered >> 63) as u64) >> 1) as i64) as u64)
                })
            });
            Ok(Arc::new(Float64Array::from_iter(values)))
        }
        DataType::Float32 => {
            let values = keys.iter().zip(valid).map(|(key, valid)| {
                let ordered = (key ^ SIGN) as i64 as i32;
                valid.then(|| {
                    f32::from_bits((ordered ^ (((ordered >> 31) as u32) >> 1) as i32) as u32)
                })
            });
            Ok(Arc::new(Float32Array::from_iter(values)))
        }
        DataType::Boolean => {
            let values = keys
                .iter()
                .zip(valid)
                .map(|(key, valid)| valid.then_some(key ^ SIGN != 0));
            Ok(Arc::new(arrow::array::BooleanArray::from_iter(values)))
        }
        _ if matches!(call.meaning, Meaning::Code(_)) => {
            let codes: Vec<u64> = keys
                .iter()
                .zip(valid)
                .map(|(k, v)| if *v { k ^ SIGN } else { 0 })
                .collect();
            decode_numbers(data_type, &call.meaning, 0, &codes, valid)
        }
        // `key = value - i64::MIN`: a frame of reference.
        _ => decode_numbers(data_type, &call.meaning, i64::MIN.into(), &keys, valid),
    }
}
