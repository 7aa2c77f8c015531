//! The scale factor, validated.

use std::fmt;
use std::str::FromStr;

use crate::error::TpchError;

/// A TPC-H scale factor: 1 is about 1 GB of raw data, 6 million rows of `lineitem`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Scale(f64);

impl Scale {
    /// Below it a supplier or a customer may not exist for the keys that the generator draws.
    pub const MIN: f64 = 0.001;
    /// The largest scale factor of the specification.
    pub const MAX: f64 = 100_000.0;

    /// Checks a scale factor.
    ///
    /// # Errors
    /// [`TpchError::Scale`] when it is not a number from [`Self::MIN`] to [`Self::MAX`].
    pub fn new(factor: f64) -> Result<Self, TpchError> {
        if (Self::MIN..=Self::MAX).contains(&factor) {
            Ok(Self(factor))
        } else {
            Err(Self::error(&factor.to_string()))
        }
    }

    /// The factor as a number.
    pub fn factor(self) -> f64 {
        self.0
    }

    fn error(given: &str) -> TpchError {
        TpchError::Scale {
            given: given.to_string(),
            min: Self::MIN,
            max: Self::MAX,
        }
    }
}

impl FromStr for Scale {
    type Err = TpchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let factor: f64 = text.trim().parse().map_err(|_| Self::error(text))?;
        Self::new(factor).map_err(|_| Self::error(text))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_numbers_in_range() {
        for good in ["1", "0.01", "100", "1e2", " 10 "] {
            assert!(good.parse::<Scale>().is_ok(), "{good}");
        }
        for bad in ["0", "-1", "nan", "inf", "ten", "", "1e9", "0.0001"] {
            let error = bad.parse::<Scale>().expect_err(bad).to_string();
            assert!(error.contains(&format!("'{bad}'")), "{error}");
            assert!(error.contains("0.001"), "{error}");
        }
    }
}
