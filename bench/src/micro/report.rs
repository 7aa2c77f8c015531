//! Reports of micro-benchmarks: a table for people, JSON for tools, charts for papers.

use std::fmt::Write as _;

use serde::Serialize;

use warpline_tpch::WorkBalance;
use warpline_tpch::environment::Environment;

use super::chart;
use super::{Spacing, Sweep, Timing};
use crate::chart::short;
use crate::error::{Error, Result};

/// Bytes of a run for which device memory had no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// That came from host memory: columns, and partitions that had been spilled.
    pub streamed: u64,
    /// Of results that lay in host memory.
    pub spilled: u64,
}

/// One measurement. Times are medians in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The line it belongs to: everything that a sweep varies besides its parameter.
    pub series: String,
    /// The sweep's parameter.
    pub x: f64,
    /// Rows of the input.
    pub rows: u64,
    /// The whole run.
    pub ms: f64,
    /// Its parts.
    pub phases: Vec<(&'static str, f64)>,
    /// Bytes that must be read and written, whatever the algorithm's detours.
    pub bytes: u64,
    /// What the cost model says, where there is one.
    pub predicted_ms: Option<f64>,
    /// What ran, where it was chosen by price.
    pub algorithm: Option<String>,
    /// How evenly lanes and warps worked, where that was counted.
    pub balance: Option<WorkBalance>,
    /// What crossed the link to host memory, where that is measured.
    pub link: Option<LinkBytes>,
    /// `bytes` divided by the time, in GB/s.
    pub gb_per_s: f64,
    /// The same as a share of the bandwidth of a plain copy.
    pub of_copy: f64,
}

impl Point {
    /// A point whose bandwidths are filled in by the report.
    pub fn new(series: impl Into<String>, x: f64, rows: u64, bytes: u64, timing: Timing) -> Self {
        Self {
            series: series.into(),
            x,
            rows,
            ms: timing.ms,
            phases: timing.phases,
            bytes,
            predicted_ms: None,
            algorithm: None,
            balance: None,
            link: None,
            gb_per_s: 0.0,
            of_copy: 0.0,
        }
    }

    /// The same with the time that a cost model predicts.
    #[must_use]
    pub fn predicted(mut self, ms: f64) -> Self {
        self.predicted_ms = Some(ms);
        self
    }

    /// The same with what was chosen, and its price.
    #[must_use]
    pub fn chosen(mut self, ms: Option<f64>, algorithm: &str) -> Self {
        self.predicted_ms = ms;
        self.algorithm = Some(algorithm.to_string());
        self
    }

    /// The same with how evenly the work was spread.
    #[must_use]
    pub fn balanced(mut self, balance: Option<WorkBalance>) -> Self {
        self.balance = balance;
        self
    }

    /// The same with what crossed the link to host memory.
    #[must_use]
    pub fn over_link(mut self, link: LinkBytes) -> Self {
        self.link = Some(link);
        self
    }

    /// One line: series, parameter, milliseconds, prediction, megabytes, bandwidth, its share of a copy's, what was
    /// chosen, rows a second and megabytes over the link where that is measured, and the parts.
    pub fn to_line(&self) -> String {
        let predicted = self
            .predicted_ms
            .map_or(String::new(), |ms| format!("{ms:.3}"));
        let mut line = format!(
            "{:<26} {:>8} {:>10.3} {predicted:>10} {:>9.1} {:>6.0} {:>7.2}",
            self.series,
            short(self.x),
            self.ms,
            self.bytes as f64 / 1e6,
            self.gb_per_s,
            self.of_copy
        );
        if let Some(balance) = &self.balance {
            let _ = write!(
                line,
                "  IIR {:.1} % ILIF {:.2} in {} trees",
                balance.iir * 100.0,
                balance.ilif,
                balance.pipelines
            );
        }
        let chosen = self
            .algorithm
            .as_ref()
            .filter(|a| !self.series.ends_with(*a));
        if let Some(algorithm) = chosen {
            let _ = write!(line, "  {algorithm}");
        }
        if let Some(link) = &self.link {
            let _ = write!(
                line,
                "  {:.3} Grows/s  streamed {:.0} MB  spilled {:.0} MB",
                self.rows as f64 / 1e6 / self.ms.max(1e-6),
                link.streamed as f64 / 1e6,
                link.spilled as f64 / 1e6
            );
        }
        // A single phase is the total.
        if self.phases.len() > 1 {
            for (name, ms) in &self.phases {
                let _ = write!(line, "  {name} {ms:.3}");
            }
        }
        line
    }
}

