//! Groups as rows: keys unpacked and aggregates finished from the states of a group table (SEEDS C1, FINALIZE).

use arrow::datatypes::DataType;

use super::aggregate::{CallPlan, StateKind};
use super::emit::Context;
use super::keys::KeyPlan;
use super::program::{GroupsLayout, ResultLayout, SourceRows};
use super::range::Range;
use super::scalar::{KernelState, unsupported};
use super::scope::{Access, ScopeColumn, Shape};
use super::sources::EmittedSource;
use super::value::{CType, Meaning};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;
use crate::pipeline::{AggregateFunction, GroupPlacement};

/// The groups of `result` as a source: keys, then calls.
pub(super) fn source(
    context: &Context<'_>,
    result: ResultId,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let known = context.known(result)?;
    let ResultLayout::Groups(layout) = &known.layout else {
        return Err(GpuError::Internal(format!("result {result} is not groups")));
    };
    let words = layout.aggregates.words.max(1);
    let states = state
        .arguments
        .pointer(&format!("r{result}state"), "const u64*");
    let hashed = matches!(layout.placement, GroupPlacement::GlobalHash { .. });
    let keys = (hashed && !layout.keys.is_empty()).then(|| {
        state
            .arguments
            .pointer(&format!("r{result}keys"), "const u64*")
    });
    let occupied = match (&keys, layout.keys.is_empty()) {
        (_, true) => "true".to_string(),
        (Some(_), _) if layout.key_words > 1 => {
            let slots = state
                .arguments
                .pointer(&format!("r{result}states"), "const u32*");
            format!("{slots}[row + k] == 2")
        }
        (Some(keys), _) => format!("{keys}[row + k] != WL_EMPTY_KEY"),
        // The first accumulator counts the rows of the group.
        (None, false) => format!("{states}[(row + k) * {words}] != 0"),
    };
    let prologue = vec![format!(
        "if (live != 0) {{ u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)({occupied}) << k; live &= occupied; }}"
    )];
    let at = format!("const u64* const at = {states} + (row + k) * {words};");
    let mut scope = Vec::new();
    for key in &layout.keys {
        scope.push(key_column(layout, key, keys.as_deref()));
    }
    for call in &layout.aggregates.calls {
        scope.push(call_column(layout, call, &at, state)?);
    }
    Ok(EmittedSource {
        rows: SourceRows::Slots(result),
        bound: known.bound,
        thread_rows: 1,
        prologue,
        scope,
    })
}

