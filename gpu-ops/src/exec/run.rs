//! One run of a fragment: resident columns, kernel, launch, states to the host.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;

use super::finish::finish;
use super::fragment::Inner;
use super::groups::{AggregationTable, Groups, fetch};
use super::report::FragmentReport;
use crate::codegen::{BLOCK_THREADS, HEADER_WORDS, TILE_ROWS, TileKernel, TilePlan};
use crate::column::{Column, Encoding};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{ArithmeticFault, GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::pipeline::{GroupPlacement, Pipeline, ScanSource};
use crate::runtime::Runtime;

/// Load, run and finish.
pub(super) async fn run(
    inner: Arc<Inner>,
    context: Arc<TaskContext>,
) -> Result<(RecordBatch, FragmentReport)> {
    let [pipeline] = inner.fragment.pipelines.as_slice() else {
        return Err(GpuError::Unsupported(
            "fragments of several pipelines".into(),
        ));
    };
    let stream = inner.runtime.device().create_stream()?;
    let begin = Instant::now();
    let source = &pipeline.source;
    let loaded = inner
        .runtime
        .tables()
        .get_or_load(
            &source.table,
            &source.columns,
            &all_codes(source),
            context,
            &stream,
        )
        .await?;
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;

    // Compiling and waiting for the device would block the executor's threads.
    let task = {
        let inner = Arc::clone(&inner);
        move || {
            let pipeline = &inner.fragment.pipelines[0];
            launch(
                &inner,
                pipeline,
                &loaded.columns,
                loaded.rows as u64,
                &stream,
            )
        }
    };
    let (batch, mut report) = tokio::task::spawn_blocking(task)
        .await
        .map_err(|e| GpuError::Internal(format!("the device task ended early: {e}")))??;
    report.load_ms = load_ms;
    Ok((batch, report))
}

/// Codes of every string column: tile kernels know no other form.
pub(super) fn all_codes(source: &ScanSource) -> Vec<bool> {
    vec![true; source.columns.len()]
}

/// Fewest blocks that a launch over many tiles has: one a multiprocessor.
pub(super) fn least_grid(runtime: &Runtime) -> u64 {
    u64::from(runtime.device().info().multiprocessors).max(1)
}

fn launch(
    inner: &Inner,
    pipeline: &Pipeline,
    columns: &[Arc<Column>],
    rows: u64,
    stream: &Stream,
) -> Result<(RecordBatch, FragmentReport)> {
    let runtime = &inner.runtime;
    let begin = Instant::now();
    let plan = TilePlan::new(pipeline, columns, rows, least_grid(runtime))?;
    let mut report = FragmentReport::default();
    let mut placement = GroupPlacement::Registers;
    if !plan.keys.is_empty() {
        let choice = inner
            .policy
            .place_groups(&plan.profile, runtime.device().info());
        report
            .choices
            .push(format!("groups in {}: {}", choice.placement, choice.reason));
        placement = choice.placement;
    }
    report.compile_ms = begin.elapsed().as_secs_f64() * 1e3;

    loop {
        let begin = Instant::now();
        let kernel = plan.render(placement)?;
        let fetched = execute(
            runtime,
            &plan,
            &kernel,
            columns,
            rows,
            stream,
            begin,
            &mut report,
        )?;
        if let Some(groups) = fetched {
            let batch = finish(
                &plan,
                placement,
                &groups,
                Arc::clone(&inner.fragment.schema),
            )?;
            report.output_rows = batch.num_rows();
            return Ok((batch, report));
        }
        // A key found no slot: nothing of this attempt is kept; the table doubles (SEEDS C6).
        let GroupPlacement::GlobalHash { capacity } = placement else {
            return Err(GpuError::Internal("a dense group table overflowed".into()));
        };
        let capacity = capacity * 2;
        report.choices.push(format!(
            "group table overflowed: run again with {capacity} slots"
        ));
        placement = GroupPlacement::GlobalHash { capacity };
    }
}

/// Compile, launch and fetch once; `None` when the group table was too small.
#[allow(clippy::too_many_arguments)]
fn execute(
    runtime: &Runtime,
    plan: &TilePlan,
    kernel: &TileKernel,
    columns: &[Arc<Column>],
    rows: u64,
    stream: &Stream,
    begin: Instant,
    report: &mut FragmentReport,
) -> Result<Option<Groups>> {
    let device = runtime.device();
    let (entry, _) = runtime.kernel(kernel.entry, &kernel.source)?;
    report.compile_ms += begin.elapsed().as_secs_f64() * 1e3;

    let table = allocate_table(runtime, plan, kernel, stream)?;
    let mut lookups = Vec::new();
    let mut addresses: HashMap<String, DevicePtr> = HashMap::new();
    for lookup in &kernel.lookups {
        let buffer = runtime
            .pool()
            .allocate(lookup.bytes.len(), "lookup table")?;
        buffer.upload(stream, 0, &lookup.bytes)?;
        addresses.insert(lookup.name.clone(), buffer.ptr());
        lookups.push(buffer);
    }
    for &index in &kernel.columns {
        let column = &columns[index];
        addresses.insert(format!("c{index}"), column.data.ptr());
        if let Some(validity) = &column.validity {
            addresses.insert(format!("n{index}"), validity.ptr());
        }
    }
    addresses.insert("state".into(), table.table.ptr());
    addresses.extend(table.keys.iter().map(|b| ("keys".to_string(), b.ptr())));
    addresses.extend(table.states.iter().map(|b| ("states".to_string(), b.ptr())));
    let arguments = kernel
        .arguments
        .bytes(|name| addresses.get(name).copied(), |_| None)
        .map_err(|name| GpuError::Internal(format!("no address for kernel argument {name}")))?;

    let tiles = rows.div_ceil(TILE_ROWS);
    if tiles > 0 {
        let resident =
            device.blocks_per_multiprocessor(&entry, BLOCK_THREADS, kernel.shared_bytes)?;
        let most = u64::from(resident.max(1)) * least_grid(runtime);
        let config = LaunchConfig {
            grid: u32::try_from(tiles.min(most)).unwrap_or(u32::MAX),
            block: BLOCK_THREADS,
            shared_bytes: kernel.shared_bytes,
        };
        let start = device.record_event(stream)?;
        // SAFETY: the bytes were laid out for this kernel; columns, tables and lookups are kept alive
        // until the fetch below has synchronised the stream.
        unsafe { device.launch(stream, &entry, config, &arguments)? };
        let end = device.record_event(stream)?;
        let fetched = fetch(runtime, stream, plan, &table)?;
        report.kernel_ms += device.elapsed_ms(&start, &end)?;
        report.kernels += 1 + fetched.kernels;
        report.compile_ms += fetched.compile_ms;
        report.bytes = kernel
            .columns
            .iter()
            .map(|i| read_bytes(&columns[*i]))
            .sum::<usize>();
        drop(lookups);
        match fetched.header.fault {
            0 => {}
            1 => return Err(GpuError::Arithmetic(ArithmeticFault::DivideByZero)),
            2 => return Err(GpuError::Arithmetic(ArithmeticFault::Overflow)),
            _ => return Err(GpuError::Arithmetic(ArithmeticFault::Cast)),
        }
        return Ok((fetched.header.overflow == 0).then_some(fetched.groups));
    }
    Ok(Some(fetch(runtime, stream, plan, &table)?.groups))
}

/// Bytes of a column that a tile kernel reads.
fn read_bytes(column: &Column) -> usize {
    match column.encoding {
        // Only the validity of such a column is looked at.
        Encoding::Bytes { .. } => column
            .validity
            .as_ref()
            .map_or(0, |_| column.rows.div_ceil(8)),
        _ => column.bytes(),
    }
}

fn allocate_table(
    runtime: &Runtime,
    plan: &TilePlan,
    kernel: &TileKernel,
    stream: &Stream,
) -> Result<AggregationTable> {
    let too_large = || GpuError::Unsupported("a group table of more than 2^63 bytes".into());
    let slots = usize::try_from(kernel.slots).map_err(|_| too_large())?;
    let bytes = |words: usize| slots.checked_mul(words * 8).ok_or_else(too_large);
    let allocate = |bytes: usize, value: u8| -> Result<DeviceBuffer> {
        let buffer = runtime.pool().allocate(bytes, "aggregation states")?;
        buffer.fill(stream, value)?;
        Ok(buffer)
    };
    let table = allocate(HEADER_WORDS * 8 + bytes(plan.aggregates.words)?, 0)?;
    let (mut keys, mut states) = (None, None);
    if let GroupPlacement::GlobalHash { .. } = kernel.placement
        && !plan.keys.is_empty()
    {
        keys = Some(allocate(bytes(plan.key_words)?, 0xFF)?);
        if plan.key_words > 1 {
            states = Some(allocate(slots * 4, 0)?);
        }
    }
    Ok(AggregationTable {
        table,
        keys,
        states,
        slots: kernel.slots,
    })
}
