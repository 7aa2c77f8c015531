//! All SQL tests in one binary, as each binary links DataFusion.

mod circles;
mod datafusion_files;
mod differential;
mod files;
mod fuzz;
mod larger;
mod operators;
mod reentry;
mod relational;
mod robust;
