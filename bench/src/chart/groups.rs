//! Bars side by side, a group a category: for parameters whose values are names, between which nothing lies.

use super::bars::plain;
use super::{Axis, COLOURS, Drawing, Kind, Layout, significant};

/// Width of a bar, and of the space between two groups.
const BAR: f64 = 5.0;
const GAP: f64 = 10.0;
/// Height of the bars of a row of groups, and of the names below them.
const ROW: f64 = 190.0;
const NAMES: f64 = 30.0;
/// Space between two entries of the legend.
const LEGEND: f64 = 16.0;

/// Bars of one colour.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    /// In the legend.
    pub(crate) name: String,
    /// What was measured, by category; none where nothing was.
    pub(crate) measured: Vec<Option<f64>>,
    /// What was measured before: a dotted line across the bar.
    pub(crate) earlier: Vec<Option<f64>>,
}

/// Times, or what else is measured, of each category on a logarithmic axis. Groups that one row has no room for go on in
/// the next, below it.
#[derive(Debug)]
pub(crate) struct GroupedBars<'a> {
    /// Above the chart; empty for none.
    pub(crate) title: String,
    /// What the categories are.
    pub(crate) x: &'a str,
    /// The unit of what is measured.
    pub(crate) unit: &'a str,
    /// The categories.
    pub(crate) names: Vec<String>,
    /// A bar each in every group, as far as it was measured.
    pub(crate) series: Vec<Bars>,
}

