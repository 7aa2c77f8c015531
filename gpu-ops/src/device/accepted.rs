//! Cache of sources that NVRTC accepted: each is compiled once, and only the outcome is kept on disk.
//!
//! The emulator asks this of every kernel when `WARPLINE_EMULATOR_NVRTC` is set. Processes and runs share the answers;
//! refusals are not kept, so that their logs are seen again.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::cubin_cache::{CacheKey, CubinCache, cache_directory};
use super::nvrtc;
use crate::error::Result;

/// The architecture that stands for all: that of the H100.
const ARCHITECTURE: (u32, u32) = (9, 0);

/// Sources that NVRTC took.
#[derive(Debug)]
pub(super) struct Accepted {
    entries: CubinCache,
}

/// How a source was found to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// NVRTC compiled it just now.
    Compiled,
    /// It did before.
    Remembered,
}

/// A source of this process that somebody asks about; true once it is accepted.
type Asked = Arc<Mutex<bool>>;

/// Who asks for a source that another thread has compiled at the moment waits for it.
static ASKED: LazyLock<Mutex<HashMap<CacheKey, Asked>>> = LazyLock::new(Mutex::default);

impl Accepted {
    /// What is kept in the user's cache.
    pub(super) fn open() -> Self {
        Self {
            entries: CubinCache::new(cache_directory("accepted")),
        }
    }

    /// [`Self::check`] of one source in `many`, by its text; of none for 0.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) fn check_one_in(&self, many: u32, name: &str, source: &str) -> Result<()> {
        let digest = CacheKey::new([source]);
        let number = digest.as_str().get(..8);
        let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let one = number.unwrap_or(0).checked_rem(many);
        match one {
            Some(0) => self.check(name, source).map(drop),
            _ => Ok(()),
        }
    }

    /// Whether NVRTC compiles `source`; `name` stands for it in the compiler's messages.
    ///
    /// # Errors
    /// As [`nvrtc::compile`].
    pub(super) fn check(&self, name: &str, source: &str) -> Result<Found> {
        let (major, minor) = nvrtc::version()?;
        let key = nvrtc::short_key(source, &format!("NVRTC {major}.{minor}"), ARCHITECTURE);
        let asked = Arc::clone(ASKED.lock().entry(key.clone()).or_default());
        let mut accepted = asked.lock();
        if *accepted || self.entries.get(&key).is_some() {
            *accepted = true;
            return Ok(Found::Remembered);
        }
        nvrtc::compile(name, source, ARCHITECTURE)?;
        self.entries.put(&key, &[]);
        *accepted = true;
        Ok(Found::Compiled)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kept_in(folder: &std::path::Path) -> Accepted {
        Accepted {
            entries: CubinCache::new(Some(folder.into())),
        }
    }

    /// A source that no other test asks about.
    fn source(body: &str) -> String {
        format!(
            "#include \"simt.cuh\"\nstruct Args {{ u64* out; }};\nWL_KERNEL(asked, Args, args) {{ {body} }}\n"
        )
    }

    fn available() -> bool {
        let required = std::env::var("WARPLINE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
        let version = nvrtc::version();
        assert!(version.is_ok() || !required, "{version:?}");
        version.is_ok()
    }

    #[test]
    fn of_many_sources_some_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let accepted = kept_in(folder.path());
        // What NVRTC refuses, or what there is no NVRTC for: an error tells that it was asked.
        let asked = |many, number: usize| {
            let source = format!("int wrong = undeclared_{number};");
            accepted.check_one_in(many, "wrong", &source).is_err()
        };
        let count = |many| (0..24).filter(|number| asked(many, *number)).count();
        assert_eq!((count(0), count(1)), (0, 24));
        assert!((1..=12).contains(&count(6)), "{}", count(6));
        assert_eq!(asked(6, 3), asked(6, 3));
    }

    #[test]
    fn a_source_is_compiled_once() {
        if !available() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let accepted = kept_in(folder.path());
        let taken = source("args.out[0] = 1;");
        assert_eq!(accepted.check("asked", &taken).unwrap(), Found::Compiled);
        assert_eq!(accepted.check("asked", &taken).unwrap(), Found::Remembered);
        // As another process sees it.
        ASKED.lock().clear();
        let other = kept_in(folder.path());
        assert_eq!(other.check("asked", &taken).unwrap(), Found::Remembered);
        let changed = source("args.out[0] = 2;");
        assert_eq!(other.check("asked", &changed).unwrap(), Found::Compiled);
    }

    #[test]
    fn a_refusal_is_seen_each_time() {
        if !available() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let accepted = kept_in(folder.path());
        let refused = source("args.out[0] = undeclared;");
        for _ in 0..2 {
            let error = accepted.check("asked", &refused).unwrap_err().to_string();
            assert!(error.contains("undeclared"), "{error}");
        }
    }
}
