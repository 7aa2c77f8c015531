//! What devices gain when each runs a plan over its part of a table, and what the results cost that meet on the host.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::projection::ProjectionExec;

use super::learned::FEW;
use crate::devices::integers::integer;
use crate::devices::price::statistics_of;

/// Milliseconds that a second device costs in any case: its launches, its answer, and the operators that merge both.
const OVERHEAD_MS: f64 = 0.7;

/// How many times longer than reading its columns a query takes of a table: joins and groups are behind it.
const WORK: f64 = 2.0;

/// Rows a second that the host takes from devices and merges.
const MERGED: f64 = 1e7;

/// Milliseconds in which a device begins to merge what others yield, and rows a second that it takes from the host: 79 thousand
/// groups by a string took 16 ms to encode and 5 to prepare, with kernels of 0.2 ms.
const BEGIN_MS: f64 = 5.0;
const TAKEN: f64 = 5e6;

/// Distinct values that a key is taken to have of which nothing is known, and several of them together at most: those that are
/// grouped by mostly have few, and a run tells if they have more.
const DISTINCT: f64 = 32.0;
const DISTINCT_TOGETHER: f64 = 1024.0;

/// What there is to share a query with: alike devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    pub(super) devices: usize,
    /// Bytes that each reads in a second of its own memory, and from the host.
    pub(super) read: f64,
    pub(super) link: f64,
    /// Bytes of columns that each keeps from query to query.
    pub(super) room: f64,
}

/// Bytes of the columns of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// As often as they are read.
    pub(super) read: f64,
    /// Once each, as a device holds them.
    pub(super) held: f64,
}

impl Means {
    /// Milliseconds that devices save each other if none reads `spared` of the bytes: what a device has no room for it brings from
    /// the host each time.
    fn saved(&self, columns: Columns, spared: f64) -> f64 {
        let brought = |bytes: f64| (bytes - self.room).max(0.0);
        let left = columns.held * (1.0 - spared / columns.read.max(1.0)).max(0.0);
        let linked = (brought(columns.held) - brought(left)) / self.link;
        (spared * WORK / self.read + linked) * 1e3
    }
}

/// What is gained and lost, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth {
    saved: f64,
    merged: f64,
}

impl Worth {
    /// `spared`: bytes that one device would read of the columns, and each of several need not. `rows`: what they all together
    /// yield to operators of the host.
    pub(super) fn of(means: &Means, columns: Columns, spared: f64, rows: f64) -> Self {
        Self {
            saved: means.saved(columns, spared),
            merged: merged(rows),
        }
    }

    /// The same where so many rows meet.
    pub(super) fn with_rows(self, rows: f64) -> Self {
        Self {
            merged: merged(rows),
            ..self
        }
    }

    /// Milliseconds that devices save each other, whatever else they cost.
    pub(super) fn saved(&self) -> f64 {
        self.saved
    }

    /// Milliseconds that are gained.
    pub(super) fn gain(&self) -> f64 {
        self.saved - self.merged - OVERHEAD_MS
    }

    /// The rows above which nothing is gained.
    pub(super) fn most_rows(&self) -> u64 {
        let left = (self.saved - OVERHEAD_MS).max(0.0);
        let by_host = left * 1e-3 * MERGED;
        if by_host <= FEW as f64 {
            return by_host as u64;
        }
        let by_device = (left - BEGIN_MS) * 1e-3 * TAKEN;
        by_device.max(FEW as f64) as u64
    }
}

/// Milliseconds in which so many rows meet.
fn merged(rows: f64) -> f64 {
    match rows <= FEW as f64 {
        true => rows / MERGED * 1e3,
        false => BEGIN_MS + rows / TAKEN * 1e3,
    }
}

/// The rows that `devices` together yield of `plan`, where each runs it over a part of a table.
pub(super) fn yielded(plan: &Arc<dyn ExecutionPlan>, devices: usize) -> f64 {
    let each = |rows: f64| rows * devices as f64;
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return yielded(projection.input(), devices);
    }
    if let Some(fetch) = plan.fetch() {
        return each(fetch as f64);
    }
    let partial = plan
        .downcast_ref::<AggregateExec>()
        .filter(|aggregate| *aggregate.mode() == AggregateMode::Partial);
    match partial {
        Some(partial) => each(groups(partial)),
        None => rows_of(statistics_of(plan).as_deref()),
    }
}