impl GroupedBars<'_> {
    fn group(&self) -> f64 {
        BAR * self.series.len().max(1) as f64 + GAP
    }

    /// Categories in a row; at least one.
    fn a_row(&self, layout: Layout) -> usize {
        let [left, right, ..] = layout.margin;
        ((layout.width - left - right) / self.group())
            .floor()
            .max(1.0) as usize
    }

    /// The height that a layout's width makes of it, in pixels.
    pub(crate) fn height(&self, layout: Layout) -> f64 {
        let [_, _, top, bottom] = layout.margin;
        let rows = self.names.len().div_ceil(self.a_row(layout)).max(1) as f64;
        let bars = top + rows * (ROW + NAMES) + bottom - NAMES;
        match layout.legend {
            true => bars.max(top + LEGEND * self.series.len() as f64),
            false => bars,
        }
    }

    /// Draws the chart, of [`Self::height`].
    pub(crate) fn draw(&self, layout: Layout) -> Drawing {
        let mut out = Drawing::default();
        let [left, right, top, _] = layout.margin;
        let end = layout.width - right;
        let values = || {
            let all = self
                .series
                .iter()
                .flat_map(|s| s.measured.iter().chain(&s.earlier));
            all.flatten().copied().filter(|v| v.is_finite() && *v > 0.0)
        };
        // The smallest has a bar, too.
        let low = values().reduce(f64::min).map(|least| least * 0.8);
        if !self.title.is_empty() {
            out.text(left, top - 15.0, "start", &self.title);
        }
        out.text(12.0, top - 10.0, "start", self.unit);
        let a_row = self.a_row(layout);
        for (row, names) in self.names.chunks(a_row).enumerate() {
            let ceiling = top + row as f64 * (ROW + NAMES);
            let floor = ceiling + ROW;
            let y = Axis::new(values().chain(low), Kind::Log10, floor, ceiling);
            for tick in y.ticks() {
                let at = y.place(tick);
                out.line((left, at), (end, at));
                out.text(left - 6.0, at + 4.0, "end", &plain(tick));
            }
            for (column, name) in names.iter().enumerate() {
                let begin = left + column as f64 * self.group() + GAP / 2.0;
                let middle = begin + (self.group() - GAP) / 2.0;
                out.text(middle, floor + 15.0, "middle", name);
                self.bars(&mut out, row * a_row + column, begin, &y);
            }
        }
        let height = self.height(layout);
        out.text((left + end) / 2.0, height - 8.0, "middle", self.x);
        if layout.legend {
            for (number, series) in self.series.iter().enumerate() {
                let (x, y) = (end + 14.0, top + LEGEND * number as f64);
                let colour = COLOURS[number % COLOURS.len()];
                out.bar((x, y - 8.0), (12.0, 8.0), colour, "");
                out.text(x + 18.0, y, "start", &series.name);
            }
        }
        out
    }

    /// The bars of a category, from `begin` on.
    fn bars(&self, out: &mut Drawing, category: usize, begin: f64, y: &Axis) {
        let drawn = |values: &[Option<f64>]| {
            let value = values.get(category).copied().flatten();
            value.filter(|value| value.is_finite() && *value > 0.0)
        };
        for (number, series) in self.series.iter().enumerate() {
            let x = begin + BAR * number as f64;
            let colour = COLOURS[number % COLOURS.len()];
            let name = self.names.get(category).map_or("", String::as_str);
            if let Some(value) = drawn(&series.measured) {
                let at = y.place(value);
                let hint = format!(
                    "{} {name}, {}: {} {}",
                    self.x,
                    series.name,
                    significant(value),
                    self.unit
                );
                let size = (BAR - 0.5, (y.start() - at).max(1.0));
                out.bar((x, y.start() - size.1), size, colour, &hint);
            }
            if let Some(value) = drawn(&series.earlier) {
                let at = y.place(value);
                let dotted = " stroke-dasharray=\"1.5 1\"";
                out.polyline(&[(x, at), (x + BAR, at)], "#808080", dotted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(categories: usize, series: usize) -> GroupedBars<'static> {
        let bars = |s: usize| Bars {
            name: format!("<mode {s}>"),
            measured: (0..categories)
                .map(|c| (c + s > 0).then(|| 10f64.powi((c % 5) as i32) + s as f64))
                .collect(),
            earlier: vec![],
        };
        GroupedBars {
            title: "a & b".into(),
            x: "query",
            unit: "ms",
            names: (1..=categories).map(|c| c.to_string()).collect(),
            series: (0..series).map(bars).collect(),
        }
    }

    /// The number behind each `name="`.
    fn numbers(svg: &str, name: &str) -> Vec<f64> {
        let begin = format!(" {name}=\"");
        let parts = svg.split(begin.as_str()).skip(1);
        parts
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect()
    }

    #[test]
    fn a_bar_each_and_the_legend_beside_them() {
        let svg = chart(22, 11).draw(Layout::WIDE).into_shapes();
        // One was not measured; the legend has one a series.
        assert_eq!(svg.matches("<rect").count(), 22 * 11 - 1 + 11, "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 0);
        let [left, right, ..] = Layout::WIDE.margin;
        let end = Layout::WIDE.width - right;
        let (x, width) = (numbers(&svg, "x"), numbers(&svg, "width"));
        assert!(
            width.iter().all(|w| *w == BAR - 0.5 || *w == 12.0),
            "{width:?}"
        );
        let bars: Vec<&str> = svg.lines().filter(|l| l.contains("<title>")).collect();
        let of_bars: Vec<f64> = bars.iter().flat_map(|bar| numbers(bar, "x")).collect();
        assert!(
            of_bars.iter().all(|x| *x >= left && x + BAR <= end),
            "{of_bars:?}"
        );
        assert!(x.iter().any(|x| *x > end), "no legend: {svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;mode 3&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn categories_go_on_in_the_next_row_and_stay_inside() {
        for layout in [Layout::WIDE, Layout::PAGE] {
            for (categories, series) in [(0, 0), (1, 1), (3, 2), (22, 11), (40, 11), (2, 90)] {
                let chart = chart(categories, series);
                let height = chart.height(layout);
                let svg = chart.draw(layout).into_shapes();
                let names = svg.matches("text-anchor=\"middle\"").count();
                assert_eq!(names, categories + 1, "{categories} {series}");
                let y = numbers(&svg, "y");
                assert!(
                    y.iter().all(|y| *y >= 0.0 && *y <= height),
                    "{y:?} {height}"
                );
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn bars_grow_with_what_was_measured() {
        let mut chart = chart(3, 1);
        chart.series[0].measured = vec![Some(1.0), Some(10.0), Some(100.0)];
        chart.series[0].earlier = vec![None, Some(5.0), Some(f64::NAN)];
        let svg = chart.draw(Layout::PAGE).into_shapes();
        let heights = numbers(&svg, "height");
        assert_eq!(heights.len(), 3);
        let (first, second) = (heights[1] - heights[0], heights[2] - heights[1]);
        assert!(
            heights[0] >= 1.0 && (first - second).abs() < 0.2,
            "{heights:?}"
        );
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
    }
}
