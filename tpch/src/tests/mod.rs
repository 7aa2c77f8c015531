//! Tests of the whole crate on plain DataFusion, and on an engine that errs on purpose.

mod answers;
mod data;
mod run;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::engine::{QueryEngine, QueryMetrics, QueryRun};
use crate::queries::Query;
use crate::runner::reference_answer;
use crate::tables::{Dataset, Table};
use crate::{Scale, generate, queries};

/// What an engine does wrong to the query with this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Adds one to the last column of the first row.
    WrongValue,
    /// Loses the last row, but only after the first run.
    LostRowWhenHot,
    /// Returns an error.
    Error,
    /// Panics.
    Panic,
    /// Reports a fallback.
    Fallback,
}

/// DataFusion as both engine and reference, with planted faults.
pub(crate) struct TestEngine {
    pub(crate) context: SessionContext,
    faults: Vec<(&'static str, Fault)>,
    runs: parking_lot::Mutex<Vec<String>>,
}

impl TestEngine {
    pub(crate) fn new() -> Self {
        Self {
            context: SessionContext::new(),
            faults: Vec::new(),
            runs: parking_lot::Mutex::default(),
        }
    }

    /// With generated tables for some queries at scale 0.01.
    fn with_tables(queries: &[Query]) -> Self {
        let engine = Self::new();
        let tables = queries::tables_of(queries);
        let generated = generate::generate(&tables, small(), 2).expect("data");
        generate::register(&engine, generated).expect("tables");
        engine
    }

    fn fault(mut self, number: u8, fault: Fault) -> Self {
        self.faults
            .push((queries::query(number).expect("a query").sql.as_str(), fault));
        self
    }
}

#[async_trait]
impl QueryEngine for TestEngine {
    fn device(&self) -> String {
        "test".to_string()
    }

    fn copy_bandwidth(&self) -> Option<f64> {
        Some(1e9)
    }

    fn session(&self) -> &SessionContext {
        &self.context
    }

    fn reference(&self) -> &SessionContext {
        &self.context
    }

    async fn run(&self, sql: &str) -> Result<QueryRun, DataFusionError> {
        let fault = self
            .faults
            .iter()
            .find(|(text, _)| *text == sql)
            .map(|(_, fault)| *fault);
        let is_first = !self.runs.lock().iter().any(|text| text == sql);
        self.runs.lock().push(sql.to_string());
        let answer = reference_answer(&self.context, sql).await;
        let (answer, _) = answer.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let mut batch = answer.batch().clone();
        let mut metrics = QueryMetrics {
            bytes: Some(1_000_000),
            streamed_bytes: 600_000,
            spilled_bytes: 40_000,
            ..QueryMetrics::default()
        };
        match fault {
            Some(Fault::WrongValue) => batch = with_first_of_last_column_changed(&batch),
            Some(Fault::LostRowWhenHot) if !is_first => {
                batch = batch.slice(0, batch.num_rows() - 1)
            }
            Some(Fault::Error) => return Err(DataFusionError::Execution("planted".to_string())),
            Some(Fault::Panic) => panic!("planted"),
            Some(Fault::Fallback) => metrics.fallbacks.push("planted".to_string()),
            Some(Fault::LostRowWhenHot) | None => {}
        }
        Ok(QueryRun {
            schema: batch.schema(),
            batches: vec![batch],
            metrics,
        })
    }
}

/// Adds one to the first value of the last column, which must be `Int64`.
fn with_first_of_last_column_changed(batch: &RecordBatch) -> RecordBatch {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    let mut columns = batch.columns().to_vec();
    let last = columns.pop().expect("a column");
    let mut values = last.as_primitive::<Int64Type>().values().to_vec();
    values[0] += 1;
    columns.push(Arc::new(Int64Array::from(values)) as ArrayRef);
    RecordBatch::try_new(batch.schema(), columns).expect("a batch")
}

fn small() -> Scale {
    Scale::new(0.01).expect("a scale")
}

fn rows_of(table: Table, scale: Scale, part: usize, parts: usize) -> Vec<RecordBatch> {
    Dataset::tpch(scale)
        .batches(table, part, parts, 1000)
        .collect::<Result<_, _>>()
        .expect("batches")
}

/// Runs a test on a thread whose stack is large enough for planning without optimisation.
pub(crate) fn on_large_stack(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let task = runtime.spawn(test);
    if let Err(error) = runtime.block_on(task) {
        std::panic::resume_unwind(error.into_panic());
    }
}
