//! Groups as rows: keys unpacked and aggregates finished from the states of a group table (the finaliser of Karnagel et al., DaMoN 2015).

use arrow::datatypes::DataType;

use super::calls::sums_wrap;
use crate::codegen::ir::accumulator::{Accumulator, StateKind};
use crate::codegen::ir::aggregates::CallPlan;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::key::KeyPlan;
use crate::codegen::ir::pipeline::EmittedSource;
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{GroupsLayout, RegroupedLayout, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::{CType, Meaning};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;
use crate::pipeline::AggregateFunction;

/// The groups of `result` as a source: keys, then calls.
pub(in crate::codegen) fn source(
    context: &Context<'_>,
    result: ResultId,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let known = context.known(result)?;
    let ResultLayout::Groups(layout) = &known.layout else {
        return Err(GpuError::Internal(format!("result {result} is not groups")));
    };
    let stride = layout.stride;
    let states = state
        .arguments
        .pointer(Slot::Result(result, Part::State), "const u8*");
    let apart = layout.hashed() && layout.key_bytes == 0;
    let keys = if let Some(of) = layout.regrouped {
        Some(Keys::Packed(packed_keys(result, of, state)))
    } else if apart {
        let keys = state
            .arguments
            .pointer(Slot::Result(result, Part::Keys), "const u64*");
        let words = layout.key_words;
        Some(Keys::Apart(format!("{keys}[(row + k) * {words}")))
    } else if layout.key_bytes > 0 {
        let t = layout.key_type();
        Some(Keys::InSlot(format!(
            "*(const {t}*)({states} + (row + k) * {stride} + {})",
            layout.key_offset
        )))
    } else {
        None
    };
    let occupied = match (&keys, layout.aggregates.existence) {
        (Some(Keys::Apart(_)), _) => {
            let slots = state
                .arguments
                .pointer(Slot::Result(result, Part::States), "const u32*");
            format!("{slots}[row + k] == 2")
        }
        (Some(Keys::InSlot(key)), _) => format!("{key} != 0"),
        (Some(Keys::Packed(_)), _) => "true".to_string(),
        (None, Some(existence)) => {
            let cell = layout.aggregates.accumulators[existence]
                .cell(&format!("({states} + (row + k) * {stride})"));
            format!("*({cell}) != 0")
        }
        (None, None) => "true".to_string(),
    };
    let mut prologue = vec![format!(
        "if (live != 0) {{ u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)({occupied}) << k; live &= occupied; }}"
    )];
    let at = format!("const u8* const at = {states} + (row + k) * {stride};");
    let scope = columns(layout, keys.as_ref(), &at, state)?;
    let mut rows = SourceRows::Slots(result);
    if layout.regrouped.is_some() {
        // Groups without gaps.
        rows = SourceRows::Rows(result);
        prologue.clear();
    }
    Ok(EmittedSource {
        rows,
        bound: known.bound,
        thread_rows: 1,
        prologue,
        scope,
    })
}

/// Keys, then calls, of the group at hand: row `k` of a thread, to whose state the statement `at` points.
fn columns(
    layout: &GroupsLayout,
    keys: Option<&Keys>,
    at: &str,
    state: &mut KernelState,
) -> Result<Vec<ScopeColumn>> {
    let mut scope: Vec<ScopeColumn> = layout
        .keys
        .iter()
        .map(|key| key_column(layout, key, keys))
        .collect();
    for call in &layout.aggregates.calls {
        scope.push(call_column(layout, call, at, state)?);
    }
    Ok(scope)
}

/// The columns of one group that a thread holds: `key` (C++) is its packed key, of as many bytes, and `group` points to its state.
pub(in crate::codegen) fn held_group(
    layout: &GroupsLayout,
    (key, key_bytes): (&str, u32),
    group: &str,
    state: &mut KernelState,
) -> Result<Vec<ScopeColumn>> {
    let keys = Keys::Packed((key.to_string(), key_bytes));
    let at = format!("const u8* const at = {group};");
    columns(layout, Some(&keys), &at, state)
}

/// C++ text of the packed key of group `row + k` of collected rows.
fn packed_keys(result: ResultId, of: RegroupedLayout, state: &mut KernelState) -> (String, u32) {
    let arguments = &mut state.arguments;
    let t = format!("const {}", of.key_pointer());
    let Some(rows) = of.rows.filter(|_| !of.how.has_strays()) else {
        let keys = arguments.pointer(Slot::Result(result, Part::Keys), t);
        return (format!("{keys}[row + k]"), of.key_bytes);
    };
    let text = if of.how.numbers() {
        let keys = arguments.pointer(Slot::Result(rows, Part::GroupKeys), t);
        format!("{keys}[row + k]")
    } else {
        let keys = arguments.pointer(Slot::Result(rows, Part::KeyWord(0)), t);
        let starts = arguments.pointer(Slot::Result(rows, Part::Starts), "const u32*");
        format!("{keys}[{starts}[row + k]]")
    };
    (text, of.key_bytes)
}

/// C++ text of packed keys of slots.
enum Keys {
    /// One number of this many bytes.
    Packed((String, u32)),
    /// Up to the number of the word.
    Apart(String),
    /// One more than the only word.
    InSlot(String),
}

impl Keys {
    fn word(&self, word: usize) -> String {
        match self {
            Self::Apart(words) => format!("{words} + {word}]"),
            Self::InSlot(key) => format!("((u64){key} - 1)"),
            // The first word is the high one.
            Self::Packed((key, 16)) if word == 0 => format!("(u64)({key} >> 64)"),
            Self::Packed((key, _)) => format!("(u64){key}"),
        }
    }
}

fn key_column(layout: &GroupsLayout, key: &KeyPlan, keys: Option<&Keys>) -> ScopeColumn {
    let mask = if key.bits >= 64 {
        u64::MAX
    } else {
        (1u64 << key.bits) - 1
    };
    let code = match keys {
        _ if key.bits == 0 => "0ull".to_string(),
        Some(keys) if key.is_wide() => {
            let (word, shift) = key.high;
            let high_mask = u64::MAX >> (128 - key.bits);
            format!(
                "(((u128)({} >> {shift} & {high_mask}ull) << 64) | ({} >> {}))",
                keys.word(word),
                keys.word(key.word),
                key.shift
            )
        }
        Some(keys) => format!("(({} >> {}) & {mask}ull)", keys.word(key.word), key.shift),
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
    let cell = value.cell("at");
    let count = match call.count {
        Some(count) => accumulators[count].content(&accumulators[count].cell("at")),
        None => "1".to_string(),
    };
    let nullable = call.function != AggregateFunction::Count && call.count.is_some();
    let mut lines = vec![at.to_string()];
    if call.count.is_none() && call.function != AggregateFunction::Count {
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
            let count = value.content(&cell);
            lines.push(format!("{{c}}[k] = ({}){count};", c_type.name()));
        }
        AggregateFunction::Sum | AggregateFunction::Avg if value.kind == StateKind::SumFloat => {
            c_type = CType::F64;
            range = Range::FULL;
            let sum = value.content(&cell);
            lines.push(if call.function == AggregateFunction::Avg {
                format!("{{c}}[k] = valid ? {sum} / (f64){count} : 0.0;")
            } else {
                format!("{{c}}[k] = valid ? {sum} : 0.0;")
            });
        }
        AggregateFunction::Sum => {
            let t = c_type.name();
            let sum = sum_text(value, &call.return_type);
            lines.push(format!("{{c}}[k] = valid ? ({t})({sum}) : ({t})0;"));
            range = range.union(Range::point(0));
            c_type = CType::for_range(range);
        }
        AggregateFunction::Avg => {
            let magnitude = call.magnitude.map(|m| &accumulators[m]);
            (range, c_type) = average(call, (value, magnitude), &count, &mut lines, state)?;
        }
        AggregateFunction::BitAnd | AggregateFunction::BitOr | AggregateFunction::BitXor => {
            let t = c_type.name();
            let bits = bits_text(call, value, &cell)?;
            lines.push(format!("{{c}}[k] = valid ? ({t}){bits} : ({t})0;"));
        }
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Any => {
            meaning = call.meaning.clone();
            let extreme = value.extreme(&cell);
            match call.c_type {
                CType::F64 => {
                    c_type = CType::F64;
                    lines.push(format!("{{c}}[k] = valid ? f64_of_order({extreme}) : 0.0;"));
                }
                CType::F32 => {
                    c_type = CType::F32;
                    lines.push(format!(
                        "{{c}}[k] = valid ? f32_of_order((i32){extreme}) : 0.0f;"
                    ));
                }
                CType::Bool => {
                    c_type = CType::Bool;
                    lines.push(format!("{{c}}[k] = valid && {extreme} != 0;"));
                }
                _ => {
                    let t = c_type.name();
                    // Where there is no value, any of the range will do.
                    let any = state.arguments.literal(range.min, false);
                    lines.push(format!("{{c}}[k] = valid ? ({t}){extreme} : ({t}){any};"));
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

/// C++ text of what the bits in a cell are as a number of the call's type.
fn bits_text(call: &CallPlan, value: &Accumulator, cell: &str) -> Result<String> {
    let c_type = match call.return_type {
        DataType::Int8 => "i8",
        DataType::Int16 => "i16",
        DataType::Int32 => "i32",
        DataType::Int64 => "i64",
        DataType::UInt8 => "u8",
        DataType::UInt16 => "u16",
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        ref other => {
            return unsupported(format!("{} over {other}", call.function.name()));
        }
    };
    let content = value.content(cell);
    Ok(match call.function {
        AggregateFunction::BitAnd => format!("({c_type})~{content}"),
        _ => format!("({c_type}){content}"),
    })
}

fn sum_text(sum: &Accumulator, return_type: &DataType) -> String {
    let content = sum.content(&sum.cell("at"));
    match sum.kind {
        StateKind::Sum64 if *return_type != DataType::UInt64 => format!("(i64){content}"),
        _ => format!("(i128){content}"),
    }
}

/// AVG of decimals: the sum brought to the result's scale, divided by the count, truncated. With
/// `sum = q * count + r` that is `q * factor + r * factor / count`, which needs no more than 128 bits. Where the sum of the
/// `magnitude`s comes near to what 128 bits hold, the sum is none: the CPU has wider ones.
fn average(
    call: &CallPlan,
    (sum, magnitude): (&Accumulator, Option<&Accumulator>),
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
    // DataFusion scales a sum of 128 bits up before it divides, and faults there.
    let scaled = match call.argument_type.as_ref().is_some_and(sums_wrap) {
        true => "sum",
        false => "whole",
    };
    let limit = state.arguments.literal(range.max, true);
    state.faults = true;
    lines.extend([
        format!("const i128 sum = {};", sum_text(sum, &DataType::Null)),
        format!("const i128 rows_in = valid ? (i128){count} : (i128)1;"),
        format!("const i128 factor = (i128){factor}ll;"),
        "const i128 whole = divide(sum, rows_in), rest = wrap_sub(sum, wrap_mul(whole, rows_in));".to_string(),
        "const i128 average = wrap_add(wrap_mul(whole, factor), divide(rest * factor, rows_in));".to_string(),
        format!(
            "if (valid && (mul_overflows({scaled}, factor) || average > {limit} || average < -{limit})) fault = WL_FAULT_OVERFLOW;"
        ),
        format!("{{c}}[k] = valid ? ({t})average : ({t})0;"),
    ]);
    if let Some(magnitude) = magnitude {
        // A float's sum of so many numbers is right to far better than the factor of two that is left.
        let near = state.arguments.float(2f64.powi(126));
        let total = magnitude.content(&magnitude.cell("at"));
        lines.push(format!(
            "if (valid && !({total} < {near})) fault = WL_FAULT_WIDE_SUM;"
        ));
    }
    Ok((range, c_type))
}
