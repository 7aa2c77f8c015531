//! Warpline inside somebody else's DataFusion session, in ten lines.
//!
//! `cargo run --release -p warpline --example embed`

use std::error::Error;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::print_batches;
use datafusion::prelude::SessionContext;
use warpline::{Device, DeviceChoice, WarplineExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The first usable GPU, or none: then every plan stays DataFusion's own.
    for answer in run(DeviceChoice::Auto).await? {
        print_batches(&answer)?;
    }
    Ok(())
}

/// The plan and the answer.
pub async fn run(device: DeviceChoice) -> Result<Vec<Vec<RecordBatch>>, Box<dyn Error>> {
    let device = Device::open(device, None)?;
    let context = SessionContext::new().with_warpline(&device);
    context.register_batch("sales", sales()?)?;

    let sql = "SELECT colour, sum(amount) AS total FROM sales WHERE amount % 2 = 0 GROUP BY colour ORDER BY colour";
    let plan = context.sql(&format!("EXPLAIN {sql}")).await?;
    let answer = context.sql(sql).await?;
    Ok(vec![plan.collect().await?, answer.collect().await?])
}

fn sales() -> Result<RecordBatch, Box<dyn Error>> {
    let colours = ["red", "green", "blue"];
    let names = StringArray::from_iter_values((0..100_000).map(|i| colours[i % 3]));
    let amounts = Int64Array::from_iter_values(0..100_000);
    Ok(RecordBatch::try_from_iter([
        ("colour", Arc::new(names) as _),
        ("amount", Arc::new(amounts) as _),
    ])?)
}
