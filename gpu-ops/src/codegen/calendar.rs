//! Calendar fields of dates and timestamps.

use arrow::datatypes::{DataType, TimeUnit};

use super::range::Range;
use super::scalar::{Emitter, unsupported};
use super::value::{CType, Meaning, Value};
use crate::error::Result;
use crate::expr::{DatePart, Expr};

impl Emitter<'_> {
    pub(super) fn date_part(&mut self, part: DatePart, value: &Expr) -> Result<Value> {
        let input = self.emit(value)?;
        let per_day: i128 = match &value.data_type {
            DataType::Date32 => 1,
            DataType::Date64 => 86_400_000,
            DataType::Timestamp(unit, None) => 86_400 * units_per_second(unit),
            other => return unsupported(format!("date_part of {other}")),
        };
        let day_range = Range::new(
            input.range.min.div_euclid(per_day),
            input.range.max.div_euclid(per_day),
        );
        // Arrow's calendar ends at the years ±262,143; other days are for the CPU to judge.
        const LIMIT: i128 = 95_000_000;
        if !day_range.within(Range::new(-LIMIT, LIMIT)) {
            return unsupported("date_part of dates beyond the year 262,000");
        }
        let days = if per_day == 1 {
            input.text.clone()
        } else {
            let divisor = self.integer(per_day);
            self.bind(
                CType::I32,
                format!("(i32)floor_div((i64){}, {divisor})", input.text),
            )
        };
        let time_field = matches!(part, DatePart::Hour | DatePart::Minute | DatePart::Second);
        let (text, range) = if time_field {
            let divisor = self.integer(per_day);
            let of_day = self.bind(
                CType::I64,
                format!("floor_mod((i64){}, {divisor})", input.text),
            );
            let (unit, modulus, max) = match part {
                DatePart::Hour => (per_day / 24, 24, 23),
                DatePart::Minute => (per_day / 1440, 60, 59),
                _ => (per_day / 86_400, 60, 59),
            };
            if unit == 0 {
                ("0".to_string(), Range::point(0))
            } else {
                (
                    format!("(i32)({of_day} / {unit}ll % {modulus})"),
                    Range::new(0, max),
                )
            }
        } else {
            match part {
                DatePart::Year => (
                    format!("civil_from_days({days}).year"),
                    // A year never has fewer than 365 days.
                    Range::new(
                        1970 + day_range.min.div_euclid(365) - 1,
                        1970 + day_range.max.div_euclid(365) + 1,
                    ),
                ),
                DatePart::Quarter => (
                    format!("(civil_from_days({days}).month + 2) / 3"),
                    Range::new(1, 4),
                ),
                DatePart::Month => (format!("civil_from_days({days}).month"), Range::new(1, 12)),
                DatePart::Day => (format!("civil_from_days({days}).day"), Range::new(1, 31)),
                DatePart::DayOfWeek => (format!("day_of_week({days})"), Range::new(0, 6)),
                DatePart::DayOfYear => (format!("day_of_year({days})"), Range::new(1, 366)),
                _ => (format!("iso_week({days})"), Range::new(1, 53)),
            }
        };
        let text = self.bind(CType::I32, text);
        Ok(Value {
            text,
            c_type: CType::I32,
            range,
            valid: input.valid,
            meaning: Meaning::Number,
        })
    }
}

/// Ticks of a time unit in one second.
pub(super) fn units_per_second(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
