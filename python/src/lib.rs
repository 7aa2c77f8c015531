//! The Python package: sessions, results and tables over Arrow's C interfaces.
//!
//! This is `warpline._native`, which the modules in `python/warpline` make an interface for people of. Everything that takes
//! time runs on threads of `runtime`, while the thread that asked waits without the interpreter's lock and hears Ctrl-C.

mod columns;
mod device_array;
mod device_rows;
mod dlpack;
mod error;
mod function;
mod import;
mod link;
mod program;
mod query;
mod reader;
mod runtime;
mod scope;
mod session;
mod spec;
mod statement;

use pyo3::prelude::*;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The native half of the package.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<error::Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<query::Query>()?;
    module.add_class::<reader::Batches>()?;
    module.add_class::<columns::Column>()?;
    module.add_class::<device_rows::DeviceRows>()?;
    module.add_class::<device_rows::DeviceColumn>()?;
    module.add_function(wrap_pyfunction!(program::run_program, module)?)?;
    module.add_function(wrap_pyfunction!(program::serve_compiler, module)?)?;
    module.add_function(wrap_pyfunction!(program::start_compilers_by, module)?)?;
    module.add_function(wrap_pyfunction!(program::devices, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::shut_down, module)?)?;
    Ok(())
}
