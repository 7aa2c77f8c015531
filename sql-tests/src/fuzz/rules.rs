//! A query as often as the optimizer has rules, each time without one of them: a rule may change what a plan costs, not its answer.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::collect;
use futures::FutureExt;
use warpline::WarplineSession;
use warpline_tpch::verify::{self, Answer, Ordering};

/// Rules of the physical optimizer without which a plan cannot run, and those that only look at it.
const NEEDED: &[&str] = &[
    "join_selection",
    "OutputRequirements",
    "EnsureRequirements",
    "SanityCheckPlan",
    "EnsureCooperative",
];

/// The first rule without which the answer is another, and how. Some plans cannot be run without a rule, which says nothing.
///
/// # Errors
/// What planning the query with all rules reports.
pub(super) async fn differing(
    session: &WarplineSession,
    sql: &str,
    expected: &Answer,
    ordering: &Ordering,
) -> Result<Option<String>> {
    let (state, plan) = session.context().sql(sql).await?.into_parts();
    for (rule, state) in states(&state) {
        let frame = DataFrame::new(state, plan.clone());
        let run = std::panic::AssertUnwindSafe(answer(frame)).catch_unwind();
        let found = match run.await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => continue,
            Err(_) => return Ok(Some(format!("without {rule} it panics"))),
        };
        if let Some(difference) = verify::compare(expected, &found, ordering) {
            return Ok(Some(format!("without {rule}: {difference}")));
        }
    }
    Ok(None)
}

/// The session without each rule in turn, and the rule's name.
fn states(all: &SessionState) -> Vec<(String, SessionState)> {
    let builder = || SessionStateBuilder::new_from_existing(all.clone());
    let logical = without_each(&all.optimizer().rules).map(|(rule, rest)| {
        let state = builder().with_optimizer_rules(rest);
        (rule.name().to_string(), state)
    });
    let physical = without_each(all.physical_optimizers())
        .filter(|(rule, _)| !NEEDED.contains(&rule.name()))
        .map(|(rule, rest)| {
            let state = builder().with_physical_optimizer_rules(rest);
            (rule.name().to_string(), state)
        });
    logical
        .chain(physical)
        .map(|(rule, state)| (rule, state.build()))
        .collect()
}

/// Each of the rules, and the others.
fn without_each<T: Clone>(rules: &[T]) -> impl Iterator<Item = (&T, Vec<T>)> {
    rules.iter().enumerate().map(|(place, rule)| {
        let mut rest = rules.to_vec();
        rest.remove(place);
        (rule, rest)
    })
}

async fn answer(frame: DataFrame) -> Result<Answer> {
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), task).await?;
    Answer::new(&plan.schema(), &batches)
        .map_err(|error| DataFusionError::External(Box::new(error)))
}
