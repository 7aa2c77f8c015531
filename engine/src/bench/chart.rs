//! Line charts of sweeps as SVG, without a plotting library.

use std::fmt::Write as _;

use super::report::{Point, Report, SweepReport, short};

const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 360.0;
/// Space around the lines: left, right (for the legend), top, bottom.
const MARGIN: [f64; 4] = [70.0, 240.0, 40.0, 50.0];
/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933",
];

/// One chart a sweep, one above the other.
pub(super) fn svg(report: &Report) -> String {
    let height = 30.0 + HEIGHT * report.sweeps.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = format!(
        "{} on {}, {} rows, copy {:.0} GB/s",
        report.benchmark, report.device, report.rows, report.copy_gb_per_s
    );
    text(&mut out, 10.0, 20.0, "start", &title);
    for (number, sweep) in report.sweeps.iter().enumerate() {
        let y = 30.0 + HEIGHT * number as f64;
        let _ = writeln!(out, "<g transform=\"translate(0 {y})\">");
        chart(&mut out, sweep);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// A range of numbers laid out on a range of pixels.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    start: f64,
    end: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, logarithmic: bool, start: f64, end: f64) -> Self {
        let (mut low, mut high) = values
            .filter(|v| v.is_finite() && (!logarithmic || *v > 0.0))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if low == high {
            high = low + 1.0;
        }
        Self {
            low,
            high,
            logarithmic,
            start,
            end,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let scale = |v: f64| {
            if self.logarithmic {
                v.max(self.low).log2()
            } else {
                v
            }
        };
        let share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low));
        self.start + share * (self.end - self.start)
    }

    /// Round numbers on a linear axis, powers of two on a logarithmic one.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (low, high) = (
                self.low.log2().ceil() as i32,
                self.high.log2().floor() as i32,
            );
            let step = ((high - low) / 8 + 1).max(1) as usize;
            return (low..=high).step_by(step).map(|e| 2f64.powi(e)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

fn chart(out: &mut String, sweep: &SweepReport) {
    let [left, right, top, bottom] = MARGIN;
    let xs = sweep.points.iter().map(|p| p.x);
    let x = Axis::new(xs, sweep.logarithmic, left, WIDTH - right);
    let times = sweep.points.iter();
    let times = times.flat_map(|p| [p.ms, p.predicted_ms.unwrap_or(0.0), 0.0]);
    let y = Axis::new(times, false, HEIGHT - bottom, top);
    text(
        out,
        left,
        top - 15.0,
        "start",
        &format!("{}: {}", sweep.sweep, sweep.about),
    );
    let middle = (left + WIDTH - right) / 2.0;
    text(out, middle, HEIGHT - 12.0, "middle", sweep.x);
    text(out, 12.0, top - 15.0, "start", "ms");
    for tick in x.ticks() {
        let at = x.place(tick);
        line(out, (at, y.start), (at, y.end));
        text(out, at, y.start + 16.0, "middle", &short(tick));
    }
    for tick in y.ticks() {
        let at = y.place(tick);
        line(out, (x.start, at), (x.end, at));
        text(out, x.start - 6.0, at + 4.0, "end", &short(tick));
    }
    let mut series: Vec<&str> = Vec::new();
    for point in &sweep.points {
        if !series.contains(&point.series.as_str()) {
            series.push(&point.series);
        }
    }
    for (number, name) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<&Point> = sweep.points.iter().filter(|p| p.series == *name).collect();
        let at = |p: &Point, ms: f64| (x.place(p.x), y.place(ms));
        let measured: Vec<(f64, f64)> = points.iter().map(|p| at(p, p.ms)).collect();
        let predicted: Vec<(f64, f64)> = points
            .iter()
            .filter_map(|p| Some(at(p, p.predicted_ms?)))
            .collect();
        polyline(out, &measured, colour, "");
        polyline(out, &predicted, colour, " stroke-dasharray=\"5 4\"");
        for (cx, cy) in measured {
            let _ = writeln!(
                out,
                "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let row = top + 16.0 * number as f64;
        let legend = WIDTH - right + 14.0;
        let _ = writeln!(
            out,
            "<rect x=\"{legend}\" y=\"{:.1}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>",
            row - 4.0
        );
        text(out, legend + 18.0, row, "start", name);
    }
}

fn polyline(out: &mut String, points: &[(f64, f64)], colour: &str, style: &str) {
    if points.len() < 2 {
        return;
    }
    let places: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let places = places.join(" ");
    let _ = writeln!(
        out,
        "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{style}/>"
    );
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let escaped = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{escaped}</text>"
    );
}
