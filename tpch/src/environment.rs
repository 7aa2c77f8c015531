//! The environment of a benchmark run: date, machine, versions and settings.

use serde::{Deserialize, Serialize};

/// The circumstances of a run. What is not known is empty or null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// When the run ended, in UTC: `2026-11-22 12:44:49`.
    pub date: String,
    /// The arguments of the program.
    pub command: Vec<String>,
    /// The machine around the device.
    pub host: Host,
    /// The device; null when the CPU answers.
    pub device: Option<DeviceFacts>,
    /// All devices, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceFacts>,
    /// What was built from what.
    pub versions: Versions,
    /// All settings of the engine, and those of others that are not as usual.
    pub settings: Vec<Setting>,
}

impl Environment {
    /// When the run ended, if that is known.
    pub fn date(&self) -> Option<&str> {
        Some(self.date.as_str()).filter(|date| !date.is_empty())
    }
}

/// The machine around the device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Operating system and architecture: `linux x86_64`.
    pub system: String,
    /// The processor's name.
    pub processor: Option<String>,
    /// Cores that the program may use.
    pub cores: usize,
    /// Its memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A device as it was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// Its name: `NVIDIA H200`.
    pub name: String,
    /// Its number: `cuda:0`.
    pub id: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// What the engine may use of that, in bytes.
    pub budget_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability: `9.0`; empty for the emulator.
    pub compute_capability: String,
    /// L2 cache in bytes.
    pub l2_bytes: u64,
    /// Version of the driver; empty for the emulator.
    pub driver: String,
    /// The compiler of kernels, with its version.
    pub compiler: String,
    /// Bandwidth of a plain copy in this run, read plus written, in GB/s.
    pub copy_gb_per_s: Option<f64>,
    /// Times mean nothing.
    pub emulated: bool,
}

/// Versions of what the program is made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// The engine.
    pub warpline: String,
    /// The SQL front end, which answers on the CPU.
    pub datafusion: String,
    /// `release` or `debug`: whether the engine was compiled with optimisation.
    pub build: String,
}

/// A setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// The whole name: `warpline.join`.
    pub name: String,
    /// The value as text; empty for none.
    pub value: String,
    /// Whether it is another one than by default.
    pub changed: bool,
}
