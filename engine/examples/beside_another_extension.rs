//! Warpline beside another extension of DataFusion: a table of its own kind, a function, and an optimizer rule.
//!
//! The device aggregates rows that the extension's own operator makes; what needs its function stays on the CPU, and `EXPLAIN`
//! says why.
//!
//! `cargo run --release -p warpline --example beside_another_extension`

use std::error::Error;
use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::pretty::print_batches;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::cast::as_float64_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{ColumnarValue, Expr, TableType, Volatility, create_udf};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use datafusion::prelude::SessionContext;
use warpline::{Device, DeviceChoice, WarplineExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for answer in run(DeviceChoice::Auto).await? {
        print_batches(&answer)?;
    }
    Ok(())
}

/// The plan and the answer of a query that the device can run, then of one that needs the extension's function.
pub async fn run(device: DeviceChoice) -> Result<Vec<Vec<RecordBatch>>, Box<dyn Error>> {
    let device = Device::open(device, None)?;
    // Warpline comes last: it looks at plans that are finished.
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(AtMost(1_000)))
        .with_warpline(&device)
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_table(
        "readings",
        Arc::new(Sensors {
            count: 40,
            readings: 1_000,
        }),
    )?;
    context.register_udf(create_udf(
        "fahrenheit",
        vec![DataType::Float64],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(fahrenheit),
    ));

    let mut answers = Vec::new();
    for sql in [
        "SELECT sensor, count(*) AS n, max(celsius) AS warmest FROM readings WHERE celsius > 10 GROUP BY sensor ORDER BY sensor",
        "SELECT sensor, max(fahrenheit(celsius)) AS warmest FROM readings GROUP BY sensor ORDER BY sensor",
    ] {
        answers.push(
            context
                .sql(&format!("EXPLAIN {sql}"))
                .await?
                .collect()
                .await?,
        );
        answers.push(context.sql(sql).await?.collect().await?);
    }
    Ok(answers)
}

fn fahrenheit(arguments: &[ColumnarValue]) -> DataFusionResult<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let celsius = as_float64_array(&arrays[0])?;
    let converted: Float64Array = arrow::compute::unary(celsius, |value| value * 1.8 + 32.0);
    Ok(ColumnarValue::Array(Arc::new(converted)))
}

/// A rule: no query answers with more rows than this.
#[derive(Debug)]
struct AtMost(usize);

impl PhysicalOptimizerRule for AtMost {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let whole: Arc<dyn ExecutionPlan> = match plan.output_partitioning().partition_count() {
            1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        };
        Ok(Arc::new(GlobalLimitExec::new(whole, 0, Some(self.0))))
    }

    fn name(&self) -> &str {
        "at_most"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A table whose rows nobody has stored.
#[derive(Debug)]
struct Sensors {
    count: i64,
    /// Of each sensor.
    readings: i64,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("sensor", DataType::Int64, false),
        Field::new("celsius", DataType::Float64, true),
    ]))
}

#[async_trait]
impl TableProvider for Sensors {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| vec![0, 1]);
        let schema = Arc::new(schema().project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(usize::try_from(self.count).unwrap_or(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(SensorsExec {
            readings: self.readings,
            projection,
            properties: Arc::new(properties),
        }))
    }
}

/// The operator that makes the rows: a partition for each sensor.
#[derive(Debug)]
struct SensorsExec {
    readings: i64,
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SensorsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SensorsExec: readings={}", self.readings)
    }
}

impl ExecutionPlan for SensorsExec {
    fn name(&self) -> &str {
        "SensorsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let sensor = partition as i64;
        let sensors = Int64Array::from_iter_values((0..self.readings).map(|_| sensor));
        let celsius = (0..self.readings)
            .map(|i| (i % 50 != 0).then(|| ((i * 37 + sensor) % 400) as f64 / 10.0));
        let celsius = Float64Array::from_iter(celsius);
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(sensors), Arc::new(celsius)])?;
        let batch = batch.project(&self.projection)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            batch.schema(),
            futures::stream::iter([Ok(batch)]),
        )))
    }
}
