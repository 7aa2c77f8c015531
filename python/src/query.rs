//! A query and its rows: planned when it is made, run when rows are wanted, kept where all of them were.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3_arrow::ffi::to_schema_pycapsule;
use pyo3_arrow::{PyRecordBatchReader, PySchema, PyTable};
use tokio::sync::{mpsc, oneshot};
use warpline::QueryMetrics;

use crate::columns::Column;
use crate::device_rows::DeviceRows;
use crate::error::{raised, raised_by_plan, refused};
use crate::reader::{Batches, Item, QueryReader, Running};
use crate::runtime::{Progress, Task, handle, run, wait};
use crate::scope;
use crate::spec::{Spec, Text, Wanted};

/// Batches that wait to be read. While there are as many, the query waits as well.
const QUEUE: usize = 2;
/// A result of which some rows are shown is read to its end, and kept, if it has fewer bytes.
const PREVIEW_BYTES: usize = 64 << 20;

/// A query that is planned and not yet run.
struct Parked {
    wanted: oneshot::Sender<Wanted>,
    running: Running,
}

/// Plans a query on the threads of this package.
///
/// # Errors
/// What parsing and planning report.
fn park(
    py: Python<'_>,
    spec: &Arc<Spec>,
    progress: Option<&Progress>,
) -> PyResult<(Parked, SchemaRef)> {
    let open = spec.link.open()?;
    let (ready, planned) = oneshot::channel();
    let (wanted, go) = oneshot::channel();
    let (sender, rows) = mpsc::channel(QUEUE);
    let variables = Arc::clone(&spec.variables);
    let work = {
        let spec = Arc::clone(spec);
        async move { scope::with(variables, spec.produce(&open, ready, go, &sender)).await }
    };
    let task = Task(handle()?.spawn(work));
    let running = Running { rows, _task: task };
    let schema = match wait(py, progress, planned)? {
        Ok(Ok(schema)) => schema,
        Ok(Err(error)) => return Err(raised(py, &error)),
        Err(_) => {
            return Err(refused(
                "planning ended early; please report this with the query",
            ));
        }
    };
    Ok((Parked { wanted, running }, schema))
}

/// What is left of runs.
#[derive(Default)]
struct State {
    parked: Option<Parked>,
    kept: Option<Arc<[RecordBatch]>>,
    metrics: Option<QueryMetrics>,
    seconds: Option<f64>,
}

/// A query, or the rows of a statement that has run.
#[pyclass(frozen, module = "warpline._native")]
pub(crate) struct Query {
    /// None where the statement has run.
    spec: Option<Arc<Spec>>,
    schema: SchemaRef,
    state: Arc<Mutex<State>>,
}

