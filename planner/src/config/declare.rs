//! The declaration of settings: one macro makes the struct, its defaults and the list of what there is.

use datafusion::error::Result;

use super::WarplineConfig;

/// What a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// How a query is done: the setting goes with a plan to other machines.
    Query,
    /// A session or a machine: the setting stays where it is.
    Session,
}

/// A setting under `warpline.`.
pub struct SettingInfo {
    /// The name without the prefix.
    pub name: &'static str,
    /// The name with the prefix.
    pub key: &'static str,
    /// What it does, for users.
    pub about: &'static str,
    /// What it belongs to.
    pub scope: Scope,
    pub(super) read: fn(&WarplineConfig) -> String,
    pub(super) write: fn(&mut WarplineConfig, &str) -> Result<()>,
}

impl SettingInfo {
    /// Its value as text.
    pub fn read(&self, config: &WarplineConfig) -> String {
        (self.read)(config)
    }

    /// Sets it to what the text says.
    ///
    /// # Errors
    /// [`datafusion::error::DataFusionError`] that names the valid values, for a text that is none.
    pub fn write(&self, config: &mut WarplineConfig, text: &str) -> Result<()> {
        (self.write)(config, text)
    }
}

/// Each setting: its description, then `name: type as kind = default, scope;`, where the kind is a
/// [`Kind`](super::kinds::Kind) of the type and the scope `query` or `session`.
macro_rules! settings {
    ($($(#[doc = $about:literal])+ $name:ident: $type:ty as $kind:ty = $default:expr, $scope:ident;)+) => {
        /// Warpline's settings; `SET warpline.require_gpu = true` changes one, `SHOW warpline.min_rows` shows one.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct WarplineConfig {
            $($(#[doc = $about])+ pub $name: $type,)+
        }

        impl Default for WarplineConfig {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// All settings.
        pub const SETTINGS: &[SettingInfo] = &[$(
            SettingInfo {
                name: stringify!($name),
                key: concat!("warpline.", stringify!($name)),
                about: concat!($($about),+).trim_ascii_start(),
                scope: $crate::config::declare::scope!($scope),
                read: |config| <$kind as $crate::config::kinds::Kind<$type>>::show(&config.$name),
                write: |config, text| {
                    let setting = concat!("warpline.", stringify!($name));
                    config.$name = <$kind as $crate::config::kinds::Kind<$type>>::parse(setting, text)?;
                    Ok(())
                },
            },
        )+];
    };
}

macro_rules! scope {
    (query) => {
        $crate::config::Scope::Query
    };
    (session) => {
        $crate::config::Scope::Session
    };
}

pub(super) use {scope, settings};
