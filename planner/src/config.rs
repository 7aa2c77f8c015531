//! The settings under `warpline.`: what they are called, may hold and default to.

use std::fmt;
use std::str::FromStr;

use datafusion::common::config::{ConfigExtension, ConfigField, Visit};
use datafusion::common::extensions_options;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use warpline_gpu::GpuError;
use warpline_gpu::runtime::DeviceChoice;

use crate::error::PlannerError;

extensions_options! {
    /// Warpline's settings; `SET warpline.require_gpu = true` changes one, `SHOW warpline.min_rows` shows one.
    pub struct WarplineConfig {
        /// Device that runs fragments: auto (the first usable GPU, else the CPU), cpu, emulator, cuda or cuda:N. Read when the session is opened.
        pub device: DeviceSetting, default = DeviceSetting::default()

        /// When true, a query of which any part would fall back to the CPU is an error; warpline.min_rows does not apply then.
        pub require_gpu: bool, default = false

        /// Tables with fewer rows stay on the CPU, which is done with them before a kernel is launched and its answer fetched.
        pub min_rows: usize, default = DEFAULT_MIN_ROWS

        /// Device memory that Warpline may use, in bytes; 0 means all but a reserve. Read when the session is opened.
        pub device_memory: usize, default = 0

        /// Where the states of grouped aggregations live: auto, private (registers), shared (shared memory) or global (device memory). A placement that is impossible for a query is replaced and EXPLAIN ANALYZE says why.
        pub group_by: GroupBy, default = GroupBy::Auto
    }
}

/// A launch, the copy of its answer and the stream's synchronisation take about a tenth of a
/// millisecond together, in which DataFusion aggregates some ten thousand rows on a few cores.
pub const DEFAULT_MIN_ROWS: usize = 10_000;

impl ConfigExtension for WarplineConfig {
    const PREFIX: &'static str = "warpline";
}

impl WarplineConfig {
    /// The settings of a session; the defaults when it was built without them.
    pub fn of(options: &ConfigOptions) -> Self {
        options
            .extensions
            .get::<Self>()
            .cloned()
            .unwrap_or_default()
    }

    /// Rows below which a table stays on the CPU; none are too few when the GPU is required.
    pub fn effective_min_rows(&self) -> usize {
        if self.require_gpu { 0 } else { self.min_rows }
    }
}

/// The device that a session asks for, as a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSetting(pub DeviceChoice);

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for DeviceSetting {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        text.parse().map(Self)
    }
}

/// Where the states of grouped aggregations live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupBy {
    /// By the number of groups and the size of their states.
    #[default]
    Auto,
    /// In each thread's registers.
    Private,
    /// In each block's shared memory.
    Shared,
    /// In device memory.
    Global,
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Global => "global",
        })
    }
}

impl FromStr for GroupBy {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "private" => Ok(Self::Private),
            "shared" => Ok(Self::Shared),
            "global" => Ok(Self::Global),
            _ => Err(PlannerError::Setting {
                setting: "warpline.group_by",
                value: text.to_string(),
                valid: "auto, private, shared, global",
            }),
        }
    }
}

/// A setting that is one word.
macro_rules! word_setting {
    ($type:ty) => {
        impl ConfigField for $type {
            fn visit<V: Visit>(&self, visitor: &mut V, key: &str, description: &'static str) {
                visitor.some(key, self, description);
            }

            fn set(&mut self, _: &str, value: &str) -> Result<()> {
                *self = value.parse().map_err(DataFusionError::from)?;
                Ok(())
            }
        }
    };
}

word_setting!(DeviceSetting);
word_setting!(GroupBy);
