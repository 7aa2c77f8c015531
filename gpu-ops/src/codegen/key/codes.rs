//! Keys as packed codes: how groups and join entries are told apart.
//!
//! A key's code counts from its smallest value. Codes of several keys are either summed with
//! strides (dense: one number per possible combination) or packed into 64-bit words.

use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::codegen::ir::key::KeyPlan;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::column::Dictionary;
use crate::error::Result;
use crate::expr::Expr;

/// Largest number of dense codes that is considered at all.
const LARGEST_DOMAIN: u128 = 1 << 32;

/// Plan the codes of the keys of groups, NULL among them.
pub(in crate::codegen) fn group_keys(
    emitter: &mut Emitter<'_>,
    keys: &[Expr],
) -> Result<Vec<KeyPlan>> {
    let plan = |key: &Expr| {
        let value = emitter.emit(key)?;
        key_plan(emitter, value, &key.data_type, true)
    };
    keys.iter().map(plan).collect()
}

/// Plan the code of one key whose value has been emitted. With `null_code`, code 0 stands for NULL
/// where the value can be NULL; otherwise the caller leaves such rows out.
pub(in crate::codegen) fn key_plan(
    emitter: &mut Emitter<'_>,
    value: Value,
    data_type: &DataType,
    null_code: bool,
) -> Result<KeyPlan> {
    let value = as_integer(emitter, value);
    let value = ordered(emitter, value, true);
    if matches!(value.meaning, Meaning::Row(_)) {
        return needs_codes("keys of strings that are not dictionary encoded");
    }
    if !value.c_type.is_integer() {
        return unsupported(format!("keys of type {data_type}"));
    }
    let nullable = null_code && value.valid.is_some();
    let domain = value.range.max.wrapping_sub(value.range.min) as u128;
    let domain = domain.saturating_add(1 + u128::from(nullable));
    if domain == u128::MAX {
        return unsupported("keys of values of all of 128 bits");
    }
    let bits = 128 - (domain - 1).leading_zeros();
    Ok(KeyPlan {
        data_type: data_type.clone(),
        meaning: value.meaning.clone(),
        min: value.range.min,
        nullable,
        domain,
        stride: 0,
        word: 0,
        shift: 0,
        bits,
        high: (0, 0),
        value,
    })
}

/// Floats as integers in their total order, so that equal integers are equal floats; with `one_zero` the zeros are
/// one, as in DataFusion's groups. NaNs of different bits differ there as here.
pub(in crate::codegen) fn ordered(
    emitter: &mut Emitter<'_>,
    value: Value,
    one_zero: bool,
) -> Value {
    let (c_type, zero, range) = match value.c_type {
        CType::F64 => (
            CType::I64,
            "0.0",
            Range::new(i64::MIN.into(), i64::MAX.into()),
        ),
        CType::F32 => (
            CType::I32,
            "0.0f",
            Range::new(i32::MIN.into(), i32::MAX.into()),
        ),
        _ => return value,
    };
    let text = &value.text;
    let order = if one_zero {
        format!("total_order({text} == {zero} ? {zero} : {text})")
    } else {
        format!("total_order({text})")
    };
    let text = emitter.bind(c_type, order);
    Value {
        text,
        c_type,
        range,
        ..value
    }
}

/// Booleans as 0 and 1.
pub(in crate::codegen) fn as_integer(emitter: &mut Emitter<'_>, value: Value) -> Value {
    if value.c_type != CType::Bool {
        return value;
    }
    let text = emitter.bind(CType::I32, format!("(i32){}", value.text));
    Value {
        text,
        c_type: CType::I32,
        ..value
    }
}

/// Give every key its stride and return the number of dense codes, if it is moderate.
pub(in crate::codegen) fn dense_strides(keys: &mut [KeyPlan]) -> Option<u64> {
    let mut product: u128 = 1;
    for key in keys.iter_mut().rev() {
        key.stride = u64::try_from(product).ok()?;
        product = product
            .checked_mul(key.domain)
            .filter(|p| *p <= LARGEST_DOMAIN)?;
    }
    u64::try_from(product).ok()
}

