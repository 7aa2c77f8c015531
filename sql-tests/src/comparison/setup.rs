//! How both sides run: device, settings and bounds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use warpline::DeviceChoice;

/// How both sides run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where Warpline runs.
    pub device: DeviceChoice,
    /// Settings of both sides, but those of `warpline.*`, which plain DataFusion does not have.
    pub settings: Vec<(String, String)>,
    /// Longest that one statement may take on a side.
    pub time_limit: Duration,
    /// Time on a side after which no other statement of a file begins.
    pub file_time_limit: Duration,
    /// Bytes that DataFusion's operators may hold on a side.
    pub memory: Option<usize>,
    /// Most rows of an answer; statements with more are passed over.
    pub rows: usize,
}

impl Setup {
    /// A device, with so much time, and without other bounds.
    pub fn new(device: DeviceChoice, time_limit: Duration) -> Self {
        let setting = |key: &str, value: &str| (key.to_string(), value.to_string());
        Self {
            device,
            settings: vec![
                setting("warpline.min_rows", "0"),
                // As many as DataFusion's own runner of such files has.
                setting("datafusion.execution.target_partitions", "4"),
            ],
            time_limit,
            file_time_limit: Duration::MAX,
            memory: None,
            rows: usize::MAX,
        }
    }

    /// Memory, disk and object stores for one side.
    pub(super) fn runtime(&self) -> io::Result<Arc<RuntimeEnv>> {
        let mut builder = RuntimeEnvBuilder::new();
        if let Some(bytes) = self.memory {
            builder = builder.with_memory_limit(bytes, 1.0);
        }
        builder.build_arc().map_err(io::Error::other)
    }
}
