//! Plain DataFusion, whose answers are the standard.

use std::io;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use warpline_tpch::verify::{self, Ordering};

use super::setup::Setup;
use super::statement::{Failure, PassedOver};

/// What plain DataFusion answers.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<RecordBatch>,
    /// What orders the rows.
    pub(super) ordering: Ordering,
    /// Whether another run may answer otherwise: `random()`, `now()`.
    pub(super) volatile: bool,
}

/// Plain DataFusion.
#[derive(Clone)]
pub(super) struct Plain {
    context: SessionContext,
    rows: usize,
}

impl Plain {
    pub(super) async fn new(setup: Setup) -> io::Result<Self> {
        let config = SessionConfig::new().with_information_schema(true);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(setup.runtime()?)
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        for (key, value) in &setup.settings {
            if !key.starts_with("warpline.") {
                let value = value.replace('\'', "''");
                let set = context.sql(&format!("SET {key} = '{value}'")).await;
                set.map_err(io::Error::other)?;
            }
        }
        Ok(Self {
            context,
            rows: setup.rows,
        })
    }

    pub(super) async fn run(self, sql: String) -> Result<Expected, Failure> {
        let refused = |error: DataFusionError| Failure::Refused(error.strip_backtrace());
        let plan = self.context.state().create_logical_plan(&sql).await;
        let plan = plan.map_err(refused)?;
        let volatile = is_volatile(&plan).map_err(refused)?;
        let writes = matches!(
            plan,
            LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_)
        );
        if volatile && writes {
            // The two sides would have different tables.
            return Err(Failure::PassedOver(PassedOver::Volatile));
        }
        let ordering = verify::ordering_of(&plan);
        let (schema, batches) = self.collect(plan).await.map_err(refused)?;
        let batches = batches.ok_or(Failure::PassedOver(PassedOver::Large))?;
        Ok(Expected {
            schema,
            batches,
            ordering,
            volatile,
        })
    }

    /// The answer; no batches when it has too many rows.
    async fn collect(
        &self,
        plan: LogicalPlan,
    ) -> Result<(SchemaRef, Option<Vec<RecordBatch>>), DataFusionError> {
        let frame = self.context.execute_logical_plan(plan).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let schema = plan.schema();
        let mut stream = execute_stream(plan, task)?;
        let (mut batches, mut rows) = (Vec::new(), 0);
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            rows += batch.num_rows();
            if rows > self.rows {
                return Ok((schema, None));
            }
            batches.push(batch);
        }
        Ok((schema, Some(batches)))
    }
}

/// Whether the plan calls a function that may answer otherwise in another run.
fn is_volatile(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= match expr {
                    Expr::ScalarFunction(call) => {
                        call.func.signature().volatility != Volatility::Immutable
                    }
                    _ => false,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}
