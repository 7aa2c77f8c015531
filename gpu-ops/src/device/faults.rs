//! Failure plans: which calls of a device fail, as text, and the counters that find them.
//!
//! A plan is a list of rules, separated by commas: `allocate:17, launch:random:7:0.01`. A rule names what fails
//! and, after a colon, which calls: `N` (the N-th from the moment the plan is set), `N:COUNT` (that many from the N-th on),
//! `random:SEED:P` (each with probability P, the same ones for the same seed), nothing (every call).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::column::mix;
use crate::error::{GpuError, Result};

/// The setting that holds a plan, for errors.
const SETTING: &str = "warpline.inject_failures";

/// What can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A buffer from the pool, whether or not the device is asked for its memory ([`super::Device::admit`]).
    Buffer,
    /// [`super::Device::allocate`]; fails as if the device's memory were full.
    Allocate,
    /// [`super::Device::create_stream`].
    CreateStream,
    /// [`super::Device::copy_to_device`].
    CopyToDevice,
    /// [`super::Device::copy_to_host`].
    CopyToHost,
    /// [`super::Device::copy_on_device`].
    CopyOnDevice,
    /// [`super::Device::fill`].
    Fill,
    /// [`super::Device::compile`].
    Compile,
    /// The compiled kernel that the cache on disk holds: it is damaged just before it is looked for.
    Cubin,
    /// [`super::Device::launch`].
    Launch,
    /// [`super::Device::synchronize`].
    Synchronize,
    /// No call: the query that makes a launch is stopped, as if nobody waited for its answer any more.
    Stop,
}

impl Operation {
    /// Number of operations.
    pub(super) const COUNT: usize = 12;

    /// What a lost device cannot do.
    const CALLS: [Self; 10] = [
        Self::Buffer,
        Self::Allocate,
        Self::CreateStream,
        Self::CopyToDevice,
        Self::CopyToHost,
        Self::CopyOnDevice,
        Self::Fill,
        Self::Compile,
        Self::Launch,
        Self::Synchronize,
    ];
}

/// What a rule may name.
const NAMES: [(&str, &[Operation]); 13] = [
    ("allocate", &[Operation::Buffer]),
    ("device_allocate", &[Operation::Allocate]),
    (
        "copy",
        &[
            Operation::CopyToDevice,
            Operation::CopyToHost,
            Operation::CopyOnDevice,
        ],
    ),
    ("upload", &[Operation::CopyToDevice]),
    ("download", &[Operation::CopyToHost]),
    ("fill", &[Operation::Fill]),
    ("launch", &[Operation::Launch]),
    ("compile", &[Operation::Compile]),
    ("cubin", &[Operation::Cubin]),
    ("synchronize", &[Operation::Synchronize]),
    ("stream", &[Operation::CreateStream]),
    ("stop", &[Operation::Stop]),
    (LOST, &Operation::CALLS),
];

/// The rule after which the device counts as lost.
const LOST: &str = "lost";

/// Which of the calls fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// `count` calls from number `first` (from 1) on.
    From { first: u64, count: u64 },
    /// Each with this probability.
    Random { seed: u64, probability: f64 },
}

impl When {
    fn hits(self, call: u64) -> bool {
        match self {
            Self::From { first, count } => call >= first && call - first < count,
            Self::Random { seed, probability } => {
                // 53 bits make a number from 0 to below 1.
                let drawn = mix(seed ^ mix(call)) >> 11;
                (drawn as f64) < probability * (1_u64 << 53) as f64
            }
        }
    }
}

#[derive(Debug)]
struct Rule {
    operations: &'static [Operation],
    /// The device is lost with the failure.
    lost: bool,
    when: When,
    calls: AtomicU64,
}

/// A failure that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strike {
    /// Number of the call that it meets, counted by its rule.
    pub(super) call: u64,
    /// The device counts as lost from now on.
    pub(super) lost: bool,
}

/// Rules for the calls of a device, and how many calls they have seen.
#[derive(Debug, Default)]
pub struct FailurePlan {
    text: String,
    rules: Vec<Rule>,
    injected: AtomicU64,
}

impl FailurePlan {
    /// The `nth` call (1 is the next) of one operation fails, once.
    pub(super) fn once(operation: Operation, nth: u64) -> Self {
        let operations = Operation::CALLS.iter().position(|o| *o == operation);
        Self {
            text: format!("{operation:?}:{nth}"),
            rules: vec![Rule {
                operations: operations.map_or(&[], |at| &Operation::CALLS[at..=at]),
                lost: false,
                when: When::From {
                    first: nth,
                    count: 1,
                },
                calls: AtomicU64::new(0),
            }],
            injected: AtomicU64::new(0),
        }
    }