impl Query {
    /// Plans a query.
    ///
    /// # Errors
    /// What parsing and planning report.
    pub(crate) fn planned(
        py: Python<'_>,
        spec: Spec,
        progress: Option<&Progress>,
    ) -> PyResult<Self> {
        let spec = Arc::new(spec);
        let (parked, schema) = park(py, &spec, progress)?;
        let state = State {
            parked: Some(parked),
            ..State::default()
        };
        Ok(Self {
            spec: Some(spec),
            schema,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// The rows of a statement that has run.
    pub(crate) fn done(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        metrics: QueryMetrics,
    ) -> Self {
        let state = State {
            kept: Some(batches.into()),
            metrics: Some(metrics),
            ..State::default()
        };
        Self {
            spec: None,
            schema,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The query as a table of other queries.
    ///
    /// # Errors
    /// What planning reports.
    pub(crate) fn as_table(&self, py: Python<'_>) -> PyResult<Arc<dyn TableProvider>> {
        let kept = self.state.lock().kept.clone();
        match (&self.spec, kept) {
            (Some(spec), None) => {
                let open = spec.link.open()?;
                let spec = Arc::clone(spec);
                let variables = Arc::clone(&spec.variables);
                let table = async move { scope::with(variables, spec.table(&open.session)).await };
                run(py, None, table)?.map_err(|error| raised(py, &error))
            }
            (_, kept) => {
                let batches = kept.map_or_else(Vec::new, |kept| kept.to_vec());
                let table = MemTable::try_new(Arc::clone(&self.schema), vec![batches]);
                Ok(Arc::new(table.map_err(|error| raised_by_plan(py, error))?))
            }
        }
    }

    /// The query as it was planned; again where it has run before.
    fn take(&self, py: Python<'_>, progress: Option<&Progress>) -> PyResult<Parked> {
        let spec = self
            .spec
            .as_ref()
            .ok_or_else(|| refused("the statement has run"))?;
        // A closed connection runs nothing, also what it has planned.
        spec.link.open()?;
        let parked = self.state.lock().parked.take();
        match parked {
            Some(parked) => Ok(parked),
            None => Ok(park(py, spec, progress)?.0),
        }
    }

    /// Starts the query.
    fn start(&self, py: Python<'_>, progress: Option<&Progress>) -> PyResult<Running> {
        let parked = self.take(py, progress)?;
        // Where it has ended, the channel tells.
        let _ = parked.wanted.send(Wanted::Rows);
        Ok(parked.running)
    }

    /// All rows, of an earlier run where they were kept.
    fn collect(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Arc<[RecordBatch]>> {
        if let Some(kept) = &self.state.lock().kept {
            return Ok(Arc::clone(kept));
        }
        let begun = Instant::now();
        let progress = progress.map(Progress::begins);
        let mut running = self.start(py, progress.as_ref())?;
        let mut batches = Vec::new();
        loop {
            match running.next(py, progress.as_ref())? {
                Item::Batch(batch) => batches.push(batch),
                Item::End(last, metrics) => {
                    batches.extend(last);
                    return Ok(self.keep(batches, *metrics, begun));
                }
                Item::Failed(error) => return Err(raised(py, &error)),
            }
        }
    }

    fn keep(
        &self,
        batches: Vec<RecordBatch>,
        metrics: QueryMetrics,
        begun: Instant,
    ) -> Arc<[RecordBatch]> {
        let kept: Arc<[RecordBatch]> = batches.into();
        let mut state = self.state.lock();
        state.kept = Some(Arc::clone(&kept));
        state.metrics = Some(metrics);
        state.seconds = Some(begun.elapsed().as_secs_f64());
        kept
    }

    /// The rows of a run that begins now.
    fn stream(&self, py: Python<'_>) -> PyResult<QueryReader> {
        let begun = Instant::now();
        let running = self.start(py, None)?;
        let state = Arc::clone(&self.state);
        Ok(QueryReader {
            schema: Arc::clone(&self.schema),
            running: Some(running),
            ended: Some(Box::new(move |metrics| {
                let mut state = state.lock();
                state.metrics = Some(metrics);
                state.seconds = Some(begun.elapsed().as_secs_f64());
            })),
        })
    }

    /// The rows as a reader, of kept ones or of a run that begins now.
    fn reader(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        let kept = self.state.lock().kept.clone();
        if let Some(kept) = kept {
            let batches: Vec<_> = kept.iter().cloned().map(Ok).collect();
            let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
            return Ok(PyRecordBatchReader::new(Box::new(reader)));
        }
        Ok(PyRecordBatchReader::new(Box::new(self.stream(py)?)))
    }
}

#[pymethods]
impl Query {
    /// The schema, as Arrow's C interface has it.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    /// The rows batch by batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = Bound::new(py, self.reader(py)?)?;
        reader.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Starts the query, for its batches one by one.
    fn batches(&self, py: Python<'_>) -> PyResult<Batches> {
        Ok(Batches(Mutex::new(Some(self.stream(py)?))))
    }

    /// The schema as `pyarrow.Schema`.
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(Arc::clone(&self.schema)).into_pyarrow(py)
    }

    fn names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    fn types(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.data_type().to_string()).collect()
    }

    /// All rows as `pyarrow.Table`.
    fn to_arrow<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batches = self.collect(py, progress)?;
        PyTable::try_new(batches.to_vec(), Arc::clone(&self.schema))?.into_pyarrow(py)
    }

    /// The number of rows, where all of them were read.
    fn known_rows(&self) -> Option<usize> {
        let state = self.state.lock();
        let kept = state.kept.as_ref()?;
        Some(kept.iter().map(RecordBatch::num_rows).sum())
    }

    /// Reads all rows and keeps them.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<()> {
        self.collect(py, progress).map(|_| ())
    }

    /// The first rows as texts, None for NULL, and whether these are all. A small result is kept.
    fn preview(
        &self,
        py: Python<'_>,
        rows: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<Vec<Option<String>>>, bool)> {
        let kept = self.state.lock().kept.clone();
        if let Some(kept) = kept {
            let all: usize = kept.iter().map(RecordBatch::num_rows).sum();
            return Ok((cells(py, &kept, rows)?, all <= rows));
        }
        let begun = Instant::now();
        let progress = progress.map(Progress::begins);
        let mut running = self.start(py, progress.as_ref())?;
        let (mut batches, mut read, mut bytes) = (Vec::new(), 0, 0);
        loop {
            match running.next(py, progress.as_ref())? {
                Item::Batch(batch) => {
                    read += batch.num_rows();
                    bytes += batch.get_array_memory_size();
                    batches.push(batch);
                    if read > rows && bytes > PREVIEW_BYTES {
                        return Ok((cells(py, &batches, rows)?, false));
                    }
                }
                Item::End(last, metrics) => {
                    read += last.as_ref().map_or(0, RecordBatch::num_rows);
                    batches.extend(last);
                    let kept = self.keep(batches, *metrics, begun);
                    return Ok((cells(py, &kept, rows)?, read <= rows));
                }
                Item::Failed(error) => return Err(raised(py, &error)),
            }
        }
    }

    /// The plan: its kind and its text, in the parts that EXPLAIN has.
    fn explain(
        &self,
        py: Python<'_>,
        analyze: bool,
        verbose: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Vec<Option<String>>>> {
        let spec = self.query()?;
        let word = match (analyze, verbose) {
            (false, false) => "EXPLAIN",
            (false, true) => "EXPLAIN VERBOSE",
            (true, false) => "EXPLAIN ANALYZE",
            (true, true) => "EXPLAIN ANALYZE VERBOSE",
        };
        let sql = format!("{word} {}", spec.sql);
        let open = spec.link.open()?;
        let progress = progress.map(Progress::begins);
        let work = {
            let (spec, variables) = (Arc::clone(spec), Arc::clone(&spec.variables));
            let explained = async move {
                let session = &open.session;
                if let Text::Sql = spec.text {
                    return Ok(session.query(&sql).await?.batches);
                }
                let frame = async {
                    let context = session.context();
                    let frame = match &spec.text {
                        Text::Plan(plan) => {
                            let frame = context.execute_logical_plan(plan.clone()).await?;
                            frame.explain(verbose, analyze)?
                        }
                        _ => {
                            let logical = spec.logical_of(session, &sql).await?;
                            context.execute_logical_plan(logical).await?
                        }
                    };
                    frame.collect().await
                };
                session.guard(&sql, frame).await
            };
            scope::with(variables, explained)
        };
        let batches = run(py, progress.as_ref(), work)?.map_err(|error| raised(py, &error))?;
        cells(py, &batches, usize::MAX)
    }

    /// Runs the query and leaves its rows on the device.
    fn on_device(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<DeviceRows> {
        // A statement that has run has no rows on the device.
        self.query()?;
        let begun = Instant::now();
        let progress = progress.map(Progress::begins);
        let parked = self.take(py, progress.as_ref())?;
        let (left, rows) = oneshot::channel();
        // Where it has ended, the other channel tells. It runs as long as `running` is there.
        let _ = parked.wanted.send(Wanted::OnDevice(left));
        let rows = wait(py, progress.as_ref(), rows);
        drop(parked.running);
        let rows = match rows? {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => return Err(raised(py, &error)),
            Err(_) => {
                return Err(refused(
                    "the query ended early; please report this with the query",
                ));
            }
        };
        let mut state = self.state.lock();
        state.metrics = Some(rows.metrics.clone());
        state.seconds = Some(begun.elapsed().as_secs_f64());
        Ok(DeviceRows::new(rows))
    }

    /// Writes all rows to one file, and returns how many they are. `format`: parquet, csv or json.
    fn write(
        &self,
        py: Python<'_>,
        path: String,
        format: String,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let spec = self.query()?;
        let open = spec.link.open()?;
        let progress = progress.map(Progress::begins);
        let work = {
            let (spec, variables) = (Arc::clone(spec), Arc::clone(&spec.variables));
            let written = async move {
                let session = &open.session;
                session
                    .guard(&spec.sql, spec.write(session, &path, &format))
                    .await
            };
            scope::with(variables, written)
        };
        run(py, progress.as_ref(), work)?.map_err(|error| raised(py, &error))
    }

    /// A timeline of a first and of later runs: for Perfetto, and what each run took.
    fn profile<'py>(
        &self,
        py: Python<'py>,
        runs: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, Vec<Bound<'py, PyDict>>)> {
        let spec = self.query()?;
        if !matches!(spec.text, Text::Sql) {
            return Err(refused(
                "a profile is taken of a text alone: write the values of its parameters into the query, and name files in it \
                 (FROM 'file.parquet')",
            ));
        }
        let open = spec.link.open()?;
        let progress = progress.map(Progress::begins);
        let work = {
            let (spec, variables) = (Arc::clone(spec), Arc::clone(&spec.variables));
            let taken = async move {
                let hot = runs.saturating_sub(1);
                let profile = warpline::profile(&open.session, &spec.sql, hot).await?;
                Ok::<_, warpline::Error>((profile.to_json()?, profile.runs()))
            };
            scope::with(variables, taken)
        };
        let (json, runs) = run(py, progress.as_ref(), work)?.map_err(|error| raised(py, &error))?;
        let runs = runs.into_iter().map(|run| {
            let times = PyDict::new(py);
            times.set_item("name", run.name)?;
            times.set_item("total_ms", run.total_ms)?;
            times.set_item("plan_ms", run.plan_ms)?;
            times.set_item("kernel_ms", run.kernel_ms)?;
            times.set_item("kernels", run.kernels)?;
            times.set_item("copy_ms", run.copy_ms)?;
            times.set_item("compiled", run.compiled)?;
            Ok(times)
        });
        Ok((json, runs.collect::<PyResult<_>>()?))
    }

    /// What the last whole run did, and where; None before it.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let state = self.state.lock();
        let Some(metrics) = &state.metrics else {
            return Ok(None);
        };
        let told = PyDict::new(py);
        told.set_item("seconds", state.seconds)?;
        told.set_item("plan_ms", metrics.plan_ms)?;
        told.set_item("plan_cached", metrics.plan_cached)?;
        told.set_item("load_ms", metrics.load_ms)?;
        told.set_item("columns_loaded", metrics.columns_loaded)?;
        told.set_item("columns_grown", metrics.columns_grown)?;
        told.set_item("compile_ms", metrics.compile_ms)?;
        told.set_item("kernel_ms", metrics.kernel_ms)?;
        told.set_item("kernels", metrics.kernels)?;
        told.set_item("bytes", metrics.bytes)?;
        told.set_item("streamed_bytes", metrics.streamed_bytes)?;
        told.set_item("spilled_bytes", metrics.spilled_bytes)?;
        told.set_item("peak_device_bytes", metrics.peak_device_bytes)?;
        told.set_item("cpu_answers", metrics.cpu_answers)?;
        told.set_item("fallbacks", metrics.fallbacks.clone())?;
        Ok(Some(told))
    }

    /// All values of one column, in one piece.
    fn column(
        &self,
        py: Python<'_>,
        number: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Column> {
        let batches = self.collect(py, progress)?;
        Column::of(py, &self.schema, &batches, number)
    }

    /// All rows as one struct array in Arrow's C device interface.
    fn device_array<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let batches = self.collect(py, progress)?;
        crate::device_array::of_batches(py, &self.schema, &batches)
    }
}

impl Query {
    fn query(&self) -> PyResult<&Arc<Spec>> {
        let has_run = "the statement has run already: only queries are explained and profiled; give the text of one to sql()";
        self.spec.as_ref().ok_or_else(|| refused(has_run))
    }
}

/// The first `rows` rows as texts.
fn cells(
    py: Python<'_>,
    batches: &[RecordBatch],
    rows: usize,
) -> PyResult<Vec<Vec<Option<String>>>> {
    let options = FormatOptions::default().with_display_error(true);
    let mut lines = Vec::new();
    for batch in batches {
        let formatters = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>();
        let formatters = formatters.map_err(|error| raised_by_plan(py, error.into()))?;
        for row in 0..batch.num_rows() {
            if lines.len() == rows {
                return Ok(lines);
            }
            let line = formatters
                .iter()
                .zip(batch.columns())
                .map(|(formatter, column)| {
                    (!column.is_null(row)).then(|| formatter.value(row).to_string())
                });
            lines.push(line.collect());
        }
    }
    Ok(lines)
}
