//! Prices: milliseconds by phase, and their building blocks.

use std::fmt;

use warpline_gpu::machine::Machine;

use super::zipf;

/// The expected time of an algorithm.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Price {
    /// Milliseconds in all.
    pub ms: f64,
    /// Milliseconds by phase, in order.
    pub parts: Vec<(&'static str, f64)>,
}

impl Price {
    /// The same with another phase.
    #[must_use]
    pub(super) fn with(mut self, part: &'static str, ms: f64) -> Self {
        self.ms += ms;
        self.parts.push((part, ms));
        self
    }

    /// The same with two phases that overlap: of the shorter one only the share `shown` counts.
    #[must_use]
    pub(super) fn side_by_side(mut self, one: &[&str], other: &[&str], shown: f64) -> Self {
        let sum = |names: &[&str]| names.iter().map(|name| self.part(name)).sum::<f64>();
        let shorter = match sum(one) < sum(other) {
            true => one,
            false => other,
        };
        for (name, ms) in &mut self.parts {
            if shorter.contains(name) {
                *ms *= shown;
            }
        }
        self.ms = self.parts.iter().map(|(_, ms)| ms).sum();
        self
    }

    /// The milliseconds of a phase, 0 when there is none of this name.
    pub fn part(&self, name: &str) -> f64 {
        self.parts
            .iter()
            .filter(|(part, _)| *part == name)
            .map(|(_, ms)| ms)
            .sum()
    }
}

/// Milliseconds to read rows of so many bytes together and to write them down.
pub(crate) fn written(machine: &Machine, bytes: f64) -> f64 {
    /// In copies: a tile's rows are counted before they have a place.
    const WRITTEN: f64 = 1.55;
    machine.stream(2.0 * bytes) * WRITTEN
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", ms(self.ms))?;
        for (i, (part, time)) in self.parts.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{part} {}", ms(*time))?;
        }
        f.write_str(")")
    }
}

/// Milliseconds with three digits.
pub(super) fn ms(ms: f64) -> String {
    let digits = match ms {
        t if t >= 100.0 => 0,
        t if t >= 10.0 => 1,
        t if t >= 1.0 => 2,
        _ => 3,
    };
    format!("{ms:.digits$} ms")
}

/// Random accesses by keys that follow a Zipf distribution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accesses<'a> {
    pub machine: &'a Machine,
    /// Distinct keys that are accessed.
    pub keys: f64,
    /// Their Zipf exponent.
    pub skew: f64,
    /// Accesses come in the order of the keys.
    pub clustered: bool,
}

impl Accesses<'_> {
    /// Milliseconds for `n` reads of `width` bytes from `bytes` bytes. Hot keys stay in the caches, a line each: a read
    /// of the `k`-th most frequent key costs what one from `k` lines does.
    pub(super) fn gather(&self, n: f64, width: f64, bytes: f64) -> f64 {
        const SECTOR: f64 = 32.0;
        /// A cache has room for so many bytes' tags, whichever sectors of a line are there.
        const LINE: f64 = 128.0;
        let machine = self.machine;
        if self.clustered {
            // Neighbours share sectors: as much is read as there is, or a sector an access.
            return machine.stream((n * width.max(SECTOR)).min(bytes.max(n * width)));
        }
        if self.skew <= 0.0 {
            return n * machine.gather(width, bytes) * 1e-9;
        }
        let each = zipf::average(self.keys, self.skew, |keys| {
            machine.gather(width, bytes.min(keys * LINE))
        });
        n * each * 1e-9
    }
}
