//! The secret that the nodes of a cluster share. It is read from a file, and never shown.

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use tonic::codegen::http::HeaderValue;
use tonic::metadata::MetadataMap;

use crate::error::{Error, Result};

/// Where requests bear it.
pub(super) const HEADER: &str = "authorization";

/// Fewer characters can be guessed.
const FEWEST: usize = 16;

/// A shared secret.
#[derive(Clone)]
pub(super) struct Secret(Arc<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The text of a file, without the line's end.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let wrong = |cause: &dyn fmt::Display| {
            Error::Cluster(format!("the secret in {}: {cause}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.len() < FEWEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(&format!(
                "it must be one word of at least {FEWEST} characters, for example from `openssl rand -hex 32`"
            )));
        }
        Ok(Self(text.into()))
    }

    /// The value of [`HEADER`]; whoever prints headers does not see it.
    pub(super) fn header(&self) -> HeaderValue {
        // Such a text is a value of a header.
        let value = HeaderValue::try_from(format!("Bearer {}", self.0));
        let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// Whether a request bears it. Takes as long for one that is nearly right as for any other.
    pub(super) fn is_in(&self, request: &MetadataMap) -> bool {
        let given = request.get(HEADER).and_then(|value| value.to_str().ok());
        let Some(given) = given.and_then(|value| value.strip_prefix("Bearer ")) else {
            return false;
        };
        let (given, own) = (given.as_bytes(), self.0.as_bytes());
        let different = given.iter().zip(own).fold(0, |all, (a, b)| all | (a ^ b));
        given.len() == own.len() && black_box(different) == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_as_a_whole_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "correct-horse-battery\n").unwrap();
        let secret = Secret::read(&path).unwrap();
        assert_eq!(
            format!("{secret:?} {:?}", secret.header()),
            "Secret Sensitive"
        );
        let with = |text: &str| {
            let mut request = MetadataMap::new();
            request.insert(HEADER, text.parse().unwrap());
            secret.is_in(&request)
        };
        assert!(with("Bearer correct-horse-battery"));
        for wrong in [
            "Bearer correct-horse-batterx",
            "Bearer correct-horse-battery2",
            "Bearer correct",
            "Bearer ",
            "correct-horse-battery",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!secret.is_in(&MetadataMap::new()));
        for short in ["", "short", "two words of some length"] {
            fs::write(&path, short).unwrap();
            let message = Secret::read(&path).unwrap_err().to_string();
            assert!(
                message.contains("16") && !message.contains("words of"),
                "{message}"
            );
        }
    }
}