fn rows_of(statistics: Option<&Statistics>) -> f64 {
    let rows = statistics.and_then(|statistics| statistics.num_rows.get_value().copied());
    rows.map_or(f64::INFINITY, |rows| rows as f64)
}

/// The groups of an aggregation by what is known of its keys.
fn groups(aggregate: &AggregateExec) -> f64 {
    let input = aggregate.input();
    let statistics = statistics_of(input);
    let schema = input.schema();
    let distinct = |expr: &Arc<dyn PhysicalExpr>| {
        let column = expr.downcast_ref::<Column>()?.index();
        let known = statistics.as_ref()?.column_statistics.get(column)?;
        let data_type = schema.fields().get(column)?.data_type();
        distinct(known, data_type)
    };
    let keys = aggregate.group_expr().expr().iter();
    let (mut product, mut unknown) = (1.0, 1.0);
    for (key, _) in keys {
        match distinct(key) {
            Some(distinct) => product *= distinct,
            None => unknown *= DISTINCT,
        }
    }
    product *= f64::min(unknown, DISTINCT_TOGETHER);
    let sets = aggregate.group_expr().groups().len().max(1) as f64;
    let most = rows_of(statistics.as_deref());
    product.min(most) * sets
}

/// Distinct values of a column, at most.
fn distinct(known: &ColumnStatistics, data_type: &DataType) -> Option<f64> {
    if *data_type == DataType::Boolean {
        return Some(2.0);
    }
    if let Some(distinct) = known.distinct_count.get_value() {
        return Some(*distinct as f64);
    }
    let least = integer(known.min_value.get_value()?)?;
    let greatest = integer(known.max_value.get_value()?)?;
    Some(greatest.checked_sub(least)? as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two devices of 80 GB across a link.
    const MEANS: Means = Means {
        devices: 2,
        read: 2e12,
        link: 5e10,
        room: 4e10,
    };

    /// Half of so many bytes, each column of which is read once.
    fn half(bytes: f64, rows: f64) -> Worth {
        let columns = Columns {
            read: bytes,
            held: bytes,
        };
        Worth::of(&MEANS, columns, bytes / 2.0, rows)
    }

    #[test]
    fn more_rows_to_merge_are_worth_less() {
        let worth = |rows| half(8e9, rows);
        assert!(worth(4.0).gain() > 3.2 && worth(4.0).gain() < 3.4);
        assert!(worth(1e6).gain() < 0.0);
        assert!(worth(4.0).with_rows(1e6).gain() < 0.0);
        for bytes in [2e9, 8e9, 3.8e10] {
            let worth = |rows| half(bytes, rows);
            let most = worth(4.0).most_rows() as f64;
            assert!(worth(most * 0.99).gain() > 0.0, "{bytes}: {most}");
            assert!(worth(most * 1.01 + 2.0).gain() < 0.0, "{bytes}: {most}");
        }
        assert_eq!(half(2e6, 0.0).most_rows(), 0);
        assert!(half(1.2e10, 4.0).gain() > worth(4.0).gain());
        assert!(worth(f64::INFINITY).gain() < 0.0);
    }

    #[test]
    fn what_one_device_has_no_room_for_is_worth_more() {
        // 20 GB beyond its room are 400 ms over the link.
        let one_has_no_room = half(6e10, 4.0);
        assert!((one_has_no_room.saved() - 430.0).abs() < 0.1);
        // Each of two has none either, but for less.
        assert!((half(1e11, 4.0).saved() - 1050.0).abs() < 0.1);
        // Not at any price: millions of groups take longer to meet.
        assert!(one_has_no_room.with_rows(1.3e7).gain() < 0.0);
        assert!(one_has_no_room.with_rows(1e6).gain() > 0.0);
        // A table that is read three times takes the room of one.
        let columns = Columns {
            read: 6e10,
            held: 2e10,
        };
        let thrice = Worth::of(&MEANS, columns, 3e10, 4.0);
        assert!((thrice.saved() - 30.0).abs() < 0.1);
    }
}
