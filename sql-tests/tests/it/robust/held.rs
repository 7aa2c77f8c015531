//! Tables of parquet files whose row groups are held back on their way.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::parquet::{
    DefaultParquetFileReaderFactory, ParquetFileReaderFactory,
};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Expr;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use warpline_sql_tests::Fixture;

/// Holds whoever comes back for a while; open at first.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// How long, and how many have come since it was closed.
    state: Mutex<(Duration, usize)>,
    changed: Condvar,
    /// How long every row group takes besides.
    slow: Mutex<Duration>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, (Duration, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self, time: Duration) {
        *self.state() = (time, 0);
    }

    pub(super) fn open(&self) {
        self.state().0 = Duration::ZERO;
        self.changed.notify_all();
    }

    /// How many have come since it was closed.
    pub(super) fn came(&self) -> usize {
        self.state().1
    }

    /// Every row group takes so much longer from now on.
    pub(super) fn slow_down(&self, time: Duration) {
        *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    fn delay(&self) {
        let time = *self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    fn pass(&self) {
        let begin = Instant::now();
        let mut state = self.state();
        state.1 += 1;
        while let Some(left) = state.0.checked_sub(begin.elapsed())
            && !left.is_zero()
        {
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Readers of parquet that hold the last row group of `z.parquet` back.
#[derive(Debug)]
struct HeldReaders {
    plain: DefaultParquetFileReaderFactory,
    gate: Arc<Gate>,
}

impl ParquetFileReaderFactory for HeldReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> DataFusionResult<Box<dyn AsyncFileReader + Send>> {
        let end = i64::try_from(file.object_meta.size).expect("a size");
        let last = file.range.as_ref().is_some_and(|range| range.end == end);
        if last && file.path().as_ref().ends_with("z.parquet") {
            tokio::task::block_in_place(|| self.gate.pass());
        }
        if file.range.is_some() {
            tokio::task::block_in_place(|| self.gate.delay());
        }
        self.plain.create_reader(partition, file, hint, metrics)
    }
}

/// A table of files that is read by [`HeldReaders`].
#[derive(Debug)]
struct HeldTable {
    files: Arc<dyn TableProvider>,
    readers: Arc<HeldReaders>,
}

#[async_trait]
impl TableProvider for HeldTable {
    fn schema(&self) -> SchemaRef {
        self.files.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let plan = self.files.scan(state, projection, filters, limit).await?;
        let exec = plan.downcast_ref::<DataSourceExec>().expect("a scan");
        let config = exec.data_source().downcast_ref::<FileScanConfig>();
        let config = config.expect("a scan of files");
        let source: &dyn std::any::Any = config.file_source().as_ref();
        let source = source.downcast_ref::<ParquetSource>().expect("of parquet");
        let readers = Arc::clone(&self.readers) as Arc<dyn ParquetFileReaderFactory>;
        let source = source.clone().with_parquet_file_reader_factory(readers);
        let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
        Ok(DataSourceExec::from_data_source(config.build()))
    }
}

/// Register table `name` of the files at `location`, as they are now, whose last row group the gate holds back.
pub(super) fn register(fixture: &Fixture, gate: &Arc<Gate>, name: &str, location: &str) {
    let context = fixture.session().context();
    let files = format!("{name}_files");
    let outcome = fixture.run(&format!("DROP TABLE IF EXISTS {files}"));
    outcome.expect("gone");
    let sql = format!("CREATE EXTERNAL TABLE {files} STORED AS PARQUET LOCATION '{location}'");
    fixture.run(&sql).expect("a table");
    let files = fixture.block_on(context.table_provider(files.as_str()));
    let store = context
        .runtime_env()
        .object_store(ObjectStoreUrl::local_filesystem());
    let readers = HeldReaders {
        plain: DefaultParquetFileReaderFactory::new(store.expect("a store")),
        gate: Arc::clone(gate),
    };
    let table = HeldTable {
        files: files.expect("the table"),
        readers: Arc::new(readers),
    };
    let _ = context.deregister_table(name);
    let outcome = context.register_table(name, Arc::new(table));
    outcome.expect("registered");
}
