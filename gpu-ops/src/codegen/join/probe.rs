//! A probe of an index: the codes of its keys, and its payload in the scope.

use crate::codegen::ir::context::Context;
use crate::codegen::ir::pipeline::EmittedProbe;
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape, columns_of};
use crate::codegen::ir::state::KernelState;
use crate::codegen::key::bounds::band_codes;
use crate::codegen::key::codes::{dense_code, packed_words, probe_key};
use crate::codegen::value::filter::test;
use crate::codegen::value::scalar::Emitter;
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::{IndexKind, Probe, ProbeKind};

pub(in crate::codegen) fn emit_probe(
    context: &Context<'_>,
    probe: &Probe,
    number: usize,
    scope: &mut Vec<ScopeColumn>,
    state: &mut KernelState,
) -> Result<EmittedProbe> {
    let layout = context.index(probe.index)?;
    if layout.keys.len() != probe.keys.len() {
        return Err(GpuError::Internal(
            "a probe with another number of keys than its index".into(),
        ));
    }
    let mut emitter = Emitter::new(scope, state);
    let mut possible = Vec::new();
    let mut known = Vec::new();
    let mut codes = Vec::new();
    for (key, built) in probe.keys.iter().zip(&layout.keys) {
        let value = emitter.emit(key)?;
        known.extend(value.valid.clone());
        let probing = probe_key(&mut emitter, value, built, layout.null_equal)?;
        possible.extend(probing.possible);
        codes.push(probing.code);
    }
    let band = match (&layout.order, &probe.band) {
        (Some(order), Some(band)) => Some((order, band_codes(&mut emitter, band, &order.value)?)),
        (None, None) => None,
        _ => return Err(GpuError::Internal("a band without an order".into())),
    };
    let lines = std::mem::take(&mut emitter.lines);
    let mut last = vec![];
    let codes = match layout.kind {
        IndexKind::Perfect => vec![dense_code(&layout.keys, &codes)],
        IndexKind::Sorted => {
            let Some((order, band)) = band else {
                return Err(GpuError::Internal("a sorted index without an order".into()));
            };
            possible.extend(band.possible);
            let words = packed_words(&layout.keys, &codes, order.key_words);
            last = order.words(&words, &band.high);
            order.words(&words, &band.low)
        }
        IndexKind::Hash if layout.keys.is_empty() => vec![],
        IndexKind::Hash | IndexKind::Materialized(_) => {
            packed_words(&layout.keys, &codes, layout.key_words)
        }
    };
    let possible = if possible.is_empty() {
        "true".to_string()
    } else {
        possible.join(" && ")
    };
    let known = if known.is_empty() {
        "true".to_string()
    } else {
        known.join(" && ")
    };
    let bounds = probe.band.iter().flat_map(|band| band.values());
    let columns = columns_of(probe.keys.iter().chain(bounds));
    let existence_only = matches!(
        probe.kind,
        ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark | ProbeKind::NullAwareAnti
    ) && probe.residual.is_empty()
        && probe.marks.is_empty();
    let ranges = !layout.unique && !layout.existence && !existence_only;

    // The payload follows the scope while the residual is tested, and stays for Inner and Left.
    let first = scope.len();
    let mask = format!("h{number}");
    let outer = probe.kind == ProbeKind::Left;
    for (column, stored) in layout.columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(stored.clone()),
            access: Access::Gather {
                result: probe.index,
                column,
                entry: format!("e{number}"),
                mask: mask.clone(),
            },
            nullable: stored.nullable || outer,
        });
    }
    let payload = (first, layout.columns.len());
    let mut all_of = |conjuncts: &Vec<Expr>| {
        if conjuncts.is_empty() {
            return Ok(None);
        }
        let conjuncts: Vec<&Expr> = conjuncts.iter().collect();
        test(&conjuncts, scope, state).map(Some)
    };
    let residual = all_of(&probe.residual)?;
    let marks = probe.marks.iter().map(&mut all_of).collect::<Result<_>>()?;
    let mut hidden = Vec::new();
    match probe.kind {
        ProbeKind::Inner | ProbeKind::Left => {}
        ProbeKind::Mark => {
            hidden = scope.split_off(first);
            scope.push(ScopeColumn {
                shape: Shape::Mask(mask),
                access: Access::None,
                nullable: false,
            });
        }
        _ => hidden = scope.split_off(first),
    }
    Ok(EmittedProbe {
        hidden,
        number,
        index: probe.index,
        kind: probe.kind,
        columns,
        lines,
        possible,
        known,
        codes,
        last,
        ranges,
        residual,
        payload,
        marks,
    })
}
