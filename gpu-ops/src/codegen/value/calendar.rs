//! Calendar fields of dates and timestamps.

use arrow::datatypes::{DataType, TimeUnit};

use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::Result;
use crate::expr::{DatePart, Expr};

impl Emitter<'_> {
    pub(in crate::codegen) fn date_part(&mut self, part: DatePart, value: &Expr) -> Result<Value> {
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
                    Range::new(year_of(day_range.min), year_of(day_range.max)),
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

/// Proleptic Gregorian year of a day counted from 1970-01-01, as `civil_from_days` in `pipeline.cuh`.
fn year_of(day: i128) -> i128 {
    // Eras of 400 years that begin in March, so that the leap day comes last.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // The 306th day since the first of March is the first of January.
    era * 400 + year_of_era + i128::from(day_of_year >= 306)
}

/// Ticks of a time unit in one second.
pub(in crate::codegen) fn units_per_second(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
