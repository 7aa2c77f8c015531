//! Charts as SVG, without a plotting library: lines, bars, groups of bars and dots, for files of their own and for pages.
//!
//! Colours are attributes, which a page's style sheet may override by the classes `words` and `grid`.

mod axis;
mod bars;
mod dots;
mod groups;
mod lines;

use std::fmt::Write as _;

pub(crate) use axis::{Axis, Kind};
pub(crate) use bars::{ratios, shares};
pub(crate) use dots::{Mark, Shape, dots};
pub(crate) use groups::{Bars, GroupedBars};
pub(crate) use lines::{Layout, LineChart, Series};

/// Colours that people with any colour vision tell apart (the first six are Okabe and Ito's), and that stand out on white and on black.
pub(crate) const COLOURS: [&str; 11] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808080", "#999933",
    "#aa3377", "#44aa99", "#b08a5c",
];

/// Width of charts in pages, in units of which a phone shows one a pixel.
pub(crate) const PAGE_WIDTH: f64 = 420.0;

/// A drawing that grows by shapes.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    shapes: String,
}

impl Drawing {
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.shapes,
            "<line class=\"grid\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: &str, words: &str) {
        let _ = writeln!(
            self.shapes,
            "<text class=\"words\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(words)
        );
    }

    /// A rectangle with a text that shows when it is pointed at.
    pub(crate) fn bar(&mut self, corner: (f64, f64), size: (f64, f64), colour: &str, hint: &str) {
        let _ = writeln!(
            self.shapes,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\">{}</rect>",
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1,
            title(hint)
        );
    }

    pub(crate) fn circle(&mut self, centre: (f64, f64), radius: f64, colour: &str, hint: &str) {
        let _ = writeln!(
            self.shapes,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{colour}\">{}</circle>",
            centre.0,
            centre.1,
            title(hint)
        );
    }

    pub(crate) fn shape(&mut self, svg: &str) {
        self.shapes.push_str(svg);
        self.shapes.push('\n');
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], colour: &str, style: &str) {
        if points.len() < 2 {
            return;
        }
        let places: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let places = places.join(" ");
        let _ = writeln!(
            self.shapes,
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{style}/>"
        );
    }

    /// The shapes without a frame, to be put into another drawing.
    pub(crate) fn into_shapes(self) -> String {
        self.shapes
    }

    /// A drawing that scales to where it is put; `label` says what it shows to those who do not see it.
    pub(crate) fn scaling(self, width: f64, height: f64, label: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n{}</svg>\n",
            escaped(label),
            self.shapes
        )
    }
}

fn title(hint: &str) -> String {
    if hint.is_empty() {
        return String::new();
    }
    format!("<title>{}</title>", escaped(hint))
}

/// Text that stands for itself in SVG and HTML, in attributes too.
pub(crate) fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A number without needless digits; large ones as powers of two where they are.
pub(crate) fn short(x: f64) -> String {
    let whole = x as u64;
    if x >= 4096.0 && whole as f64 == x && whole.is_power_of_two() {
        return format!("2^{}", whole.trailing_zeros());
    }
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A number with three digits that count, and thousands apart.
pub(crate) fn significant(x: f64) -> String {
    if !x.is_finite() {
        return "-".to_string();
    }
    let digits = match x.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        size => (2 - size.log10().floor() as i32).clamp(3, 6) as usize,
    };
    let text = format!("{x:.digits$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.as_str(), None),
    };
    let (sign, whole) = match whole.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{sign}{grouped}.{fraction}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let pairs = [
            (1_234_567.0, "1,234,567"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.0, "0.00"),
            (0.1234, "0.123"),
            (0.001_234, "0.00123"),
            (-1234.0, "-1,234"),
            (f64::NAN, "-"),
        ];
        for (number, text) in pairs {
            assert_eq!(significant(number), text);
        }
    }
}
