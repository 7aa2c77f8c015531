//! Scans: tables that the device can read, with the filters and projections pushed into them.

use std::any::Any;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, StatisticsArgs, StatisticsContext,
};
use warpline_gpu::GpuError;
use warpline_gpu::tables::TableSource;

use crate::reason::{Reason, refuse};
use crate::rel::ScanTable;

/// A scan and the operators inside it.
#[derive(Debug)]
pub(super) struct TakenApart {
    /// The table.
    pub(super) table: ScanTable,
    /// Each output column as an expression over the table.
    pub(super) columns: Vec<Arc<dyn PhysicalExpr>>,
    /// Conjuncts over the table that loading does not apply.
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
}

/// The rows that the leaf `plan` yields.
pub(super) fn scan(plan: &Arc<dyn ExecutionPlan>) -> Result<TakenApart, Reason> {
    if is_constant(plan.as_ref()) {
        return refuse("constants and the catalogue are aggregated on the CPU");
    }
    if plan.is::<WorkTableExec>() {
        return refuse("a step of a recursive query that reads no table runs on the CPU");
    }
    if plan.boundedness().is_unbounded() {
        return refuse("unbounded streams run on the CPU");
    }
    let computed = computed_in_scan(plan)?;
    let analyzed = computed.as_ref().map_or(plan, |(plain, _)| plain);
    let analysis = TableSource::analyze(analyzed).map_err(|error| match error {
        GpuError::Unsupported(what) => Reason::new(format!("{what} runs on the CPU")),
        other => Reason::new(other.to_string()),
    })?;
    let schema = analysis.source.schema();
    let columns = match computed {
        Some((_, expressions)) => expressions,
        None => analysis
            .column_of_output
            .iter()
            .map(|i| column(schema.fields()[*i].name(), *i))
            .collect(),
    };
    let filters = match &analysis.exact_filter {
        Some(predicate) => split_conjunction(predicate)
            .into_iter()
            .filter(|e| !e.is::<DynamicFilterPhysicalExpr>())
            .cloned()
            .collect(),
        None => vec![],
    };
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    // A predicate in the scan makes the count of the table's rows inexact, but not wrong.
    let rows = statistics.num_rows.get_value().copied();
    Ok(TakenApart {
        table: ScanTable {
            source: analysis.source,
            rows,
        },
        columns,
        filters,
    })
}

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

/// A scan, and the expressions over its table that another scan computes.
type PlainScan = (Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>);

/// DataFusion pushes projections into parquet scans, which then compute expressions while they
/// read. This gives back the expressions and the same scan without them.
fn computed_in_scan(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<PlainScan>, Reason> {
    let Some(config) = plan
        .downcast_ref::<DataSourceExec>()
        .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
    else {
        return Ok(None);
    };
    let source = config.file_source();
    let Some(projection) = source
        .projection()
        .filter(|p| !p.expr_iter().all(|e| e.is::<Column>()))
    else {
        return Ok(None);
    };
    let any: &dyn Any = source.as_ref();
    let Some(parquet) = any.downcast_ref::<ParquetSource>() else {
        return Ok(None);
    };
    let mut plain = ParquetSource::new(parquet.table_schema().clone())
        .with_table_parquet_options(parquet.table_parquet_options().clone());
    if let Some(factory) = parquet.parquet_file_reader_factory() {
        plain = plain.with_parquet_file_reader_factory(Arc::clone(factory));
    }
    if let Some(predicate) = parquet.filter() {
        plain = plain.with_predicate(predicate);
    }
    let config = FileScanConfigBuilder::from(config.clone())
        .with_source(Arc::new(plain))
        .build();
    Ok(Some((
        DataSourceExec::from_data_source(config),
        projection.expr_iter().collect(),
    )))
}

/// Does the value's text begin so? No more of it is written: a table that knows its own catalogue has one without an end.
fn is_debugged_as(value: &impl fmt::Debug, name: &str) -> bool {
    struct Begin<'a>(&'a str);
    impl fmt::Write for Begin<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let length = text.len().min(self.0.len());
            match (text.get(..length), self.0.get(..length)) {
                (Some(text), Some(wanted)) if text == wanted => self.0 = &self.0[length..],
                _ => return Err(fmt::Error),
            }
            // An error ends the writing.
            match self.0.is_empty() {
                true => Err(fmt::Error),
                false => Ok(()),
            }
        }
    }
    let mut begin = Begin(name);
    // Ends in an error when all of it was found as well.
    let _ = write!(begin, "{value:?}");
    begin.0.is_empty()
}

/// Leaves that read no table: constants, plans as text, the session's own catalogue.
pub(crate) fn is_constant(plan: &dyn ExecutionPlan) -> bool {
    if plan.is::<EmptyExec>() || plan.is::<PlaceholderRowExec>() || plan.is::<ExplainExec>() {
        return true;
    }
    if let Some(stream) = plan.downcast_ref::<StreamingTableExec>() {
        // The types of information_schema's tables are private; their names are not.
        return stream
            .partitions()
            .iter()
            .all(|p| is_debugged_as(p, "InformationSchema"));
    }
    // VALUES becomes one batch in memory whose columns the planner names column1, column2, …. So are those of a table that was
    // made of VALUES, but its scans say which columns they want.
    let memory = plan
        .downcast_ref::<DataSourceExec>()
        .and_then(|scan| scan.data_source().downcast_ref::<MemorySourceConfig>());
    memory.is_some_and(|source| {
        let one_batch = matches!(source.partitions(), [batches] if batches.len() <= 1);
        let schema = source.original_schema();
        one_batch
            && source.projection().is_none()
            && schema
                .fields()
                .iter()
                .enumerate()
                .all(|(i, f)| *f.name() == format!("column{}", i + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_text_is_enough() {
        struct Endless;
        impl fmt::Debug for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("Endless").field("again", self).finish()
            }
        }
        assert!(is_debugged_as(&Endless, "End"));
        assert!(!is_debugged_as(&Endless, "Ending"));
        assert!(is_debugged_as(&Some(1), "Some"));
        assert!(!is_debugged_as(&Some(1), "None"));
        assert!(!is_debugged_as(&"ä", "\"a"));
    }
}
