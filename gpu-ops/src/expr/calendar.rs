//! Calendar fields, and moves in time.

use std::fmt;

use super::Zone;

/// Calendar fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// Year, e.g. 1995.
    Year,
    /// The year that the ISO week belongs to.
    IsoYear,
    /// Quarter 1–4.
    Quarter,
    /// Month 1–12.
    Month,
    /// Day of the month 1–31.
    Day,
    /// Day of the week, Sunday = 0.
    DayOfWeek,
    /// Day of the week from Monday = 1 to Sunday = 7.
    IsoDayOfWeek,
    /// Day of the year 1–366.
    DayOfYear,
    /// ISO week 1–53.
    Week,
    /// Hour 0–23.
    Hour,
    /// Minute 0–59.
    Minute,
    /// Second 0–59.
    Second,
    /// Milliseconds of the minute.
    Millisecond,
    /// Microseconds of the minute.
    Microsecond,
    /// Nanoseconds of the minute, as Int64.
    Nanosecond,
    /// Seconds since 1970, or since midnight, as Float64.
    Epoch,
}

impl DatePart {
    /// SQL's spelling.
    pub fn name(self) -> &'static str {
        match self {
            Self::Year => "year",
            Self::IsoYear => "isoyear",
            Self::Quarter => "quarter",
            Self::Month => "month",
            Self::Day => "day",
            Self::DayOfWeek => "dow",
            Self::IsoDayOfWeek => "isodow",
            Self::DayOfYear => "doy",
            Self::Week => "week",
            Self::Hour => "hour",
            Self::Minute => "minute",
            Self::Second => "second",
            Self::Millisecond => "millisecond",
            Self::Microsecond => "microsecond",
            Self::Nanosecond => "nanosecond",
            Self::Epoch => "epoch",
        }
    }

    /// Is it one of the time of day?
    pub fn is_of_time(self) -> bool {
        use DatePart::*;
        matches!(
            self,
            Hour | Minute | Second | Millisecond | Microsecond | Nanosecond
        )
    }
}

/// Spans of the calendar that are no fixed number of ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// From Monday.
    Week,
    /// From its first day.
    Month,
    /// Three months from January, April, July or October.
    Quarter,
    /// From the first of January.
    Year,
}

/// A move in time, as Arrow and DataFusion do it. What could leave the calendar or 64 bits is left to the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Calendar {
    /// By months, to the last day of the month where that has fewer days, and then by ticks of the type.
    Shift {
        /// Months.
        months: i32,
        /// Ticks.
        ticks: i64,
    },
    /// To the start of a span.
    Truncate(Span),
    /// To the start of its bin.
    Bin {
        /// Ticks of a bin, at least one.
        stride: i64,
        /// Where one of the bins begins.
        origin: i64,
        /// DataFusion calculates in nanoseconds, whatever the type: values that have none in 64 bits are for the CPU.
        in_nanoseconds: bool,
    },
    /// What the clocks of a zone show: a timestamp of the zone becomes one of none.
    Local(Zone),
    /// When the clocks of a zone show it: a timestamp without zone becomes one of the zone. A time that they show twice or never is a
    /// fault, or NULL.
    Moment {
        /// The zone.
        zone: Zone,
        /// NULL, not a fault.
        safe: bool,
    },
    /// To the moment when a zone's clocks show the start of a span. Of two such moments the one with the value's own offset, else the
    /// later one; where there is none, as long after three hours earlier as that is by the clock.
    LocalStart {
        /// The zone.
        zone: Zone,
        /// Of what the start.
        span: LocalSpan,
    },
}

/// Spans whose start depends on the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalSpan {
    /// An hour by the clock.
    Hour,
    /// From midnight.
    Day,
    /// A span of the calendar.
    Calendar(Span),
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shift { months: 0, ticks } => write!(f, "{ticks:+} ticks "),
            Self::Shift { months, ticks } => write!(f, "{months:+} months, {ticks:+} ticks "),
            Self::Truncate(span) => write!(f, "start of the {span}"),
            Self::Local(zone) => write!(f, "local time of {zone} "),
            Self::Moment { zone, .. } => write!(f, "moment of the local time in {zone} "),
            Self::LocalStart { zone, span } => write!(f, "start of the {span} in {zone} "),
            Self::Bin { stride, origin, .. } => write!(f, "bin of {stride} ticks from {origin} "),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        })
    }
}

impl fmt::Display for LocalSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hour => f.write_str("hour"),
            Self::Day => f.write_str("day"),
            Self::Calendar(span) => span.fmt(f),
        }
    }
}
