//! Comparison with an earlier report of micro-benchmarks, read from its JSON.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use warpline_tpch::compare::{change, compared_with, geometric_mean};
use warpline_tpch::environment::Environment;

use super::report::{Report, align};
use crate::chart::short;
use crate::error::{Error, Result};

/// An earlier report, as far as it is compared.
#[derive(Debug, Clone, Deserialize)]
pub struct EarlierReport {
    /// The benchmark.
    pub benchmark: String,
    /// The device.
    pub device: String,
    /// Rows of the largest inputs.
    pub rows: u64,
    /// What it ran on, unless that was not written down.
    #[serde(default)]
    pub environment: Option<Environment>,
    sweeps: Vec<EarlierSweep>,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierSweep {
    sweep: String,
    points: Vec<EarlierPoint>,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierPoint {
    series: String,
    x: f64,
    ms: f64,
}

impl EarlierReport {
    /// Reads a report that `--format json` wrote.
    ///
    /// # Errors
    /// [`Error::Bench`] when the file cannot be read or holds something else.
    pub fn read(path: &Path) -> Result<Self> {
        let file = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Bench(format!("{file} cannot be read: {error}")))?;
        serde_json::from_str(&text).map_err(|error| {
            Error::Bench(format!(
                "{file} is no report of a benchmark: {error}; give a file that --format json wrote"
            ))
        })
    }

    /// The median of a point in milliseconds.
    pub fn ms(&self, sweep: &str, series: &str, x: f64) -> Option<f64> {
        let sweep = self.sweeps.iter().find(|s| s.sweep == sweep)?;
        let same = |p: &&EarlierPoint| p.series == series && p.x.to_bits() == x.to_bits();
        sweep.points.iter().find(same).map(|point| point.ms)
    }

    /// The points of a series, as they were.
    pub(crate) fn series(&self, sweep: &str, series: &str) -> Vec<(f64, f64)> {
        let sweeps = self.sweeps.iter().filter(|s| s.sweep == sweep);
        sweeps
            .flat_map(|s| &s.points)
            .filter(|point| point.series == series)
            .map(|point| (point.x, point.ms))
            .collect()
    }

    /// What makes the two incomparable, in words: another benchmark, other sizes or another device.
    pub fn differences(&self, report: &Report) -> Vec<String> {
        let mut differences = Vec::new();
        if self.benchmark != report.benchmark {
            differences.push(format!("it ran {}", self.benchmark));
        }
        if self.rows != report.rows {
            differences.push(format!("its largest inputs have {} rows", self.rows));
        }
        if self.device != report.device {
            differences.push(format!("its device is {}", self.device));
        }
        differences
    }

    /// When it ran, if that is known.
    pub fn date(&self) -> Option<&str> {
        self.environment.as_ref()?.date()
    }

    /// The ratio of now to then of each point that both have.
    pub fn ratios(&self, report: &Report) -> Vec<f64> {
        let mut ratios = Vec::new();
        for sweep in &report.sweeps {
            for point in &sweep.points {
                let then = self.ms(sweep.sweep, &point.series, point.x);
                ratios.extend(then.filter(|ms| *ms > 0.0).map(|then| point.ms / then));
            }
        }
        ratios
    }

    /// The points that both have, aligned, with the change of each and of the geometric mean.
    pub fn to_table(&self, report: &Report) -> String {
        let mut text = compared_with(self.date(), &self.differences(report));
        text.push('\n');
        for sweep in &report.sweeps {
            let header = ["series", sweep.x, "then ms", "now ms", "change"];
            let mut table = vec![header.map(String::from).to_vec()];
            for point in &sweep.points {
                if let Some(then) = self.ms(sweep.sweep, &point.series, point.x) {
                    table.push(vec![
                        point.series.clone(),
                        short(point.x),
                        format!("{then:.3}"),
                        format!("{:.3}", point.ms),
                        change(then, point.ms),
                    ]);
                }
            }
            let _ = writeln!(text, "\n{}: {}", sweep.sweep, sweep.about);
            text.push_str(&align(&table));
        }
        if let Some(mean) = geometric_mean(self.ratios(report).into_iter()) {
            let _ = writeln!(text, "\ngeometric mean of now / then: {mean:.3}");
        }
        text
    }
}
