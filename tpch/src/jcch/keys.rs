//! What follows from a key alone: the sizes of the tables, the permutations of their keys, nations, suppliers, dates.

use std::sync::LazyLock;

use tpchgen::dates::{MIN_GENERATE_DATE, TOTAL_DATE_RANGE, TPCHDate};

use crate::scale::Scale;

/// Parts whose permuted number is below this have every supplier; the first five take a line of most orders.
pub(crate) const POPULOUS_PARTS: u64 = 20;

/// Orders whose permuted number is below this have [`Keys::populous_lines`] lines.
pub(crate) const POPULOUS_ORDERS: u64 = 5;

/// Of the parts in key order that are not populous, this many have four suppliers; the others have three.
const PARTS_OF_FOUR_SUPPLIERS: u64 = 60;

/// Orders up to this one have four lines unless they are populous; later ones have three.
const ORDERS_OF_FOUR_LINES: u64 = 15;

/// A permutation of the keys 1..=N of a table to 0..N, in which each region owns one fifth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permutation {
    pub(crate) rows: u64,
    offset: u64,
    inverse: u64,
}

impl Permutation {
    const MULTIPLIER: u64 = 1_442_968_193;
    const OFFSET_BITS: u64 = 792_606_555_396_977;

    fn new(rows: u64) -> Self {
        // The smallest power of two of which the double reaches the rows.
        let power = rows.div_ceil(2).next_power_of_two();
        Self {
            rows,
            offset: Self::OFFSET_BITS & (power - 1),
            inverse: modular_inverse(Self::MULTIPLIER, rows),
        }
    }

    /// Offset and inverse.
    #[cfg(test)]
    pub(crate) fn constants(self) -> (u64, u64) {
        (self.offset, self.inverse)
    }

    /// The permuted number, from 0, of a key, from 1.
    pub(crate) fn hash(self, key: u64) -> u64 {
        ((key - 1) * Self::MULTIPLIER + self.offset) % self.rows
    }

    /// The key of a permuted number.
    pub(crate) fn key(self, hash: u64) -> u64 {
        (hash + self.rows - self.offset) * self.inverse % self.rows + 1
    }
}

/// The number `x` in 0..n with `a * x = 1` modulo `n`, by Euclid's extended algorithm; `a` and `n` have no common factor.
fn modular_inverse(a: u64, n: u64) -> u64 {
    let (mut old, mut new) = ((a % n) as i64, n as i64);
    let (mut old_factor, mut new_factor) = (1_i64, 0_i64);
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (old_factor, new_factor) = (new_factor, old_factor - quotient * new_factor);
    }
    old_factor.rem_euclid(n as i64) as u64
}

/// The nations of each region: the large one, then the four small ones.
pub(crate) const NATIONS: [[u8; 5]; 5] = [
    [15, 0, 5, 14, 16],
    [24, 1, 2, 3, 17],
    [18, 9, 12, 21, 8],
    [7, 6, 22, 19, 23],
    [4, 10, 11, 13, 20],
];

/// Sizes and permutations at one scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Keys {
    scale: u64,
    pub(crate) parts: Permutation,
    pub(crate) suppliers: Permutation,
    pub(crate) customers: Permutation,
    pub(crate) orders: Permutation,
    populous_parts: [u64; POPULOUS_PARTS as usize],
    populous_orders: [u64; POPULOUS_ORDERS as usize],
}

impl Keys {
    /// Below it a region has no room for the five suppliers that its parts need.
    pub(crate) const MIN_SCALE: f64 = 0.003;
    /// Above it `ps_availqty` of a populous part leaves 32 bits.
    pub(crate) const MAX_SCALE: f64 = 536.0;

    /// Keys at a scale from [`Self::MIN_SCALE`] to [`Self::MAX_SCALE`], which must be [`Self::round_scale`]'s.
    pub(crate) fn new(scale: Scale) -> Self {
        let rows = |base: u64| match scale.factor() < 1.0 {
            true => (1000.0 * scale.factor()).round() as u64 * base / 1000,
            false => scale.factor() as u64 * base,
        };
        let mut keys = Self {
            scale: (scale.factor() as u64).max(1),
            parts: Permutation::new(rows(200_000)),
            suppliers: Permutation::new(rows(10_000)),
            customers: Permutation::new(rows(150_000)),
            orders: Permutation::new(rows(1_500_000)),
            populous_parts: [0; POPULOUS_PARTS as usize],
            populous_orders: [0; POPULOUS_ORDERS as usize],
        };
        for (hash, key) in (0..).zip(&mut keys.populous_parts) {
            *key = keys.parts.key(hash);
        }
        for (hash, key) in (0..).zip(&mut keys.populous_orders) {
            *key = keys.orders.key(hash);
        }
        keys.populous_parts.sort_unstable();
        keys.populous_orders.sort_unstable();
        keys
    }

    /// The scale that is made for a wanted one: a whole number from 1 up, whole thousandths below.
    pub(crate) fn round_scale(wanted: f64) -> f64 {
        match wanted < 1.0 {
            true => (1000.0 * wanted).trunc() / 1000.0,
            false => wanted.trunc(),
        }
    }

    /// The scale as a whole number; 1 below 1.
    pub(crate) fn whole_scale(&self) -> u64 {
        self.scale
    }

    /// Number of parts.
    pub(crate) fn part_rows(&self) -> u64 {
        self.parts.rows
    }

    /// Number of suppliers.
    pub(crate) fn supplier_rows(&self) -> u64 {
        self.suppliers.rows
    }

    /// Number of customers.
    pub(crate) fn customer_rows(&self) -> u64 {
        self.customers.rows
    }

    /// Number of orders.
    pub(crate) fn order_rows(&self) -> u64 {
        self.orders.rows
    }

