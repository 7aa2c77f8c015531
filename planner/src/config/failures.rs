//! The setting that says which calls of the device are to fail, for tests.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use warpline_gpu::GpuError;
use warpline_gpu::device::faulty::FailurePlan;

/// Failures to inject; none by default. Setting the same text again counts from the beginning again.
#[derive(Debug, Clone, Default)]
pub struct Failures(Option<Arc<FailurePlan>>);

impl Failures {
    /// The plan to inject.
    pub fn plan(&self) -> Option<&Arc<FailurePlan>> {
        self.0.as_ref()
    }
}

impl PartialEq for Failures {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(this), Some(other)) => Arc::ptr_eq(this, other),
            _ => false,
        }
    }
}

impl Eq for Failures {}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |plan| plan.fmt(f))
    }
}

impl FromStr for Failures {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let plan: FailurePlan = text.parse()?;
        Ok(Self((!plan.is_empty()).then(|| Arc::new(plan))))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn failures_set_again_are_others() {
        let parse = |text: &str| text.parse::<Failures>().unwrap();
        assert_eq!(parse(""), Failures::default());
        assert_eq!(parse(" , "), Failures::default());
        let once = parse("allocate:17");
        assert_eq!(once, once.clone());
        assert_ne!(once, parse("allocate:17"));
        assert_eq!(once.to_string(), "allocate:17");
        assert!("allocate:0".parse::<Failures>().is_err());
    }
}
