//! The source and the stages of a pipeline as statements, before any text of a kernel is written.
//!
//! Values, ranges and encodings are known here, and the policy is asked which data structure stands behind a build or an
//! aggregation. [`crate::codegen::shape`] turns the outcome into CUDA C++.

use super::refill;
use super::sources;
use super::thread_rows::{rows_a_thread, spread_rows};
use crate::codegen::ir::context::Context;
use crate::codegen::ir::pipeline::{Begun, EmittedStep};
use crate::codegen::ir::results::ResultLayout;
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::state::KernelState;
use crate::codegen::join::probe::emit_probe;
use crate::codegen::value::filter::{group_conjuncts, test, test_in_tile};
use crate::error::{GpuError, Result};
use crate::graph::{Pipeline, ProbeKind, ResultId, Source, Stage};

/// Rows that a thread holds where the block searches strings.
const SEARCHED_ROWS: u32 = 2;

/// Rows that a thread holds that goes over the matches of each.
const LOOPED_ROWS: u32 = 2;

/// What happens to the rows that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Ending {
    /// What the pipeline's sink says.
    Sink,
    /// They are written down for its aggregation.
    Written,
}

/// Emit the source and the stages of a pipeline.
pub(in crate::codegen) fn begin(
    context: &mut Context<'_>,
    pipeline: &Pipeline,
    ending: Ending,
) -> Result<Begun> {
    let mut state = KernelState {
        bases: context.bases.clone(),
        evaluated: context.evaluated.clone(),
        ..KernelState::default()
    };
    let source = sources::source(context, &pipeline.source, &mut state)?;
    state.source_bound = source.bound;
    let mut scope = source.scope;
    let mut steps = Vec::new();
    let mut probes = 0;
    let mut loops = false;
    let mut bound = source.bound;
    let mut tree = None;
    let in_tile = in_tile(pipeline);
    // By stage, how many steps there are once it is among them.
    let mut ends = Vec::with_capacity(pipeline.stages.len());
    for stage in &pipeline.stages {
        match stage {
            Stage::Filter(conjuncts) => {
                for group in group_conjuncts(conjuncts) {
                    let test = match in_tile {
                        true => test_in_tile(&group, &scope, &mut state)?,
                        false => test(&group, &scope, &mut state)?,
                    };
                    steps.push(EmittedStep::Filter(test));
                }
            }
            Stage::Scalar(result) => scalar(context, *result, &mut scope)?,
            Stage::Mark(index) => steps.push(mark(context, &pipeline.source, *index)?),
            Stage::Probe(probe) => {
                let emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                loops |= emitted.ranges;
                probes += 1;
                steps.push(EmittedStep::Probe(emitted));
            }
            Stage::Expand(probe) => {
                let mut emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                if !matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left)
                    || probe.kind == ProbeKind::Left && !probe.residual.is_empty()
                {
                    return Err(GpuError::Internal("an expansion by this probe".into()));
                }
                emitted.ranges = true;
                probes += 1;
                steps.push(EmittedStep::Expand(emitted));
                let matches = context.known(probe.index)?.bound.max(1);
                bound = bound.saturating_mul(matches);
                tree = Some(context.graph.tree);
            }
        }
        ends.push(steps.len());
    }
    // A loop over matches is unrolled once a row of the thread: few rows keep the kernel small and even.
    // Strings are walked one a thread as well: neighbouring threads then share the sectors they touch. Those that the block
    // searches are read by all its threads, and what they wait for at its barriers is for twice the rows: 150 million comments
    // took 3.8 ms on an H100, not 4.9, and 3.5 to 3.9 with four rows.
    // Look-ups wait for memory whether a thread has four rows or eight, and code for four is compiled in half the time.
    // The nodes of a tree come one at a time as well.
    let searched_alone = state.texts > 0 && state.texts == state.searched;
    let alone = loops || tree.is_some() || state.texts > 0;
    let thread_rows = match (alone, probes > 0) {
        (true, false) if searched_alone && !loops && tree.is_none() => {
            source.thread_rows.min(SEARCHED_ROWS)
        }
        (true, _) if loops && tree.is_none() && state.texts == 0 => {
            source.thread_rows.min(LOOPED_ROWS)
        }
        (true, _) => 1,
        (false, true) => source.thread_rows.min(4),
        (false, false) => source.thread_rows,
    };
    let rows = sources::estimate(context, &pipeline.source).min(source.bound);
    let spread = spread_rows(rows, context.device, thread_rows);
    let refill = match state.texts == 0 && !loops && tree.is_none() && spread == thread_rows {
        true => {
            refill::after(context, pipeline, source.bound, ending).map(|stages| ends[stages - 1])
        }
        false => None,
    };
    let looks_up = |step: &EmittedStep| matches!(step, EmittedStep::Probe(_));
    let thread_rows = match refill {
        // Look-ups behind are of one row a thread.
        Some(behind) if !steps[..behind].iter().any(looks_up) => {
            spread_rows(rows, context.device, source.thread_rows)
        }
        _ => spread,
    };
    Ok(Begun {
        rows_a_thread: match tree {
            // Work moves between threads.
            Some(_) => bound,
            // Rows that a warp has gathered are dealt out, and at the end a thread may have one more than its share.
            None => {
                let own = rows_a_thread(context, source.bound, thread_rows);
                own + u64::from(refill.is_some())
            }
        },
        state,
        source_rows: source.rows,
        source_bound: source.bound,
        bound,
        tree,
        prologue: source.prologue,
        scope,
        steps,
        probes,
        refill,
        thread_rows,
    })
}

/// Does a block go over neighbouring rows of a table, with all its threads at every step?
pub(in crate::codegen) fn in_tile(pipeline: &Pipeline) -> bool {
    let expands = |stage: &Stage| matches!(stage, Stage::Expand(_));
    matches!(pipeline.source, Source::Scan(_)) && !pipeline.stages.iter().any(expands)
}

/// Mark the entries of the pairs at hand.
fn mark(context: &Context<'_>, source: &Source, index: ResultId) -> Result<EmittedStep> {
    let probe = match source {
        Source::Pairs(matches) => context.graph.probed_by(*matches),
        _ => None,
    };
    let entries = probe.is_some_and(|probe| probe.index == index && probe.kind.appends_payload());
    match entries {
        true => Ok(EmittedStep::Mark(index)),
        false => Err(GpuError::Internal("marks of other than pairs".into())),
    }
}

/// Append the columns of a scalar subquery's result.
fn scalar(context: &Context<'_>, result: ResultId, scope: &mut Vec<ScopeColumn>) -> Result<()> {
    let ResultLayout::Rows(columns) = &context.known(result)?.layout else {
        return Err(GpuError::Internal(
            "a scalar subquery that is not rows".into(),
        ));
    };
    for (column, layout) in columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(layout.clone()),
            access: Access::Broadcast { result, column },
            nullable: true,
        });
    }
    Ok(())
}
