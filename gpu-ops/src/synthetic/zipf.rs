//! Zipf distributions as bands of about equally frequent ranks, which draws are looked up in.

/// Ranks that are bands of their own.
const SINGLE: u64 = 4096;
/// Later bands have this share of the ranks before them.
const SHARE: u64 = 256;

/// Bands of the ranks 0 .. `values` with probabilities like (rank + 1)^-exponent: two words each, where the band begins
/// among 2^64 draws and its first rank, and two that end the list.
pub(super) fn bands(values: u64, exponent: f64) -> Vec<u64> {
    if exponent == 0.0 {
        return vec![0, 0, u64::MAX, values];
    }
    let starts = starts(values);
    let mut below = Vec::with_capacity(starts.len());
    let mut sum = 0.0;
    for pair in starts.windows(2) {
        below.push(sum);
        sum += weight(pair[0], pair[1], exponent);
    }
    let mut words = Vec::with_capacity(2 * starts.len());
    for (below, start) in below.iter().zip(&starts) {
        // Casts saturate.
        words.push((below / sum * 2f64.powi(64)) as u64);
        words.push(*start);
    }
    words.extend([u64::MAX, values]);
    words
}

/// The first rank of each band, and the number of ranks.
fn starts(values: u64) -> Vec<u64> {
    let mut starts = Vec::new();
    let mut rank = 0;
    while rank < values {
        starts.push(rank);
        rank += if rank < SINGLE { 1 } else { rank / SHARE };
    }
    starts.push(values);
    starts
}

/// Of the ranks `from` .. `to`: the sum of (rank + 1)^-exponent, by the midpoint rule where there are several.
fn weight(from: u64, to: u64, exponent: f64) -> f64 {
    let (from, to) = (from as f64, to as f64);
    (to - from) * ((from + to + 1.0) / 2.0).powf(-exponent)
}

/// Different ranks to expect in `rows` draws.
pub(super) fn distinct(values: u64, exponent: f64, rows: u64) -> u64 {
    let starts = starts(values.max(1));
    let weights = |exponent| {
        starts
            .windows(2)
            .map(move |pair| (pair[1] - pair[0], weight(pair[0], pair[1], exponent)))
    };
    let sum: f64 = weights(exponent).map(|(_, weight)| weight).sum();
    let seen: f64 = weights(exponent)
        .map(|(ranks, weight)| {
            let each = weight / sum / ranks as f64;
            let missed = (rows as f64 * (-each.min(0.999_999)).ln_1p()).exp();
            ranks as f64 * (1.0 - missed)
        })
        .sum();
    (seen as u64).clamp(1, values.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_have_the_shares_of_their_ranks() {
        for exponent in [0.5, 1.0, 1.5, 2.0] {
            let bands = bands(1 << 20, exponent);
            assert_eq!(bands[bands.len() - 1], 1 << 20);
            let sum: f64 = (1..=1 << 20).map(|r| f64::from(r).powf(-exponent)).sum();
            let share = |rank: u64| {
                let at = bands.chunks(2).position(|band| band[1] == rank);
                at.map(|at| (bands[2 * at + 2] - bands[2 * at]) as f64 / 2f64.powi(64))
            };
            for rank in [0u64, 1, 7, 100] {
                let want = ((rank + 1) as f64).powf(-exponent) / sum;
                let got = share(rank);
                assert!(
                    got.is_some_and(|got| (got / want - 1.0).abs() < 1e-3),
                    "{exponent} {rank}: {got:?} {want}"
                );
            }
            assert!(bands.chunks(2).is_sorted_by_key(|band| (band[0], band[1])));
        }
        assert_eq!(bands(7, 0.0), [0, 0, u64::MAX, 7]);
    }

    #[test]
    fn draws_repeat_as_expected() {
        // n draws of n ranks see 63 % of them.
        let seen = distinct(1 << 20, 0.0, 1 << 20) as f64 / f64::from(1 << 20);
        assert!((0.62..0.64).contains(&seen), "{seen}");
        assert_eq!(distinct(10, 0.0, 1 << 20), 10);
        assert!(distinct(1 << 20, 1.5, 1 << 20) < 1 << 16);
        assert_eq!(distinct(0, 1.0, 10), 1);
    }
}