    /// Lines of a populous order.
    pub(crate) fn populous_lines(&self) -> u64 {
        self.orders.rows / 5
    }

    /// Suppliers of a region.
    pub(crate) fn region_suppliers(&self) -> u64 {
        self.suppliers.rows / 5
    }

    /// Permuted numbers of parts above this one are of the type of the populous parts, but no line has them.
    pub(crate) fn gold(&self) -> u64 {
        149 * (self.parts.rows / 150) / 5 * 5
    }

    /// The nation of a customer or supplier with this permuted number.
    ///
    /// The arithmetic in floating point is part of the definition.
    pub(crate) fn nation(of: Permutation, hash: u64) -> i64 {
        let (hash, rows) = (hash as f64, of.rows as f64);
        let region = (hash / (0.2 * rows)) as usize;
        let beyond = (hash - (0.18 + region as f64 * 0.2) * rows) as i64;
        let slot = match beyond <= 0 {
            true => 0,
            false => 1 + (4.0 * beyond as f64 / (0.02 * rows)) as usize,
        };
        i64::from(NATIONS[region][slot])
    }

    /// Populous parts before part `key`.
    pub(crate) fn populous_parts_before(&self, key: u64) -> u64 {
        self.populous_parts
            .partition_point(|&populous| populous < key) as u64
    }

    /// Populous orders before order `index`, and those of them whose lines draw a return flag.
    pub(crate) fn populous_orders_before(&self, index: u64) -> (u64, u64) {
        let before = &self.populous_orders[..self
            .populous_orders
            .partition_point(|&populous| populous < index)];
        let returned = before
            .iter()
            .filter(|&&index| is_returned(self.orders.hash(index)));
        (before.len() as u64, returned.count() as u64)
    }

    /// Suppliers of part `key`.
    pub(crate) fn suppliers_of(&self, key: u64) -> u64 {
        self.partsupps_before(key + 1) - self.partsupps_before(key)
    }

    /// Rows of partsupp before those of part `key`.
    pub(crate) fn partsupps_before(&self, key: u64) -> u64 {
        let populous = self.populous_parts_before(key);
        let others = key - 1 - populous;
        populous * self.suppliers.rows + 3 * others + others.min(PARTS_OF_FOUR_SUPPLIERS)
    }

    /// Lines of order `index`.
    pub(crate) fn lines_of(&self, index: u64) -> u64 {
        if self.orders.hash(index) < POPULOUS_ORDERS {
            self.populous_lines()
        } else if index <= ORDERS_OF_FOUR_LINES {
            4
        } else {
            3
        }
    }

    /// Rows of lineitem before those of order `index`.
    pub(crate) fn lines_before(&self, index: u64) -> u64 {
        let first = index.min(ORDERS_OF_FOUR_LINES + 1);
        let populous_in_first = self.populous_orders_before(first).0;
        let populous = self.populous_orders_before(index).0;
        let others = index - 1 - populous;
        populous * self.populous_lines() + 3 * others + (first - 1 - populous_in_first)
    }

    /// Permuted number of the `number`th supplier (0 to 3) of the part with permuted number `part`.
    pub(crate) fn supplier_of(&self, part: u64, number: u64) -> u64 {
        let slice = self.region_suppliers();
        let region = part % 5;
        let other = (region + 1 + part / 5 % 4) % 5;
        let turn = part / 20;
        match number {
            0 => region * slice,
            1 => region * slice + 4 + turn % (slice - 4),
            2 => other * slice + turn % 4,
            _ => other * slice + 4 + turn % (slice - 4),
        }
    }

    /// Part and supplier, as permuted numbers, of line `line` of the populous order of a region's customer.
    pub(crate) fn populous_line(&self, region: u64, line: u64) -> (u64, u64) {
        // Each of 15 parts goes with the same number of suppliers of each of the four other regions, over and over.
        let suppliers = (0.16 * self.suppliers.rows as f64).ceil() as u64;
        let turn = line % (15 * 4 * suppliers);
        let part = 5 + turn / (4 * suppliers);
        let other = turn / suppliers % 4;
        let other = other + u64::from(other >= region);
        (part, other * self.region_suppliers() + turn % suppliers)
    }
}

/// Whether the lines of the populous order with this permuted number are received long ago: it is not of 1997 or 1998.
pub(crate) fn is_returned(order: u64) -> bool {
    order < 3
}

/// A day of the generator's calendar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Day {
    /// The year, such as 1992.
    pub(crate) year: i32,
    /// January to April or September to December.
    pub(crate) outer_months: bool,
}

/// The days from 1 January 1992 on.
static DAYS: LazyLock<Vec<Day>> = LazyLock::new(|| {
    let days = (0..TOTAL_DATE_RANGE).map(|day| {
        let (year, month, _) = TPCHDate::new(MIN_GENERATE_DATE + day).to_ymd();
        Day {
            year: 1900 + year,
            outer_months: !(5..=8).contains(&month),
        }
    });
    days.collect()
});

/// 28 May of each year from 1992 to 1998, as the generator counts days.
static BLACK_FRIDAYS: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let days = (0..TOTAL_DATE_RANGE).map(|day| MIN_GENERATE_DATE + day);
    days.filter(|&day| {
        let (_, month, day) = TPCHDate::new(day).to_ymd();
        (month, day) == (5, 28)
    })
    .collect()
});

/// What is known of a generated date.
pub(crate) fn day(date: i32) -> Day {
    DAYS[(date - MIN_GENERATE_DATE) as usize]
}

/// 28 May of a year from 1992 to 1998.
pub(crate) fn black_friday(year: i32) -> i32 {
    BLACK_FRIDAYS[(year - 1992) as usize]
}
