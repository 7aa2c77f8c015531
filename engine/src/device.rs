//! The device of a session: opening, calibration, memory, and the metrics of fragments.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use warpline_gpu::GpuError;
use warpline_gpu::calibrate::calibrate;
use warpline_gpu::device::compiler::limit;
use warpline_gpu::device::probe;
use warpline_gpu::exec::GpuFragmentExec;
use warpline_gpu::machine;
pub use warpline_gpu::runtime::DeviceChoice;
use warpline_gpu::runtime::{Runtime, RuntimeOptions};
use warpline_planner::{ByteSize, GpuPlacement, WarplineConfig, metrics};
use warpline_tpch::{QueryMetrics, WorkBalance};

use crate::error::{Error, Result};
use crate::memory::{DeviceMemory, ladder_of};
use crate::rule::Seen;

/// The setting that names the device.
pub(crate) const DEVICE_SETTING: &str = "warpline.device";
/// The setting that bounds its memory pool, in bytes; 0 is no bound.
pub(crate) const MEMORY_SETTING: &str = "warpline.device_memory";

/// An open device, or the CPU. Clones share it.
///
/// `SET warpline.device = …` opens another one with the next query; running queries keep the old one.
#[derive(Clone)]
pub struct Device(Arc<Mutex<Opened>>);

/// An open device, and the rule that places plans on it.
struct Opened {
    options: RuntimeOptions,
    runtime: Option<Arc<Runtime>>,
    placement: Arc<GpuPlacement>,
    /// How often the device had been set, in all sessions, when it was opened.
    device_set: u64,
}

impl Opened {
    fn open(options: RuntimeOptions) -> Result<Self> {
        let runtime = Runtime::open(options).map_err(|error| Error::Device(error.to_string()))?;
        let placement = Arc::new(GpuPlacement::new(runtime.clone()));
        Ok(Self {
            options,
            runtime,
            placement,
            device_set: 0,
        })
    }

    fn is_lost(&self) -> bool {
        let lost = |runtime: &Arc<Runtime>| runtime.lost().is_some();
        self.runtime.as_ref().is_some_and(lost)
    }
}

impl Device {
    /// Opens a device; `memory` limits its pool, which otherwise takes all free memory but a reserve. With `auto` and
    /// no usable GPU, and with `cpu`, DataFusion answers.
    ///
    /// Open one and share it: each has memory, resident columns and compiled kernels of its own.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use warpline::{Device, DeviceChoice};
    ///
    /// let device = Device::open(DeviceChoice::Auto, Some("16GiB".parse()?))?;
    /// if !device.is_in_use() {
    ///     // Why each device that was looked for is not usable.
    ///     eprintln!("{}", warpline::device_reports().join("\n"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`] when a device that was named cannot be used; it says why and what to install.
    pub fn open(choice: DeviceChoice, memory: Option<ByteSize>) -> Result<Self> {
        let options = RuntimeOptions {
            device: choice,
            device_memory: memory.map(|size| size.0),
            host_memory: None,
        };
        Ok(Self(Arc::new(Mutex::new(Opened::open(options)?))))
    }

    /// Whether a device is in use, and not the CPU alone.
    pub fn is_in_use(&self) -> bool {
        self.0.lock().runtime.is_some()
    }

