//! Adds Warpline to a DataFusion session that somebody else builds.

use datafusion::execution::SessionStateBuilder;

use crate::device::Device;

/// Makes the plans of any DataFusion session run on a device.
///
/// ```no_run
/// # fn example() -> Result<(), warpline::Error> {
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::prelude::SessionContext;
/// use warpline::{Device, DeviceChoice, WarplineExt};
///
/// let device = Device::open(DeviceChoice::Auto, None)?;
/// let state = SessionStateBuilder::new().with_default_features().with_warpline(&device).build();
/// let context = SessionContext::new_with_state(state);
/// # Ok(()) }
/// ```
pub trait WarplineExt {
    /// Adds the settings under `warpline.*` and, as the last physical optimizer rule, the placement of plan parts on
    /// the device. Call it after the configuration and the other rules are set.
    #[must_use]
    fn with_warpline(self, device: &Device) -> Self;
}

impl WarplineExt for SessionStateBuilder {
    fn with_warpline(self, device: &Device) -> Self {
        device.install(self)
    }
}