fn key_column(layout: &GroupsLayout, key: &KeyPlan, keys: Option<&str>) -> ScopeColumn {
    let mask = if key.bits >= 64 {
        u64::MAX
    } else {
        (1u64 << key.bits) - 1
    };
    let code = match keys {
        _ if key.bits == 0 => "0ull".to_string(),
        Some(keys) if key.is_wide() => {
            let part = |word: usize| format!("{keys}[(row + k) * {} + {word}]", layout.key_words);
            let (word, shift) = key.high;
            let high_mask = u64::MAX >> (128 - key.bits);
            format!(
                "(((u128)({} >> {shift} & {high_mask}ull) << 64) | ({} >> {}))",
                part(word),
                part(key.word),
                key.shift
            )
        }
        Some(keys) => format!(
            "(({keys}[(row + k) * {} + {}] >> {}) & {mask}ull)",
            layout.key_words, key.word, key.shift
        ),
        // A single key's code is the slot's number itself.
        None if layout.keys.len() == 1 => "(row + k)".to_string(),
        None => format!("((row + k) / {}ull % {}ull)", key.stride, key.domain),
    };
    let values = key.domain - u128::from(key.nullable);
    let max = key.min.wrapping_add_unsigned(values.max(1)).wrapping_sub(1);
    let range = Range { min: key.min, max };
    let c_type = match key.data_type {
        DataType::Boolean => CType::Bool,
        DataType::Float64 => CType::F64,
        DataType::Float32 => CType::F32,
        _ => CType::for_range(range),
    };
    let mut lines = vec![format!("{} code = {code};", key.code_type())];
    if key.nullable {
        lines.push("if (code != 0) { {n} |= 1u << k; code -= 1; }".to_string());
    }
    let wide = if c_type == CType::I128 { "(u128)" } else { "" };
    lines.push(match c_type {
        CType::Bool => "{c}[k] = code != 0;".to_string(),
        CType::F64 => format!("{{c}}[k] = f64_of_order((i64)(code + {}));", key.min_text()),
        CType::F32 => format!("{{c}}[k] = f32_of_order((i32)(code + {}));", key.min_text()),
        _ if key.is_wide() => format!("{{c}}[k] = ({})(code + {});", c_type.name(), key.min_text()),
        // Modulo the width: the sum is a value of the key's range.
        _ => format!(
            "{{c}}[k] = ({})({wide}code + {wide}{}ull{});",
            c_type.name(),
            key.min as u64,
            high_half(c_type, key.min)
        ),
    });
    ScopeColumn {
        shape: Shape::Computed {
            data_type: key.data_type.clone(),
            c_type,
            range: match c_type {
                CType::Bool => Range::new(0, 1),
                CType::F32 | CType::F64 => Range::FULL,
                _ => range,
            },
            meaning: key.meaning.clone(),
        },
        access: Access::Lines(lines),
        nullable: key.nullable,
    }
}

/// The upper 64 bits of a 128-bit smallest value.
fn high_half(c_type: CType, min: i128) -> String {
    let high = (min >> 64) as u64;
    if c_type == CType::I128 && high != 0 {
        format!(" + ((u128){high}ull << 64)")
    } else {
        String::new()
    }
}

fn call_column(
    layout: &GroupsLayout,
    call: &CallPlan,
    at: &str,
    state: &mut KernelState,
) -> Result<ScopeColumn> {
    let accumulators = &layout.aggregates.accumulators;
    let value = &accumulators[call.value];
    let count = format!("at[{}]", accumulators[call.count].word);
    let word = format!("at[{}]", value.word);
    // A group has a row: a call over every row of it has a value.
    let always = !layout.keys.is_empty() && accumulators[call.count].condition == "alive";
    let nullable = call.function != AggregateFunction::Count && !always;
    let mut lines = vec![at.to_string()];
    if always && call.function != AggregateFunction::Count {
        lines.push("const bool valid = true;".to_string());
    }
    if nullable {
        lines.push(format!("const bool valid = {count} != 0;"));
        lines.push("{n} |= (u32)valid << k;".to_string());
    }
    let mut range = call.range;
    let mut c_type = CType::for_range(range);
    let mut meaning = Meaning::Number;
    match call.function {
        AggregateFunction::Count => {
            lines.push(format!("{{c}}[k] = ({}){count};", c_type.name()));
        }
        AggregateFunction::Sum | AggregateFunction::Avg if value.kind == StateKind::SumFloat => {
            c_type = CType::F64;
            range = Range::FULL;
            let sum = format!("*(const f64*)&{word}");
            lines.push(if call.function == AggregateFunction::Avg {
                format!("{{c}}[k] = valid ? {sum} / (f64){count} : 0.0;")
            } else {
                format!("{{c}}[k] = valid ? {sum} : 0.0;")
            });
        }
        AggregateFunction::Sum => {
            let t = c_type.name();
            let sum = sum_text(value.kind, value.word, &call.return_type);
            lines.push(format!("{{c}}[k] = valid ? ({t})({sum}) : ({t})0;"));
            range = range.union(Range::point(0));
            c_type = CType::for_range(range);
        }
        AggregateFunction::Avg => {
            (range, c_type) = average(call, value.kind, value.word, &count, &mut lines, state)?;
        }
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Any => {
            meaning = call.meaning.clone();
            let (decode, word) = match value.kind {
                StateKind::Min => ("value_of_min", word),
                StateKind::Min128 => ("value_of_min128", wide_text(value.word)),
                StateKind::Max128 => ("value_of_max128", wide_text(value.word)),
                _ => ("value_of_max", word),
            };
            match call.c_type {
                CType::F64 => {
                    c_type = CType::F64;
                    lines.push(format!(
                        "{{c}}[k] = valid ? f64_of_order({decode}({word})) : 0.0;"
                    ));
                }
                CType::F32 => {
                    c_type = CType::F32;
                    lines.push(format!(
                        "{{c}}[k] = valid ? f32_of_order((i32){decode}({word})) : 0.0f;"
                    ));
                }
                CType::Bool => {
                    c_type = CType::Bool;
                    lines.push(format!("{{c}}[k] = valid && {decode}({word}) != 0;"));
                }
                _ => {
                    let t = c_type.name();
                    // Where there is no value, any of the range will do.
                    let any = state.arguments.literal(range.min, false);
                    lines.push(format!(
                        "{{c}}[k] = valid ? ({t}){decode}({word}) : ({t}){any};"
                    ));
                }
            }
        }
    }
    Ok(ScopeColumn {
        shape: Shape::Computed {
            data_type: call.return_type.clone(),
            c_type,
            range,
            meaning,
        },
        access: Access::Lines(lines),
        nullable,
    })
}

