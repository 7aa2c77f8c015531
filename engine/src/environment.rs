//! The environment section of reports: machine, versions and settings.

use std::collections::HashMap;
use std::fs;
use std::sync::LazyLock;
use std::time::SystemTime;

use datafusion::arrow::temporal_conversions::timestamp_s_to_datetime;
use datafusion::config::ConfigOptions;
use warpline_gpu::runtime::Runtime;
use warpline_planner::WarplineConfig;
use warpline_tpch::environment::{DeviceFacts, Environment, Host, Setting, Versions};

use crate::session::WarplineSession;

/// The version of Warpline, the commit of a release, and the versions of what it is built on.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{} ({}; DataFusion {}, Arrow {})",
            env!("CARGO_PKG_VERSION"),
            env!("WARPLINE_COMMIT_TEXT"),
            datafusion::DATAFUSION_VERSION,
            datafusion::arrow::ARROW_VERSION,
        )
    });
    VERSION.as_str()
}

/// The current environment of a session.
pub fn environment(session: &WarplineSession) -> Environment {
    Environment {
        date: now(),
        command: std::env::args().skip(1).collect(),
        host: Host {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: first_value("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            memory_bytes: first_value("/proc/meminfo", "MemTotal")
                .and_then(|text| kibibytes(&text)),
        },
        device: device(session),
        devices: devices(session),
        versions: Versions {
            warpline: env!("CARGO_PKG_VERSION").to_string(),
            datafusion: datafusion::DATAFUSION_VERSION.to_string(),
            build: match cfg!(debug_assertions) {
                true => "debug".to_string(),
                false => "release".to_string(),
            },
        },
        settings: settings(session),
    }
}

/// The time in UTC, to the second.
fn now() -> String {
    let seconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let date = timestamp_s_to_datetime(i64::try_from(seconds).unwrap_or(0));
    date.map_or_else(String::new, |date| date.to_string())
}

fn device(session: &WarplineSession) -> Option<DeviceFacts> {
    let runtime = session.device().runtime()?;
    Some(facts(&runtime, session.device().copy_bandwidth()))
}

/// All of several devices.
fn devices(session: &WarplineSession) -> Vec<DeviceFacts> {
    let runtimes = session.device().runtimes();
    match runtimes.len() {
        0 | 1 => vec![],
        _ => runtimes
            .iter()
            .map(|runtime| facts(runtime, None))
            .collect(),
    }
}

fn facts(runtime: &Runtime, bandwidth: Option<f64>) -> DeviceFacts {
    let info = runtime.device().info();
    let (major, minor) = info.compute_capability;
    DeviceFacts {
        name: info.name.clone(),
        id: info.id.clone(),
        memory_bytes: info.memory as u64,
        budget_bytes: runtime.pool().statistics().budget as u64,
        multiprocessors: info.multiprocessors,
        compute_capability: match info.emulated {
            true => String::new(),
            false => format!("{major}.{minor}"),
        },
        l2_bytes: info.l2_cache as u64,
        driver: info.driver.clone(),
        compiler: info.compiler.clone(),
        copy_gb_per_s: bandwidth.map(|bandwidth| (bandwidth / 1e7).round() / 1e2),
        emulated: info.emulated,
    }
}

/// All settings of Warpline, and those of DataFusion that differ from their defaults.
fn settings(session: &WarplineSession) -> Vec<Setting> {
    let mut defaults = ConfigOptions::new();
    defaults.extensions.insert(WarplineConfig::default());
    // Every session has it.
    defaults.catalog.information_schema = true;
    let defaults: HashMap<String, Option<String>> = defaults
        .entries()
        .into_iter()
        .map(|entry| (entry.key, entry.value))
        .collect();
    let config = session.context().copied_config();
    let mut settings: Vec<Setting> = config
        .options()
        .entries()
        .into_iter()
        .map(|entry| Setting {
            changed: defaults.get(&entry.key) != Some(&entry.value),
            name: entry.key,
            value: entry.value.unwrap_or_default(),
        })
        .filter(|setting| setting.changed || setting.name.starts_with("warpline."))
        .collect();
    settings.sort_by(|a, b| a.name.cmp(&b.name));
    settings
}

/// The value of the first line `key : value` of a file; none where the system has no such file.
fn first_value(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    let (_, value) = line.split_once(':')?;
    Some(value.trim().to_string())
}

/// Bytes of a text such as `16384 kB`.
fn kibibytes(text: &str) -> Option<u64> {
    let number: u64 = text.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}
