//! What a plan did on the device: from the plan's nodes, as from any other DataFusion operator, and summed up.
//!
//! `cargo run --release -p warpline --example metrics`

use std::error::Error;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::util::pretty::print_batches;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use warpline::{Device, DeviceChoice, WarplineExt, metrics_of};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for answer in run(DeviceChoice::Auto).await? {
        print_batches(&answer)?;
    }
    Ok(())
}

/// The answer.
pub async fn run(device: DeviceChoice) -> Result<Vec<Vec<RecordBatch>>, Box<dyn Error>> {
    let device = Device::open(device, None)?;
    let context = SessionContext::new().with_warpline(&device);
    let keys = Int64Array::from_iter_values((0..100_000).map(|i| i % 10));
    let batch = RecordBatch::try_from_iter([("key", Arc::new(keys) as _)])?;
    context.register_batch("t", batch)?;

    let frame = context.sql("SELECT key, count(*) AS n FROM t GROUP BY key ORDER BY key");
    let plan = frame.await?.create_physical_plan().await?;
    let answer = collect(Arc::clone(&plan), context.task_ctx()).await?;

    // Each part of the plan that runs on the device is one node, with metrics of its own.
    print_nodes(&plan, 0);
    // Times in milliseconds, sizes in bytes.
    let total = metrics_of(&plan);
    println!(
        "load {:.3} ms, compile {:.3} ms, {} kernels in {:.3} ms, {} bytes read",
        total.load_ms,
        total.compile_ms,
        total.kernels,
        total.kernel_ms,
        total.bytes.unwrap_or(0)
    );
    for reason in &total.fallbacks {
        println!("on the CPU: {reason}");
    }
    Ok(vec![answer])
}

fn print_nodes(plan: &Arc<dyn ExecutionPlan>, depth: usize) {
    println!("{}{}", "  ".repeat(depth), plan.name());
    if plan.name() == "GpuFragmentExec"
        && let Some(metrics) = plan.metrics()
    {
        println!("{}{metrics}", "  ".repeat(depth + 1));
    }
    for child in plan.children() {
        print_nodes(child, depth + 1);
    }
}