/// All points of a sweep.
#[derive(Debug, Clone, Serialize)]
pub struct SweepReport {
    /// Its name.
    pub sweep: &'static str,
    /// What was varied.
    pub about: &'static str,
    /// The parameter, with its unit.
    pub x: &'static str,
    /// What lies between its values.
    pub spacing: Spacing,
    /// In the order in which they were measured.
    pub points: Vec<Point>,
}

impl SweepReport {
    pub(crate) fn new(sweep: &Sweep) -> Self {
        Self {
            sweep: sweep.name,
            about: sweep.about,
            x: sweep.x,
            spacing: sweep.spacing,
            points: Vec::new(),
        }
    }

    /// What the lines of points are headed with.
    pub fn heading(&self) -> String {
        format!(
            "{}: {}\n{:<26} {:>8} {:>10} {:>10} {:>9} {:>6} {:>7}  chosen, and phases in ms",
            self.sweep, self.about, "series", "x", "ms", "predicted", "MB", "GB/s", "of copy"
        )
    }

    /// The kinds of work that any point has; none when there is one only, which is the total.
    pub(crate) fn phases(&self) -> Vec<&'static str> {
        let mut phases: Vec<&str> = Vec::new();
        for (name, _) in self.points.iter().flat_map(|p| &p.phases) {
            if !phases.contains(name) {
                phases.push(name);
            }
        }
        if phases.len() == 1 {
            phases.clear();
        }
        phases
    }

    /// Aligned columns: series, parameter, phases, total, prediction, bytes, bandwidth, share of a copy's, and where it was
    /// counted the idle lanes and the busiest warp over the mean.
    pub fn to_table(&self) -> String {
        let phases = self.phases();
        let predicted = self.points.iter().any(|p| p.predicted_ms.is_some());
        let mut header = vec!["series".to_string(), self.x.to_string()];
        header.extend(phases.iter().map(|p| format!("{p} ms")));
        header.push("ms".to_string());
        if predicted {
            header.push("predicted ms".to_string());
        }
        header.extend(["MB", "GB/s", "of copy"].map(str::to_string));
        let balanced = self.points.iter().any(|p| p.balance.is_some());
        if balanced {
            header.extend(["IIR %", "ILIF"].map(str::to_string));
        }
        let rows = self.points.iter().map(|point| {
            let mut row = vec![point.series.clone(), short(point.x)];
            row.extend(phases.iter().map(|name| {
                let mut times = point.phases.iter().filter(|(phase, _)| phase == name);
                times
                    .next()
                    .map_or(String::new(), |(_, ms)| format!("{ms:.3}"))
            }));
            row.push(format!("{:.3}", point.ms));
            if predicted {
                row.push(
                    point
                        .predicted_ms
                        .map_or(String::new(), |ms| format!("{ms:.3}")),
                );
            }
            row.push(format!("{:.1}", point.bytes as f64 / 1e6));
            row.push(format!("{:.0}", point.gb_per_s));
            row.push(format!("{:.2}", point.of_copy));
            if balanced {
                let of = |cell: fn(&WorkBalance) -> String| point.balance.as_ref().map(cell);
                row.push(of(|b| format!("{:.1}", b.iir * 100.0)).unwrap_or_default());
                row.push(of(|b| format!("{:.2}", b.ilif)).unwrap_or_default());
            }
            row
        });
        let table: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
        let mut text = format!("{}: {}\n", self.sweep, self.about);
        text.push_str(&align(&table));
        text
    }
}

/// All sweeps of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The benchmark.
    pub benchmark: String,
    /// The device.
    pub device: String,
    /// Bandwidth of a plain copy in this run, read plus written.
    pub copy_gb_per_s: f64,
    /// Rows of the largest inputs.
    pub rows: u64,
    /// Timed runs of each point.
    pub runs: usize,
    /// What it ran on, as far as whoever ran it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// In the order in which they ran.
    pub sweeps: Vec<SweepReport>,
}

impl Report {
    /// Adds a point to the last sweep.
    pub(crate) fn push(&mut self, mut point: Point) {
        point.gb_per_s = point.bytes as f64 / 1e6 / point.ms.max(1e-6);
        point.of_copy = point.gb_per_s / self.copy_gb_per_s;
        if let Some(sweep) = self.sweeps.last_mut() {
            sweep.points.push(point);
        }
    }

    /// The last point as a line, the first of a sweep below a heading.
    pub fn last_line(&self) -> String {
        let Some((sweep, point)) = self
            .sweeps
            .last()
            .and_then(|sweep| Some((sweep, sweep.points.last()?)))
        else {
            return String::new();
        };
        match sweep.points.len() {
            1 => format!("\n{}\n{}\n", sweep.heading(), point.to_line()),
            _ => format!("{}\n", point.to_line()),
        }
    }

