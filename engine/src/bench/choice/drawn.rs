//! Workloads drawn at random.

use std::fmt;

use serde::{Deserialize, Serialize};
use warpline_gpu::synthetic::{KeyKind, Returned};

use crate::bench::data::mix;

/// A drawn workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drawn {
    /// Two tables joined by a key, all columns of both wanted.
    Join(DrawnJoin),
    /// A table grouped by a key.
    GroupBy(DrawnGroupBy),
}

/// Two tables joined by a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrawnJoin {
    /// Rows of the build side.
    pub build_rows: u64,
    /// Rows of the probing side.
    pub probe_rows: u64,
    /// Build rows of a key.
    pub repeats: u64,
    /// One probing row in so many has a match.
    pub times: u64,
    /// Zipf exponent of the probing keys.
    pub zipf: f64,
    /// dense, sparse or wide.
    pub keys: String,
    /// Bytes of each column.
    pub build_columns: Vec<u32>,
    /// Bytes of each column.
    pub probe_columns: Vec<u32>,
}

impl DrawnJoin {
    /// Different keys of the build side.
    pub(super) fn distinct(&self) -> u64 {
        (self.build_rows / self.repeats).max(1)
    }
}

/// A table grouped by a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrawnGroupBy {
    /// Rows.
    pub rows: u64,
    /// Groups that keys are drawn from.
    pub groups: u64,
    /// Zipf exponent of the keys.
    pub zipf: f64,
    /// dense, sparse or wide.
    pub keys: String,
    /// Bytes of each column.
    pub payload: Vec<u32>,
    /// count, min(c), max(c), sum(c) by number of the column.
    pub calls: Vec<String>,
}

impl DrawnGroupBy {
    /// The calls of the select list.
    pub(super) fn returned(&self) -> Vec<Returned> {
        self.calls.iter().map(|text| call(text)).collect()
    }
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(join) => write!(
                f,
                "join {}x{} with {}, 1/{} matched, zipf {}, {}, {:?} {:?}",
                join.build_rows,
                join.repeats,
                join.probe_rows,
                join.times,
                join.zipf,
                join.keys,
                join.build_columns,
                join.probe_columns
            ),
            Self::GroupBy(group) => write!(
                f,
                "group {} by {}, zipf {}, {}, {:?} {}",
                group.rows,
                group.groups,
                group.zipf,
                group.keys,
                group.payload,
                group.calls.join(" ")
            ),
        }
    }
}

/// A sequence of random draws.
struct Draws {
    seed: u64,
    number: u64,
}

impl Draws {
    fn below(&mut self, values: u64) -> u64 {
        self.number += 1;
        mix(self
            .seed
            .wrapping_mul(0x1_0000_0001)
            .wrapping_add(self.number))
            % values.max(1)
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// A number between powers of two, each power as likely as any.
    fn size(&mut self, least: u32, most: u32) -> u64 {
        let power = u64::from(least) + self.below(u64::from(most.saturating_sub(least)).max(1));
        (1 << power) + self.below(1 << power)
    }
}

/// Workload `number` of a seed; tables have at most `rows` rows.
pub fn drawn(seed: u64, number: u64, rows: u64) -> Drawn {
    let mut draws = Draws {
        seed: mix(seed) ^ number,
        number: number << 20,
    };
    let most = rows.max(1 << 6).ilog2();
    let least = most.saturating_sub(6);
    let keys = draws.of(&["dense", "dense", "sparse", "wide"]).to_string();
    let zipf = draws.of(&[0.0, 0.0, 0.0, 0.5, 1.0, 1.5]);
    if number.is_multiple_of(2) {
        let probe_rows = draws.size(least, most);
        let build_rows = (probe_rows >> draws.below(9)).max(1);
        let repeats = draws.of(&[1, 1, 1, 1, 2, 4]);
        let column = |draws: &mut Draws| -> Vec<u32> {
            let count = draws.below(5) as usize;
            (0..count).map(|_| draws.of(&[4, 4, 4, 8])).collect()
        };
        Drawn::Join(DrawnJoin {
            build_rows,
            probe_rows,
            repeats,
            times: draws.of(&[1, 1, 1, 2, 4, 8, 32]),
            zipf,
            keys,
            build_columns: column(&mut draws),
            probe_columns: column(&mut draws),
        })
    } else {
        let rows = draws.size(least, most);
        let groups = 1 << (1 + draws.below(u64::from(rows.ilog2()).saturating_sub(1).min(24)));
        let columns = 1 + draws.below(3) as usize;
        let payload: Vec<u32> = (0..columns).map(|_| draws.of(&[4, 4, 8, 8, 16])).collect();
        let mut calls: Vec<String> = payload
            .iter()
            .enumerate()
            .map(|(column, width)| match (*width, draws.below(3)) {
                // Extremes of decimals are not checked.
                (16, _) | (_, 0) => format!("sum({column})"),
                (_, 1) => format!("max({column})"),
                _ => format!("min({column})"),
            })
            .collect();
        if draws.below(3) == 0 {
            calls.push("count".to_string());
        }
        Drawn::GroupBy(DrawnGroupBy {
            rows,
            groups,
            zipf,
            keys,
            payload,
            calls,
        })
    }
}

/// Keys by the name of their kind.
pub(super) fn key_kind(name: &str) -> KeyKind {
    match name {
        "dense" => KeyKind::Dense,
        "sparse" => KeyKind::Sparse,
        _ => KeyKind::Wide,
    }
}

/// A call of a select list by its text.
fn call(text: &str) -> Returned {
    let column = text.trim_matches(|c: char| !c.is_ascii_digit());
    let column = column.parse().unwrap_or(0);
    match text.split('(').next() {
        Some("min") => Returned::Least(column),
        Some("max") => Returned::Greatest(column),
        Some("sum") => Returned::Sum(column),
        _ => Returned::Count,
    }
}
