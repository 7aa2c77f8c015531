//! Settings that go with a plan to other machines.

use datafusion::common::config::ExtensionOptions;
use datafusion::error::{DataFusionError, Result};

use super::{SETTINGS, Scope, SettingInfo, WarplineConfig};

impl WarplineConfig {
    /// Names, without the prefix, and values of the settings that say how a query is done, not where.
    pub fn of_query(&self) -> Vec<(String, String)> {
        let of_query = SETTINGS.iter().filter(|s| s.scope == Scope::Query);
        of_query
            .map(|setting| (setting.name.to_string(), setting.read(self)))
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
            let local =
                |setting: &SettingInfo| setting.name == name && setting.scope == Scope::Session;
            if SETTINGS.iter().any(local) {
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
            ("range_joins", "pairs"),
            ("late_columns", "on"),
            ("lane_refill", "on"),
            ("reentry", "on"),
            ("overlap_load", "false"),
            ("cold", "wait"),
            ("parquet", "device"),
            ("value_tables", "false"),
            ("computed_columns", "off"),
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
