//! Line charts of sweeps as SVG.

use super::report::{Report, SweepReport};
use crate::chart::{Drawing, Layout, LineChart, Series};

/// One chart a sweep, one above the other.
pub(super) fn svg(report: &Report) -> String {
    let layout = Layout::WIDE;
    let height = 30.0 + layout.height * report.sweeps.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        layout.width
    );
    let mut title = Drawing::default();
    let words = format!(
        "{} on {}, {} rows, copy {:.0} GB/s",
        report.benchmark, report.device, report.rows, report.copy_gb_per_s
    );
    title.text(10.0, 20.0, "start", &words);
    out.push_str(&title.into_shapes());
    for (number, sweep) in report.sweeps.iter().enumerate() {
        let y = 30.0 + layout.height * number as f64;
        let title = format!("{}: {}", sweep.sweep, sweep.about);
        let shapes = lines(sweep, title).draw(layout).into_shapes();
        out.push_str(&format!(
            "<g transform=\"translate(0 {y})\">\n{shapes}</g>\n"
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// The points of a sweep as lines: a series each, dashed what was predicted.
pub(crate) fn lines(sweep: &SweepReport, title: String) -> LineChart<'_> {
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
        logarithmic: sweep.logarithmic,
        series,
    }
}
