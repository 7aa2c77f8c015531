//! Warpline inside somebody else's DataFusion session, in ten lines.
//!
//! `cargo run --release -p warpline --example embed`

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use warpline::{Device, DeviceChoice, WarplineExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first usable GPU, or none: then every plan stays DataFusion's own.
    let device = Device::open(DeviceChoice::Auto, None)?;
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_warpline(&device)
        .build();
    let context = SessionContext::new_with_state(state);

    let colours = ["red", "green", "blue"];
    let names = StringArray::from_iter_values((0..100_000).map(|i| colours[i % 3]));
    let amounts = Int64Array::from_iter_values(0..100_000);
    let batch = RecordBatch::try_from_iter([
        ("colour", Arc::new(names) as _),
        ("amount", Arc::new(amounts) as _),
    ])?;
    context.register_batch("sales", batch)?;

    let sql = "SELECT colour, sum(amount) FROM sales WHERE amount % 2 = 0 GROUP BY colour";
    context.sql(&format!("EXPLAIN {sql}")).await?.show().await?;
    context.sql(sql).await?.show().await?;
    Ok(())
}
