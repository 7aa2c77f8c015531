//! Comparison with an earlier report of the same benchmark, read from its JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::environment::Environment;
use crate::error::{Result, TpchError};
use crate::report::{Report, aligned};
use crate::task::QueryName;

/// An earlier report, as far as it is compared. Reports of older versions lack some values.
#[derive(Debug, Clone, Deserialize)]
pub struct Earlier {
    /// The name of the benchmark's command.
    pub benchmark: String,
    /// The device that answered.
    pub device: String,
    /// Scale factor of the data, where there is such a thing.
    #[serde(default)]
    pub scale: Option<f64>,
    /// What it ran on, unless that was not written down.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Its queries.
    pub queries: Vec<EarlierQuery>,
}

/// One query of an earlier report. Times are milliseconds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EarlierQuery {
    /// Its number in the benchmark's specification, or its name.
    pub query: QueryName,
    /// The first run.
    pub cold_ms: Option<f64>,
    /// The median of the later ones.
    pub hot_median_ms: Option<f64>,
    /// Why the query failed or its answer was wrong.
    pub error: Option<String>,
}

impl Earlier {
    /// Reads a report that `--format json` wrote.
    ///
    /// # Errors
    /// [`TpchError::Io`] when the file cannot be read, [`TpchError::NoReport`] when it holds something else.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| TpchError::io("read", path, error))?;
        serde_json::from_str(&text).map_err(|error| TpchError::NoReport {
            path: path.to_path_buf(),
            reason: error.to_string(),
        })
    }

    /// The hot median of a query that succeeded, in milliseconds.
    pub fn hot_ms(&self, name: &QueryName) -> Option<f64> {
        let query = self.queries.iter().find(|query| query.query == *name)?;
        query.hot_median_ms.filter(|_| query.error.is_none())
    }

    /// What makes the two incomparable, in words: another benchmark, scale or device.
    pub fn differences(&self, report: &Report) -> Vec<String> {
        let mut differences = Vec::new();
        if self.benchmark != report.benchmark {
            differences.push(format!("it ran {}", self.benchmark));
        }
        if self.scale.map(f64::to_bits) != report.scale.map(f64::to_bits) {
            differences.push(match self.scale {
                Some(scale) => format!("its scale is {scale}"),
                None => "it has no scale".to_string(),
            });
        }
        if self.device != report.device {
            differences.push(format!("its device is {}", self.device));
        }
        differences
    }

    /// When it ran, if that is known, for headings.
    pub fn date(&self) -> Option<&str> {
        self.environment.as_ref()?.date()
    }

    /// Queries that both have: name, milliseconds then and now.
    pub fn pairs(&self, report: &Report) -> Vec<(QueryName, f64, f64)> {
        let succeeded = report.queries.iter().filter(|query| query.succeeded());
        succeeded
            .filter_map(|query| {
                let then = self.hot_ms(&query.query).filter(|ms| *ms > 0.0)?;
                Some((query.query.clone(), then, query.hot_median_ms?))
            })
            .collect()
    }

    /// The hot times of both, aligned, with the change of each query, of their sum and of the geometric mean.
    pub fn to_table(&self, report: &Report) -> String {
        let mut text = compared_with(self.date(), &self.differences(report));
        let pairs = self.pairs(report);
        if pairs.is_empty() {
            text.push_str("; no query has a hot time in both\n");
            return text;
        }
        text.push_str("; hot times in ms\n\n");
        let row = |name: String, then: f64, now: f64| {
            vec![
                name,
                format!("{then:.2}"),
                format!("{now:.2}"),
                change(then, now),
            ]
        };
        let mut rows = vec![
            ["query", "then", "now", "change"]
                .map(String::from)
                .to_vec(),
        ];
        rows.extend(
            pairs
                .iter()
                .map(|(query, then, now)| row(query.to_string(), *then, *now)),
        );
        let sum = |of: fn(&(QueryName, f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
        rows.push(row("total".into(), sum(|p| p.1), sum(|p| p.2)));
        text.push_str(&aligned(&rows));
        if let Some(mean) = geometric_mean(pairs.iter().map(|(_, then, now)| now / then)) {
            let _ = writeln!(text, "\ngeometric mean of now / then: {mean:.3}");
        }
        text
    }
}

/// The beginning of a comparison as text: the earlier report's date, and what makes the two incomparable.
pub fn compared_with(date: Option<&str>, differences: &[String]) -> String {
    let of = date.map_or(String::new(), |date| format!(" of {date} UTC"));
    let but = match differences {
        [] => String::new(),
        some => format!("; {}", some.join(", ")),
    };
    format!("\ncompared with an earlier report{of}{but}")
}

/// The change from `then` to `now` in percent, with its sign; a dash when there was nothing.
pub fn change(then: f64, now: f64) -> String {
    if then > 0.0 {
        format!("{:+.0} %", (now / then - 1.0) * 100.0)
    } else {
        "-".to_string()
    }
}

/// The geometric mean of the ratios that are positive and finite; `None` when there is none.
pub fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = ratios
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .fold((0_u32, 0.0), |(count, sum), ratio| {
            (count + 1, sum + ratio.ln())
        });
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Benchmark;
    use crate::report::QueryReport;
    use crate::scale::Scale;
    use crate::task::Subject;

    fn query(number: u8, hot_ms: f64) -> QueryReport {
        QueryReport {
            hot_median_ms: Some(hot_ms),
            ..QueryReport::new(number.into())
        }
    }

    fn report(queries: &[(u8, f64)]) -> Report {
        let scale = Scale::new(0.01).expect("a scale");
        let mut report = Report::new(
            "emulator".into(),
            &Subject::benchmark(Benchmark::Tpch, scale),
        );
        for (number, hot_ms) in queries {
            report.push(query(*number, *hot_ms));
        }
        report
    }

    fn read(json: &str) -> Result<Earlier> {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("old.json");
        fs::write(&path, json).expect("a file");
        Earlier::read(&path)
    }

    #[test]
    fn what_a_report_writes_is_compared_query_by_query() {
        let mut old = report(&[(1, 2.0), (3, 4.0), (6, 1.0)]);
        old.queries[2].error = Some("wrong".into());
        let earlier = read(&old.to_json().expect("JSON")).expect("a report");
        let new = report(&[(1, 1.0), (2, 9.0), (3, 5.0), (6, 1.0)]);
        assert_eq!(
            earlier.pairs(&new),
            [(1.into(), 2.0, 1.0), (3.into(), 4.0, 5.0)]
        );
        let text = earlier.to_table(&new);
        let words: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "Q1 2.00 1.00 -50 %",
            "Q3 4.00 5.00 +25 %",
            "total 6.00 6.00 +0 %",
        ] {
            assert!(words.iter().any(|found| found == line), "{line}: {text}");
        }
        // The square root of 0.5 * 1.25.
        assert!(text.contains("now / then: 0.791"), "{text}");
        assert!(earlier.differences(&new).is_empty());
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let old =
            r#"{"benchmark": "jcch", "device": "cpu", "scale": 1.0, "queries": [{"query": 1}]}"#;
        let earlier = read(old).expect("a report of an older version");
        let text = earlier.to_table(&report(&[(1, 1.0)]));
        assert!(
            text.contains("it ran jcch, its scale is 1, its device is cpu"),
            "{text}"
        );
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        // Nor what took no time, or another query.
        let old = report(&[(1, 0.0), (2, 3.0)]).to_json().expect("JSON");
        let text = read(&old)
            .expect("a report")
            .to_table(&report(&[(1, 1.0), (3, 1.0)]));
        assert!(text.contains("no query has a hot time in both"), "{text}");
        let error = read("[]").expect_err("no report").to_string();
        assert!(
            error.contains("old.json") && error.contains("--format json"),
            "{error}"
        );
    }
}
