//! A connection: a session, its tables from other packages, its functions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use datafusion::common::{ParamValues, TableReference};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::DataFusionError;
use datafusion::execution::options::{CsvReadOptions, JsonReadOptions, ParquetReadOptions};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF, Volatility};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PyDataType;
use warpline::{
    ByteSize, Cluster, ClusterOptions, DeltaOptions, Device, DeviceChoice, WarplineSession,
};

use crate::error::{raised, raised_by_plan, refused};
use crate::function::PythonFunction;
use crate::import::{Imports, Usage};
use crate::link::{Link, Open};
use crate::query::Query;
use crate::runtime::{Progress, run};
use crate::scope::{SessionSchema, Variables};
use crate::spec::{Spec, Text};
use crate::statement::{executed, numbered, parted, values};

/// The devices of connections, by choice and limit: connections of one device share its memory, columns and kernels.
static DEVICES: Mutex<Vec<(String, Weak<Device>)>> = Mutex::new(Vec::new());

fn device(choice: DeviceChoice, memory: Option<ByteSize>) -> Result<Arc<Device>, warpline::Error> {
    // Of this process: a forked one cannot use what its parent opened.
    let process = std::process::id();
    let key = format!("{process} {choice:?} {memory:?}");
    let mut devices = DEVICES.lock();
    devices.retain(|(_, device)| device.strong_count() > 0);
    let found = devices.iter().find(|(known, _)| *known == key);
    if let Some(device) = found.and_then(|(_, device)| device.upgrade()) {
        return Ok(device);
    }
    let device = Arc::new(Device::open(choice, memory)?);
    devices.push((key, Arc::downgrade(&device)));
    Ok(device)
}

/// A connection.
#[pyclass(frozen, weakref, module = "warpline._native")]
pub(crate) struct Session {
    link: Arc<Link>,
}

impl Session {
    /// Runs work with the session on the threads of this package.
    fn run<T, F>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(Arc<Open>) -> F,
    ) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, warpline::Error>> + Send + 'static,
    {
        let progress = progress.map(Progress::begins);
        let work = work(self.link.open()?);
        run(py, progress.as_ref(), work)?.map_err(|error| raised(py, &error))
    }

    /// The tables of variables that a statement names and the session does not have.
    fn variables(
        &self,
        open: &Open,
        statement: &Statement,
        lookup: &Bound<'_, PyAny>,
    ) -> PyResult<Variables> {
        let py = lookup.py();
        let state = open.session.context().state();
        let names = state.resolve_table_references(statement);
        let names = names.map_err(|error| raised_by_plan(py, error))?;
        let mut variables = HashMap::new();
        for name in names {
            let TableReference::Bare { table } = &name else {
                continue;
            };
            let known = open.session.context().table_exist(name.clone());
            if known.map_err(|error| raised_by_plan(py, error))? {
                continue;
            }
            let found = lookup.call1((table.as_ref(),))?;
            if !found.is_none() {
                let (object, usage): (Bound<'_, PyAny>, Usage) = found.extract()?;
                variables.insert(table.to_string(), self.provider(open, &object, usage)?);
            }
        }
        Ok(Arc::new(variables))
    }

    fn provider(
        &self,
        open: &Open,
        object: &Bound<'_, PyAny>,
        usage: Usage,
    ) -> PyResult<Arc<dyn TableProvider>> {
        match object.cast::<Query>() {
            Ok(query) => query.get().as_table(object.py()),
            Err(_) => open.imports.table(object, usage),
        }
    }

    fn files(
        &self,
        py: Python<'_>,
        plan: impl Future<Output = Result<LogicalPlan, warpline::Error>> + Send + 'static,
        sql: String,
    ) -> PyResult<Query> {
        let plan = run(py, None, plan)?.map_err(|error| raised(py, &error))?;
        let spec = Spec {
            link: Arc::clone(&self.link),
            sql,
            text: Text::Plan(plan),
            variables: Variables::default(),
        };
        Query::planned(py, spec, None)
    }
}

