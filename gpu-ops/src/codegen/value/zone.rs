//! Timestamps of time zones: what clocks show at a moment, and when they show it.

use arrow::datatypes::{DataType, ToByteSlice};

use super::calendar::{first_of_span, units_per_second};
use super::civil::first_of;
use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Value};
use crate::error::{GpuError, Result};
use crate::expr::{Calendar, LocalSpan, Period, Zone};

const DAY: i128 = 86_400;

/// A timestamp that is moved by the clocks of a zone.
struct Stamp {
    input: Value,
    /// C++ texts of its ticks and of its whole seconds.
    tick: String,
    second: String,
    /// Ticks of a second.
    ticks: i128,
    /// Its whole seconds.
    seconds: Range,
}

/// Offsets of a zone in the seconds that a kernel asks for.
struct Offsets {
    periods: Vec<Period>,
    /// C++ texts of the arguments that functions of `calendar.cuh` take, where there are several.
    table: Option<String>,
    /// C++ text of the only one.
    only: String,
    range: Range,
}

impl Offsets {
    /// C++ text of the offset at a second of UTC.
    fn at(&self, second: &str) -> String {
        match &self.table {
            Some(table) => format!("zone_offset({table}, {second})"),
            None => self.only.clone(),
        }
    }

    /// Has every local time a moment, or else one and no other three hours before? True where clocks are put forward by no more
    /// than that, and then stay as they are for days.
    fn has_starts(&self) -> bool {
        self.periods.windows(2).all(|pair| {
            let lasts = pair[1].begin.saturating_sub(pair[0].begin) >= 3 * 86_400;
            lasts && pair[1].offset - pair[0].offset <= 3 * 3_600
        })
    }
}

