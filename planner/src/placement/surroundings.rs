//! What placement depends on beside the plan.

use std::sync::Arc;

use warpline_gpu::machine::Machine;
use warpline_gpu::tables::TableCache;

use crate::config::WarplineConfig;

/// Settings, prices and what is resident.
pub(super) struct Surroundings<'a> {
    pub(super) config: &'a WarplineConfig,
    /// The device's constants, for prices.
    pub(super) machine: Arc<Machine>,
    /// The columns that are resident.
    pub(super) tables: Option<&'a TableCache>,
    /// Threads that DataFusion runs a query on.
    pub(super) cores: usize,
}

impl Surroundings<'_> {
    /// The same with other settings.
    pub(super) fn with<'b>(&'b self, config: &'b WarplineConfig) -> Surroundings<'b> {
        Surroundings {
            config,
            machine: Arc::clone(&self.machine),
            ..*self
        }
    }
}
