//! The source of a kernel that goes over rows one a thread, put together.

use crate::codegen::ir::arguments::Arguments;
use crate::codegen::ir::program::{KernelProgram, SourceRows};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::graph::Sort;

pub(super) fn kernel(
    entry: &'static str,
    sort: &Sort,
    arguments: Arguments,
    text: &str,
) -> KernelProgram {
    let source = format!(
        "#define WL_BLOCK_THREADS {BLOCK_THREADS}\n#include \"simt.cuh\"\n#include \"primitives.cuh\"\n\
         #include \"pipeline.cuh\"\n\n{}\nWL_KERNEL({entry}, Args, args) {{\n{text}}}\n",
        arguments.declaration("Args"),
    );
    KernelProgram {
        source,
        entry,
        arguments,
        lookups: vec![],
        shared_bytes: 0,
        source_rows: SourceRows::Rows(sort.rows),
        block_threads: BLOCK_THREADS,
        tile_rows: u64::from(BLOCK_THREADS),
        tree: None,
        into: Some(sort.into),
        in_place: false,
        scan_columns: vec![],
        label: entry.replace('_', " "),
    }
}
