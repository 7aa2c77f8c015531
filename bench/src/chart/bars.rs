//! Horizontal bars with a label each: ratios to one, and shares of a whole.

use super::{Axis, COLOURS, Drawing, Kind, PAGE_WIDTH, significant};

const ROW: f64 = 18.0;
const TOP: f64 = 22.0;
/// Space for labels, and for what stands behind a bar.
const LEFT: f64 = 40.0;
const RIGHT: f64 = 58.0;

/// Bars from one to a ratio on a logarithmic axis, of another colour below one. What has no ratio has no bar.
pub(crate) fn ratios(rows: &[(String, Option<f64>)], label: &str) -> String {
    let mut out = Drawing::default();
    let height = TOP + ROW * rows.len() as f64 + 4.0;
    let values = rows.iter().filter_map(|(_, ratio)| *ratio).chain([1.0]);
    let x = Axis::new(values, Kind::Log10, LEFT, PAGE_WIDTH - RIGHT);
    for tick in x.ticks() {
        let at = x.place(tick);
        out.line((at, TOP), (at, height - 2.0));
        out.text(at, TOP - 7.0, "middle", &plain(tick));
    }
    let one = x.place(1.0);
    for (number, (name, ratio)) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        out.text(LEFT - 6.0, y + 13.0, "end", name);
        let Some(ratio) = ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0) else {
            out.text(one + 6.0, y + 13.0, "start", "-");
            continue;
        };
        let end = x.place(ratio);
        let colour = COLOURS[usize::from(ratio < 1.0)];
        let hint = format!("{name}: {ratio:.3}");
        let size = (one - end).abs().max(1.0);
        out.bar((one.min(end), y + 3.0), (size, ROW - 6.0), colour, &hint);
        out.text(one.max(end) + 5.0, y + 13.0, "start", &significant(ratio));
    }
    out.line((one, TOP), (one, height - 2.0));
    out.scaling(PAGE_WIDTH, height, label)
}

/// Bars of one length, cut in proportion to the parts; behind each the sum of its parts.
pub(crate) fn shares(rows: &[(String, Vec<f64>)], parts: &[&str], label: &str) -> String {
    let mut out = Drawing::default();
    let height = TOP + ROW * rows.len() as f64 + 4.0;
    let x = Axis::new(
        [0.0, 100.0].into_iter(),
        Kind::Linear,
        LEFT,
        PAGE_WIDTH - RIGHT,
    );
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let at = x.place(tick);
        out.line((at, TOP), (at, height - 2.0));
        out.text(at, TOP - 7.0, "middle", &format!("{tick} %"));
    }
    for (number, (name, times)) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        out.text(LEFT - 6.0, y + 13.0, "end", name);
        let sum: f64 = times.iter().sum();
        if sum <= 0.0 {
            out.text(LEFT + 6.0, y + 13.0, "start", "-");
            continue;
        }
        let mut before = 0.0;
        for (part, (time, what)) in times.iter().zip(parts).enumerate() {
            let (from, to) = (before / sum * 100.0, (before + time) / sum * 100.0);
            before += time;
            let size = x.place(to) - x.place(from);
            let hint = format!("{name} {what}: {} ms", significant(*time));
            let colour = COLOURS[part % COLOURS.len()];
            out.bar((x.place(from), y + 3.0), (size, ROW - 6.0), colour, &hint);
        }
        out.text(x.end() + 5.0, y + 13.0, "start", &significant(sum));
    }
    out.scaling(PAGE_WIDTH, height, label)
}

/// A tick without needless digits.
pub(super) fn plain(tick: f64) -> String {
    if tick >= 1.0 {
        return significant(tick.round())
            .trim_end_matches(".00")
            .trim_end_matches(".0")
            .to_string();
    }
    let text = format!("{tick:.6}");
    text.trim_end_matches('0').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_grow_both_ways_from_one() {
        let rows = [
            ("Q1".to_string(), Some(4.0)),
            ("Q2".to_string(), Some(0.5)),
            ("Q3".to_string(), None),
        ];
        let svg = ratios(&rows, "ratios");
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert_eq!(svg.matches(COLOURS[1]).count(), 1, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn shares_fill_their_rows() {
        let rows = [
            ("Q1".to_string(), vec![1.0, 3.0]),
            ("Q2".to_string(), vec![0.0, 0.0]),
        ];
        let svg = shares(&rows, &["load", "run"], "shares");
        let whole = PAGE_WIDTH - RIGHT - LEFT;
        for share in [0.25, 0.75] {
            let width = format!("width=\"{:.1}\"", whole * share);
            assert!(svg.contains(&width), "{width}: {svg}");
        }
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn ticks_are_plain() {
        let texts = [0.001, 0.5, 1.0, 20.0, 1000.0].map(plain);
        assert_eq!(texts, ["0.001", "0.5", "1", "20", "1,000"]);
    }
}