/// Pack each code into the first word that has room for it; returns the number of words. The first word has at
/// most 63 bits, so that it never equals the mark of an empty slot or of a row without key.
pub(in crate::codegen) fn pack_keys(keys: &mut [KeyPlan]) -> usize {
    let mut used = vec![0];
    let mut place = |bits: u32| {
        let capacity = |word: usize| if word == 0 { 63 } else { 64 };
        let fits = |word: &usize| used[*word] + bits <= capacity(*word);
        let word = (0..used.len()).find(fits).unwrap_or(used.len());
        if word == used.len() {
            used.push(0);
        }
        // A key of one value has no bits and could come after a full word.
        let at = (word, if bits == 0 { 0 } else { used[word] });
        used[word] += bits;
        at
    };
    for key in keys.iter_mut() {
        if key.is_wide() {
            // The part that may fit the first word comes first.
            key.high = place(key.bits - 64);
        }
        (key.word, key.shift) = place(key.bits.min(64));
    }
    used.len()
}

/// C++ text of the code of a key at the row at hand, of its [`KeyPlan::code_type`].
pub(in crate::codegen) fn code(key: &KeyPlan) -> String {
    match &key.value.valid {
        Some(valid) if key.nullable => {
            let text = key.code_of(&key.value.text, 1);
            format!("({valid} ? {text} : ({})0)", key.code_type())
        }
        _ => key.code_of(&key.value.text, 0),
    }
}

/// C++ text of the dense code of all keys, from the text of each.
pub(in crate::codegen) fn dense_code(keys: &[KeyPlan], codes: &[String]) -> String {
    let parts: Vec<String> = keys
        .iter()
        .zip(codes)
        .filter(|(key, _)| key.domain > 1)
        .map(|(key, code)| match key.stride {
            1 => code.clone(),
            stride => format!("{code} * {stride}ull"),
        })
        .collect();
    if parts.is_empty() {
        "0ull".to_string()
    } else {
        parts.join(" + ")
    }
}

/// C++ text of each packed word, from the text of each key's code.
pub(in crate::codegen) fn packed_words(
    keys: &[KeyPlan],
    codes: &[String],
    words: usize,
) -> Vec<String> {
    (0..words)
        .map(|word| {
            let shifted = |code: String, shift: u32| match shift {
                0 => code,
                shift => format!("({code} << {shift})"),
            };
            let mut parts = Vec::new();
            for (key, code) in keys.iter().zip(codes).filter(|(key, _)| key.bits > 0) {
                if key.is_wide() && key.high.0 == word {
                    let high = format!("(u64)((u128){code} >> 64)");
                    parts.push(shifted(high, key.high.1));
                }
                if key.word == word {
                    let low = if key.is_wide() {
                        format!("(u64){code}")
                    } else {
                        code.clone()
                    };
                    parts.push(shifted(low, key.shift));
                }
            }
            if parts.is_empty() {
                "0ull".to_string()
            } else {
                parts.join(" | ")
            }
        })
        .collect()
}

/// Bits in use of each word.
pub(in crate::codegen) fn word_bits(keys: &[KeyPlan], words: usize) -> Vec<u32> {
    let mut bits = vec![0; words];
    for key in keys {
        if key.is_wide() {
            bits[key.high.0] = bits[key.high.0].max(key.high.1 + key.bits - 64);
        }
        bits[key.word] = bits[key.word].max(key.shift + key.bits.min(64));
    }
    bits
}

/// Bits in use of all words together, as [`packed_key`] joins them.
pub(in crate::codegen) fn packed_bits(keys: &[KeyPlan], words: usize) -> u32 {
    let mut first = 0;
    for key in keys {
        if key.is_wide() && key.high.0 == 0 {
            first = first.max(key.high.1 + key.bits - 64);
        }
        if key.word == 0 {
            first = first.max(key.shift + key.bits.min(64));
        }
    }
    first + 64 * (words as u32 - 1)
}

/// C++ text of one or two words as one number of type `t`, the first word highest.
pub(in crate::codegen) fn packed_key(words: &[String], t: &str) -> String {
    match words {
        [high, low] => format!("((u128)({high}) << 64 | (u128)({low}))"),
        _ => format!("({t})({})", words.join(" | ")),
    }
}

/// A probing key in the codes of an index: when it can be there at all, and its code.
pub(in crate::codegen) struct ProbeKey {
    /// C++ bool; `None`: always.
    pub(in crate::codegen) possible: Option<String>,
    /// C++ text of the index key's [`KeyPlan::code_type`], meaningful where `possible`.
    pub(in crate::codegen) code: String,
}