    /// Failures so far.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// True when no call will fail, whatever happens.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Count a call; does it fail?
    pub(super) fn strike(&self, operation: Operation) -> Option<Strike> {
        let mut strike = None;
        for rule in &self.rules {
            if !rule.operations.contains(&operation) {
                continue;
            }
            let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if rule.when.hits(call) {
                let lost = rule.lost || strike.is_some_and(|s: Strike| s.lost);
                strike = Some(Strike { call, lost });
            }
        }
        if strike.is_some() {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        strike
    }
}

impl fmt::Display for FailurePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FailurePlan {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        Ok(Self {
            text: text.trim().to_string(),
            rules: parts.map(rule).collect::<Result<_>>()?,
            injected: AtomicU64::new(0),
        })
    }
}

fn rule(text: &str) -> Result<Rule> {
    let wrong = || {
        let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        GpuError::InvalidSetting {
            setting: SETTING.into(),
            value: text.into(),
            expected: format!(
                "rules separated by commas, each one of {} and after a colon N, N:COUNT, random:SEED:P or nothing",
                names.join(", ")
            ),
        }
    };
    let mut words = text.split(':').map(str::trim);
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    let known = NAMES.iter().find(|(known, _)| *known == name);
    let (name, operations) = known.ok_or_else(wrong)?;
    let words: Vec<&str> = words.collect();
    let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
    let when = match words.as_slice() {
        [] => Some(When::From {
            first: 1,
            count: u64::MAX,
        }),
        ["random", seed, probability] => {
            let probability = probability.parse::<f64>().ok();
            let probability = probability.filter(|p| (0.0..=1.0).contains(p));
            let seed = seed.parse::<u64>().ok();
            seed.zip(probability)
                .map(|(seed, probability)| When::Random { seed, probability })
        }
        [first] => number(first).map(|first| When::From { first, count: 1 }),
        [first, count] => number(first)
            .zip(number(count))
            .map(|(first, count)| When::From { first, count }),
        _ => None,
    };
    Ok(Rule {
        operations,
        lost: *name == LOST,
        when: when.ok_or_else(wrong)?,
        calls: AtomicU64::new(0),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn failing(text: &str, operations: &[Operation]) -> Vec<usize> {
        let plan: FailurePlan = text.parse().unwrap();
        let strikes = operations.iter().map(|o| plan.strike(*o).is_some());
        let failing = strikes.enumerate().filter(|(_, s)| *s).map(|(i, _)| i);
        let failing: Vec<usize> = failing.collect();
        assert_eq!(plan.injected(), failing.len() as u64);
        failing
    }

    #[test]
    fn rules_count_their_own_calls() {
        use Operation::{Buffer, CopyToDevice, CopyToHost, Fill, Launch};
        let calls = [
            Buffer,
            Launch,
            Buffer,
            CopyToDevice,
            CopyToHost,
            Launch,
            Fill,
            Buffer,
        ];
        for (text, expected) in [
            ("", &[][..]),
            ("allocate:2", &[2]),
            (" Allocate : 2 , launch:1,", &[1, 2]),
            ("allocate", &[0, 2, 7]),
            ("allocate:2:5", &[2, 7]),
            ("copy:2", &[4]),
            ("upload, fill:1", &[3, 6]),
            ("lost:3", &[2]),
            ("launch:random:1:1", &[1, 5]),
            ("launch:random:1:0", &[]),
        ] {
            assert_eq!(failing(text, &calls), expected, "{text}");
        }
    }

    #[test]
    fn random_failures_repeat_and_are_as_many_as_asked_for() {
        let calls = [Operation::Launch; 10_000];
        let some = failing("launch:random:7:0.1", &calls);
        assert!((800..1200).contains(&some.len()), "{}", some.len());
        assert_eq!(failing("launch:random:7:0.1", &calls), some);
        assert_ne!(failing("launch:random:8:0.1", &calls), some);
    }

    #[test]
    fn wrong_rules_say_what_is_right() {
        for wrong in [
            "memory",
            "allocate:0",
            "allocate:x",
            "allocate:1:0",
            "allocate:1:2:3",
            "launch:random:1",
            "launch:random:1:1.5",
            "launch:random:x:0.5",
            "launch:-1",
        ] {
            let error = wrong.parse::<FailurePlan>().unwrap_err().to_string();
            assert!(
                error.contains("random:SEED:P") && error.contains("device_allocate"),
                "{error}"
            );
        }
    }
}
