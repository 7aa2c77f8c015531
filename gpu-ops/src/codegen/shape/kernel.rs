//! The kernel of a pipeline: its shape chosen, its text put together.

use std::fmt::Write as _;

use crate::codegen::ir::context::Known;
use crate::codegen::ir::pipeline::{EmittedPipeline, EmittedSink};
use crate::codegen::ir::program::KernelProgram;
use crate::codegen::ir::results::CONTROL_WORDS;
use crate::codegen::kernel::writer::KernelWriter;
use crate::error::Result;

/// Write the kernel of `pipeline`.
pub(in crate::codegen) fn write(
    pipeline: &mut EmittedPipeline,
    known: &[Option<Known>],
    label: String,
) -> Result<KernelProgram> {
    let thread_rows = pipeline.thread_rows;
    let source_rows = pipeline.source_rows;
    let block_threads = pipeline.block_threads;
    let mut writer = KernelWriter {
        pipeline,
        known,
        fault_word: known.len() * CONTROL_WORDS,
        text: String::new(),
        structs: String::new(),
        shared: String::new(),
        shared_bytes: 0,
        loaded: Vec::new(),
        scan_columns: Vec::new(),
    };
    let tree = match writer.pipeline.tree {
        Some(options) => Some(writer.tree_kernel(options)?),
        None => {
            match (writer.is_partitioned(), writer.pipeline.refill) {
                (true, _) => writer.partition_kernel()?,
                (false, Some(steps)) => writer.refilled_kernel(steps)?,
                (false, None) => writer.tile_kernel()?,
            }
            None
        }
    };
    let KernelWriter {
        text,
        structs,
        shared,
        shared_bytes,
        scan_columns,
        ..
    } = writer;
    let into = match &pipeline.sink {
        EmittedSink::Rows { into, .. }
        | EmittedSink::Matches { into, .. }
        | EmittedSink::Aggregate { into, .. }
        | EmittedSink::Collect { into, .. }
        | EmittedSink::Build { into, .. } => Some(*into),
        EmittedSink::Discard => None,
    };
    // Where warps gather rows, statements in front of that and behind it are for other numbers of rows; so are tests of groups.
    let rows = match pipeline.rows_vary() {
        true => String::new(),
        false => format!("#define WL_ROWS {thread_rows}\n"),
    };
    let mut source = format!(
        "#define WL_BLOCK_THREADS {block_threads}\n{rows}#include \"simt.cuh\"\n\
         #include \"primitives.cuh\"\n#include \"pipeline.cuh\"\n#include \"join.cuh\"\n#include \"group.cuh\"\n#include \"strings.cuh\"\n#include \"stop.cuh\"\n{}{}{}{}\n{}\n",
        if tree.is_some() {
            "#include \"tree.cuh\"\n#include \"tree_share.cuh\"\n"
        } else {
            ""
        },
        if pipeline.state.searched > 0 {
            "#include \"text_search.cuh\"\n"
        } else {
            ""
        },
        if pipeline.state.math {
            "#include \"math.cuh\"\n"
        } else {
            ""
        },
        if pipeline.state.calendar {
            "#include \"calendar.cuh\"\n"
        } else {
            ""
        },
        pipeline.state.arguments.declaration("Args"),
    );
    source.push_str(&structs);
    if !shared.is_empty() {
        let _ = writeln!(source, "struct Shared {{\n{shared}}};\n");
    }
    source.push_str("WL_KERNEL(pipeline, Args, args) {\n");
    if !shared.is_empty() {
        source.push_str("  WL_SHARED(Shared, shared);\n");
    }
    source.push_str(&text);
    source.push_str("}\n");
    Ok(KernelProgram {
        source,
        entry: "pipeline",
        arguments: pipeline.state.arguments.clone(),
        lookups: std::mem::take(&mut pipeline.state.lookups),
        shared_bytes,
        source_rows,
        block_threads,
        tile_rows: u64::from(thread_rows) * u64::from(block_threads),
        tree,
        into,
        in_place: tree.is_none()
            && matches!(pipeline.sink, EmittedSink::Rows { in_place: true, .. }),
        scan_columns,
        label,
    })
}