/// C++ text of the 128 bits at a word and the next.
fn wide_text(word: usize) -> String {
    format!("(((u128)at[{}] << 64) | (u128)at[{word}])", word + 1)
}

fn sum_text(kind: StateKind, word: usize, return_type: &DataType) -> String {
    match kind {
        StateKind::Sum128 => format!("(i128){}", wide_text(word)),
        _ if *return_type == DataType::UInt64 => format!("(i128)at[{word}]"),
        _ => format!("(i64)at[{word}]"),
    }
}

/// AVG of decimals: the sum brought to the result's scale, divided by the count, truncated. With
/// `sum = q * count + r` that is `q * factor + r * factor / count`, which needs no more than 128 bits.
fn average(
    call: &CallPlan,
    kind: StateKind,
    word: usize,
    count: &str,
    lines: &mut Vec<String>,
    state: &mut KernelState,
) -> Result<(Range, CType)> {
    let scale_of = |t: &DataType| match t {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            Some((*p, *s))
        }
        _ => None,
    };
    let argument = call.argument_type.as_ref().and_then(scale_of);
    let (Some((_, from)), Some((precision, to))) = (argument, scale_of(&call.return_type)) else {
        return unsupported(format!("AVG with a result of type {}", call.return_type));
    };
    let factor = u32::try_from(i32::from(to) - i32::from(from))
        .ok()
        .and_then(|shift| 10i128.checked_pow(shift))
        .filter(|f| *f <= 1 << 60);
    let Some(factor) = factor else {
        return unsupported(format!("AVG with a result of type {}", call.return_type));
    };
    let range = Range::of_precision(precision);
    let c_type = CType::for_range(range);
    let t = c_type.name();
    let limit = state.arguments.literal(range.max, true);
    state.faults = true;
    lines.extend([
        format!("const i128 sum = {};", sum_text(kind, word, &DataType::Null)),
        format!("const i128 rows_in = valid ? (i128){count} : (i128)1;"),
        format!("const i128 factor = (i128){factor}ll;"),
        "const i128 whole = sum / rows_in, rest = sum % rows_in;".to_string(),
        "const i128 average = wrap_add(wrap_mul(whole, factor), rest * factor / rows_in);".to_string(),
        format!(
            "if (valid && (mul_overflows(whole, factor) || average > {limit} || average < -{limit})) fault = WL_FAULT_OVERFLOW;"
        ),
        format!("{{c}}[k] = valid ? ({t})average : ({t})0;"),
    ]);
    Ok((range, c_type))
}
