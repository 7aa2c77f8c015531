//! The generator against the reference's checksums and tables.

mod data;
mod parameters;
mod queries;
