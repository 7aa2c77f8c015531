//! Which device reads what of a table in a plan in stages.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion_distributed::{
    DistributedLeafExec, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};

use super::table::{Shareable, parts};

/// Gives each task its part of a table; what there are too few parts of for all is empty for some.
pub(super) fn shared(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    Shareable::of(event.plan)?;
    let parts = parts(event.plan, event.task_count);
    let leaf = parts.and_then(|parts| DistributedLeafExec::try_new(Arc::clone(event.plan), parts));
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}
