//! The node below and above joins on the CPU that lets go of its task after each batch, so that a stopped query ends.
//!
//! A task that is aborted, and a stream that is to be dropped, goes on until it waits for something. DataFusion's joins wait for
//! nothing while one batch of the probing side has matches left, and what reads them asks for more as long as there is: a
//! join of everything with everything keeps all cores for minutes after the query's end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::Stream;

use crate::plan_node::only_child;

/// `plan` with every join on the CPU giving way between the batches that it yields, and the joins that compare all pairs between
/// those that they read.
///
/// # Errors
/// Those of putting a plan together again.
pub fn giving_way(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let above = |plan: Arc<dyn ExecutionPlan>| {
        let all_pairs = plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>();
        if !all_pairs && !plan.is::<HashJoinExec>() && !plan.is::<SortMergeJoinExec>() {
            return Ok(Transformed::no(plan));
        }
        let plan = match (all_pairs, plan.children()[..].to_vec()) {
            (true, children) if let [build, probe] = children[..] => {
                let probe = Arc::new(GivesWayExec::new(Arc::clone(probe)));
                let children: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::clone(build), probe];
                replace_children_if_necessary(plan, children)?
            }
            _ => plan,
        };
        Ok(Transformed::yes(Arc::new(GivesWayExec::new(plan)) as _))
    };
    plan.transform_up(above).data()
}

/// Passes the rows of its input on, and gives way after each batch.
#[derive(Debug)]
pub struct GivesWayExec {
    input: Arc<dyn ExecutionPlan>,
}

impl GivesWayExec {
    /// Give way between the batches of `input`.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for GivesWayExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => f.write_str("GivesWayExec"),
        }
    }
}

impl ExecutionPlan for GivesWayExec {
    fn name(&self) -> &str {
        "GivesWayExec"
    }

    crate::rows_of_input!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(only_child(self.name(), children)?)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(GivingWay {
            input: self.input.execute(partition, context)?,
            gave: true,
        }))
    }
}

struct GivingWay {
    input: SendableRecordBatchStream,
    /// Since the last batch.
    gave: bool,
}

impl Stream for GivingWay {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.gave {
            self.gave = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.input.as_mut().poll_next(context);
        self.gave = !matches!(next, Poll::Ready(Some(_)));
        next
    }
}

impl RecordBatchStream for GivingWay {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use datafusion::execution::context::SessionContext;
    use datafusion::physical_plan::displayable;
    use futures::StreamExt;

    use super::*;

    async fn plan(sql: &str) -> (SessionContext, Arc<dyn ExecutionPlan>) {
        let session = SessionContext::new();
        let frame = session.sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        (session, plan)
    }

    #[tokio::test]
    async fn joins_give_way() {
        let sql = "SELECT a.value, b.value, c.value FROM generate_series(1, 30) AS a JOIN generate_series(1, 40) AS b ON a.value < b.value \
                   JOIN generate_series(1, 9) AS c ON c.value = a.value";
        let (session, other) = plan(sql).await;
        let whole = giving_way(plan(sql).await.1).unwrap();
        let text = displayable(whole.as_ref()).indent(false).to_string();
        assert_eq!(text.matches("GivesWayExec").count(), 3, "{text}");
        let run = |plan| datafusion::physical_plan::collect(plan, session.task_ctx());
        let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
        let (given, expected): (usize, usize) = (
            rows(run(whole).await.unwrap()),
            rows(run(other).await.unwrap()),
        );
        assert_eq!(given, expected);
    }

    /// A stream of batches without end that waits for nothing, read by a task that reads on as long as there are any.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_ends_that_nothing_waits_for() {
        let (session, plan) = plan("SELECT 1 AS a").await;
        let mut batches = plan.execute(0, session.task_ctx()).unwrap();
        let batch = batches.next().await.unwrap().unwrap();
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let endless = futures::stream::repeat_with(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(batch.clone())
        });
        let schema = batches.schema();
        let input =
            datafusion::physical_plan::stream::RecordBatchStreamAdapter::new(schema, endless);
        let mut stream = GivingWay {
            input: Box::pin(input),
            gave: true,
        };
        let task = tokio::spawn(async move { while stream.next().await.is_some() {} });
        while read.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
