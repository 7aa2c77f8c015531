//! The extension trait that adds Warpline to any DataFusion session.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use warpline_planner::logical_rules;

use crate::device::Device;
use crate::rule::WarplineRule;

/// Makes the plans of any DataFusion session run on a device, in one line.
///
/// Tables, object stores, functions and rules of others stay as they are: the CPU runs what the device does not, and
/// `EXPLAIN` says why. Without a usable device ([`crate::DeviceChoice::Auto`] without a GPU), plans are DataFusion's
/// own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use datafusion::prelude::SessionContext;
/// use warpline::{Device, DeviceChoice, WarplineExt};
///
/// let device = Device::open(DeviceChoice::Auto, None)?;
/// let context = SessionContext::new().with_warpline(&device);
/// assert_eq!(context.sql("SELECT 1 + 1 AS two").await?.count().await?, 1);
/// # Ok(()) }
/// ```
///
/// The same while a session is built:
///
/// ```
/// # fn main() -> Result<(), warpline::Error> {
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::prelude::SessionContext;
/// use warpline::{Device, DeviceChoice, WarplineExt};
///
/// let device = Device::open(DeviceChoice::Auto, None)?;
/// let state = SessionStateBuilder::new().with_default_features().with_warpline(&device).build();
/// let context = SessionContext::new_with_state(state);
/// # Ok(()) }
/// ```
pub trait WarplineExt: Sized {
    /// Adds the settings under `warpline.*`, rules of the analyzer for windows with `FILTER`, subqueries and fields of structs, and, as the last physical
    /// optimizer rule, a [`WarplineRule`]. The settings start with those of the open device; anything added by an earlier call is replaced.
    ///
    /// Rules of others must come before: while a session is built, call this last. A context keeps its session's id,
    /// tables and settings; its clones have the rule as well, but prepared statements are forgotten.
    #[must_use]
    fn with_warpline(self, device: &Device) -> Self;
}

impl WarplineExt for SessionStateBuilder {
    fn with_warpline(mut self, device: &Device) -> Self {
        if let Some(optimizer) = self.physical_optimizers() {
            optimizer
                .rules
                .retain(|rule| rule.name() != WarplineRule::NAME);
        }
        if let Some(rules) = self.physical_optimizer_rules() {
            rules.retain(|rule| rule.name() != WarplineRule::NAME);
        }
        if let Some(known) = self.analyzer() {
            known
                .rules
                .retain(|rule| !logical_rules::is_name(rule.name()));
        }
        let config = self.config().get_or_insert_default();
        config.options_mut().extensions.insert(device.config());
        logical_rules::rules()
            .into_iter()
            .fold(self, Self::with_analyzer_rule)
            .with_physical_optimizer_rule(Arc::new(WarplineRule::new(device)))
    }
}

impl WarplineExt for SessionContext {
    fn with_warpline(self, device: &Device) -> Self {
        let state = self.state();
        let session_id = state.session_id().to_string();
        let extended = SessionStateBuilder::new_from_existing(state)
            .with_session_id(session_id)
            .with_warpline(device)
            .build();
        // In its place: factories of tables may refer to this state.
        *self.state_ref().write() = extended;
        self
    }
}
