//! The program within the package: its command line, its helpers that compile kernels, the devices.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the `warpline` program, and returns the status to exit with.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    warpline::status_of(py.detach(|| warpline::run_program(arguments)))
}

/// Compiles kernels for the process that started this one, to its end.
#[pyfunction]
pub(crate) fn serve_compiler(py: Python<'_>, parent: i32) {
    py.detach(|| warpline::serve_compiler(parent));
}

/// How helpers are started that compile kernels: this process is an interpreter, and no copy of it serves by itself.
#[pyfunction]
pub(crate) fn start_compilers_by(program: PathBuf, arguments: Vec<OsString>) {
    warpline::start_compilers_by(program, arguments);
}

/// One line for each kind of device: what it is, or why it cannot be used and what to install.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<String> {
    py.detach(warpline::device_reports)
}
