//! Integration tests of devices, memory, columns, tables and pipelines, in one binary.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod columns;
mod copies;
mod device;
mod lost;
mod nvrtc;
mod parquet;
mod primitives;
mod row_groups;
mod runtime;
mod support;
mod tables;
