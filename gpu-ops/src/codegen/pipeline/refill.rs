//! Whether the warps of a pipeline over a table gather the rows that are left on the way.
//!
//! Where few rows of a table pass the first stages, most lanes of a warp have nothing to do in those behind them, and what the
//! others wait for is waited for by all. Warps that gather rows first go on with 32 of them at a time: lane refill, as in
//! DogQC (Funke and Teubner, "Data-Parallel Query Processing on Non-Uniform Data", PVLDB 2020, section 4).
//! [`crate::codegen::shape::refill`] writes such kernels.

use super::stages::Ending;
use crate::codegen::ir::context::Context;
use crate::graph::{Pipeline, RefillProfile, ResultId, Sink, Source, Stage, StageProfile};

/// After how many stages of `pipeline`, a scan of `rows` rows, its warps gather what is left, by the policy.
pub(in crate::codegen) fn after(
    context: &Context<'_>,
    pipeline: &Pipeline,
    rows: u64,
    ending: Ending,
) -> Option<usize> {
    if !matches!(pipeline.source, Source::Scan(_)) || pipeline.stages.is_empty() {
        return None;
    }
    let result = |into: ResultId| &context.graph.results[into];
    let (arriving, reserves) = match &pipeline.sink {
        Sink::Rows { into, .. } if result(*into).enough.is_some() => return None,
        Sink::Rows { into, .. } => (Some(result(*into).estimate), true),
        Sink::Build { into, .. } => (Some(result(*into).estimate), false),
        Sink::Aggregate { into, .. } => (Some(result(*into).input), ending == Ending::Written),
        Sink::Matches { .. } => (None, true),
        Sink::Discard => (None, false),
    };
    let mut stages = Vec::with_capacity(pipeline.stages.len());
    let mut known = pipeline.left.iter().peekable();
    let mut left = rows;
    for (number, stage) in pipeline.stages.iter().enumerate() {
        while known.next_if(|l| l.stages <= number).is_some() {}
        // What is known of a later stage holds for those before it: it was put there, and drops what the later one would drop.
        let rows_left = known.peek().map(|l| l.rows).or(arriving);
        left = rows_left.unwrap_or(left).min(left);
        let looks_up = match stage {
            Stage::Filter(_) | Stage::Scalar(_) => false,
            Stage::Probe(_) => true,
            Stage::Expand(_) | Stage::Mark(_) => return None,
        };
        stages.push(StageProfile { left, looks_up });
    }
    let profile = RefillProfile {
        rows,
        stages,
        reserves,
    };
    let after = context.policy.refill(&profile)?;
    (1..=pipeline.stages.len())
        .contains(&after)
        .then_some(after)
}
