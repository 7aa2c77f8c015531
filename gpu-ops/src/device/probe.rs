//! Probing of the machine's devices, and the reason why one is not usable, in one line each.

use std::fmt;

use super::compiler::Compilers;
use super::{DeviceInfo, cuda, emulated, nvrtc};
use crate::error::{GpuError, Result};

/// One device, or one missing piece, as `warpline devices` shows it.
#[derive(Debug, Clone)]
pub struct DeviceReport {
    /// `cuda:0`, `cuda`, `nvrtc`, `emulator`.
    pub id: String,
    /// True when `--device <id>` works; of `nvrtc`, when kernels can be compiled.
    pub usable: bool,
    /// What was found; `None` when nothing was.
    pub info: Option<DeviceInfo>,
    /// What it is, or why it is not usable and what to do.
    pub text: String,
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<9} {}", self.id, self.text)
    }
}

/// Look for every device; opens none of them.
pub fn probe() -> Vec<DeviceReport> {
    let mut reports = Vec::new();
    match cuda::count() {
        Ok(count) => reports.extend((0..count).map(gpu)),
        Err(error) => reports.push(missing("cuda", &error)),
    }
    reports.push(match compiler() {
        Ok(text) => DeviceReport {
            id: "nvrtc".into(),
            usable: true,
            info: None,
            text,
        },
        Err(error) => missing("nvrtc", &error),
    });
    reports.push(emulator());
    reports
}

fn gpu(index: usize) -> DeviceReport {
    let id = format!("cuda:{index}");
    let info = match cuda::describe(index) {
        Ok(info) => info,
        Err(error) => return missing(&id, &error),
    };
    let compiler = nvrtc::version()
        .map(|(major, minor)| format!("NVRTC {major}.{minor}"))
        .unwrap_or_else(|_| "no NVRTC".into());
    let found = format!(
        "{}, {:.1} GiB, compute capability {}.{}, driver {}, {compiler}",
        info.name,
        info.memory as f64 / f64::from(1 << 30),
        info.compute_capability.0,
        info.compute_capability.1,
        info.driver,
    );
    let (usable, verdict) = match cuda::usable_architecture(&info) {
        Ok(_) => (true, "usable".to_string()),
        Err(error) => (false, format!("not usable: {}", reason(&error))),
    };
    DeviceReport {
        id,
        usable,
        text: format!("{found}: {verdict}"),
        info: Some(info),
    }
}

/// How kernels are compiled for GPUs.
fn compiler() -> Result<String> {
    let (major, minor) = nvrtc::version()?;
    let way = Compilers::of_process()?.way();
    let library = nvrtc::location()?;
    Ok(format!(
        "usable (NVRTC {major}.{minor}, {library}); kernels are compiled by {way}"
    ))
}

fn emulator() -> DeviceReport {
    match emulated::compiler_version() {
        Ok(version) => DeviceReport {
            id: "emulator".into(),
            usable: true,
            info: None,
            text: format!("usable ({version}), for tests"),
        },
        Err(error) => missing("emulator", &error),
    }
}

fn missing(id: &str, error: &GpuError) -> DeviceReport {
    DeviceReport {
        id: id.into(),
        usable: false,
        info: None,
        text: format!("not usable: {}", reason(error)),
    }
}

/// Cause and remedy without the device's name, which the line starts with.
fn reason(error: &GpuError) -> String {
    match error {
        GpuError::DeviceUnavailable { cause, remedy, .. } => format!("{cause}; {remedy}"),
        other => other.to_string(),
    }
}
