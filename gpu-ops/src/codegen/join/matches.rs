//! Matches: probing rows that are written down with keys to be joined in memory, or with the entries they found.

use super::probe::emit_probe;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::pipeline::{Begun, EmittedSink, EmittedStep, SinkStatements};
use crate::codegen::ir::results::{Borrowed, JoinedMatches};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Value;
use crate::codegen::kernel::stores::Cell;
use crate::codegen::kernel::writer::KernelWriter;
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Probe, ProbeKind, ResultId};

/// The sink of matches, and its statements for a row. The probe is a step of the
/// pipeline, unless the rows have their keys already.
pub(in crate::codegen) fn matches_sink(
    context: &Context<'_>,
    begun: &mut Begun,
    into: ResultId,
    probe: &Probe,
    columns: &[Expr],
) -> Result<(EmittedSink, SinkStatements)> {
    let (state, scope, steps) = (&mut begun.state, &mut begun.scope, &mut begun.steps);
    let kept = scope.len();
    let mut emitted = emit_probe(context, probe, begun.probes, scope, state)?;
    let joined = context
        .index(probe.index)?
        .join_keys
        .map(|keys| JoinedMatches {
            keys,
            kind: probe.kind,
            marks: !probe.marks.is_empty(),
        });
    // Whatever the index, pairs are enumerated from ranges.
    emitted.ranges = joined.is_none();
    scope.truncate(kept);
    emitted.payload = (kept, 0);
    let number = emitted.number;
    // Rows that cannot match are left out where they are not wanted.
    let possible = emitted.possible == "true";
    let left_out = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi);
    let mut scan =
        zero_copy::bare_scan(begun.source_rows, steps.len()).filter(|_| zero_copy::lends(scope));
    let (mut key, mut alias_of) = (None, None);
    if let Some(JoinedMatches { keys, .. }) = joined {
        let plans = &context.index(probe.index)?.keys;
        let limit = (!possible).then(|| zero_copy::code_limit(&keys));
        key = zero_copy::lent_key(scope, &probe.keys, plans, keys.width, limit);
        // Rows that cannot match are left out where that is worth a copy of the others.
        let stay = possible
            || !left_out
            || key.is_some() && zero_copy::mostly_within(scope, &probe.keys, plans);
        scan = scan.filter(|_| stay);
        if (possible || left_out) && keys.join.transforms() {
            alias_of = Some((plans, keys.width));
        }
    } else {
        scan = None;
    }
    key = key.filter(|_| scan.is_some());
    let mut emitter = Emitter::new(scope, state);
    let mut kept = zero_copy::keep(&mut emitter, columns, scan.is_some())?;
    let lines = std::mem::take(&mut emitter.lines);
    let key_aliases = match alias_of {
        Some((plans, width)) => {
            zero_copy::key_aliases(columns, &mut kept.layouts, &probe.keys, plans, width)
        }
        None => vec![],
    };
    let borrowed = scan.map(|scan| Borrowed {
        scan,
        key,
        columns: kept.borrowed,
    });
    if borrowed.as_ref().is_none_or(|b| b.key.is_none()) {
        steps.push(EmittedStep::Probe(emitted));
    }
    let sink = EmittedSink::Matches {
        into,
        values: kept.values,
        probe: number,
        kind: probe.kind,
        joined,
        columns: kept.layouts,
        borrowed,
        key_aliases,
    };
    let columns = kept.read;
    Ok((sink, SinkStatements { lines, columns }))
}

impl KernelWriter<'_> {
    /// Probing rows with the keys that probe `p` made of them, to be joined in memory.
    pub(in crate::codegen) fn rows_to_join(
        &mut self,
        into: ResultId,
        (columns, values): (&[ColumnLayout], &[Value]),
        p: usize,
        joined: &JoinedMatches,
        (borrowed, key_aliases): (Option<&Borrowed>, &[usize]),
    ) -> Result<()> {
        let elsewhere =
            |column| borrowed.is_some_and(|b| b.has(column)) || key_aliases.contains(&column);
        let mut cells = self.cells(into, columns, values, elsewhere)?;
        if borrowed.is_none_or(|b| b.key.is_none()) {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, Part::KeyWord(0)), joined.keys.pointer()),
                c_type: joined.keys.c_type(),
                text: format!("j{p}[k]"),
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, borrowed.is_some(), None, &lines, &cells);
        Ok(())
    }

    /// Probing rows with the ranges of entries that probe `p` found.
    pub(in crate::codegen) fn ranges(
        &mut self,
        into: ResultId,
        (columns, values): (&[ColumnLayout], &[Value]),
        p: usize,
        kind: ProbeKind,
    ) -> Result<()> {
        let mut cells = self.cells(into, columns, values, |_| false)?;
        let (start, length) = if !kind.appends_payload() {
            // The row alone.
            ("WL_NO_ENTRY".to_string(), "1u".to_string())
        } else if kind == ProbeKind::Left {
            // Without a match one pair without an entry.
            (
                format!("length{p}[k] != 0 ? first{p}[k] : WL_NO_ENTRY"),
                format!("length{p}[k] != 0 ? length{p}[k] : 1u"),
            )
        } else {
            (format!("first{p}[k]"), format!("length{p}[k]"))
        };
        for (part, text) in [(Part::Start, start), (Part::Length, length)] {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, part), "u32*"),
                c_type: "u32",
                text,
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, false, None, &lines, &cells);
        Ok(())
    }
}