/// Bring `value` to the codes of the index key `built`.
pub(in crate::codegen) fn probe_key(
    emitter: &mut Emitter<'_>,
    value: Value,
    built: &KeyPlan,
    null_equal: bool,
) -> Result<ProbeKey> {
    let values = built.domain - u128::from(built.nullable);
    if values == 0 {
        // No key of the index has a value, whatever it would stand for: only NULLs can meet there.
        let possible = match &value.valid {
            Some(valid) if null_equal && built.nullable => emitter.bind_bool(format!("!{valid}")),
            _ => "false".into(),
        };
        return Ok(ProbeKey {
            possible: Some(possible),
            code: "0ull".into(),
        });
    }
    if value.is_null() {
        let possible = (!(null_equal && built.nullable)).then(|| "false".to_string());
        return Ok(ProbeKey {
            possible,
            code: "0ull".into(),
        });
    }
    let value = as_integer(emitter, value);
    let value = ordered(emitter, value, true);
    let mut tests = Vec::new();
    let value = match (&value.meaning, &built.meaning) {
        (Meaning::Number, Meaning::Number) => value,
        (Meaning::Code(a), Meaning::Code(b)) if Arc::ptr_eq(a, b) => value,
        (Meaning::Code(a), Meaning::Code(b)) => {
            let (value, present) = translated(emitter, &value, a, b)?;
            tests.extend(present);
            value
        }
        _ => return needs_codes("join keys of strings that are not dictionary encoded"),
    };
    if !value.c_type.is_integer() {
        return unsupported("join keys that are no numbers, dates or strings");
    }
    let max = built.min.wrapping_add_unsigned(values).wrapping_sub(1);
    let built_range = Range {
        min: built.min,
        max,
    };
    if !value.range.within(built_range) {
        let wide = CType::for_range(value.range.union(built_range));
        let text = emitter.widen(&value, wide);
        let (low, high) = (emitter.integer(built.min), emitter.integer(max));
        let name = wide.name();
        tests.push(format!(
            "{text} >= ({name}){low} && {text} <= ({name}){high}"
        ));
    }
    let code = built.code_of(&value.text, u32::from(built.nullable));
    let within = (!tests.is_empty()).then(|| emitter.bind_bool(tests.join(" && ")));
    Ok(match (&value.valid, built.nullable) {
        (None, _) => ProbeKey {
            possible: within,
            code,
        },
        (Some(valid), true) if null_equal => ProbeKey {
            possible: within.map(|w| emitter.bind_bool(format!("!{valid} || {w}"))),
            code: format!("({valid} ? {code} : ({})0)", built.code_type()),
        },
        (Some(valid), _) => ProbeKey {
            possible: Some(match within {
                None => valid.clone(),
                Some(w) => emitter.bind_bool(format!("{valid} && {w}")),
            }),
            code,
        },
    })
}

/// A code of dictionary `from` as a code of dictionary `to`, and a C++ bool that is true where `to`
/// has the string at all (`None`: always).
fn translated(
    emitter: &mut Emitter<'_>,
    value: &Value,
    from: &Arc<Dictionary>,
    to: &Arc<Dictionary>,
) -> Result<(Value, Option<String>)> {
    let codes = crate::column::translate_codes(from, to)?;
    let complete = !codes.is_empty() && codes.iter().all(|code| *code >= 0);
    let text = emitter.state.recoded(&value.text, codes, -1);
    let text = emitter.bind(CType::I32, text);
    let present = (!complete).then(|| emitter.bind_bool(format!("{text} >= 0")));
    let value = Value {
        text,
        c_type: CType::I32,
        range: Range::new(0, to.len().max(1) as i128 - 1),
        valid: value.valid.clone(),
        meaning: Meaning::Number,
    };
    Ok((value, present))
}

/// Bytes of a packed key as it is written down.
pub(in crate::codegen) fn packed_width(keys: &[KeyPlan], words: usize) -> Option<u32> {
    match (words, packed_bits(keys, words)) {
        (1, 0..=31) => Some(4),
        (1, _) => Some(8),
        (2, _) => Some(16),
        _ => None,
    }
}
