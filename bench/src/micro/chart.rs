//! Charts of sweeps as SVG: lines over a parameter, or bars where its values are names.

use super::Spacing;
use super::report::{Report, SweepReport};
use crate::chart::{Bars, Drawing, GroupedBars, Layout, LineChart, Series, short};

/// The chart of a sweep.
pub(crate) enum Chart<'a> {
    Lines(LineChart<'a>),
    Bars(GroupedBars<'a>),
}

impl<'a> Chart<'a> {
    /// What was measured, under a title.
    pub(crate) fn of(sweep: &'a SweepReport, title: String) -> Self {
        match sweep.spacing {
            Spacing::Names => Self::Bars(bars(sweep, title)),
            Spacing::Steps | Spacing::Factors => Self::Lines(lines(sweep, title)),
        }
    }

    /// Names of its series in the order of their colours.
    pub(crate) fn series(&self) -> Vec<&str> {
        match self {
            Self::Lines(chart) => chart.series.iter().map(|s| s.name.as_str()).collect(),
            Self::Bars(chart) => chart.series.iter().map(|s| s.name.as_str()).collect(),
        }
    }

    /// Adds what was measured before: of a series' name the points.
    pub(crate) fn earlier(&mut self, points: impl Fn(&str) -> Vec<(f64, f64)>) {
        match self {
            Self::Lines(chart) => {
                for series in &mut chart.series {
                    series.earlier = points(&series.name);
                }
            }
            Self::Bars(chart) => {
                for series in &mut chart.series {
                    let points = points(&series.name);
                    let of = |name: &String| points.iter().find(|(x, _)| short(*x) == *name);
                    let values = chart.names.iter().map(|name| of(name).map(|(_, ms)| *ms));
                    series.earlier = values.collect();
                }
            }
        }
    }

    /// The height that a layout makes of it, in pixels.
    pub(crate) fn height(&self, layout: Layout) -> f64 {
        match self {
            Self::Lines(_) => layout.height,
            Self::Bars(chart) => chart.height(layout),
        }
    }

    /// Draws it.
    pub(crate) fn draw(&self, layout: Layout) -> Drawing {
        match self {
            Self::Lines(chart) => chart.draw(layout),
            Self::Bars(chart) => chart.draw(layout),
        }
    }
}

/// One chart a sweep, one above the other.
pub(super) fn svg(report: &Report) -> String {
    let layout = Layout::WIDE;
    let mut title = Drawing::default();
    let words = format!(
        "{} on {}, {} rows, copy {:.0} GB/s",
        report.benchmark, report.device, report.rows, report.copy_gb_per_s
    );
    title.text(10.0, 20.0, "start", &words);
    let mut shapes = title.into_shapes();
    let mut y = 30.0;
    for sweep in &report.sweeps {
        let chart = Chart::of(sweep, format!("{}: {}", sweep.sweep, sweep.about));
        let drawn = chart.draw(layout).into_shapes();
        shapes.push_str(&format!(
            "<g transform=\"translate(0 {y})\">\n{drawn}</g>\n"
        ));
        y += chart.height(layout);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{shapes}</svg>\n",
        layout.width
    )
}

/// The points of a sweep as bars: a series each, a group each value of the parameter.
fn bars(sweep: &SweepReport, title: String) -> GroupedBars<'_> {
    let mut names: Vec<String> = Vec::new();
    let mut series: Vec<Bars> = Vec::new();
    for point in &sweep.points {
        let name = short(point.x);
        if !names.contains(&name) {
            names.push(name);
        }
        if !series.iter().any(|bars| bars.name == point.series) {
            series.push(Bars {
                name: point.series.clone(),
                ..Bars::default()
            });
        }
    }
    for bars in &mut series {
        let of = |name: &String| {
            let mut points = sweep.points.iter();
            points.find(|p| p.series == bars.name && short(p.x) == *name)
        };
        bars.measured = names.iter().map(|name| of(name).map(|p| p.ms)).collect();
    }
    GroupedBars {
        title,
        x: sweep.x,
        unit: "ms",
        names,
        series,
    }
}

/// The points of a sweep as lines: a series each, dashed what was predicted.
fn lines(sweep: &SweepReport, title: String) -> LineChart<'_> {
    let mut series: Vec<Series> = Vec::new();
    for point in &sweep.points {
        let at = series.iter().position(|line| line.name == point.series);
        let line = match at {
            Some(at) => &mut series[at],
            None => {
                series.push(Series {
                    name: point.series.clone(),
                    ..Series::default()
                });
                let last = series.len() - 1;
                &mut series[last]
            }
        };
        line.measured.push((point.x, point.ms));
        line.predicted
            .extend(point.predicted_ms.map(|ms| (point.x, ms)));
    }
    LineChart {
        title,
        x: sweep.x,
        unit: "ms",
        logarithmic: sweep.spacing == Spacing::Factors,
        series,
    }
}
