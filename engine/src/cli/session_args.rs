//! Arguments of all commands that open a session: which device, and which settings.

use clap::Args;
use warpline::{ByteSize, DeviceChoice, Error, WarplineSessionBuilder};

/// Which device, and which settings.
#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    /// Device: auto, cuda, cuda:N, emulator or cpu; several as cuda:0,1, cuda:all or emulator:N [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<DeviceChoice>,
    /// Bound the device's memory pool, for example 16GiB [default: what is free]
    #[arg(long, value_name = "SIZE")]
    device_memory: Option<ByteSize>,
    /// Directory for rows of joins, group-bys and sorts that memory has no room for; they go with the query
    #[arg(long, value_name = "DIR")]
    spill_directory: Option<String>,
    /// Fail rather than answer any part of a query on the CPU
    #[arg(long)]
    pub(super) require_gpu: bool,
    /// Let calls of the device fail, to see what happens then, for example allocate:17 or launch:random:1:0.01
    #[arg(long, value_name = "RULES")]
    inject_failures: Option<String>,
    /// Stop a query that runs longer, for example 10s
    #[arg(long, value_name = "TIME")]
    time_limit: Option<String>,
    /// Set a setting of warpline.* or datafusion.*; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
}

impl SessionArguments {
    /// A session builder with these choices.
    pub(super) fn builder(&self) -> WarplineSessionBuilder {
        let mut builder = warpline::WarplineSession::builder().require_gpu(self.require_gpu);
        if let Some(device) = self.device {
            builder = builder.device(device);
        }
        if let Some(size) = self.device_memory {
            builder = builder.device_memory(size);
        }
        for (key, value) in self.named_settings() {
            builder = builder.set(key, value);
        }
        builder
    }

    /// Settings, also those that have an argument of their own.
    pub(super) fn named_settings(&self) -> Vec<(&str, &str)> {
        let named = [
            ("warpline.inject_failures", &self.inject_failures),
            ("warpline.time_limit", &self.time_limit),
            ("warpline.spill_directory", &self.spill_directory),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let others = self.settings.iter();
        named
            .chain(others.map(|(key, value)| (key.as_str(), value.as_str())))
            .collect()
    }

    /// The bound of the device's memory pool.
    #[cfg(feature = "serve")]
    pub(super) fn device_memory(&self) -> Option<ByteSize> {
        self.device_memory
    }
}

fn parse_setting(text: &str) -> Result<(String, String), Error> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err(Error::Setting {
            given: text.to_string(),
        }),
    }
}
