//! Settings that go with a plan to other machines.

use datafusion::common::config::ExtensionOptions;
use datafusion::error::{DataFusionError, Result};

use super::WarplineConfig;

/// Settings of a session or a machine: they stay where they are.
const LOCAL: [&str; 9] = [
    "device",
    "device_memory",
    "host_memory",
    "spill_directory",
    "inject_failures",
    "min_rows",
    "plan_cache",
    "plan_cache_size",
    "time_limit",
];

impl WarplineConfig {
    /// Names, without the prefix, and values of the settings that say how a query is done, not where.
    pub fn of_query(&self) -> Vec<(String, String)> {
        let named = self.entries().into_iter().filter_map(|entry| {
            let name = entry.key.strip_prefix("warpline.")?;
            Some((name.to_string(), entry.value?))
        });
        named
            .filter(|(name, _)| !LOCAL.contains(&name.as_str()))
            .collect()
    }

    /// These settings, with those of a query from elsewhere.
    ///
    /// # Errors
    /// [`DataFusionError::Configuration`] for settings that are not those of a query, or that this version does not have.
    pub fn with_query<'a>(
        mut self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        for (name, value) in settings {
            if LOCAL.contains(&name) {
                return Err(DataFusionError::Configuration(format!(
                    "warpline.{name} is not a setting that comes with a plan"
                )));
            }
            self.set(name, value)?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_query_arrives() {
        let mut sent = WarplineConfig::default();
        for (name, value) in [
            ("require_gpu", "true"),
            ("join", "triton"),
            ("group_by", "hgb"),
            ("pipeline", "tree"),
            ("load_balance", "nifs_aws"),
            ("fws_threshold", "77"),
            ("materialization", "eager"),
            ("index_joins", "off"),
            ("overlap_load", "false"),
            ("metrics", "true"),
            ("group_slots", "64"),
            ("blocks", "3"),
        ] {
            sent.set(name, value).expect(name);
        }
        let settings = sent.of_query();
        let settings = || {
            settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
        };
        let arrived = WarplineConfig::default()
            .with_query(settings())
            .expect("settings");
        assert_eq!(arrived, sent);
        // A setting that is new is either of the query, and set above, or local.
        let default = WarplineConfig::default().of_query();
        for ((name, value), (_, default)) in settings().zip(&default) {
            assert_ne!(value, default, "{name}");
        }
        for wrong in [("device", "cuda"), ("nonsense", "1")] {
            assert!(WarplineConfig::default().with_query([wrong]).is_err());
        }
    }
}
