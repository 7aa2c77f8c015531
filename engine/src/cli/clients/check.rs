//! Whether an answer among many is the one that the query gave first.

use std::collections::HashMap;

use warpline::{Result, WarplineSession};
use warpline_planner::statements::plan_text;
use warpline_tpch::verify::{self, Answer, Ordering};
use warpline_tpch::{QueryRun, Task};

/// The first answers, by the names of their queries.
#[derive(Default)]
pub(super) struct Checks(HashMap<String, First>);

struct First {
    answer: Answer,
    ordering: Ordering,
}

impl Checks {
    /// Notes the first answer of a query.
    ///
    /// # Errors
    /// When the query cannot be planned or its answer is too large to be one batch.
    pub(super) async fn note(
        &mut self,
        session: &WarplineSession,
        task: &Task,
        run: &QueryRun,
    ) -> Result<()> {
        let plan = plan_text(&session.reference().state(), &task.sql).await?;
        let first = First {
            answer: Answer::new(&run.schema, &run.batches)
                .map_err(datafusion::error::DataFusionError::from)?,
            ordering: verify::ordering_of(&plan),
        };
        self.0.insert(task.name.to_string(), first);
        Ok(())
    }

    /// What differs from the first answer. Equal bytes are seen at once; rows that tie and sums of floats take a longer look.
    pub(super) fn difference(&self, task: &Task, run: &QueryRun) -> Option<String> {
        let first = self.0.get(&task.name.to_string())?;
        match Answer::new(&run.schema, &run.batches) {
            Ok(answer) if answer.batch() == first.answer.batch() => None,
            Ok(answer) => {
                let difference = verify::compare(&first.answer, &answer, &first.ordering);
                difference.map(|difference| difference.to_string())
            }
            Err(error) => Some(error.to_string()),
        }
    }
}
