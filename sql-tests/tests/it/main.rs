//! All SQL tests in one binary, as each binary links DataFusion.

mod differential;
mod files;
mod operators;
mod relational;
mod robust;
