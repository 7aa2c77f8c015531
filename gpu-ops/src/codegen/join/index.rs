//! The sink of a build: its keys, which data structure stands behind it, and the layout of the index.

use crate::codegen::ir::context::Context;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{Borrowed, IndexLayout, JoinKeys, OrderLayout, RangeEntries};
use crate::codegen::ir::scope::columns_of;
use crate::codegen::key::codes::{
    code, dense_code, dense_strides, key_plan, pack_keys, packed_words, word_bits,
};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::error::Result;
use crate::graph::{Build, IndexKind, IndexProfile, ResultId};

/// The sink of a build, and the scope columns that its statements read; `scan`: the rows are those of a bare scan.
pub(in crate::codegen) fn build_sink(
    context: &mut Context<'_>,
    emitter: &mut Emitter<'_>,
    into: ResultId,
    build: &Build,
    bound: u64,
    scan: Option<usize>,
) -> Result<(EmittedSink, Vec<usize>)> {
    let mut keys = Vec::new();
    let mut needed = Vec::new();
    for key in &build.keys {
        let value = emitter.emit(key)?;
        if !build.null_equal {
            needed.extend(value.valid.clone());
        }
        keys.push(key_plan(emitter, value, &key.data_type, build.null_equal)?);
    }
    let order = match &build.order {
        Some(order) => {
            let value = emitter.emit(order)?;
            needed.extend(value.valid.clone());
            Some(key_plan(emitter, value, &order.data_type, false)?)
        }
        None => None,
    };
    needed.dedup();
    let has_key = (!needed.is_empty()).then(|| emitter.bind_bool(needed.join(" && ")));
    let keep_without_key = build.mark_sets > 0 && has_key.is_some();
    let domain = dense_strides(&mut keys).filter(|_| !keys.is_empty() && !keep_without_key);
    let key_words = if keys.is_empty() {
        0
    } else {
        pack_keys(&mut keys)
    };
    let join_keys = build.join.map(|join| {
        let bits: u32 = keys.iter().map(|key| key.bits).sum();
        // Codes below the two that stand for rows without a key that could match; of several words the first has
        // a bit to spare.
        let narrow = match keys.as_slice() {
            [key] => key.domain < u128::from(u32::MAX),
            _ => bits < 32,
        };
        let width = match key_words {
            1 if narrow => Some(4),
            1 => Some(8),
            2 => Some(16),
            _ => None,
        };
        let bits = if key_words == 2 { 127 } else { bits };
        width.map(|width| JoinKeys { join, width, bits })
    });
    let raw: Vec<String> = keys.iter().map(code).collect();
    let order = order.map(|value| {
        let bits = word_bits(&keys, key_words);
        OrderLayout::new(bits, value, keep_without_key)
    });
    // Rows without a key are left out unless somebody asks for them.
    let all = has_key.is_none() || keep_without_key;
    let existence = build.existence && build.mark_sets == 0;
    let mut profile = IndexProfile {
        domain,
        max_entries: bound,
        estimate: context.graph.results[into].estimate,
        payload_bytes: 0,
        key_words,
        unique: build.unique,
        existence,
        prefer_hash: build.prefer_hash,
        in_table: true,
    };
    // Marks go by the number of the row; rows for a join of partitions or of sorted keys are no index.
    let may_cluster = build.clustered
        && !matches!(join_keys, Some(Some(_)))
        && order.is_none()
        && build.mark_sets == 0
        && scan.is_some()
        && !keys.is_empty()
        && !build.unique
        && !existence;
    let in_order = may_cluster
        && has_key.is_none()
        && zero_copy::in_order_of(emitter.columns, &build.keys)
        && zero_copy::has_all(emitter.columns, &build.payload);
    let place = |profile: &IndexProfile| context.policy.place_index(profile, context.device);
    let over_table = in_order.then(|| place(&profile));
    let over_table = over_table.filter(|choice| choice.kind == IndexKind::Perfect);
    let in_table = over_table.is_some();
    let scan = scan.filter(|_| all && (in_table || matches!(join_keys, Some(Some(_)))));
    let key = match join_keys {
        Some(Some(join)) if has_key.is_none() && scan.is_some() => {
            zero_copy::lent_key(emitter.columns, &build.keys, &keys, join.width, None)
        }
        _ => None,
    };
    let mut read = columns_of(build.keys.iter().chain(&build.order));
    if key.is_some() {
        emitter.forget();
        read.clear();
    }
    let kept = zero_copy::keep(emitter, &build.payload, scan.is_some())?;
    read.extend(kept.read);
    let (values, columns) = (kept.values, kept.layouts);
    let borrowed = scan.map(|scan| Borrowed {
        scan,
        key,
        columns: kept.borrowed,
    });
    let spec = &context.graph.results[into];
    if !in_table {
        profile.in_table = false;
        let bytes = columns
            .iter()
            .map(|c| usize::from(c.width) + usize::from(c.nullable));
        profile.payload_bytes = bytes.sum();
    }
    let (kind, mut reason) = if let Some(Some(keys)) = join_keys {
        (IndexKind::Materialized(keys.join), String::new())
    } else if order.is_some() {
        (IndexKind::Sorted, String::new())
    } else if keys.is_empty() {
        (IndexKind::Hash, "no keys: every entry matches".to_string())
    } else {
        let mut choice = over_table.unwrap_or_else(|| place(&profile));
        if let Some(join) = build.join {
            choice.reason += &format!("; keys of {key_words} words are too wide for {join}");
        }
        if choice.kind == IndexKind::Perfect && domain.is_none() {
            (IndexKind::Hash, "keys without a moderate range".to_string())
        } else {
            (choice.kind, choice.reason)
        }
    };
    if !build.reason.is_empty() {
        if !reason.is_empty() {
            reason += "; ";
        }
        reason += &build.reason;
    }
    let unique = build.unique && !keys.is_empty();
    let entries = match kind {
        _ if in_table => RangeEntries::InTable,
        IndexKind::Perfect | IndexKind::Hash if may_cluster => RangeEntries::Gathered,
        _ => RangeEntries::Listed,
    };
    reason += match entries {
        RangeEntries::Listed => "",
        RangeEntries::Gathered => ", entries of a key side by side",
        RangeEntries::InTable => ", entries are the table's rows, which are in the order of keys",
    };
    context
        .choices
        .push(format!("index {} is {kind}: {reason}", spec.name));
    let codes = match (kind, &order) {
        (_, Some(order)) => {
            let packed = packed_words(&keys, &raw, key_words);
            order.words(&packed, &code(&order.value))
        }
        _ if keys.is_empty() => vec![],
        (IndexKind::Perfect, _) => vec![dense_code(&keys, &raw)],
        _ => packed_words(&keys, &raw, key_words),
    };
    let key_words = codes.len();
    let layout = IndexLayout {
        kind,
        join_keys: match kind {
            IndexKind::Materialized(_) => join_keys.flatten(),
            _ => None,
        },
        domain: if kind == IndexKind::Perfect {
            domain.unwrap_or(0)
        } else {
            0
        },
        ranked: kind == IndexKind::Perfect && profile.is_ranked(),
        key_words,
        keys,
        order,
        unique,
        null_equal: build.null_equal,
        existence,
        mark_sets: build.mark_sets,
        columns: if existence { vec![] } else { columns },
        entries,
        borrowed,
    };
    let sink = EmittedSink::Build {
        into,
        layout: Box::new(layout),
        has_key,
        codes,
        values: if existence { vec![] } else { values },
        keep_without_key,
    };
    Ok((sink, read))
}