#[pymethods]
impl Session {
    /// `cluster` are the addresses of workers; `secret` and `ca` are files.
    #[new]
    #[pyo3(signature = (device, device_memory, settings, cluster=vec![], secret=None, ca=None))]
    fn new(
        py: Python<'_>,
        device: &str,
        device_memory: Option<&str>,
        settings: Vec<(String, String)>,
        cluster: Vec<String>,
        secret: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> PyResult<Self> {
        let choice: DeviceChoice = device
            .parse()
            .map_err(|error| raised(py, &warpline::Error::device_name(device, &error)))?;
        let memory = device_memory.map(str::parse::<ByteSize>).transpose();
        let memory = memory.map_err(|error| raised(py, &warpline::Error::from(error)))?;
        let opened = async move {
            let device = self::device(choice, memory)?;
            let mut builder = WarplineSession::builder()
                .shared_device(&device)
                .local_files(true);
            for (key, value) in settings {
                builder = builder.set(key, value);
            }
            if !cluster.is_empty() {
                let options = ClusterOptions {
                    workers: cluster,
                    secret_file: secret,
                    tls_ca: ca,
                    insecure: false,
                };
                builder = builder.cluster(&Cluster::connect(options).await?);
            }
            let session = builder.open().await?;
            let context = session.context();
            let (catalog, schema) = {
                let config = context.copied_config();
                let names = &config.options().catalog;
                (names.default_catalog.clone(), names.default_schema.clone())
            };
            if let Some(catalog) = context.catalog(&catalog) {
                let tables = Arc::new(SessionSchema::default());
                catalog.register_schema(&schema, tables)?;
            }
            Ok(Open {
                session,
                imports: Imports::default(),
                _device: device,
            })
        };
        let open = run(py, None, opened)?.map_err(|error| raised(py, &error))?;
        Ok(Self {
            link: Arc::new(Link::to(open)),
        })
    }

    /// The statements of a text.
    #[staticmethod]
    fn statements(sql: &str) -> Vec<&str> {
        parted(sql)
    }

    /// Plans a query, or runs another statement. `lookup` finds a variable by its name: an object and what
    /// may be done with its rows, or None.
    #[pyo3(signature = (sql, params, lookup, progress))]
    fn sql(
        &self,
        py: Python<'_>,
        sql: String,
        params: Option<&Bound<'_, PyAny>>,
        lookup: &Bound<'_, PyAny>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Query> {
        let open = self.link.open()?;
        let sql = warpline::fetch_first::as_limit(&sql).into_owned();
        if warpline::is_own_statement(&sql) {
            let run = self.run(py, progress, |open| async move {
                open.session.query(&sql).await
            })?;
            return Ok(Query::done(run.schema, run.batches, run.metrics));
        }
        let values = params.map(values).transpose()?;
        let sql = match &values {
            Some(ParamValues::List(values)) => numbered(&sql, values.len())?,
            _ => sql,
        };
        let state = open.session.context().state();
        let statement = warpline::statements::parsed(&state, &sql);
        let statement = statement.map_err(|error| raised_by_plan(py, error))?;
        let variables = self.variables(&open, &statement, lookup)?;
        let is_query = matches!(&statement, Statement::Statement(inner) if matches!(**inner, ast::Statement::Query(_)));
        drop(open);
        let spec = Spec {
            link: Arc::clone(&self.link),
            sql,
            text: values.map_or(Text::Sql, Text::Bound),
            variables,
        };
        let query = |progress: Option<&Progress>, spec| Query::planned(py, spec, progress);
        if is_query {
            let progress = progress.map(Progress::begins);
            return query(progress.as_ref(), spec);
        }
        let (schema, batches, metrics) = self.run(py, progress, |open| async move {
            executed(&open.session, spec).await
        })?;
        Ok(Query::done(schema, batches, metrics))
    }

    /// Registers a table; one of the same name goes.
    fn register(
        &self,
        py: Python<'_>,
        name: &str,
        object: &Bound<'_, PyAny>,
        usage: Usage,
    ) -> PyResult<()> {
        let open = self.link.open()?;
        let table = self.provider(&open, object, usage)?;
        let context = open.session.context();
        let name = TableReference::parse_str(name);
        let registered = py.detach(|| -> Result<(), DataFusionError> {
            context.deregister_table(name.clone())?;
            context.register_table(name, table)?;
            Ok(())
        });
        registered.map_err(|error| raised_by_plan(py, error))
    }

    /// Bytes at an address of the GPU that this connection is on. All work queued there is waited for.
    fn copy_from_gpu<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let open = self.link.open()?;
        PyBytes::new_with(py, length, |bytes| {
            // SAFETY: the address and the length are those that an array of the caller's has, by its `__cuda_array_interface__`.
            let copied = unsafe { open.session.device().copy_from(address, bytes) };
            copied.map_err(|error| raised(py, &error))
        })
    }

