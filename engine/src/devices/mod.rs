//! Several devices of one session: a query that one would take long for is cut into stages, of which each runs a part.
//!
//! `datafusion-distributed` cuts plans and moves rows, as between machines ([`crate::cluster`]); here all is within the process, so
//! plans are handed over as they are, and rows by reference.
//!
//! ```text
//! session ──► cluster::planner   shards, a plan in stages, or the first device's plan where sharing does not pay
//!               │ shards         the same part of the plan on each device, over its share of one table: nothing is exchanged
//!               │ price          else, which tables stages share out
//!               │ leaves         which device reads what: table, pieces
//!             run                the query on the devices: its settings, and the stages as they were placed
//!               │ sites          a worker a device; those that are lost get nothing
//!               │ handed         operators of a task of its own
//!             cluster::stage     the device runs what it can of the stage
//! ```

mod handed;
mod integers;
mod leaves;
mod pieces;
mod price;
mod run;
mod shards;
mod sites;
mod table;

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::DistributedExt;

use crate::cluster::planner::with_planner;
use crate::device::Device;
use crate::rule::WarplineRule;
pub(crate) use run::{are_outdated, has_shards, left_of, shards_of, stages_of, take_over};
use sites::{Devices, Resolver, Router};

/// A session on several devices.
pub(crate) fn extend(
    mut builder: SessionStateBuilder,
    device: &Device,
    runtime: &Arc<RuntimeEnv>,
) -> SessionStateBuilder {
    let config = builder.config().get_or_insert_default();
    config.options_mut().extensions.insert(device.config());
    let rule = Arc::new(WarplineRule::sharing(device));
    let devices = Devices::new(device, Arc::clone(&rule), runtime);
    let price = price::Price::new(device);
    let builder = builder
        .with_distributed_worker_resolver(Resolver(Arc::clone(&devices)))
        .with_distributed_channel_resolver(Resolver(Arc::clone(&devices)))
        .with_distributed_route_tasks_handler(Router(Arc::clone(&devices)))
        // Asked before those that come with the planner.
        .with_distributed_desired_task_count_handler(price)
        .with_distributed_scale_up_leaf_node_handler(leaves::shared);
    with_planner(builder, rule, Arc::new(devices))
}
