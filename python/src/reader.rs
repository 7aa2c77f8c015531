//! The rows of a query on their way: batches come through a channel that holds few of them.

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use tokio::sync::mpsc::Receiver;
use warpline::QueryMetrics;

use crate::error::{raised, refused};
use crate::runtime::{Progress, Task, wait};

/// What a query sends.
pub(crate) enum Item {
    Batch(RecordBatch),
    /// The last rows, if they are known to be.
    End(Option<RecordBatch>, Box<QueryMetrics>),
    Failed(Box<warpline::Error>),
}

/// A query that runs; it is cancelled when this is dropped.
pub(crate) struct Running {
    pub(crate) rows: Receiver<Item>,
    pub(crate) _task: Task<()>,
}

impl Running {
    /// The next item; [`Item::Failed`] is raised.
    ///
    /// # Errors
    /// What the query reports, and what a signal handler raises.
    pub(crate) fn next(&mut self, py: Python<'_>, progress: Option<&Progress>) -> PyResult<Item> {
        match wait(py, progress, self.rows.recv())? {
            Some(Item::Failed(error)) => Err(raised(py, &error)),
            Some(item) => Ok(item),
            None => Err(refused(
                "the query ended early; please report this with the query",
            )),
        }
    }
}

/// Tells the metrics of a query at its end.
pub(crate) type Ended = Box<dyn FnOnce(QueryMetrics) + Send>;

/// A query's rows for whoever reads Arrow's C stream, from any thread, with the interpreter's lock or without.
pub(crate) struct QueryReader {
    pub(crate) schema: SchemaRef,
    /// None at the end.
    pub(crate) running: Option<Running>,
    pub(crate) ended: Option<Ended>,
}

impl QueryReader {
    /// The next batch; None at the end.
    fn advance(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        match running.next(py, None) {
            Ok(Item::Batch(batch)) => Ok(Some(batch)),
            Ok(Item::End(last, metrics)) => {
                self.running = None;
                if let Some(ended) = self.ended.take() {
                    ended(*metrics);
                }
                Ok(last)
            }
            Ok(Item::Failed(error)) => {
                self.running = None;
                Err(raised(py, &error))
            }
            Err(error) => {
                self.running = None;
                Err(error)
            }
        }
    }
}

impl Iterator for QueryReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // None where the interpreter ends.
        let next = Python::try_attach(|py| self.advance(py).map_err(|error| told(py, &error)))?;
        next.transpose()
    }
}

impl RecordBatchReader for QueryReader {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

/// An exception for a reader that knows only texts. Ctrl-C is raised again, when the reader has returned.
fn told(py: Python<'_>, error: &PyErr) -> ArrowError {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // SAFETY: it only notes the signal, and this thread is attached.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        return ArrowError::ComputeError("the query was cancelled by Ctrl-C".into());
    }
    ArrowError::ComputeError(error.value(py).to_string())
}

/// A query's rows for Python, batch by batch.
#[pyclass(frozen, module = "warpline._native")]
pub(crate) struct Batches(pub(crate) Mutex<Option<QueryReader>>);

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next batch as `pyarrow.RecordBatch`; None ends the iteration.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Taken while it waits: a second thread finds the end, and does not wait for a lock that needs the interpreter's.
        let Some(mut reader) = self.0.lock().take() else {
            return Ok(None);
        };
        let Some(batch) = reader.advance(py)? else {
            return Ok(None);
        };
        *self.0.lock() = Some(reader);
        Ok(Some(PyRecordBatch::new(batch).into_pyarrow(py)?))
    }
}
