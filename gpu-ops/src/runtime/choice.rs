//! The choice of a device, or of several of one kind, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{GpuError, Result};

/// Most devices of one session: as many as the bits of a [`GpuSet`].
pub const MOST_DEVICES: usize = 64;

/// Which device a session asks for, or which devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A usable GPU when there is one, else the CPU.
    #[default]
    Auto,
    /// No device: DataFusion answers everything.
    Cpu,
    /// The emulator, for tests.
    Emulator,
    /// So many emulators, each with a memory of its own.
    Emulators(usize),
    /// A GPU, by number or the first usable one.
    Cuda(Option<usize>),
    /// Several GPUs, by number.
    Gpus(GpuSet),
    /// All GPUs that the driver shows.
    AllGpus,
}

impl DeviceChoice {
    /// Does it stand for more than one device?
    pub fn is_several(self) -> bool {
        match self {
            Self::Emulators(count) => count > 1,
            Self::Gpus(set) => set.count() > 1,
            Self::AllGpus => true,
            Self::Auto | Self::Cpu | Self::Emulator | Self::Cuda(_) => false,
        }
    }
}

/// Numbers of GPUs below [`MOST_DEVICES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuSet(u64);

impl GpuSet {
    /// The set with one more GPU; `None` where it is in already, or beyond [`MOST_DEVICES`].
    #[must_use]
    pub fn with(self, gpu: usize) -> Option<Self> {
        let bit = u32::try_from(gpu)
            .ok()
            .and_then(|gpu| 1_u64.checked_shl(gpu))?;
        (self.0 & bit == 0).then_some(Self(self.0 | bit))
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// In ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_DEVICES).filter(move |gpu| self.0 & (1 << gpu) != 0)
    }
}

/// What can be written.
const FORMS: &str =
    "one of auto, cpu, emulator, emulator:N (so many), cuda, cuda:N, cuda:N,N,… or cuda:all";

impl FromStr for DeviceChoice {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |expected: &str| GpuError::InvalidSetting {
            setting: "device".into(),
            value: text.into(),
            expected: expected.into(),
        };
        let lower = text.trim().to_ascii_lowercase();
        match lower.as_str() {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "emulator" => return Ok(Self::Emulator),
            "cuda" => return Ok(Self::Cuda(None)),
            "cuda:all" => return Ok(Self::AllGpus),
            _ => {}
        }
        if let Some(count) = lower.strip_prefix("emulator:")
            && !count.contains(',')
        {
            return match count.parse() {
                Ok(count) if (1..=MOST_DEVICES).contains(&count) => Ok(Self::Emulators(count)),
                Ok(_) => Err(wrong(&format!("emulator:1 to emulator:{MOST_DEVICES}"))),
                Err(_) => Err(wrong(FORMS)),
            };
        }
        let mut set = GpuSet::default();
        let mut parts = lower.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let Some(first) = first.strip_prefix("cuda:") else {
            return Err(wrong(FORMS));
        };
        // `cuda:0,1` and `cuda:0,cuda:1` are the same.
        let more = parts.map(|part| part.strip_prefix("cuda:").unwrap_or(part));
        for part in std::iter::once(first).chain(more) {
            let gpu: usize = part.parse().map_err(|_| {
                let kinds = ["auto", "cpu", "emulator", "all"];
                match kinds.iter().any(|kind| part.starts_with(kind)) {
                    true => wrong("devices of one kind, such as cuda:0,1"),
                    false => wrong(FORMS),
                }
            })?;
            if gpu >= MOST_DEVICES {
                return Err(wrong(&format!("numbers below {MOST_DEVICES}")));
            }
            let with = set.with(gpu);
            set =
                with.ok_or_else(|| wrong(&format!("each GPU once: cuda:{gpu} is there twice")))?;
        }
        Ok(match (set.count(), set.iter().next()) {
            (1, gpu) => Self::Cuda(gpu),
            _ => Self::Gpus(set),
        })
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Emulator => f.write_str("emulator"),
            Self::Emulators(count) => write!(f, "emulator:{count}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
            Self::Gpus(set) => {
                let numbers: Vec<String> = set.iter().map(|gpu| gpu.to_string()).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
            Self::AllGpus => f.write_str("cuda:all"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip() {
        let two = GpuSet::default().with(0).unwrap().with(63).unwrap();
        for (choice, several) in [
            (DeviceChoice::Auto, false),
            (DeviceChoice::Cpu, false),
            (DeviceChoice::Emulator, false),
            (DeviceChoice::Emulators(1), false),
            (DeviceChoice::Emulators(2), true),
            (DeviceChoice::Cuda(None), false),
            (DeviceChoice::Cuda(Some(3)), false),
            (DeviceChoice::Gpus(two), true),
            (DeviceChoice::AllGpus, true),
        ] {
            assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
            assert_eq!(choice.is_several(), several, "{choice}");
        }
        let same = [
            (" CUDA:1 ", "cuda:1"),
            ("cuda:1, 0", "cuda:0,1"),
            ("cuda:0,cuda:2", "cuda:0,2"),
        ];
        for (text, shown) in same {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn wrong_choices_say_what_is_right() {
        let forms = "auto, cpu, emulator, emulator:N";
        for (wrong, right) in [
            ("", forms),
            ("gpu", forms),
            ("cuda:", forms),
            ("cuda:-1", forms),
            ("cuda:x", forms),
            ("cuda:0,", forms),
            ("cpu,cuda:0", forms),
            ("emulator:x", forms),
            ("emulator:0", "emulator:1 to emulator:64"),
            ("emulator:65", "emulator:1 to emulator:64"),
            ("emulator:1,2", forms),
            ("cuda:64", "below 64"),
            ("cuda:1,0,1", "cuda:1 is there twice"),
            ("cuda:0,emulator", "devices of one kind"),
            ("cuda:0,cpu", "devices of one kind"),
        ] {
            let error = wrong.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains(right), "{wrong}: {error}");
        }
    }
}
