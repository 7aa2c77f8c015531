//! Counters of runs: each declared once with its name, unit and meaning.
//!
//! `EXPLAIN ANALYZE`, sums over fragments and `docs/COUNTERS.md` read the lists that the declarations make; a test holds the
//! names in JSON reports against them.

/// A figure that runs tell about `T`.
pub struct Counter<T> {
    /// The name in `EXPLAIN ANALYZE`.
    pub name: &'static str,
    /// What it counts, or the unit of what it measures.
    pub unit: &'static str,
    /// What it means, for users.
    pub about: &'static str,
    /// The name in JSON reports of queries, which have times in milliseconds.
    pub json: Option<&'static str>,
    /// Its value; `None` when there is nothing to tell.
    pub read: fn(&T) -> Option<u64>,
}

/// A number that can be counted with.
pub(crate) trait Figure: Copy {
    /// As a whole number: of milliseconds, the microseconds.
    fn whole(self) -> u64;
    /// This and that.
    fn sum(self, other: Self) -> Self;
    /// The higher one.
    fn max(self, other: Self) -> Self;
}

impl Figure for u64 {
    fn whole(self) -> u64 {
        self
    }

    fn sum(self, other: Self) -> Self {
        self + other
    }

    fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl Figure for usize {
    fn whole(self) -> u64 {
        self as u64
    }

    fn sum(self, other: Self) -> Self {
        self + other
    }

    fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl Figure for f64 {
    fn whole(self) -> u64 {
        (self * 1e3) as u64
    }

    fn sum(self, other: Self) -> Self {
        self + other
    }

    fn max(self, other: Self) -> Self {
        f64::max(self, other)
    }
}

impl Figure for bool {
    fn whole(self) -> u64 {
        u64::from(self)
    }

    fn sum(self, other: Self) -> Self {
        self | other
    }

    fn max(self, other: Self) -> Self {
        self | other
    }
}

/// A struct of counters, its list `COUNTERS`, and `plus`, which adds up two of them.
///
/// A counter is its meaning, then `field: type = "name", "unit", sum;`, with `max` in place of `sum` for heights, and at the
/// end `json "name"` if reports have it. What follows `and` are fields of the struct that are no counters; `plus` leaves
/// those of `self`.
macro_rules! counters {
    (
        $(#[$meta:meta])* pub struct $struct:ident {
            $(
                $(#[doc = $about:literal])+
                $field:ident: $type:ty = $name:literal, $unit:literal, $fold:ident $(, json $json:literal)?;
            )+
        }
        $(and { $($(#[$other_meta:meta])* pub $other:ident: $other_type:ty,)+ })?
    ) => {
        $(#[$meta])*
        pub struct $struct {
            $($(#[doc = $about])+ pub $field: $type,)+
            $($($(#[$other_meta])* pub $other: $other_type,)+)?
        }

        impl $struct {
            /// Its counters.
            pub const COUNTERS: &[$crate::counters::Counter<Self>] = &[$(
                $crate::counters::Counter {
                    name: $name,
                    unit: $unit,
                    about: concat!($($about),+).trim_ascii_start(),
                    json: $crate::counters::named!($($json)?),
                    read: |of| Some($crate::counters::Figure::whole(of.$field)),
                },
            )+];

            /// The counters of both together.
            #[must_use]
            pub fn plus(self, other: &Self) -> Self {
                Self {
                    $($field: $crate::counters::Figure::$fold(self.$field, other.$field),)+
                    $($($other: self.$other,)+)?
                }
            }
        }
    };
}

macro_rules! named {
    () => {
        None
    };
    ($name:literal) => {
        Some($name)
    };
}

pub(crate) use {counters, named};
