//! `CREATE TABLE … AS` as a physical plan, so that what its query did is measured and reported like any other.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, collect_partitioned,
};
use datafusion::prelude::{DataFrame, SessionContext};
use warpline_gpu::plan_node::only_child;

use crate::memory_table::MemoryTable;

/// The plan of a `CREATE TABLE … AS` whose rows a query makes; `None` for any other statement, and where DataFusion
/// itself has the answer, such as that the table exists.
///
/// # Errors
/// What planning the query reports.
pub(crate) async fn plan(
    context: &SessionContext,
    logical: &LogicalPlan,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = logical else {
        return Ok(None);
    };
    // What the rules of the analyzer and the optimizer tell of columns is part of the table's schema.
    let input = context.state().optimize(&create.input)?;
    let schema = of_any_rows(input.schema().as_arrow());
    let mut names = HashSet::new();
    if create.temporary
        || matches!(*create.input, LogicalPlan::EmptyRelation(_))
        || !schema.fields().iter().all(|field| names.insert(field.name()))
        // One statement cannot both keep and replace the table.
        || create.if_not_exists && create.or_replace
        || !create.or_replace && context.table_exist(create.name.clone())?
    {
        return Ok(None);
    }
    let input = DataFrame::new(context.state(), input)
        .create_physical_plan()
        .await?;
    let mut create = create.clone();
    // The query is planned: its tables need not be held.
    create.input = Arc::new(LogicalPlan::default());
    Ok(Some(Arc::new(CreateTableExec::new(
        create,
        schema,
        input,
        context.clone(),
    ))))
}

/// The columns of a table that is made of rows without NULL: rows with NULL may follow them.
fn of_any_rows(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields: Vec<_> = fields
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Keeps all rows of its input in memory and registers them as a table. It answers no row.
struct CreateTableExec {
    create: CreateMemoryTable,
    /// The table's columns.
    schema: SchemaRef,
    input: Arc<dyn ExecutionPlan>,
    context: SessionContext,
    properties: Arc<PlanProperties>,
}

impl CreateTableExec {
    fn new(
        create: CreateMemoryTable,
        schema: SchemaRef,
        input: Arc<dyn ExecutionPlan>,
        context: SessionContext,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::empty())),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            create,
            schema,
            input,
            context,
            properties: Arc::new(properties),
        }
    }
}

impl fmt::Debug for CreateTableExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CreateTableExec({} from {:?})",
            self.create.name, self.input
        )
    }
}

impl DisplayAs for CreateTableExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => write!(f, "table={}", self.create.name),
            _ => write!(f, "CreateTableExec: {}", self.create.name),
        }
    }
}

impl ExecutionPlan for CreateTableExec {
    fn name(&self) -> &str {
        "CreateTableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(self.name(), children)?;
        Ok(Arc::new(Self::new(
            self.create.clone(),
            Arc::clone(&self.schema),
            input,
            self.context.clone(),
        )))
    }

    fn execute(
        &self,
        _partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = Arc::clone(&self.input);
        let (create, schema) = (self.create.clone(), Arc::clone(&self.schema));
        let context = self.context.clone();
        let work = async move {
            let mut partitions = collect_partitioned(input, task).await?;
            for batch in partitions.iter_mut().flatten() {
                *batch = batch.clone().with_schema(Arc::clone(&schema))?;
            }
            let table = MemTable::try_new(schema, partitions)?
                .with_constraints(create.constraints)
                .with_column_defaults(create.column_defaults.into_iter().collect());
            if create.or_replace {
                context.deregister_table(create.name.clone())?;
            }
            context.register_table(create.name, Arc::new(MemoryTable::from(table)))?;
            Ok::<_, DataFusionError>(futures::stream::empty())
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::new(Schema::empty()),
            futures::TryStreamExt::try_flatten(futures::stream::once(work)),
        )))
    }
}
