//! Streams of pseudo-random numbers that start anywhere.
//!
//! TPC-H's generator has a stream per column and a fixed number of draws per row. A row that draws more leaves its
//! stream where it is, so that the streams of later rows drift; the positions are known, hence starts are exact.

use tpchgen::random::{RandomBoundedInt, RandomString, RandomText, RowRandomInt};
use tpchgen::text::TextPool;

/// The seed that a stream with seed `seed` has after `draws` draws.
pub(crate) fn seed_after(seed: i64, draws: u64) -> i64 {
    if draws == 0 {
        return seed;
    }
    let mut stream = RowRandomInt::new(seed, 1);
    stream.advance_rows((draws - 1) as i64);
    stream.next_rand()
}

/// A column of whole numbers: seed, smallest and largest value, draws per row.
pub(crate) struct Integers(
    pub(crate) i64,
    pub(crate) i32,
    pub(crate) i32,
    pub(crate) i32,
);

impl Integers {
    /// The stream after `draws` draws.
    pub(crate) fn after(&self, draws: u64) -> RandomBoundedInt {
        let Self(seed, smallest, largest, per_row) = *self;
        RandomBoundedInt::new_with_seeds_per_row(
            seed_after(seed, draws),
            smallest,
            largest,
            per_row,
        )
    }
}

/// The stream of a column of words after `draws` draws.
pub(crate) fn words_after(
    seed: i64,
    words: &'static tpchgen::distribution::Distribution,
    per_row: i32,
    draws: u64,
) -> RandomString<'static> {
    RandomString::new_with_expected_row_count(seed_after(seed, draws), words, per_row)
}

/// A column of comments: seed, average length, comments per row.
pub(crate) struct Comments(pub(crate) i64, pub(crate) f64, pub(crate) i32);

impl Comments {
    /// The stream after `draws` draws; a comment takes two.
    pub(crate) fn after(&self, draws: u64) -> RandomText<'static> {
        let Self(seed, length, per_row) = *self;
        RandomText::new_with_expected_row_count(
            seed_after(seed, draws),
            TextPool::get_or_init_default(),
            length,
            per_row,
        )
    }
}
