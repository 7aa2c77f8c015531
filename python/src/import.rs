//! Tables of other packages: anything with `__arrow_c_stream__` or `__arrow_c_array__`, as tables in memory.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;

use crate::error::{Error, raised_by_plan, refused};

/// Objects whose tables are remembered.
const REMEMBERED: usize = 16;

/// What may be done with the rows of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// They are the same when the object is asked again, and nobody writes to them.
    Remember,
    /// The object was made for this use.
    Once,
    /// They may be written to later.
    Copy,
}

impl FromPyObject<'_, '_> for Usage {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.extract::<String>()?.as_str() {
            "remember" => Ok(Self::Remember),
            "once" => Ok(Self::Once),
            "copy" => Ok(Self::Copy),
            other => Err(refused(format!("'{other}' is no use of a table"))),
        }
    }
}

/// The tables of objects that were read before, by the object's address.
///
/// An object that hands out the same buffers again is the same table, whose columns may be on the device already. The buffers
/// are kept alive here, so equal addresses mean equal values, as long as nobody writes to them; objects whose buffers are
/// written to are copied and not remembered.
#[derive(Default)]
pub(crate) struct Imports(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    tables: HashMap<usize, Known>,
    clock: u64,
}

struct Known {
    batches: Vec<RecordBatch>,
    table: Arc<MemTable>,
    used: u64,
}

impl Imports {
    /// The table of an object.
    ///
    /// # Errors
    /// When the object has no rows in Arrow's form, or fails to hand them out.
    pub(crate) fn table(
        &self,
        object: &Bound<'_, PyAny>,
        usage: Usage,
    ) -> PyResult<Arc<dyn TableProvider>> {
        let (schema, batches) = read(object)?;
        let py = object.py();
        match usage {
            Usage::Remember => {}
            Usage::Once => return Ok(table(py, schema, batches)?),
            Usage::Copy => {
                let batches = py.detach(|| batches.iter().map(copy).collect::<Result<Vec<_>, _>>());
                let batches = batches.map_err(|error| raised_by_plan(py, error.into()))?;
                return Ok(table(py, schema, batches)?);
            }
        }
        let address = object.as_ptr() as usize;
        let mut remembered = self.0.lock();
        remembered.clock += 1;
        let clock = remembered.clock;
        if let Some(known) = remembered.tables.get_mut(&address)
            && *known.table.schema() == *schema
            && same(&known.batches, &batches)
        {
            known.used = clock;
            return Ok(Arc::clone(&known.table) as _);
        }
        let table = table(py, schema, batches.clone())?;
        let known = Known {
            batches,
            table: Arc::clone(&table),
            used: clock,
        };
        let mut forgotten = remembered.tables.insert(address, known);
        if remembered.tables.len() > REMEMBERED {
            let oldest = remembered.tables.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                forgotten = remembered.tables.remove(&oldest);
            }
        }
        drop(remembered);
        // Their release may call into Python.
        drop(forgotten);
        Ok(table)
    }

    /// The object at an address is gone, and with it the use of its table. Returns whether there was one.
    pub(crate) fn forget(&self, address: usize) -> bool {
        let forgotten = self.0.lock().tables.remove(&address);
        forgotten.is_some()
    }
}

/// All rows of an object.
fn read(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let py = object.py();
    let kind = || {
        object
            .get_type()
            .name()
            .map_or_else(|_| "?".into(), |name| name.to_string())
    };
    let failed = |cause: PyErr| {
        // An error of another result is an error of its query already.
        if cause.is_instance_of::<Error>(py) {
            return cause;
        }
        let error = refused(format!(
            "the rows of this {} cannot be read: {cause}; give an object with __arrow_c_stream__, such as a pyarrow.Table, or a \
             pandas or polars DataFrame",
            kind()
        ));
        error.set_cause(py, Some(cause));
        error
    };
    let reader = object
        .extract::<AnyRecordBatch>()
        .and_then(AnyRecordBatch::into_reader)
        .map_err(failed)?;
    let schema = reader.schema();
    let batches = py.detach(|| reader.collect::<Result<Vec<_>, _>>());
    let batches = batches.map_err(|error| failed(PyTypeError::new_err(error.to_string())))?;
    // What pandas notes about its index is not true of other results.
    let mut metadata = schema.metadata().clone();
    if metadata.remove("pandas").is_none() {
        return Ok((schema, batches));
    }
    let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata));
    let batches = batches.into_iter().map(|batch| {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options)
    });
    let batches = batches.collect::<Result<_, _>>();
    let batches = batches.map_err(|error| raised_by_plan(py, error.into()))?;
    Ok((schema, batches))
}

fn table(py: Python<'_>, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Arc<MemTable>> {
    // Batches as they are: the scan cuts them, and a table of one batch keeps the order of its rows.
    let table = MemTable::try_new(schema, vec![batches]);
    Ok(Arc::new(table.map_err(|error| raised_by_plan(py, error))?))
}

/// Are these the same values at the same places?
fn same(one: &[RecordBatch], other: &[RecordBatch]) -> bool {
    let columns = |batch: &RecordBatch| {
        batch
            .columns()
            .iter()
            .map(Array::to_data)
            .collect::<Vec<_>>()
    };
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.num_rows() == other.num_rows()
                && columns(one)
                    .iter()
                    .zip(&columns(other))
                    .all(|(one, other)| same_place(one, other))
        })
}

fn same_place(one: &ArrayData, other: &ArrayData) -> bool {
    let nulls = |data: &ArrayData| {
        data.nulls().map(|nulls| {
            (
                nulls.buffer().as_ptr() as usize,
                nulls.offset(),
                nulls.len(),
            )
        })
    };
    one.data_type() == other.data_type()
        && one.len() == other.len()
        && one.offset() == other.offset()
        && nulls(one) == nulls(other)
        && one.buffers().len() == other.buffers().len()
        && one
            .buffers()
            .iter()
            .zip(other.buffers())
            .all(|(one, other)| one.as_ptr() == other.as_ptr() && one.len() == other.len())
        && one.child_data().len() == other.child_data().len()
        && one
            .child_data()
            .iter()
            .zip(other.child_data())
            .all(|(one, other)| same_place(one, other))
}

/// The same values in buffers of our own.
fn copy(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(|column| {
        let data = column.to_data();
        let mut copied = MutableArrayData::new(vec![&data], false, data.len());
        copied.try_extend(0, 0, data.len())?;
        Ok(make_array(copied.freeze()))
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}
