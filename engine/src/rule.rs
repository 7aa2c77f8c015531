//! The physical optimizer rule of a session: places plans on the device that the session's settings name.

use datafusion::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use std::sync::Arc;
use warpline_planner::config::Failures;
use warpline_planner::{GpuPlacement, WarplineConfig};

use crate::device::{DEVICE_SETTING, Device, DeviceChoice, Seen};
use crate::error::Error;

/// Places the parts of a plan that a device runs better on a [`Device`]; the rest stays as DataFusion and other
/// extensions planned it, and `EXPLAIN` says why.
///
/// For those who assemble a session's rules themselves; otherwise use [`crate::WarplineExt::with_warpline`]. It must
/// be the last rule, since it processes finished plans, and each session needs its own, since it remembers the
/// session's settings. The settings under `warpline.*` are those of the [`WarplineConfig`] among the session's
/// options; without one, the device is used as it was opened, with default settings.
///
/// ```
/// # fn main() -> Result<(), warpline::Error> {
/// use std::sync::Arc;
///
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
/// use datafusion::prelude::SessionConfig;
/// use warpline::{Device, DeviceChoice, WarplineRule};
///
/// let device = Device::open(DeviceChoice::Auto, None)?;
/// let mut rules = PhysicalOptimizer::default().rules;
/// rules.push(Arc::new(WarplineRule::new(&device)));
/// let state = SessionStateBuilder::new()
///     .with_config(SessionConfig::new().with_option_extension(device.config()))
///     .with_default_features()
///     .with_physical_optimizer_rules(rules)
///     .build();
/// assert_eq!(state.physical_optimizers().last().map(|rule| rule.name()), Some("warpline_placement"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct WarplineRule {
    device: Device,
    seen: Mutex<Seen>,
    /// Whether the session shares queries out where there are several devices.
    shares: bool,
}

impl WarplineRule {
    /// The rule's name among a session's rules.
    pub const NAME: &'static str = "warpline_placement";

    /// A rule for one session; other sessions may share the device.
    pub fn new(device: &Device) -> Self {
        let config = device.config();
        Self {
            device: device.clone(),
            seen: Mutex::new(Seen {
                memory: (config.device_memory > 0).then_some(config.device_memory),
                host_memory: (config.host_memory > 0).then_some(config.host_memory),
                compile_processes: 0,
                failures: Failures::default(),
            }),
            shares: false,
        }
    }

    /// A rule for a session that shares queries out.
    #[cfg(feature = "cluster")]
    pub(crate) fn sharing(device: &Device) -> Self {
        Self {
            shares: true,
            ..Self::new(device)
        }
    }

    /// Places what a device runs better of a stage that another engine cut out of a plan, for one who runs it on this machine; `options`
    /// are those of the query. What comes out has the nodes of the stage, by name and number, so that whoever matches metrics with the
    /// plan finds them in their places, and may have its rows in another number of partitions.
    ///
    /// # Errors
    /// Those of [`Self::optimize`].
    #[cfg(feature = "cluster")]
    pub fn place_stage(
        &self,
        stage: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        crate::cluster::stage::place_merging(&stage, self, options)
    }

    /// The placement of these settings, whose device is opened if need be.
    pub(crate) fn placement(
        &self,
        config: &ConfigOptions,
    ) -> Result<Arc<GpuPlacement>, DataFusionError> {
        let external = |error: Error| {
            let remedy =
                format!("or SET {DEVICE_SETTING} to one that `warpline devices` shows as usable");
            DataFusionError::External(format!("{error}; {remedy}").into())
        };
        let Some(settings) = config.extensions.get::<WarplineConfig>() else {
            return Ok(self.device.placement());
        };
        let choice = settings.device.choice;
        if choice.is_several() && !self.shares {
            return Err(external(several_at_once(choice)));
        }
        let placement = self.device.placement_for(settings, &self.seen);
        placement.map_err(external)
    }
}

/// Sessions share queries out if they were opened to.
pub(crate) fn several_at_once(choice: DeviceChoice) -> Error {
    if cfg!(not(feature = "cluster")) {
        return Error::Device(format!(
            "{choice} is several devices, which a build with the feature `cluster` shares queries out to: this one lacks it; name one"
        ));
    }
    Error::Device(format!(
        "{choice} is several devices, which a WarplineSession without a cluster shares queries out to if it is opened with \
         several (--device {choice}); elsewhere, name one"
    ))
}

impl PhysicalOptimizerRule for WarplineRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let placement = self.placement(config)?;
        placement.optimize(plan, config)
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}