    /// Takes a table away; whether there was one.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let open = self.link.open()?;
        let name = TableReference::parse_str(name);
        let gone = py.detach(|| {
            let gone = open.session.context().deregister_table(name);
            // Kept plans keep its rows.
            open.session.clear_plan_cache();
            gone.map(|table| table.is_some())
        });
        gone.map_err(|error| raised_by_plan(py, error))
    }

    /// An object that was a table is gone.
    fn forget(&self, py: Python<'_>, address: usize) {
        let open = self.link.opened();
        if let Some(open) = open {
            py.detach(|| {
                if open.imports.forget(address) {
                    open.session.clear_plan_cache();
                }
            });
        }
    }

    fn read_parquet(&self, py: Python<'_>, paths: Vec<String>, extension: &str) -> PyResult<Query> {
        let open = self.link.open()?;
        let sql = shown("read_parquet", &paths);
        let extension = extension.to_string();
        let plan = async move {
            let mut options = ParquetReadOptions::default();
            if !extension.is_empty() {
                options = options.file_extension(&extension);
            }
            let frame = open.session.context().read_parquet(paths, options).await?;
            Ok(frame.into_unoptimized_plan())
        };
        self.files(py, plan, sql)
    }

    fn read_delta(
        &self,
        py: Python<'_>,
        path: String,
        version: Option<u64>,
        timestamp: Option<String>,
        storage: HashMap<String, String>,
    ) -> PyResult<Query> {
        let open = self.link.open()?;
        let sql = shown("read_delta", std::slice::from_ref(&path));
        let options = DeltaOptions {
            version,
            timestamp,
            storage,
        };
        let plan = async move {
            let table = open.session.delta_table(&path, &options).await?;
            let frame = open.session.context().read_table(table)?;
            Ok(frame.into_unoptimized_plan())
        };
        self.files(py, plan, sql)
    }

    #[pyo3(signature = (paths, extension, *, header, delimiter, quote, escape, comment, newlines, sample, compression))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords of Python")]
    fn read_csv(
        &self,
        py: Python<'_>,
        paths: Vec<String>,
        extension: &str,
        header: bool,
        delimiter: char,
        quote: char,
        escape: Option<char>,
        comment: Option<char>,
        newlines: bool,
        sample: usize,
        compression: &str,
    ) -> PyResult<Query> {
        let open = self.link.open()?;
        let byte = |what: &str, character: char| {
            u8::try_from(character)
                .ok()
                .filter(u8::is_ascii)
                .ok_or_else(|| refused(format!("{what} {character:?} is not one ASCII character")))
        };
        let (delimiter, quote) = (byte("delimiter", delimiter)?, byte("quote", quote)?);
        let escape = escape.map(|c| byte("escape", c)).transpose()?;
        let comment = comment.map(|c| byte("comment", c)).transpose()?;
        let compression = compressed(py, compression)?;
        let sql = shown("read_csv", &paths);
        let extension = extension.to_string();
        let plan = async move {
            let mut options = CsvReadOptions::new();
            options.has_header = header;
            options.delimiter = delimiter;
            options.quote = quote;
            options.escape = escape;
            options.comment = comment;
            options.newlines_in_values = newlines;
            options.schema_infer_max_records = sample;
            options.file_compression_type = compression;
            options.file_extension = &extension;
            let frame = open.session.context().read_csv(paths, options).await?;
            Ok(frame.into_unoptimized_plan())
        };
        self.files(py, plan, sql)
    }

    fn read_json(
        &self,
        py: Python<'_>,
        paths: Vec<String>,
        extension: &str,
        lines: bool,
        sample: usize,
        compression: &str,
    ) -> PyResult<Query> {
        let open = self.link.open()?;
        let compression = compressed(py, compression)?;
        let sql = shown("read_json", &paths);
        let extension = extension.to_string();
        let plan = async move {
            let options = JsonReadOptions {
                newline_delimited: lines,
                schema_infer_max_records: sample,
                file_compression_type: compression,
                file_extension: &extension,
                ..JsonReadOptions::default()
            };
            let frame = open.session.context().read_json(paths, options).await?;
            Ok(frame.into_unoptimized_plan())
        };
        self.files(py, plan, sql)
    }

    /// Adds a function of Python to the session's.
    fn create_function(
        &self,
        name: String,
        function: Py<PyAny>,
        arguments: Vec<PyDataType>,
        returns: PyDataType,
        volatility: &str,
    ) -> PyResult<()> {
        let volatility = match volatility {
            "immutable" => Volatility::Immutable,
            "stable" => Volatility::Stable,
            "volatile" => Volatility::Volatile,
            other => {
                return Err(refused(format!(
                    "'{other}' is no volatility: give immutable (equal arguments, equal result), stable (within a query) or volatile"
                )));
            }
        };
        let arguments = arguments.into_iter().map(PyDataType::into_inner).collect();
        let function =
            PythonFunction::new(name, arguments, returns.into_inner(), volatility, function);
        let open = self.link.open()?;
        open.session
            .context()
            .register_udf(ScalarUDF::from(function));
        Ok(())
    }

    /// Sets a setting.
    fn set(&self, py: Python<'_>, key: String, value: String) -> PyResult<()> {
        self.run(py, None, |open| async move {
            open.session.set(&key, &value).await
        })
    }

    /// The device in words.
    fn device(&self) -> PyResult<String> {
        Ok(self.link.open()?.session.device().name())
    }

    /// One line for a person who waits.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let open = self.link.open()?;
        Ok(py.detach(|| match open.session.device().memory() {
            None => "on the CPU".to_string(),
            Some(memory) => format!(
                "{} of {} in use on the device",
                ByteSize(memory.in_use),
                ByteSize(memory.budget)
            ),
        }))
    }

    /// The state of the device's memory, None on the CPU: its figures, its columns, its text.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let open = self.link.open()?;
        let device = open.session.device();
        let known = py.detach(|| {
            device
                .memory()
                .map(|memory| (memory, device.resident_columns(), device.states()))
        });
        let Some((memory, columns, states)) = known else {
            return Ok(None);
        };
        let told = PyDict::new(py);
        told.set_item("budget", memory.budget)?;
        told.set_item("in_use", memory.in_use)?;
        told.set_item("peak", memory.peak)?;
        told.set_item("free_blocks", memory.cached)?;
        told.set_item("column_bytes", memory.column_bytes)?;
        told.set_item("indexes", memory.indexes)?;
        told.set_item("index_bytes", memory.index_bytes)?;
        told.set_item("queries", memory.queries)?;
        told.set_item("lost", memory.lost.clone())?;
        let columns = columns.into_iter().map(|column| {
            let known = PyDict::new(py);
            known.set_item("table", column.table)?;
            known.set_item("column", column.column)?;
            known.set_item("rows", column.rows)?;
            known.set_item("bytes", column.bytes)?;
            known.set_item("encoding", column.encoding)?;
            Ok(known)
        });
        told.set_item("columns", columns.collect::<PyResult<Vec<_>>>()?)?;
        let text = match states.as_slice() {
            [] | [_] => memory.to_string(),
            several => {
                let each = several.iter();
                let each = each.map(|state| format!("device    {}\n{}", state.name, state.memory));
                each.collect::<Vec<_>>().join("\n\n")
            }
        };
        let devices = states.into_iter().map(|state| {
            let known = PyDict::new(py);
            known.set_item("name", state.name)?;
            known.set_item("budget", state.memory.budget)?;
            known.set_item("in_use", state.memory.in_use)?;
            known.set_item("column_bytes", state.memory.column_bytes)?;
            known.set_item("lost", state.memory.lost)?;
            Ok(known)
        });
        told.set_item("devices", devices.collect::<PyResult<Vec<_>>>()?)?;
        told.set_item("text", text)?;
        Ok(Some(told))
    }

    /// Lets go of columns and indexes that no query uses; their bytes.
    fn evict(&self, py: Python<'_>) -> PyResult<usize> {
        let open = self.link.open()?;
        let evicted = py.detach(|| open.session.device().evict());
        evicted.map_err(|error| raised(py, &error))
    }

    /// Ends the session. Queries that run go on to their end.
    fn close(&self, py: Python<'_>) {
        let open = self.link.close();
        // What it frees may be much.
        py.detach(|| drop(open));
    }

    fn is_closed(&self) -> bool {
        self.link.opened().is_none()
    }
}

/// What a result of files is called, where SQL would be.
fn shown(function: &str, paths: &[String]) -> String {
    format!("{function}({})", paths.join(", "))
}

fn compressed(py: Python<'_>, name: &str) -> PyResult<FileCompressionType> {
    if name.is_empty() {
        return Ok(FileCompressionType::UNCOMPRESSED);
    }
    let parsed = name.parse::<FileCompressionType>();
    parsed.map_err(|error| raised_by_plan(py, error))
}
