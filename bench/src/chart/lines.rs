//! Lines over a parameter: what was measured, what was predicted, what was measured before.

use super::{Axis, COLOURS, Drawing, Kind, PAGE_WIDTH, short};

/// Points of one colour.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// In the legend.
    pub(crate) name: String,
    /// A line with a circle a point.
    pub(crate) measured: Vec<(f64, f64)>,
    /// A dashed line.
    pub(crate) predicted: Vec<(f64, f64)>,
    /// A dotted line.
    pub(crate) earlier: Vec<(f64, f64)>,
}

/// Times, or what else is measured, over a parameter.
#[derive(Debug)]
pub(crate) struct LineChart<'a> {
    /// Above the chart; empty for none.
    pub(crate) title: String,
    /// The parameter, with its unit.
    pub(crate) x: &'a str,
    /// The unit of what is measured.
    pub(crate) unit: &'a str,
    /// Whether the parameter grows by factors.
    pub(crate) logarithmic: bool,
    /// Lines.
    pub(crate) series: Vec<Series>,
}

/// Sizes of a chart in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Space around the lines: left, right, top, bottom.
    pub(super) margin: [f64; 4],
    /// Whether the right margin has the legend; a page has it as text.
    pub(super) legend: bool,
}

impl Layout {
    /// For files of their own.
    pub(crate) const WIDE: Self = Self {
        width: 840.0,
        height: 360.0,
        margin: [70.0, 240.0, 40.0, 50.0],
        legend: true,
    };
    /// For pages.
    pub(crate) const PAGE: Self = Self {
        width: PAGE_WIDTH,
        height: 300.0,
        margin: [52.0, 12.0, 24.0, 44.0],
        legend: false,
    };
}

impl LineChart<'_> {
    /// Draws the chart.
    pub(crate) fn draw(&self, layout: Layout) -> Drawing {
        let mut out = Drawing::default();
        let [left, right, top, bottom] = layout.margin;
        let points = || {
            self.series
                .iter()
                .flat_map(|s| s.measured.iter().chain(&s.predicted).chain(&s.earlier))
        };
        let kind = if self.logarithmic {
            Kind::Log2
        } else {
            Kind::Linear
        };
        let x = Axis::new(points().map(|p| p.0), kind, left, layout.width - right);
        let times = points().map(|p| p.1).chain([0.0]);
        let y = Axis::new(times, Kind::Linear, layout.height - bottom, top);
        if !self.title.is_empty() {
            out.text(left, top - 15.0, "start", &self.title);
        }
        let middle = (left + layout.width - right) / 2.0;
        out.text(middle, layout.height - 10.0, "middle", self.x);
        out.text(12.0, top - 10.0, "start", self.unit);
        for tick in x.ticks() {
            let at = x.place(tick);
            out.line((at, y.start()), (at, y.end()));
            out.text(at, y.start() + 16.0, "middle", &short(tick));
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            out.line((x.start(), at), (x.end(), at));
            out.text(x.start() - 6.0, at + 4.0, "end", &short(tick));
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let placed = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
                points
                    .iter()
                    .map(|(at, ms)| (x.place(*at), y.place(*ms)))
                    .collect()
            };
            let measured = placed(&series.measured);
            out.polyline(
                &placed(&series.earlier),
                colour,
                " stroke-dasharray=\"2 3\"",
            );
            out.polyline(&measured, colour, "");
            out.polyline(
                &placed(&series.predicted),
                colour,
                " stroke-dasharray=\"5 4\"",
            );
            for (centre, (at, ms)) in measured.into_iter().zip(&series.measured) {
                let hint = format!("{} at {}: {ms:.3} {}", series.name, short(*at), self.unit);
                out.circle(centre, 3.0, colour, &hint);
            }
            if layout.legend {
                let row = top + 16.0 * number as f64;
                let legend = layout.width - right + 14.0;
                out.bar((legend, row - 4.0), (12.0, 4.0), colour, "");
                out.text(legend + 18.0, row, "start", &series.name);
            }
        }
        out
    }
}
