//! Tables that stay in device memory, whatever else needs room there.
//!
//! `cargo run --release -p warpline --example pin_tables`

use std::error::Error;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::util::pretty::print_batches;
use datafusion::prelude::SessionContext;
use warpline::{Device, DeviceChoice, WarplineExt, metrics_of};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for answer in run(DeviceChoice::Auto).await? {
        print_batches(&answer)?;
    }
    Ok(())
}

/// The answer while the table is pinned, and the one after.
pub async fn run(device: DeviceChoice) -> Result<Vec<Vec<RecordBatch>>, Box<dyn Error>> {
    let device = Device::open(device, None)?;
    let context = SessionContext::new().with_warpline(&device);
    context.register_batch("orders", orders()?)?;

    // None where the CPU answers: there is nothing to pin then.
    let pinned = device.pin(&context, "orders").await?;
    if let Some(table) = &pinned {
        println!(
            "{}: {} rows, {} bytes",
            table.name(),
            table.rows(),
            table.bytes()
        );
        // Everything else that is kept for later queries may go; the table does not.
        device.evict()?;
    }
    let sql = "SELECT customer, count(*) AS orders, sum(price) AS price FROM orders GROUP BY customer ORDER BY customer LIMIT 5";
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let while_pinned =
        datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await?;
    if pinned.is_some() {
        // The columns were there.
        assert_eq!(metrics_of(&plan).columns_loaded, 0);
    }

    // From here on the columns are kept as those of any other table.
    drop(pinned);
    device.evict()?;
    let after = context.sql(sql).await?.collect().await?;
    Ok(vec![while_pinned, after])
}

fn orders() -> Result<RecordBatch, Box<dyn Error>> {
    let customers = Int64Array::from_iter_values((0..100_000).map(|i| i * 7919 % 1_000));
    let prices = Int64Array::from_iter_values((0..100_000).map(|i| i % 97));
    Ok(RecordBatch::try_from_iter([
        ("customer", Arc::new(customers) as _),
        ("price", Arc::new(prices) as _),
    ])?)
}
