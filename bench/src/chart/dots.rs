//! Several times of each query as marks on one logarithmic line.

use super::bars::plain;
use super::{Axis, Drawing, Kind, PAGE_WIDTH, significant};

const ROW: f64 = 18.0;
const TOP: f64 = 22.0;
const LEFT: f64 = 40.0;
/// Half of a label such as `10,000`, which lies around the last tick.
const RIGHT: f64 = 22.0;

/// How a time is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Disc,
    Ring,
    Square,
    Tick,
}

/// What a mark means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) colour: &'static str,
}

impl Mark {
    /// The mark alone, for a legend.
    pub(crate) fn key(&self) -> String {
        let mut out = Drawing::default();
        self.draw(&mut out, (7.0, 7.0), "");
        format!(
            "<svg viewBox=\"0 0 14 14\" width=\"14\" height=\"14\" aria-hidden=\"true\">{}</svg>",
            out.into_shapes().trim_end()
        )
    }

    fn draw(&self, out: &mut Drawing, (x, y): (f64, f64), hint: &str) {
        let colour = self.colour;
        match self.shape {
            Shape::Disc => out.circle((x, y), 4.5, colour, hint),
            Shape::Square => out.bar((x - 3.5, y - 3.5), (7.0, 7.0), colour, hint),
            Shape::Tick => out.bar((x - 1.0, y - 6.0), (2.0, 12.0), colour, hint),
            Shape::Ring => out.shape(&format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\">{}</circle>",
                super::title(hint)
            )),
        }
    }
}

/// A line a row, with the marks whose times are known, in milliseconds.
pub(crate) fn dots(rows: &[(String, Vec<Option<f64>>)], marks: &[Mark], label: &str) -> String {
    let mut out = Drawing::default();
    let height = TOP + ROW * rows.len() as f64 + 4.0;
    let known = |times: &[Option<f64>]| -> Vec<f64> {
        let times = times.iter().flatten().copied();
        times.filter(|ms| ms.is_finite() && *ms > 0.0).collect()
    };
    let all: Vec<f64> = rows.iter().flat_map(|(_, times)| known(times)).collect();
    let x = Axis::new(all.into_iter(), Kind::Log10, LEFT, PAGE_WIDTH - RIGHT);
    for tick in x.ticks() {
        let at = x.place(tick);
        out.line((at, TOP), (at, height - 2.0));
        out.text(at, TOP - 7.0, "middle", &plain(tick));
    }
    for (number, (name, times)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        out.text(LEFT - 6.0, y + 4.0, "end", name);
        let places: Vec<f64> = known(times).into_iter().map(|ms| x.place(ms)).collect();
        if let (Some(first), Some(last)) = (
            places.iter().copied().reduce(f64::min),
            places.iter().copied().reduce(f64::max),
        ) {
            out.line((first, y), (last, y));
        }
        for (mark, ms) in marks.iter().zip(times) {
            let Some(ms) = ms.filter(|ms| ms.is_finite() && *ms > 0.0) else {
                continue;
            };
            let hint = format!("{name} {}: {} ms", mark.name, significant(ms));
            mark.draw(&mut out, (x.place(ms), y), &hint);
        }
    }
    out.scaling(PAGE_WIDTH, height, label)
}
