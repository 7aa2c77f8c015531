//! Whether devices share a table: by the setting `warpline.shards`, else by what reading it takes one device, and whether one holds it.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler,
};
use std::sync::Arc;
use warpline_planner::{Shards, WarplineConfig};

use super::leaves::Shareable;
use crate::device::Device;

/// Seconds for which one device is to read a table before others help. What is exchanged between devices crosses the host, and
/// to plan stages and to move the last rows takes some milliseconds.
const WORTHWHILE: f64 = 0.02;

/// The part of a device's memory that a table's columns may take before it is shared out: joins and groups need the rest.
const HELD: f64 = 0.5;

/// Bytes that a value of varying length is taken to have.
const VARYING: usize = 16;

/// Says how many tasks read a leaf.
pub(super) struct Price {
    device: Device,
}

impl Price {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
        }
    }

    /// How many devices share this leaf; 1 where it stays whole.
    fn devices(&self, plan: &Arc<dyn ExecutionPlan>, shards: Shards) -> usize {
        let Some(table) = Shareable::of(plan) else {
            return 1;
        };
        let members = self.device.members();
        let usable = members.iter().filter(|member| !member.is_lost()).count();
        let most = usable.min(table.parts()).max(1);
        let wanted = match (shards, members.first()) {
            (Shards::Force(wanted), _) => wanted,
            (Shards::Auto, None) => 1,
            (Shards::Auto, Some(first)) => {
                let bytes = bytes_of(plan, &table) as f64;
                let machine = first.runtime.machine();
                let budget = first.runtime.pool().statistics().budget as f64;
                let pays = bytes > machine.read * WORTHWHILE || bytes > budget * HELD;
                if pays { usable } else { 1 }
            }
        };
        wanted.min(most)
    }
}

/// Bytes of the columns that a leaf yields, by its statistics, else by its files.
fn bytes_of(plan: &Arc<dyn ExecutionPlan>, table: &Shareable<'_>) -> usize {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let rows = match statistics.map(|statistics| statistics.num_rows) {
        Ok(Precision::Exact(rows) | Precision::Inexact(rows)) => rows,
        _ => {
            let Shareable::Files(_, files) = table else {
                return 0;
            };
            let size =
                |file: &datafusion::datasource::listing::PartitionedFile| file.object_meta.size;
            return files.iter().map(size).sum::<u64>() as usize;
        }
    };
    let schema = plan.schema();
    let width: usize = schema
        .fields()
        .iter()
        .map(|field| width(field.data_type()))
        .sum();
    rows.saturating_mul(width)
}

fn width(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or(VARYING)
}

#[async_trait::async_trait]
impl DesiredTaskCountHandler for Price {
    async fn handle(
        &self,
        event: DesiredTaskCountEvent<'_>,
    ) -> Option<Result<DesiredTaskCountEventResponse>> {
        if !event.plan.children().is_empty() {
            return None;
        }
        let config = WarplineConfig::of(event.session_config.options());
        let response = match Shareable::of(event.plan) {
            // It can be read by one task alone.
            None => DesiredTaskCountEventResponse::maximum(1),
            Some(_) => {
                DesiredTaskCountEventResponse::desired(self.devices(event.plan, config.shards))
            }
        };
        Some(Ok(response))
    }
}
