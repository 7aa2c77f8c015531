//! Time zones: which offset from UTC their clocks have, and since when.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::timezone::Tz as ArrowZone;
use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;
use parking_lot::Mutex;

/// The time zone of a timestamp type, as Arrow reads its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zone {
    /// A zone whose clocks are all the time so many seconds before UTC's.
    Fixed(i32),
    /// One of the tz database.
    Named(Tz),
}

/// From when on clocks of a zone are so far before UTC's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Seconds since 1970 in UTC.
    pub begin: i64,
    /// Seconds that are added to UTC.
    pub offset: i32,
}

/// The seconds for which periods are known: the years 1890 to 2189.
const KNOWN: std::ops::Range<i64> = -2_524_521_600..6_942_672_000;

/// Offsets are looked at in such steps of seconds: no zone changes its own and changes it back within one.
const STEP: i64 = 3 * 3_600;

static PERIODS: LazyLock<Mutex<HashMap<Tz, Arc<[Period]>>>> = LazyLock::new(Mutex::default);

impl Zone {
    /// Of the name in a timestamp type; `None` for what Arrow does not know.
    pub fn parse(name: &str) -> Option<Self> {
        if let Ok(zone) = name.parse::<Tz>() {
            let utc = matches!(
                zone,
                Tz::UTC
                    | Tz::UCT
                    | Tz::Zulu
                    | Tz::Universal
                    | Tz::GMT
                    | Tz::Etc__UTC
                    | Tz::Etc__GMT
            );
            return Some(if utc {
                Self::Fixed(0)
            } else {
                Self::Named(zone)
            });
        }
        let zone: ArrowZone = name.parse().ok()?;
        let offset = zone.offset_from_utc_datetime(&DateTime::UNIX_EPOCH.naive_utc());
        Some(Self::Fixed(offset.fix().local_minus_utc()))
    }

    /// Do its clocks show UTC?
    pub fn is_utc(self) -> bool {
        self == Self::Fixed(0)
    }

    /// The periods of all seconds from `from` to `to`, the first of which may have begun before; `None` where that is too long ago
    /// or too far ahead.
    pub fn periods(self, from: i64, to: i64) -> Option<Vec<Period>> {
        let zone = match self {
            Self::Fixed(offset) => {
                return Some(vec![Period {
                    begin: i64::MIN,
                    offset,
                }]);
            }
            Self::Named(zone) => zone,
        };
        if from > to || !KNOWN.contains(&from) || !KNOWN.contains(&to) {
            return None;
        }
        let all = Arc::clone(
            PERIODS
                .lock()
                .entry(zone)
                .or_insert_with(|| all_periods(zone).into()),
        );
        let first = all.partition_point(|period| period.begin <= from) - 1;
        let end = all.partition_point(|period| period.begin <= to);
        Some(all[first..end].to_vec())
    }
}

/// The periods of all seconds that are known, of which the first has no begin.
fn all_periods(zone: Tz) -> Vec<Period> {
    let mut offset = offset_at(zone, KNOWN.start);
    let mut periods = vec![Period {
        begin: i64::MIN,
        offset,
    }];
    for before in KNOWN.step_by(STEP as usize) {
        let next = offset_at(zone, before + STEP);
        if next == offset {
            continue;
        }
        // The first second with the next offset.
        let (mut old, mut new) = (before, before + STEP);
        while new - old > 1 {
            let middle = old.midpoint(new);
            match offset_at(zone, middle) == offset {
                true => old = middle,
                false => new = middle,
            }
        }
        offset = next;
        periods.push(Period { begin: new, offset });
    }
    periods
}

/// Seconds that are added to UTC at a second since 1970.
fn offset_at(zone: Tz, second: i64) -> i32 {
    let moment = DateTime::from_timestamp(second, 0).unwrap_or(DateTime::UNIX_EPOCH);
    let offset = zone.offset_from_utc_datetime(&moment.naive_utc());
    offset.fix().local_minus_utc()
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(0) => f.write_str("UTC"),
            Self::Fixed(seconds) => write!(
                f,
                "{}{:02}:{:02}",
                if *seconds < 0 { '-' } else { '+' },
                seconds.abs() / 3_600,
                seconds.abs() / 60 % 60
            ),
            Self::Named(zone) => write!(f, "{zone}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_arrow_does() {
        for (name, shown) in [
            ("UTC", Some("UTC")),
            ("+00:00", Some("UTC")),
            ("Etc/UTC", Some("UTC")),
            ("-0530", Some("-05:30")),
            ("+14", Some("+14:00")),
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("Nowhere/Else", None),
            ("", None),
        ] {
            let zone = Zone::parse(name).map(|zone| zone.to_string());
            assert_eq!(zone.as_deref(), shown, "{name}");
        }
    }

    #[test]
    fn periods_have_the_offsets_of_every_hour() {
        for name in [
            "Europe/Berlin",
            "America/Sao_Paulo",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "Africa/Casablanca",
            "Asia/Kathmandu",
            "Africa/Monrovia",
        ] {
            let Some(zone @ Zone::Named(tz)) = Zone::parse(name) else {
                panic!("{name} is no zone");
            };
            // From 1900 to 2100, in steps of 59 minutes and some.
            let (from, to) = (-2_208_988_800, 4_102_444_800);
            let periods = zone.periods(from, to).unwrap();
            let mut at = 0;
            for second in (from..to).step_by(3_557) {
                while at + 1 < periods.len() && periods[at + 1].begin <= second {
                    at += 1;
                }
                assert_eq!(periods[at].offset, offset_at(tz, second), "{name} {second}");
            }
            for pair in periods.windows(2) {
                assert_ne!(offset_at(tz, pair[1].begin - 1), pair[1].offset, "{name}");
                assert_eq!(offset_at(tz, pair[1].begin), pair[1].offset, "{name}");
            }
        }
    }

    #[test]
    fn seconds_beyond_what_is_known_have_no_periods() {
        let zone = Zone::parse("Asia/Tokyo").unwrap();
        assert_eq!(zone.periods(0, 9_000_000_000), None);
        assert_eq!(zone.periods(-9_000_000_000, 0), None);
        assert_eq!(zone.periods(0, 1).unwrap().len(), 1);
        assert_eq!(
            Zone::Fixed(60).periods(i64::MIN, i64::MAX).unwrap().len(),
            1
        );
    }
}
