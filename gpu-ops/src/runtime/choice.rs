//! The choice of a device, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{GpuError, Result};

/// Which device a session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A usable GPU when there is one, else the CPU.
    #[default]
    Auto,
    /// No device: DataFusion answers everything.
    Cpu,
    /// The emulator, for tests.
    Emulator,
    /// A GPU, by number or the first usable one.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let number = lower.strip_prefix("cuda:").map(str::parse);
        match (lower.as_str(), number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("emulator", _) => Ok(Self::Emulator),
            ("cuda", _) => Ok(Self::Cuda(None)),
            (_, Some(Ok(index))) => Ok(Self::Cuda(Some(index))),
            _ => Err(GpuError::InvalidSetting {
                setting: "device".into(),
                value: text.into(),
                expected: "auto, cpu, emulator, cuda or cuda:N".into(),
            }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Emulator => f.write_str("emulator"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip() {
        for choice in [
            DeviceChoice::Auto,
            DeviceChoice::Cpu,
            DeviceChoice::Emulator,
            DeviceChoice::Cuda(None),
            DeviceChoice::Cuda(Some(3)),
        ] {
            assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
        }
        assert_eq!(
            " CUDA:1 ".parse::<DeviceChoice>().unwrap(),
            DeviceChoice::Cuda(Some(1))
        );
    }

    #[test]
    fn wrong_choices_say_what_is_right() {
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "emulator:1"] {
            let error = wrong.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(
                error.contains("auto, cpu, emulator, cuda or cuda:N"),
                "{error}"
            );
        }
    }
}