impl Emitter<'_> {
    /// `input`, of the type `data_type`, moved by a function with a zone.
    pub(super) fn in_zone(
        &mut self,
        function: Calendar,
        input: Value,
        data_type: &DataType,
    ) -> Result<Value> {
        let DataType::Timestamp(unit, _) = data_type else {
            return unsupported(format!("{function}of {data_type}"));
        };
        let ticks = units_per_second(unit);
        let tick = format!("(i64){}", input.text);
        let second = match ticks {
            1 => tick.clone(),
            _ => self.bind(CType::I64, format!("floor_div({tick}, {ticks}ll)")),
        };
        let seconds = Range::new(
            input.range.min.div_euclid(ticks),
            input.range.max.div_euclid(ticks),
        );
        let stamp = Stamp {
            input,
            tick,
            second,
            ticks,
            seconds,
        };
        let beyond = || {
            GpuError::Unsupported(format!(
                "{function}near the end of the calendar runs on the CPU"
            ))
        };
        let moved = match function {
            Calendar::Local(zone) => self.local(zone, stamp),
            Calendar::Moment { zone, safe } => self.moment(zone, safe, stamp),
            Calendar::LocalStart { zone, span } => self.local_start(zone, span, stamp)?,
            _ => None,
        };
        let moved = moved.ok_or_else(beyond)?;
        if !moved.range.within(self.bounds(data_type)?) {
            return Err(beyond());
        }
        Ok(moved.narrowed(self))
    }

    fn local(&mut self, zone: Zone, stamp: Stamp) -> Option<Value> {
        let offsets = self.offsets(zone, stamp.seconds)?;
        let ticks = stamp.ticks;
        let range = offsets.range.times(Range::point(ticks))?;
        let range = stamp.input.range.plus(range)?;
        let offset = offsets.at(&stamp.second);
        let text = format!("{} + (i64){offset} * {ticks}ll", stamp.tick);
        Some(self.stamped(stamp.input, text, range))
    }

    fn moment(&mut self, zone: Zone, safe: bool, stamp: Stamp) -> Option<Value> {
        let Stamp {
            mut input,
            tick,
            second,
            ticks,
            seconds,
        } = stamp;
        let offsets = self.offsets(zone, around(seconds, 2 * DAY))?;
        let range = offsets.range.times(Range::point(ticks))?;
        let range = input.range.minus(range)?;
        let Some(table) = &offsets.table else {
            let text = format!("{tick} - (i64){} * {ticks}ll", offsets.only);
            return Some(self.stamped(input, text, range));
        };
        self.state.calendar = true;
        let moments = format!("zone_moments({table}, {second})");
        let once = self.bind_bool(format!("{moments}.count == 1"));
        // Values without a moment, or with two, still have one in the range.
        let offset = format!(
            "({once} ? {second} - {moments}.first : (i64){})",
            offsets.only
        );
        if safe {
            let valid = format!("{} && {once}", input.valid_text());
            input.valid = Some(self.bind_bool(valid));
        } else {
            self.fault(
                &format!("!{once}"),
                input.valid.clone().as_deref(),
                "WL_FAULT_CAST",
            );
        }
        let text = format!("{tick} - {offset} * {ticks}ll");
        Some(self.stamped(input, text, range))
    }

    fn local_start(&mut self, zone: Zone, span: LocalSpan, stamp: Stamp) -> Result<Option<Value>> {
        let Stamp {
            input,
            second,
            ticks,
            seconds,
            ..
        } = stamp;
        // A span may have begun a year ago.
        let Some(offsets) = self.offsets(zone, around(seconds, 368 * DAY)) else {
            return Ok(None);
        };
        if !offsets.has_starts() {
            return unsupported(format!(
                "starts of spans in {zone}, whose clocks skip more than three hours, run on the CPU"
            ));
        }
        let offset = self.bind(CType::I64, format!("(i64){}", offsets.at(&second)));
        let local = self.bind(CType::I64, format!("{second} + {offset}"));
        let start = match span {
            LocalSpan::Hour => format!("{local} - floor_mod({local}, 3600ll)"),
            LocalSpan::Day => format!("{local} - floor_mod({local}, {DAY}ll)"),
            LocalSpan::Calendar(span) => {
                self.state.calendar = true;
                let name = first_of_span(span);
                format!("(i64){name}((i32)floor_div({local}, {DAY}ll)) * {DAY}ll")
            }
        };
        let start = self.bind(CType::I64, start);
        let moment = match &offsets.table {
            Some(table) => format!("zone_start({table}, {start}, {offset})"),
            None => format!("{start} - {offset}"),
        };
        // DataFusion calculates in nanoseconds, and back.
        let first = |second: i128| {
            let day = second.div_euclid(DAY);
            match span {
                LocalSpan::Calendar(span) => first_of(span, day) * DAY,
                LocalSpan::Hour | LocalSpan::Day => day * DAY,
            }
        };
        let starts = Range {
            min: first(seconds.min + offsets.range.min) - offsets.range.max,
            max: seconds.max + DAY,
        };
        let nanoseconds = starts.times(Range::point(1_000_000_000));
        let fits = |range: Range| range.within(Range::new(i64::MIN.into(), i64::MAX.into()));
        if !nanoseconds.is_some_and(fits) {
            return Ok(None);
        }
        let range = Range::new(starts.min * ticks, starts.max * ticks);
        Ok(Some(self.stamped(
            input,
            format!("({moment}) * {ticks}ll"),
            range,
        )))
    }

    /// `input` with other ticks.
    fn stamped(&mut self, input: Value, text: String, range: Range) -> Value {
        Value {
            text: self.bind(CType::I64, text),
            c_type: CType::I64,
            range,
            ..input
        }
    }

    /// What the zone's clocks show while it is one of `seconds`; `None` where that is not known.
    fn offsets(&mut self, zone: Zone, seconds: Range) -> Option<Offsets> {
        let from = i64::try_from(seconds.min).ok()?;
        let periods = zone.periods(from, i64::try_from(seconds.max).ok()?)?;
        let each = periods.iter().map(|period| i128::from(period.offset));
        let range = Range {
            min: each.clone().min()?,
            max: each.max()?,
        };
        let only = self.integer(periods.first()?.offset.into());
        let table = (periods.len() > 1).then(|| {
            self.state.calendar = true;
            let begins = periods.iter().map(|period| period.begin);
            let offsets = periods.iter().map(|period| i64::from(period.offset));
            let words: Vec<i64> = begins.chain(offsets).collect();
            let table = self
                .state
                .table("const i64*", words.to_byte_slice().to_vec());
            format!("{table}, (u32){}", self.integer(periods.len() as i128))
        });
        Some(Offsets {
            periods,
            table,
            only,
            range,
        })
    }
}

/// So many seconds more on both sides.
fn around(seconds: Range, by: i128) -> Range {
    Range::new(seconds.min - by, seconds.max + by)
}
