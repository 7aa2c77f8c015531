//! A range of numbers laid out on a range of pixels.

/// How numbers are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Linear,
    /// With ticks at powers of two.
    Log2,
    /// With ticks at powers of ten, and between them where there are few.
    Log10,
}

/// Numbers between two bounds, on pixels between two others.
#[derive(Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    kind: Kind,
    start: f64,
    end: f64,
}

impl Axis {
    /// An axis for these values; those that a logarithmic one cannot show do not count.
    pub(crate) fn new(values: impl Iterator<Item = f64>, kind: Kind, start: f64, end: f64) -> Self {
        let (mut low, mut high) = values
            .filter(|v| v.is_finite() && (kind == Kind::Linear || *v > 0.0))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if kind == Kind::Log10 {
            (low, high) = (rounded_down(low), rounded_up(high));
        }
        if low == high {
            high = match kind {
                Kind::Linear => low + 1.0,
                Kind::Log2 | Kind::Log10 => low * 2.0,
            };
        }
        Self {
            low,
            high,
            kind,
            start,
            end,
        }
    }

    fn scaled(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear => value,
            Kind::Log2 | Kind::Log10 => value.max(self.low).log2(),
        }
    }

    /// The pixel of a value.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.scaled(self.low), self.scaled(self.high));
        let share = (self.scaled(value) - low) / (high - low);
        self.start + share * (self.end - self.start)
    }

    /// The pixel at which the axis begins.
    pub(crate) fn start(&self) -> f64 {
        self.start
    }

    /// The pixel at which it ends.
    pub(crate) fn end(&self) -> f64 {
        self.end
    }

    /// Round numbers on a linear axis, powers on a logarithmic one.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => self.round_numbers(),
            Kind::Log2 => {
                let (low, high) = (
                    self.low.log2().ceil() as i32,
                    self.high.log2().floor() as i32,
                );
                let step = ((high - low) / 8 + 1).max(1) as usize;
                (low..=high).step_by(step).map(|e| 2f64.powi(e)).collect()
            }
            Kind::Log10 => self.decades(),
        }
    }

    fn round_numbers(&self) -> Vec<f64> {
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

    fn decades(&self) -> Vec<f64> {
        let (low, high) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let factors: &[f64] = match high - low {
            ..=2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let step = ((high - low) / 7 + 1).max(1) as usize;
        let ticks = (low..=high).step_by(step);
        ticks
            .flat_map(|e| factors.iter().map(move |factor| factor * 10f64.powi(e)))
            // A little beyond for the rounding of powers.
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }
}

/// The largest 1, 2 or 5 times a power of ten that is not above a positive value.
fn rounded_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let fits = |factor: &f64| factor * power <= value * 1.000_001;
    [5.0, 2.0, 1.0].into_iter().find(fits).unwrap_or(1.0) * power
}

/// The smallest that is not below it.
fn rounded_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let fits = |factor: &f64| factor * power >= value * 0.999_999;
    [1.0, 2.0, 5.0, 10.0].into_iter().find(fits).unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_have_round_bounds() {
        let axis = Axis::new([0.21, 640.0].into_iter(), Kind::Log10, 0.0, 100.0);
        assert_eq!((axis.place(0.2), axis.place(1000.0)), (0.0, 100.0));
        let ticks: Vec<String> = axis.ticks().iter().map(|t| format!("{t:.2}")).collect();
        assert_eq!(ticks, ["1.00", "10.00", "100.00", "1000.00"]);
        // Below the axis is at its start: a logarithm of zero is nowhere.
        assert_eq!(axis.place(0.0), 0.0);
    }

    #[test]
    fn few_decades_have_ticks_between() {
        let axis = Axis::new([0.8, 4.0].into_iter(), Kind::Log10, 0.0, 1.0);
        let ticks: Vec<String> = axis.ticks().iter().map(|t| format!("{t:.1}")).collect();
        assert_eq!(ticks, ["0.5", "1.0", "2.0", "5.0"]);
    }

    #[test]
    fn no_values_make_an_axis_too() {
        for kind in [Kind::Linear, Kind::Log2, Kind::Log10] {
            for values in [vec![], vec![3.0], vec![f64::NAN, -1.0]] {
                let axis = Axis::new(values.iter().copied(), kind, 10.0, 20.0);
                let places = axis.ticks().into_iter().map(|tick| axis.place(tick));
                assert!(
                    places.chain([axis.place(3.0)]).all(f64::is_finite),
                    "{kind:?} {values:?}"
                );
            }
        }
    }
}
