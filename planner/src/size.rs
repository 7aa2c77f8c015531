//! Sizes in bytes as people write them: `16GiB`, `512MB`.

use std::fmt;
use std::str::FromStr;

use crate::error::PlannerError;

/// A number of bytes. `kB`, `MB`, `GB`, `TB` are powers of 1000; `KiB`, `MiB`, `GiB`, `TiB`, and the bare letters
/// `K`, `M`, `G`, `T`, are powers of 1024.
///
/// ```
/// use warpline_planner::ByteSize;
///
/// assert_eq!("16GiB".parse::<ByteSize>()?, ByteSize(16 << 30));
/// assert_eq!("512MB".parse::<ByteSize>()?, ByteSize(512_000_000));
/// assert_eq!(ByteSize(3 << 19).to_string(), "1.5 MiB");
/// # Ok::<(), warpline_planner::PlannerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

impl FromStr for ByteSize {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PlannerError::Size {
            given: text.to_string(),
        };
        let trimmed = text.trim();
        let unit_start = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_start);
        let unit: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(error()),
        };
        let bytes = number.parse::<f64>().map_err(|_| error())? * unit;
        // 2^53 bytes are exact as a float and more than any device has.
        if (1.0..=9_007_199_254_740_992.0).contains(&bytes) {
            Ok(Self(bytes as usize))
        } else {
            Err(error())
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(unit > 0);
        write!(f, "{value:.digits$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimal_and_binary_units() {
        for (text, bytes) in [
            ("16GiB", 16 << 30),
            ("512MB", 512_000_000),
            ("1.5 kib", 1536),
            ("100", 100),
            ("2g", 2 << 30),
        ] {
            assert_eq!(text.parse::<ByteSize>().expect(text), ByteSize(bytes));
        }
        for bad in [
            "",
            "GiB",
            "-1GB",
            "1XB",
            "1e3",
            "0",
            "1.2.3MB",
            "inf",
            "99999999TB",
        ] {
            let error = bad.parse::<ByteSize>().expect_err(bad).to_string();
            assert!(error.contains("16GiB"), "{error}");
        }
    }

    #[test]
    fn prints_in_binary_units() {
        assert_eq!(ByteSize(16 << 30).to_string(), "16.0 GiB");
        assert_eq!(ByteSize(100).to_string(), "100 B");
    }
}
