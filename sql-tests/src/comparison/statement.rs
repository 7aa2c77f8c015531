//! A statement of a file, and why it has no answer.

use std::fmt;

/// A statement of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The line in the file, or in a file that it includes, from 1.
    pub line: u32,
    /// The statement, without a semicolon.
    pub sql: String,
}

impl Statement {
    /// Whether it asks for rows and changes nothing.
    pub fn is_query(&self) -> bool {
        is_query(&self.sql)
    }
}

/// Whether the text asks for rows and changes nothing.
pub(super) fn is_query(sql: &str) -> bool {
    let start = sql.trim_start().to_ascii_lowercase();
    ["select", "with", "from", "values", "("]
        .iter()
        .any(|word| start.starts_with(word))
}

/// Why a statement has no answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// It is not for comparison.
    PassedOver(PassedOver),
    /// It is refused.
    Refused(String),
    /// It panicked.
    Panicked(String),
    /// It took longer than it may.
    OutOfTime,
}

/// Why the answer to a statement was not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassedOver {
    /// Each run may answer otherwise: `random()`, `now()`.
    Volatile,
    /// Plain DataFusion takes longer than a statement may.
    OutOfTime,
    /// The answer has more rows than are compared.
    Large,
    /// It comes after a statement that left the two sides with different tables, or the file took too long.
    Left,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volatile => "another run may answer otherwise",
            Self::OutOfTime => "plain DataFusion ran out of time",
            Self::Large => "the answer has too many rows",
            Self::Left => "the rest of a file that was left",
        })
    }
}