    /// What was measured on what.
    pub fn title(&self) -> String {
        format!(
            "{} on {}: {} rows, median of {} runs, copy {:.0} GB/s\n",
            self.benchmark, self.device, self.rows, self.runs, self.copy_gb_per_s
        )
    }

    /// A table a sweep.
    pub fn to_table(&self) -> String {
        let mut text = self.title();
        for sweep in &self.sweeps {
            text.push('\n');
            text.push_str(&sweep.to_table());
        }
        text
    }

    /// One JSON object.
    ///
    /// # Errors
    /// [`Error::Bench`] when a number has no form in JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::Bench(format!("the report has no JSON form: {error}")))
    }

    /// A chart a sweep, one above the other: lines, of which the dashed ones are predictions, or groups of bars.
    pub fn to_svg(&self) -> String {
        chart::svg(self)
    }
}

/// Columns side by side, the first to the left, numbers to the right.
pub(super) fn align(table: &[Vec<String>]) -> String {
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| {
            let cells = table.iter().filter_map(|row| row.get(c));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in table {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let sweep = Sweep {
            name: "size",
            about: "what is copied",
            x: "bytes",
            spacing: Spacing::Factors,
            run: |_, _| Box::pin(async { Ok(()) }),
        };
        let timing = |a, b| Timing {
            phases: vec![("count", a), ("move", b)],
            ms: a + b,
        };
        let points = vec![
            Point::new("<4 bytes>", 8192.0, 10, 3_000_000, timing(0.5, 1.0)),
            Point::new("<4 bytes>", 16384.0, 10, 6_000_000, timing(1.0, 1.0)).predicted(1.5),
            Point::new("8 bytes", 10_000.0, 10, 1, timing(0.0, 0.0)),
        ];
        let mut report = Report {
            benchmark: "test".into(),
            device: "none & all".into(),
            copy_gb_per_s: 4.0,
            rows: 10,
            runs: 3,
            environment: None,
            sweeps: vec![SweepReport::new(&sweep)],
        };
        points.into_iter().for_each(|point| report.push(point));
        report
    }

    #[test]
    fn tables_have_phases_and_shares() {
        let text = report().to_table();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[3].join(" "),
            "series bytes count ms move ms ms predicted ms MB GB/s of copy"
        );
        assert_eq!(
            lines[4].join(" "),
            "<4 bytes> 2^13 0.500 1.000 1.500 3.0 2 0.50"
        );
        assert_eq!(
            lines[5].join(" "),
            "<4 bytes> 2^14 1.000 1.000 2.000 1.500 6.0 3 0.75"
        );
        assert!(lines[6].contains(&"10000"), "{text}");
    }

    #[test]
    fn tables_say_how_evenly_work_was_spread() {
        let mut report = report();
        assert!(!report.to_table().contains("ILIF"));
        report.sweeps[0].points[1].balance = Some(WorkBalance {
            pipelines: 2,
            iir: 0.0123,
            ilif: 1.456,
        });
        let text = report.to_table();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].ends_with("IIR %  ILIF"), "{text}");
        assert!(lines[5].ends_with(" 1.2  1.46"), "{text}");
        assert!(lines[4].trim_end().ends_with("0.50"), "{text}");
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn json_has_every_point() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json().unwrap()).unwrap();
        let points = json["sweeps"][0]["points"].as_array().unwrap();
        assert_eq!(points.len(), 3);
        assert_eq!(points[1]["predicted_ms"], 1.5);
        assert_eq!(points[0]["phases"][1][0], "move");
    }

    #[test]
    fn names_have_bars_and_no_lines_between_them() {
        let mut report = report();
        report.sweeps[0].spacing = Spacing::Names;
        let svg = report.to_svg();
        assert_eq!(svg.matches("<polyline").count(), 0, "{svg}");
        // Two points, for the third took no time; two series in the legend; the white ground.
        assert_eq!(svg.matches("<rect").count(), 2 + 2 + 1, "{svg}");
        assert!(svg.contains(">10000</text>"), "{svg}");
        // The chart below the first begins where that one ends.
        let sweep = report.sweeps[0].clone();
        report.sweeps.push(sweep);
        let both = report.to_svg();
        let height = |svg: &str| -> Option<f64> {
            svg.split("height=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        };
        let (one, two) = (height(&svg), height(&both));
        assert!(one < two, "{one:?} {two:?}");
    }

    #[test]
    fn charts_have_a_line_a_series_and_a_dashed_one_a_prediction() {
        let svg = report().to_svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // The series of one point has a mark and no line; one prediction makes no line either.
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(
            svg.contains("&lt;4 bytes&gt;") && svg.contains("none &amp; all"),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
