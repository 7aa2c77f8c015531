//! What a plan that has run did on its device, or on the several devices that shared it.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::exec::GpuFragmentExec;
use warpline_planner::metrics;
use warpline_tpch::{QueryMetrics, WorkBalance};

use crate::fragments::{StageOnDevice, devices_of, fragments};
use crate::memory::ladder_of;

/// Did every fragment of a plan that has run answer by itself? Operators that were left to the CPU from the beginning do not count.
pub(crate) fn kept_to_its_plan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let stages = stages_of(plan);
    let plans = std::iter::once(plan).chain(stages.iter().map(|stage| &stage.plan));
    let fragments: Vec<_> = plans.flat_map(fragments).collect();
    let mut fragments = fragments.iter();
    let kept = fragments.all(|node| {
        let node = node.downcast_ref::<GpuFragmentExec>();
        node.is_none_or(|fragment| fragment.with_report(|report| report.fallback.is_none()))
    });
    #[cfg(feature = "cluster")]
    return kept && !crate::devices::are_outdated(plan);
    #[cfg(not(feature = "cluster"))]
    kept
}

/// The parts of a query's last run, where several devices shared it.
fn stages_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<StageOnDevice> {
    #[cfg(feature = "cluster")]
    return crate::devices::stages_of(plan);
    #[cfg(not(feature = "cluster"))]
    {
        let _ = plan;
        vec![]
    }
}

/// What several devices run side by side, among the nodes of the plan.
fn shards_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<StageOnDevice> {
    #[cfg(feature = "cluster")]
    return crate::devices::shards_of(plan);
    #[cfg(not(feature = "cluster"))]
    {
        let _ = plan;
        vec![]
    }
}

/// The sum of what a plan's fragments measured in their last run; all zero for a plan without fragments.
///
/// The plan's nodes have the same figures as `metrics()`, which `EXPLAIN ANALYZE` shows. Planning time is not
/// included: `plan_ms` is 0.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use datafusion::physical_plan::collect;
/// use datafusion::prelude::SessionContext;
/// use warpline::{Device, DeviceChoice, WarplineExt, metrics_of};
///
/// let context = SessionContext::new().with_warpline(&Device::open(DeviceChoice::Auto, None)?);
/// let frame = context.sql("SELECT count(*) FROM generate_series(1, 100)").await?;
/// let task = Arc::new(frame.task_ctx());
/// let plan = frame.create_physical_plan().await?;
/// let batches = collect(Arc::clone(&plan), task).await?;
/// let metrics = metrics_of(&plan);
/// println!("{} batches, {} kernels in {} ms", batches.len(), metrics.kernels, metrics.kernel_ms);
/// for reason in &metrics.fallbacks {
///     println!("on the CPU: {reason}");
/// }
/// # Ok(()) }
/// ```
pub fn metrics_of(plan: &Arc<dyn ExecutionPlan>) -> QueryMetrics {
    let shared = stages_of(plan);
    let plans = std::iter::once(plan).chain(shared.iter().map(|stage| &stage.plan));
    let totals = metrics::collect(plans);
    let counts = &totals.counts;
    QueryMetrics {
        load_ms: counts.load_ms,
        columns_loaded: counts.columns_loaded,
        columns_grown: counts.columns_grown,
        parquet_chunks_device: counts.parquet_chunks_device,
        parquet_chunks_cpu: counts.parquet_chunks_cpu,
        plan_ms: 0.0,
        plan_cached: false,
        compile_ms: counts.compile_ms,
        kernel_ms: counts.kernel_ms,
        kernels: counts.kernels as u64,
        bytes: (counts.kernels > 0).then_some(counts.bytes as u64),
        streamed_bytes: counts.streamed_bytes,
        spilled_bytes: counts.spilled_bytes,
        peak_device_bytes: (totals.fragments > 0).then_some(counts.peak_bytes as u64),
        races: counts.races,
        cpu_answers: counts.cpu_answers,
        ladder: ladder_of(counts.ladder),
        fallbacks: totals.fallbacks,
        devices: devices_of(&[shared, shards_of(plan)].concat()),
        balance: metrics::balance_of(&totals.trees).map(|balance| WorkBalance {
            pipelines: balance.pipelines,
            iir: balance.iir,
            ilif: balance.ilif,
        }),
    }
}

#[cfg(test)]
mod tests {
    use warpline_gpu::exec::FragmentReport;
    use warpline_gpu::memory::LadderCounts;
    use warpline_tpch::report::QueryReport;

    #[test]
    fn reports_name_counters_as_they_are_declared() {
        let report = serde_json::to_value(QueryReport::default()).expect("JSON");
        for json in FragmentReport::COUNTERS.iter().filter_map(|c| c.json) {
            assert!(report.get(json).is_some(), "{json}");
        }
        let ladder = report["ladder"].as_object().expect("an object");
        let declared: Vec<_> = LadderCounts::COUNTERS.iter().map(|c| c.json).collect();
        for name in ladder.keys() {
            assert!(declared.contains(&Some(name.as_str())), "{name}");
        }
        assert_eq!(ladder.len(), declared.len());
    }
}
