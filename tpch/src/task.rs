//! What is run and measured: a query under the name that reports give it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::benchmark::Benchmark;
use crate::queries::Query;
use crate::scale::Scale;

/// The name of a query: a number of a specification, or what a user calls it. In JSON a number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum QueryName {
    /// The number in the specification, from 1.
    Number(u8),
    /// A name, such as that of the query's file.
    Text(String),
}

impl Default for QueryName {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl From<u8> for QueryName {
    fn from(number: u8) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for QueryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => f.pad(&format!("Q{number}")),
            Self::Text(text) => f.pad(text),
        }
    }
}

impl QueryName {
    /// The name as that of a file, without an extension: letters, digits, dots, dashes and underscores.
    pub fn file_stem(&self) -> String {
        match self {
            Self::Number(number) => format!("q{number:02}"),
            Self::Text(text) => text
                .chars()
                .map(|c| match c {
                    c if c.is_alphanumeric() || matches!(c, '.' | '-' | '_') => c,
                    _ => '_',
                })
                .collect(),
        }
    }
}

/// A query to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: QueryName,
    /// Its text, without a final semicolon.
    pub sql: String,
    /// The text that the reference runs: mostly the same, and another with the same answer where it cannot finish with that.
    pub reference: String,
}

impl Task {
    /// A query that the reference runs as it is.
    pub fn new(name: QueryName, sql: impl Into<String>) -> Self {
        let sql = sql.into();
        Self {
            name,
            reference: sql.clone(),
            sql,
        }
    }
}

impl From<Query> for Task {
    fn from(query: Query) -> Self {
        Self {
            name: query.number.into(),
            reference: query.reference_sql().to_string(),
            sql: query.sql,
        }
    }
}

/// What a report is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// The name of the command that ran it.
    pub command: &'static str,
    /// What people call it.
    pub title: String,
    /// Of JCC-H: which values its queries ask for, and the seed of their parameters.
    pub bindings: Option<(&'static str, i64)>,
    /// Scale factor of the data, where there is such a thing.
    pub scale: Option<f64>,
}

impl Subject {
    /// A benchmark at a scale.
    pub fn benchmark(benchmark: Benchmark, scale: Scale) -> Self {
        let bindings = benchmark.bindings();
        Self {
            command: benchmark.command(),
            title: benchmark.name().to_string(),
            bindings: bindings.map(|(bindings, seed)| (bindings.name(), seed.number())),
            scale: Some(scale.factor()),
        }
    }

    /// Queries of a user.
    pub fn queries(title: impl Into<String>) -> Self {
        Self {
            command: "queries",
            title: title.into(),
            bindings: None,
            scale: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_or_texts() {
        let number = QueryName::from(6);
        let text = QueryName::Text("daily/top 10".into());
        assert_eq!(
            (number.to_string(), number.file_stem()),
            ("Q6".into(), "q06".into())
        );
        assert_eq!(text.to_string(), "daily/top 10");
        assert_eq!(text.file_stem(), "daily_top_10");
        let json = serde_json::to_string(&[number.clone(), text.clone()]).expect("JSON");
        assert_eq!(json, r#"[6,"daily/top 10"]"#);
        let read: Vec<QueryName> = serde_json::from_str(&json).expect("names");
        assert_eq!(read, [number, text]);
    }
}
