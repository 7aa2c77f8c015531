//! Settings that go with a query to the workers. Those of machine and session stay where they are.

use std::str::FromStr;

use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};

use crate::client_settings::CLIENT_SETTINGS;

/// What the names of their headers begin with.
const PREFIX: &str = "x-warpline-set-";

/// DataFusion's settings that change what expressions yield; all else of them is in the plan.
const DATAFUSION: &[&str] = &[
    "datafusion.execution.enable_ansi_mode",
    "datafusion.execution.time_zone",
];

fn travels(name: &str) -> bool {
    // How the devices of this process share a query is no matter of a worker's.
    let of_a_query = CLIENT_SETTINGS.contains(&name) && !name.starts_with("warpline.shard");
    of_a_query || DATAFUSION.contains(&name)
}

/// Headers with the settings of a session.
pub(super) fn headers(options: &ConfigOptions) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for entry in options.entries() {
        let (true, Some(value)) = (travels(&entry.key), entry.value) else {
            continue;
        };
        let wrong = || {
            let what = format!("'{value}' of {} cannot be sent to workers", entry.key);
            DataFusionError::Configuration(what)
        };
        let name = HeaderName::from_str(&format!("{PREFIX}{}", entry.key)).map_err(|_| wrong())?;
        headers.insert(name, HeaderValue::from_str(&value).map_err(|_| wrong())?);
    }
    Ok(headers)
}

/// Takes the settings of a query's headers over.
pub(super) fn take_over(options: &mut ConfigOptions, headers: &HeaderMap) -> Result<()> {
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(PREFIX) else {
            continue;
        };
        if !travels(name) {
            return Err(DataFusionError::Configuration(format!(
                "{name} is not a setting that comes with a query: it is the worker's"
            )));
        }
        let value = value.to_str().map_err(|_| {
            DataFusionError::Configuration(format!("the value of {name} is no text"))
        })?;
        options.set(name, value)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use warpline_planner::WarplineConfig;

    use super::*;

    fn options() -> ConfigOptions {
        let mut options = ConfigOptions::new();
        options.extensions.insert(WarplineConfig::default());
        options
    }

    #[test]
    fn settings_of_a_query_travel_and_those_of_the_machine_do_not() {
        let mut sent = options();
        for (name, value) in [
            ("warpline.join", "triton"),
            ("warpline.min_rows", "7"),
            ("warpline.spill_directory", "/somewhere"),
            ("datafusion.execution.time_zone", "+02:00"),
            ("datafusion.execution.batch_size", "17"),
        ] {
            sent.set(name, value).unwrap();
        }
        let headers = headers(&sent).unwrap();
        let mut arrived = options();
        take_over(&mut arrived, &headers).unwrap();
        let config = WarplineConfig::of(&arrived);
        assert_eq!(config.min_rows, 7);
        assert_eq!(config.of_query(), WarplineConfig::of(&sent).of_query());
        assert_eq!(config.spill_directory, "");
        assert_eq!(arrived.execution.time_zone.as_deref(), Some("+02:00"));
        assert_ne!(arrived.execution.batch_size, sent.execution.batch_size);
        for name in ["warpline.device_memory", "datafusion.execution.batch_size"] {
            let mut forged = HeaderMap::new();
            let name = HeaderName::from_str(&format!("{PREFIX}{name}")).unwrap();
            forged.insert(name, HeaderValue::from_static("1"));
            assert!(take_over(&mut options(), &forged).is_err());
        }
    }
}
