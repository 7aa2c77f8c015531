//! Values of `hits` by row: numbers of Zipf distributions, addresses, titles and phrases. A row is the same whatever was made before it.

use std::fmt::Write as _;

use super::columns::{Kind, Page};

/// The day of the first row, in days since 1970: 2013-07-01.
const FIRST_DAY: u64 = 15_887;
/// Days that the rows are spread over.
const DAYS: u64 = 31;

/// Syllables of all words.
const SYLLABLES: [&str; 32] = [
    "ka", "ro", "mi", "ten", "su", "la", "vor", "ni", "pe", "dal", "go", "shi", "ber", "un", "tor",
    "ma", "li", "ko", "ser", "ya", "no", "pri", "vet", "ru", "sta", "gra", "ду", "ма", "ко", "ри",
    "те", "но",
];

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of a number.
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A rank from 0 up to `count`, by a Zipf distribution whose exponent is `exponent`: the inverse of its integral.
fn rank(random: u64, count: u64, exponent: f64) -> u64 {
    let count = count.max(1);
    // 53 bits: all that a float holds.
    let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let power = 1.0 - exponent;
    let span = (count as f64 + 1.0).powf(power) - 1.0;
    let at = (uniform * span + 1.0).powf(1.0 / power) - 1.0;
    (at as u64).min(count - 1)
}

/// The rows of a table of a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) rows: u64,
    pub(super) seed: u64,
}

/// What decides the values of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    number: u64,
    user: u64,
    page: u64,
    /// 0: none.
    before: u64,
}

impl Rows {
    fn random(self, row: u64, column: u64) -> u64 {
        mixed(mixed(row ^ self.seed.rotate_left(17)).wrapping_add(mixed(column)))
    }

    /// Some pages and users are seen often, most seldom: a fifth as many users as rows, a third as many pages.
    pub(super) fn row(self, number: u64) -> Row {
        let random = |column| self.random(number, column);
        let pages = (self.rows / 3).max(1);
        let before = match random(1001) % 100 {
            0..18 => 0,
            _ => 1 + rank(random(1002), pages, 0.75),
        };
        Row {
            number,
            user: rank(random(1003), (self.rows / 4).max(1), 0.6),
            page: rank(random(1004), pages, 0.75),
            before,
        }
    }

    /// The value of a column that is a number.
    pub(super) fn number(self, row: &Row, column: usize, kind: Kind) -> i64 {
        let random = self.random(row.number, column as u64);
        let of = |what: u64| mixed(what ^ mixed(column as u64) ^ self.seed);
        // Frequent ones anywhere among all.
        let spread = |rank: u64, count: u32| (mixed(rank) % u64::from(count.max(1))) as i64;
        match kind {
            Kind::Unique => random as i64,
            Kind::User => of(row.user) as i64,
            Kind::Seconds(more) => {
                let seconds = self.second_of(row.number);
                (seconds + random % (u64::from(more) + 1)) as i64
            }
            Kind::Day => (self.second_of(row.number) / 86_400) as i64,
            Kind::Flag(in_thousand) => i64::from(random % 1000 < u64::from(in_thousand)),
            Kind::Small(count) => rank(random, count.into(), 1.5) as i64,
            Kind::OfUser(count) => rank(of(row.user), count.into(), 0.9) as i64,
            Kind::Number(count) => spread(rank(random, count.into(), 0.6), count),
            Kind::OfPage(count) => spread(rank(of(row.page / 16), count.into(), 0.9), count),
            Kind::Milliseconds => match random % 4 {
                0 => 0,
                _ => rank(random >> 2, 60_000, 0.8) as i64,
            },
            Kind::Hash(page) => mixed(self.page(row, page)) as i64,
            Kind::Address(_) | Kind::Title | Kind::Phrase(_) | Kind::Word { .. } => 0,
        }
    }

    /// Rows are nearly in the order of time.
    fn second_of(self, row: u64) -> u64 {
        let span = DAYS * 86_400;
        let at = (u128::from(row) * u128::from(span) / u128::from(self.rows.max(1))) as u64;
        let late = self.random(row, 1005) % 3600;
        FIRST_DAY * 86_400 + at.saturating_sub(late)
    }

    fn page(self, row: &Row, page: Page) -> u64 {
        match page {
            Page::Seen => row.page + 1,
            Page::Before => row.before,
        }
    }

    /// The value of a column of text, in place of what `text` held.
    pub(super) fn text(self, row: &Row, column: usize, kind: Kind, text: &mut String) {
        text.clear();
        let random = self.random(row.number, column as u64);
        match kind {
            Kind::Address(page) => address(self.page(row, page), text),
            Kind::Title => sentence(row.page / 2, 4 + row.page % 9, text),
            Kind::Phrase(in_thousand) if random % 1000 < u64::from(in_thousand) => {
                let phrase = rank(mixed(random), (self.rows / 12).max(1), 0.75);
                sentence(phrase ^ 0x5EA2C4, 1 + phrase % 5, text);
            }
            Kind::Word { of, in_thousand } if random % 1000 < u64::from(in_thousand) => {
                word(rank(mixed(random), of.into(), 0.9), text);
            }
            _ => {}
        }
    }
}

/// A word for a number: the same for the same one.
fn word(number: u64, text: &mut String) {
    let mut left = mixed(number);
    for _ in 0..2 + left % 3 {
        left = mixed(left);
        text.push_str(SYLLABLES[(left % 32) as usize]);
    }
}

fn sentence(number: u64, words: u64, text: &mut String) {
    for at in 0..words {
        if at > 0 {
            text.push(' ');
        }
        // Few words are in many sentences.
        word(rank(mixed(number ^ mixed(at)), 20_000, 0.8), text);
    }
}

/// The address of a page; nothing for none.
fn address(page: u64, text: &mut String) {
    if page == 0 {
        return;
    }
    let site = page / 16;
    let scheme = if mixed(site).is_multiple_of(5) {
        "https"
    } else {
        "http"
    };
    let ending = [".example", ".test", ".invalid"][(mixed(site) % 3) as usize];
    text.push_str(scheme);
    text.push_str("://");
    if mixed(site ^ 7).is_multiple_of(40) {
        // What queries look for in the middle of addresses.
        text.push_str("google.");
    }
    word(rank(mixed(site), 30_000, 0.8), text);
    text.push_str(ending);
    for depth in 0..1 + page % 4 {
        text.push('/');
        word(mixed(page ^ depth) % 5000, text);
    }
    // Writing to a string does not fail.
    let _ = write!(text, "?id={page}&p={}", mixed(page) % 100_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_within_bounds_and_skewed() {
        let draw = |i: u64| rank(mixed(i), 1000, 0.9);
        let ranks: Vec<u64> = (0..20_000).map(draw).collect();
        assert!(ranks.iter().all(|rank| *rank < 1000));
        let share = |below: u64| ranks.iter().filter(|rank| **rank < below).count();
        assert!(share(10) > 2000, "{}", share(10));
        assert!(share(500) < 19_000, "{}", share(500));
        assert_eq!(rank(u64::MAX, 1, 0.5), 0);
    }
}
