//! Workloads drawn at random.

use std::fmt;

use serde::{Deserialize, Serialize};
use warpline_gpu::synthetic::{KeyKind, Returned};

use crate::micro::data::mix;

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
        self.calls.iter().filter_map(|text| call(text)).collect()
    }
}

/// Most rows of a table that a record may speak of; products of rows and shares then stay within 64 bits.
const MOST_ROWS: u64 = 1 << 40;
/// One probing row in so many may match at most.
const MOST_TIMES: u64 = 1 << 20;
/// Largest exponent of a Zipf distribution: beyond it the first key has all but a millionth of the rows.
const MOST_ZIPF: f64 = 20.0;

impl Drawn {
    /// Could this have been drawn? What comes from a file was perhaps written by hand.
    ///
    /// # Errors
    /// Names the field that makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Join(join) => {
                check_number("build_rows", join.build_rows, MOST_ROWS)?;
                check_number("probe_rows", join.probe_rows, MOST_ROWS)?;
                check_number("repeats", join.repeats, MOST_ROWS)?;
                check_number("times", join.times, MOST_TIMES)?;
                check_keys(&join.keys, join.zipf)?;
                check_widths("build_columns", &join.build_columns, &[4, 8])?;
                check_widths("probe_columns", &join.probe_columns, &[4, 8])
            }
            Self::GroupBy(group) => {
                check_number("rows", group.rows, MOST_ROWS)?;
                check_number("groups", group.groups, MOST_ROWS)?;
                check_keys(&group.keys, group.zipf)?;
                check_widths("payload", &group.payload, &[4, 8, 16])?;
                for text in &group.calls {
                    let column = match call(text) {
                        Some(Returned::Count) => None,
                        Some(
                            Returned::Least(column)
                            | Returned::Greatest(column)
                            | Returned::Sum(column),
                        ) => Some(column),
                        None => {
                            return Err(format!(
                                "call {text:?} is none of count, min(c), max(c), sum(c)"
                            ));
                        }
                    };
                    if column.is_some_and(|column| column >= group.payload.len()) {
                        return Err(format!(
                            "call {text:?} is over a column that payload does not have"
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

fn check_number(name: &str, number: u64, most: u64) -> Result<(), String> {
    match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(format!("{name} is {number}, not one of 1 to {most}")),
    }
}

fn check_keys(keys: &str, zipf: f64) -> Result<(), String> {
    if !["dense", "sparse", "wide"].contains(&keys) {
        return Err(format!("keys are {keys:?}, not dense, sparse or wide"));
    }
    match (0.0..=MOST_ZIPF).contains(&zipf) {
        true => Ok(()),
        false => Err(format!("zipf is {zipf}, not from 0 to {MOST_ZIPF}")),
    }
}

fn check_widths(name: &str, widths: &[u32], known: &[u32]) -> Result<(), String> {
    match widths.iter().find(|width| !known.contains(width)) {
        None => Ok(()),
        Some(width) => Err(format!(
            "{name} has a column of {width} bytes, not {known:?}"
        )),
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
fn call(text: &str) -> Option<Returned> {
    if text == "count" {
        return Some(Returned::Count);
    }
    let (name, column) = text.strip_suffix(')')?.split_once('(')?;
    let column = column.parse().ok()?;
    match name {
        "min" => Some(Returned::Least(column)),
        "max" => Some(Returned::Greatest(column)),
        "sum" => Some(Returned::Sum(column)),
        _ => None,
    }
}
