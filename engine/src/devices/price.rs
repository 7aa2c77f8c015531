//! Whether devices share a table: by the setting `warpline.shards`, else by what reading it takes one device, whether one holds it,
//! and by the rows that would cross from device to device.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler,
    NetworkShuffleExec,
};
use warpline_planner::{Shards, WarplineConfig};

use super::integers::integer;
use super::table::Shareable;
use crate::device::Device;

/// Seconds for which one device is to read a table before others help. What is exchanged between devices crosses the host, and
/// to plan stages and to move the last rows takes some milliseconds.
const WORTHWHILE: f64 = 0.02;

/// The part of a device's memory that a table's columns may take before it is shared out: joins and groups need the rest.
pub(super) const HELD: f64 = 0.5;

/// Bytes that a value of varying length is taken to have.
const VARYING: usize = 16;

/// Rows that may be partitioned from device to device at most. They cross the host: on two H100 with 32 cores 15 million rows a second
/// did, where one device alone joins a thousand million.
const MOST_CROSSING: usize = 4_000_000;

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

/// Why devices would take longer together than one of them: the rows of a plan in stages that are partitioned between them.
///
/// # Errors
/// What walking the plan reports.
pub(super) fn too_many_cross(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<String>> {
    let mut crossing = Some(0_usize);
    plan.apply(|node| {
        if node.is::<NetworkShuffleExec>() {
            let inputs = node.children();
            let rows = inputs.first().and_then(|input| {
                let statistics = statistics_of(input)?;
                statistics.num_rows.get_value().copied()
            });
            crossing = crossing
                .zip(rows)
                .map(|(sum, rows)| sum.saturating_add(rows));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(match crossing {
        Some(rows) if rows <= MOST_CROSSING => None,
        Some(rows) => Some(format!(
            "about {rows} rows would cross from device to device, more than {MOST_CROSSING}"
        )),
        None => Some("nothing tells how many rows would cross from device to device".to_string()),
    })
}

pub(super) fn statistics_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
    let computed = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    computed.ok()
}

/// Bytes of the columns that a leaf yields as devices keep them, by its statistics, else by its files.
pub(super) fn bytes_of(plan: &Arc<dyn ExecutionPlan>, table: &Shareable<'_>) -> usize {
    let columns = column_bytes(plan, table).into_iter();
    columns.fold(0, usize::saturating_add)
}

/// The same of each of its columns.
pub(super) fn column_bytes(plan: &Arc<dyn ExecutionPlan>, table: &Shareable<'_>) -> Vec<usize> {
    let schema = plan.schema();
    let fields = schema.fields().iter().enumerate();
    let statistics = statistics_of(plan);
    let rows = match statistics.as_ref().map(|statistics| &statistics.num_rows) {
        Some(Precision::Exact(rows) | Precision::Inexact(rows)) => *rows,
        _ => {
            let Shareable::Files(_, files) = table else {
                return vec![0; schema.fields().len()];
            };
            let sizes = files.iter().map(|file| file.object_meta.size);
            let each = sizes.sum::<u64>() as usize / schema.fields().len().max(1);
            return vec![each; schema.fields().len()];
        }
    };
    let known = |i: usize| statistics.as_ref()?.column_statistics.get(i);
    fields
        .map(|(i, field)| rows.saturating_mul(width(field.data_type(), known(i))))
        .collect()
}

/// Bytes of a value on a device: integers, decimals and dates in the fewest that their range needs.
fn width(data_type: &DataType, known: Option<&ColumnStatistics>) -> usize {
    let width = data_type.primitive_width().unwrap_or(VARYING);
    let range = known.and_then(|known| {
        let least = integer(known.min_value.get_value()?)?;
        let greatest = integer(known.max_value.get_value()?)?;
        greatest.checked_sub(least)
    });
    let narrow = match range {
        None => return width,
        Some(..=0xFF) => 1,
        Some(..=0xFFFF) => 2,
        Some(..=0xFFFF_FFFF) => 4,
        Some(..=0xFFFF_FFFF_FFFF_FFFF) => 8,
        Some(_) => 16,
    };
    narrow.min(width)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::{Partitioning, expressions::col};
    use datafusion::physical_plan::repartition::RepartitionExec;
    use datafusion::physical_plan::test::exec::StatisticsExec;

    use super::*;

    #[test]
    fn values_count_as_devices_keep_them() {
        let decimal = DataType::Decimal128(15, 2);
        let value = |v| Precision::Exact(ScalarValue::Decimal128(Some(v), 15, 2));
        let known = |least, greatest| {
            let unknown = ColumnStatistics::new_unknown();
            unknown
                .with_min_value(value(least))
                .with_max_value(value(greatest))
        };
        assert_eq!(width(&decimal, None), 16);
        assert_eq!(width(&decimal, Some(&ColumnStatistics::new_unknown())), 16);
        assert_eq!(width(&decimal, Some(&known(-1, 254))), 1);
        assert_eq!(width(&decimal, Some(&known(100, 5000))), 2);
        assert_eq!(width(&decimal, Some(&known(0, 10_494_950))), 4);
        assert_eq!(width(&decimal, Some(&known(0, 1 << 40))), 8);
        assert_eq!(width(&decimal, Some(&known(i128::MIN, i128::MAX))), 16);
        assert_eq!(width(&DataType::Utf8View, None), VARYING);
    }

    /// A plan in stages in which so many rows are partitioned.
    fn shuffled(rows: Precision<usize>) -> Arc<dyn ExecutionPlan> {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
        let key = col("k", &schema).unwrap();
        let statistics = Statistics {
            num_rows: rows,
            ..Statistics::new_unknown(&schema)
        };
        let input = Arc::new(StatisticsExec::new(statistics, schema));
        let by = Partitioning::Hash(vec![key], 4);
        let parts = RepartitionExec::try_new(input, by).unwrap();
        Arc::new(NetworkShuffleExec::try_new(Arc::new(parts), 2).unwrap())
    }

    #[test]
    fn many_rows_do_not_cross() {
        let reason = |rows| too_many_cross(&shuffled(rows)).unwrap();
        assert_eq!(reason(Precision::Exact(MOST_CROSSING)), None);
        let many = reason(Precision::Inexact(MOST_CROSSING + 1)).unwrap();
        assert!(many.contains("4000001 rows would cross"), "{many}");
        let unknown = reason(Precision::Absent).unwrap();
        assert!(unknown.contains("nothing tells"), "{unknown}");
    }
}
