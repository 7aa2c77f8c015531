//! Calendar fields of dates, times and timestamps, and moves in time.

use arrow::datatypes::{DataType, TimeUnit};

use super::civil::{add_months, first_of, year_of};
use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::{GpuError, Result};
use crate::expr::{Calendar, DatePart, Expr, Span};

/// Arrow's calendar ends at the years ±262,143; other days are for the CPU to judge.
const LAST_DAY: i128 = 95_000_000;

impl Emitter<'_> {
    pub(in crate::codegen) fn date_part(&mut self, part: DatePart, value: &Expr) -> Result<Value> {
        let input = self.emit(value)?;
        let Some(per_day) = ticks_a_day(&value.data_type) else {
            return unsupported(format!("date_part of {}", value.data_type));
        };
        if input.is_null() {
            let data_type = match part {
                DatePart::Epoch => DataType::Float64,
                DatePart::Nanosecond => DataType::Int64,
                _ => DataType::Int32,
            };
            return Ok(self.null(&data_type));
        }
        if part == DatePart::Epoch {
            return Ok(self.epoch(input, per_day));
        }
        let day_range = days_of(input.range, per_day);
        if !day_range.within(Range::new(-LAST_DAY, LAST_DAY)) {
            return unsupported("date_part of dates beyond the year 262,000");
        }
        let (text, range) = if part.is_of_time() {
            // Arrow tells no parts of a second of dates, not even of those with a time.
            let date = matches!(value.data_type, DataType::Date32 | DataType::Date64);
            self.of_day(part, &input, per_day, date)
        } else {
            let days = self.day(&input, per_day);
            self.state.calendar |= part == DatePart::IsoYear;
            match part {
                DatePart::Year => (
                    format!("civil_from_days({days}).year"),
                    Range::new(year_of(day_range.min), year_of(day_range.max)),
                ),
                DatePart::IsoYear => (
                    format!("iso_year({days})"),
                    Range::new(year_of(day_range.min - 6), year_of(day_range.max + 6)),
                ),
                DatePart::Quarter => (
                    format!("(civil_from_days({days}).month + 2) / 3"),
                    Range::new(1, 4),
                ),
                DatePart::Month => (format!("civil_from_days({days}).month"), Range::new(1, 12)),
                DatePart::Day => (format!("civil_from_days({days}).day"), Range::new(1, 31)),
                DatePart::DayOfWeek => (format!("day_of_week({days})"), Range::new(0, 6)),
                DatePart::IsoDayOfWeek => {
                    (format!("day_of_week({days} - 1) + 1"), Range::new(1, 7))
                }
                DatePart::DayOfYear => (format!("day_of_year({days})"), Range::new(1, 366)),
                _ => (format!("iso_week({days})"), Range::new(1, 53)),
            }
        };
        let c_type = CType::for_range(range);
        let text = self.bind(c_type, text);
        Ok(Value {
            text,
            c_type,
            range,
            valid: input.valid,
            meaning: Meaning::Number,
        })
    }

    /// The day of a date or timestamp, as an `i32`.
    fn day(&mut self, input: &Value, per_day: i128) -> String {
        if per_day == 1 {
            return input.text.clone();
        }
        // A constant of the kernel: the division is a product then.
        self.bind(
            CType::I32,
            format!("(i32)floor_div((i64){}, {per_day}ll)", input.text),
        )
    }

    /// Ticks since midnight, as an `i64`.
    fn ticks_of_day(&mut self, input: &Value, per_day: i128) -> String {
        let text = format!("floor_mod((i64){}, {per_day}ll)", input.text);
        self.bind(CType::I64, text)
    }

    /// The time of day of a date or timestamp, in ticks of the same length.
    pub(super) fn time_of_day(&mut self, input: Value, per_day: i128) -> Result<Value> {
        if !days_of(input.range, per_day).within(Range::new(-LAST_DAY, LAST_DAY)) {
            return unsupported("times of day beyond the year 262,000");
        }
        Ok(Value {
            text: self.ticks_of_day(&input, per_day),
            c_type: CType::I64,
            range: Range::new(0, per_day - 1),
            ..input
        })
    }

    /// A field of the time of day.
    fn of_day(
        &mut self,
        part: DatePart,
        input: &Value,
        per_day: i128,
        date: bool,
    ) -> (String, Range) {
        let of_day = self.ticks_of_day(input, per_day);
        let (unit, modulus) = match part {
            DatePart::Hour => (per_day / 24, 24),
            DatePart::Minute => (per_day / 1440, 60),
            _ => (per_day / 86_400, 60),
        };
        let fraction = match part {
            DatePart::Millisecond => 1_000,
            DatePart::Microsecond => 1_000_000,
            DatePart::Nanosecond => 1_000_000_000,
            _ => 1,
        };
        if unit == 0 || date && fraction > 1 {
            return ("0".to_string(), Range::point(0));
        }
        if fraction == 1 {
            let text = format!("(i32)({of_day} / {unit}ll % {modulus})");
            return (text, Range::new(0, modulus - 1));
        }
        let of_minute = format!("({of_day} % {}ll)", unit * 60);
        let text = match fraction >= unit {
            true => format!("({of_minute} * {}ll)", fraction / unit),
            false => format!("({of_minute} / {}ll)", unit / fraction),
        };
        let range = Range::new(0, 60 * fraction - 1);
        (format!("({}){text}", CType::for_range(range).name()), range)
    }

    /// Seconds since 1970 or midnight.
    fn epoch(&mut self, input: Value, per_day: i128) -> Value {
        let text = match per_day {
            1 => format!("(f64){} * 86400.0", input.text),
            _ => format!("(f64){} / {}.0", input.text, per_day / 86_400),
        };
        Value {
            text: self.bind(CType::F64, text),
            c_type: CType::F64,
            range: Range::FULL,
            ..input
        }
    }

    pub(in crate::codegen) fn moved(&mut self, function: Calendar, value: &Expr) -> Result<Value> {
        let data_type = &value.data_type;
        let input = self.emit(value)?;
        if input.is_null() {
            return Ok(input);
        }
        let bounds = self.bounds(data_type)?;
        let Some(per_day) = ticks_a_day(data_type) else {
            return unsupported(format!("moves in time of {data_type}"));
        };
        let range = match function {
            Calendar::Shift { months: 0, ticks } => input.range.plus(Range::point(ticks.into())),
            Calendar::Shift { months, ticks } => self
                .each_day(input.range, per_day, |day| add_months(day, months))
                .and_then(|range| range.plus(Range::point(ticks.into()))),
            Calendar::Truncate(span) => {
                let start = |day| Some(first_of(span, day));
                let starts = days_of(input.range, per_day);
                starts
                    .within(Range::new(-LAST_DAY, LAST_DAY))
                    .then(|| Range {
                        min: start(starts.min).map_or(0, |day: i128| day * per_day),
                        max: start(starts.max).map_or(0, |day: i128| day * per_day),
                    })
            }
            Calendar::Bin { stride, origin, .. } => {
                let (stride, origin) = (i128::from(stride), i128::from(origin));
                let start = |tick: i128| tick - (tick - origin).rem_euclid(stride);
                Some(Range {
                    min: start(input.range.min),
                    max: start(input.range.max),
                })
            }
            Calendar::Local(_) | Calendar::Moment { .. } | Calendar::LocalStart { .. } => {
                return self.in_zone(function, input, data_type);
            }
        };
        let through_nanoseconds = match function {
            Calendar::Shift { .. } => {
                matches!(data_type, DataType::Timestamp(TimeUnit::Nanosecond, _))
            }
            Calendar::Truncate(_) => matches!(data_type, DataType::Timestamp(..)),
            Calendar::Bin { in_nanoseconds, .. } => in_nanoseconds,
            _ => false,
        };
        let beyond = || {
            GpuError::Unsupported(format!(
                "{function} near the end of the calendar runs on the CPU"
            ))
        };
        let range = range
            .filter(|range| range.within(bounds))
            .ok_or_else(beyond)?;
        if through_nanoseconds {
            let scale = Range::point(86_400_000_000_000 / per_day);
            let all = Range::new(i64::MIN.into(), i64::MAX.into());
            let fits = |range: Range| range.times(scale).is_some_and(|n| n.within(all));
            // The distance from an origin that is far away must fit as well.
            let distance = match function {
                Calendar::Bin { origin, .. } => input
                    .range
                    .minus(Range::point(origin.into()))
                    .is_some_and(fits),
                _ => true,
            };
            if !(fits(range) && fits(input.range) && distance) {
                return Err(beyond());
            }
        }
        // Arrow goes by way of the calendar even for days alone.
        let calendar = Range::new(-LAST_DAY, LAST_DAY);
        let shifts = matches!(function, Calendar::Shift { .. });
        if shifts
            && !(days_of(input.range, per_day).within(calendar)
                && days_of(range, per_day).within(calendar))
        {
            return Err(beyond());
        }
        let tick = format!("(i64){}", input.text);
        let text = match function {
            Calendar::Shift { months: 0, ticks } => {
                let ticks = self.integer(ticks.into());
                format!("{tick} + (i64){ticks}")
            }
            Calendar::Shift { months, ticks } => {
                self.state.calendar = true;
                let day = self.day(&input, per_day);
                let (months, ticks) = (self.integer(months.into()), self.integer(ticks.into()));
                let day = self.bind(CType::I64, day);
                format!(
                    "{tick} + ((i64)add_months((i32){day}, {months}) - {day}) * {per_day}ll + (i64){ticks}"
                )
            }
            Calendar::Truncate(span) => {
                self.state.calendar = true;
                let name = first_of_span(span);
                let day = self.day(&input, per_day);
                format!("(i64){name}({day}) * {per_day}ll")
            }
            Calendar::Bin {
                stride,
                origin: 0,
                in_nanoseconds: false,
            } => format!("{tick} - floor_mod({tick}, {stride}ll)"),
            Calendar::Bin { stride, origin, .. } => {
                let (stride, origin) = (self.integer(stride.into()), self.integer(origin.into()));
                format!("{tick} - floor_mod({tick} - (i64){origin}, (i64){stride})")
            }
            _ => tick,
        };
        let text = self.bind(CType::I64, text);
        Ok(Value {
            text,
            c_type: CType::I64,
            range,
            ..input
        }
        .narrowed(self))
    }

    /// The ticks of a range whose days are moved by `to`, which keeps their order; `None` where that leaves the calendar.
    fn each_day(&self, range: Range, per_day: i128, to: impl Fn(i128) -> i128) -> Option<Range> {
        if !days_of(range, per_day).within(Range::new(-LAST_DAY, LAST_DAY)) {
            return None;
        }
        let moved = |tick: i128| to(tick.div_euclid(per_day)) * per_day + tick.rem_euclid(per_day);
        // Times of the same last day of a month are not in order.
        Some(Range {
            min: moved(range.min) - per_day + 1,
            max: moved(range.max) + per_day - 1,
        })
    }
}

/// The function of `calendar.cuh` that gives the first day of the span that a day is in.
pub(super) fn first_of_span(span: Span) -> &'static str {
    match span {
        Span::Week => "first_of_week",
        Span::Month => "first_of_month",
        Span::Quarter => "first_of_quarter",
        Span::Year => "first_of_year",
    }
}

/// The days of a range of ticks.
fn days_of(range: Range, per_day: i128) -> Range {
    Range::new(range.min.div_euclid(per_day), range.max.div_euclid(per_day))
}

/// Ticks in a day of a date, time or timestamp. Those of a zone count as UTC, which is right for moves by ticks alone.
pub(super) fn ticks_a_day(data_type: &DataType) -> Option<i128> {
    Some(match data_type {
        DataType::Date32 => 1,
        DataType::Date64 => 86_400_000,
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            86_400 * units_per_second(unit)
        }
        _ => return None,
    })
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
