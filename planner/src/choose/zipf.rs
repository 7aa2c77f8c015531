//! Effects of a Zipf distribution on caches and counters: shares and collisions in closed form.
//!
//! Key `i` of `n` (from 1) has probability `i^-z / H(n, z)` with the generalised harmonic number
//! `H(n, z) = sum of i^-z`, which is summed for the first keys and integrated for the rest.

/// Keys that are summed one by one.
const SUMMED: f64 = 64.0;

/// The generalised harmonic number H(n, z).
pub fn harmonic(n: f64, z: f64) -> f64 {
    if n <= 0.0 {
        return 0.0;
    }
    let head = n.floor().clamp(1.0, SUMMED);
    let mut sum = 0.0;
    let mut i = 1.0;
    while i <= head {
        sum += f64::powf(i, -z);
        i += 1.0;
    }
    if n <= head {
        return sum;
    }
    sum + tail(head, n, z)
}

/// The sum of i^-z for i from `after` + 1 to `to`, by the midpoint rule: the integral from `after` + 1/2 to `to` + 1/2.
fn tail(after: f64, to: f64, z: f64) -> f64 {
    let (from, to) = (after + 0.5, to + 0.5);
    if (z - 1.0).abs() < 1e-9 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - z) - from.powf(1.0 - z)) / (1.0 - z)
    }
}

/// The average cost of a draw of `n` keys, when a draw of the `k`-th most frequent key costs `cost(k)`; keys of
/// similar frequency are taken together.
pub fn average(n: f64, z: f64, cost: impl Fn(f64) -> f64) -> f64 {
    const GROWTH: f64 = 4.0;
    let n = n.max(1.0);
    let mut to = n.min(SUMMED);
    let mut sum = harmonic(to, z) * cost(to);
    while to < n {
        let from = to;
        to = (to * GROWTH).min(n);
        sum += tail(from, to, z) * cost(to);
    }
    sum / harmonic(n, z)
}

/// The share of draws that fall on the `k` most frequent of `n` keys.
pub fn top_share(k: f64, n: f64, z: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    (harmonic(k, z) / harmonic(n, z)).clamp(0.0, 1.0)
}

/// The probability of the most frequent key.
pub fn hottest(n: f64, z: f64) -> f64 {
    1.0 / harmonic(n.max(1.0), z)
}

/// The number of equally frequent keys that would collide as often: the inverse of the sum of squared probabilities.
pub fn equal_keys(n: f64, z: f64) -> f64 {
    let n = n.max(1.0);
    let h = harmonic(n, z);
    (h * h / harmonic(n, 2.0 * z)).clamp(1.0, n)
}

/// The exponent, between 0 and 3, with which two draws of `n` keys are equal with probability `collisions`; 0 unless
/// they are equal twice as often as draws of equally frequent keys.
pub fn exponent(n: f64, collisions: f64) -> f64 {
    const MOST: f64 = 3.0;
    if n <= 1.0 || collisions * n < 2.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if 1.0 / equal_keys(n, middle) < collisions {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Distinct keys among `rows` draws.
pub fn drawn(n: f64, z: f64, rows: f64) -> f64 {
    let h = harmonic(n.max(1.0), z);
    // Keys of about equal frequency together, in bands that double.
    let (mut seen, mut from) = (0.0, 1.0);
    while from <= n {
        let to = (from * 2.0).min(n + 1.0);
        let p = f64::powf((from * to).sqrt(), -z) / h;
        seen += (to - from) * -(rows * (-p.min(0.999_999)).ln_1p()).exp_m1();
        from = to.max(from + 1.0);
    }
    seen.clamp(1.0, n.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(n: u32, z: f64) -> f64 {
        (1..=n).map(|i| f64::from(i).powf(-z)).sum()
    }

    #[test]
    fn harmonic_numbers_are_near_their_sums() {
        for z in [0.0, 0.5, 1.0, 1.5, 2.0] {
            for n in [1, 2, 63, 64, 65, 1000, 100_000] {
                let (got, want) = (harmonic(f64::from(n), z), exact(n, z));
                assert!((got / want - 1.0).abs() < 1e-3, "{n} {z}: {got} {want}");
            }
        }
    }

    #[test]
    fn averages_weigh_costs_by_frequency() {
        for (n, z) in [(1.0, 1.0), (64.0, 0.5), (1e6, 1.0), (1e6, 1.5)] {
            assert!((average(n, z, |_| 3.0) - 3.0).abs() < 1e-3, "{n} {z}");
        }
        // As many of a million keys as are read for 1, the others for 9.
        let hot = |k: f64| if k <= 4096.0 { 1.0 } else { 9.0 };
        for z in [0.5, 1.0, 1.5] {
            let share = top_share(4096.0, 1e6, z);
            let want = share + 9.0 * (1.0 - share);
            let got = average(1e6, z, hot);
            assert!((got / want - 1.0).abs() < 1e-3, "{z}: {got} {want}");
        }
    }

    #[test]
    fn uniform_keys_are_themselves_and_skewed_ones_fewer() {
        assert!((equal_keys(1000.0, 0.0) - 1000.0).abs() < 1.0);
        assert!((top_share(250.0, 1000.0, 0.0) - 0.25).abs() < 1e-3);
        assert!((hottest(1000.0, 0.0) - 1e-3).abs() < 1e-6);
        // Zipf 1 over 2^16 keys: H = 11.67, sum of squares 1.645 / H^2.
        let equal = equal_keys(65536.0, 1.0);
        assert!((80.0..86.0).contains(&equal), "{equal}");
        assert!(top_share(100.0, 65536.0, 1.5) > 0.9);
        assert_eq!(top_share(5.0, 4.0, 1.0), 1.0);
    }

    #[test]
    fn exponents_come_back_from_their_collisions() {
        for n in [100.0, 65536.0, 1e8] {
            for z in [0.9, 1.0, 1.25, 1.5, 2.0] {
                let found = exponent(n, 1.0 / equal_keys(n, z));
                assert!((found - z).abs() < 0.01, "{n} {z}: {found}");
            }
            assert_eq!(exponent(n, 1.0 / n), 0.0);
            assert!((exponent(n, 1.0) - 3.0).abs() < 1e-6);
        }
        assert_eq!(exponent(1.0, 1.0), 0.0);
    }

    #[test]
    fn draws_see_fewer_keys_the_more_they_repeat() {
        assert!((drawn(1000.0, 0.0, 1e6) - 1000.0).abs() < 1.0);
        // Cardenas: n draws of n keys see 63 % of them.
        let seen = drawn(1e6, 0.0, 1e6);
        assert!((0.62e6..0.64e6).contains(&seen), "{seen}");
        assert!(drawn(1e6, 1.0, 1e6) < seen);
        assert!(drawn(1e6, 1.5, 1e6) < drawn(1e6, 1.0, 1e6));
    }
}