    /// The device itself, for work below SQL such as micro-benchmarks; `None` when the CPU answers.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.0.lock().runtime.clone()
    }

    /// The device in words: `NVIDIA H200 (cuda:0)`, `emulator`, `cpu`.
    pub fn name(&self) -> String {
        match &self.0.lock().runtime {
            None => "cpu".to_string(),
            Some(runtime) => {
                let info = runtime.device().info();
                if info.name == info.id {
                    info.name.clone()
                } else {
                    format!("{} ({})", info.name, info.id)
                }
            }
        }
    }

    /// Bytes per second, read plus written, of a plain copy on the device, measured at the first call; `None` when
    /// the CPU answers or the copy fails.
    pub fn copy_bandwidth(&self) -> Option<f64> {
        let runtime = self.0.lock().runtime.clone()?;
        let measured = runtime.copy_bandwidth();
        measured
            .inspect_err(|error| log::warn!("the copy bandwidth is unknown: {error}"))
            .ok()
    }

    /// The device's cost constants as text; `None` when the CPU answers.
    pub fn constants(&self) -> Option<String> {
        let opened = self.0.lock();
        opened
            .runtime
            .as_ref()
            .map(|runtime| runtime.machine().to_string())
    }

    /// Measures the constants and stores them on disk for later sessions, for all devices of this name. Returns the
    /// constants as text, and the file. The emulator's are measured but not stored: its times mean nothing.
    ///
    /// # Errors
    /// [`Error::NothingToMeasure`] when the CPU answers, [`Error::Device`] when a measurement fails or the file cannot be
    /// written.
    pub fn calibrate(&self) -> Result<(String, Option<PathBuf>)> {
        let failed = |error: GpuError| Error::Device(error.to_string());
        let runtime = self.0.lock().runtime.clone();
        let runtime = runtime.ok_or(Error::NothingToMeasure)?;
        let machine = calibrate(&runtime).map_err(failed)?;
        let info = runtime.device().info();
        let path = if info.emulated {
            None
        } else {
            Some(machine::save(&machine, info).map_err(failed)?)
        };
        Ok((machine.to_string(), path))
    }

    /// The state of the device's memory, and what was done when it was short; `None` when the CPU answers.
    pub fn memory(&self) -> Option<DeviceMemory> {
        let runtime = self.0.lock().runtime.clone()?;
        Some(DeviceMemory::of(&runtime))
    }

    /// Evicts all cached columns and indexes that no query uses; returns their bytes.
    ///
    /// # Errors
    /// [`Error::Gpu`] when earlier work on the device failed.
    pub fn evict(&self) -> Result<usize> {
        let runtime = self.0.lock().runtime.clone();
        Ok(runtime.map_or(Ok(0), |runtime| runtime.evict())?)
    }

    /// The rule for the device that the settings name. Opens the device if it is another one, or if it was lost and
    /// the setting was set since; applies the limits of memory and the failures if the session of `seen` changed
    /// them.
    pub(crate) fn placement_for(
        &self,
        settings: &WarplineConfig,
        seen: &Mutex<Seen>,
    ) -> Result<Arc<GpuPlacement>> {
        let memory = (settings.device_memory > 0).then_some(settings.device_memory);
        let host_memory = (settings.host_memory > 0).then_some(settings.host_memory);
        let mut seen = seen.lock();
        let mut opened = self.0.lock();
        let again = opened.is_lost() && settings.device.revision > opened.device_set;
        let mut failures_changed = seen.failures != settings.inject_failures;
        if opened.options.device != settings.device.choice || again {
            opened.device_set = settings.device.revision;
            let mut options = opened.options;
            options.device = settings.device.choice;
            options.device_memory = memory;
            options.host_memory = host_memory;
            // When it does not open, the old one stays.
            *opened = Opened {
                device_set: settings.device.revision,
                ..Opened::open(options)?
            };
            failures_changed = true;
        } else if seen.memory != memory && opened.options.device_memory != memory {
            if let Some(runtime) = &opened.runtime {
                runtime.set_device_memory(memory)?;
            }
            opened.options.device_memory = memory;
        }
        if seen.host_memory != host_memory && opened.options.host_memory != host_memory {
            if let Some(runtime) = &opened.runtime {
                runtime.set_host_memory(host_memory)?;
            }
            opened.options.host_memory = host_memory;
        }
        if failures_changed && let Some(runtime) = &opened.runtime {
            runtime.inject_failures(settings.inject_failures.plan().cloned());
        }
        if seen.compile_processes != settings.compile_processes {
            limit(settings.compile_processes);
        }
        seen.memory = memory;
        seen.host_memory = host_memory;
        seen.compile_processes = settings.compile_processes;
        seen.failures = settings.inject_failures.clone();
        Ok(Arc::clone(&opened.placement))
    }

    /// The rule for the open device.
    pub(crate) fn placement(&self) -> Arc<GpuPlacement> {
        Arc::clone(&self.0.lock().placement)
    }

    /// The settings under `warpline.*` of a session on the open device: its name and memory limits, and defaults for
    /// all others.
    pub fn config(&self) -> WarplineConfig {
        let options = self.0.lock().options;
        let mut settings = WarplineConfig::default();
        settings.device = options.device.into();
        settings.device_memory = options.device_memory.unwrap_or(0);
        settings.host_memory = options.host_memory.unwrap_or(0);
        settings
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// One line for each kind of device: what it is, or why it cannot be used and what to install.
pub fn device_reports() -> Vec<String> {
    let mut lines: Vec<String> = probe::probe().iter().map(ToString::to_string).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    lines.push(format!(
        "{:<9} usable (DataFusion {}, {cores} cores)",
        "cpu",
        datafusion::DATAFUSION_VERSION
    ));
    lines
}

/// Whether a plan node is a fragment on the device.
pub(crate) fn is_fragment(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<GpuFragmentExec>()
}

/// The fragments of a plan, in its order.
pub(crate) fn fragments(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut fragments = Vec::new();
    // The visit itself cannot fail.
    let _ = plan.apply(|node| {
        if is_fragment(node) {
            fragments.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    fragments
}

/// Did every fragment of a plan that has run answer by itself? Operators that were left to the CPU from the beginning do not count.
pub(crate) fn kept_to_its_plan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let fragments = fragments(plan);
    let mut fragments = fragments.iter();
    fragments.all(|node| {
        let node = node.downcast_ref::<GpuFragmentExec>();
        node.is_none_or(|fragment| fragment.report().fallback.is_none())
    })
}

/// Moves kernels and result sizes from the fragments of an earlier plan of the same query to those of `plan`.
pub(crate) fn take_over(plan: &Arc<dyn ExecutionPlan>, earlier: &[Arc<dyn ExecutionPlan>]) {
    let fragments = fragments(plan);
    if fragments.len() != earlier.len() {
        return;
    }
    for (node, earlier) in fragments.iter().zip(earlier) {
        let node = node.downcast_ref::<GpuFragmentExec>();
        let earlier = earlier.downcast_ref::<GpuFragmentExec>();
        if let (Some(node), Some(earlier)) = (node, earlier) {
            node.take_over(earlier);
        }
    }
}

/// Capacity of a session's plan cache; 0 when it is off, or when the CPU answers all.
pub(crate) fn plan_cache_capacity(context: &SessionContext) -> usize {
    let state = context.state_ref();
    let state = state.read();
    match state.config_options().extensions.get::<WarplineConfig>() {
        Some(settings) if settings.plan_cache => settings.plan_cache_size,
        _ => 0,
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
    let totals = metrics::collect(plan);
    let counts = &totals.counts;
    QueryMetrics {
        load_ms: counts.load_ms,
        columns_loaded: counts.columns_loaded,
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
