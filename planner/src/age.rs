//! `age(a, b)`: what is between two points of time, in months, days and hours as the calendar counts them.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampNanosecondType,
};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(Age::new())));

/// Its name in plans.
pub const NAME: &str = "age";

const NANOSECONDS_A_DAY: i64 = 86_400_000_000_000;

/// `age(a, b)`: `a - b` in months, days of the month before and time of day, as PostgreSQL has it: negative where `a` is before `b`. NULL where
/// either is.
pub fn age() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    signature: Signature,
}

impl Age {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let known = |data_type: &DataType| {
            data_type.is_temporal() || data_type.is_string() || data_type.is_null()
        };
        match arguments {
            [_, _] if arguments.iter().all(known) => {
                Ok(vec![DataType::Timestamp(TimeUnit::Nanosecond, None); 2])
            }
            _ => plan_err!("age takes two dates or timestamps, not {arguments:?}"),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(ages, vec![])(&arguments.args)
    }
}

/// The ages, row by row.
fn ages(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let times = arguments
        .iter()
        .map(|array| array.as_primitive_opt::<TimestampNanosecondType>());
    let times: Option<Vec<_>> = times.collect();
    let Some([later, earlier]) = times.as_deref() else {
        return exec_err!("age takes two timestamps");
    };
    let ages: IntervalMonthDayNanoArray = later
        .iter()
        .zip(earlier.iter())
        .map(|(later, earlier)| Some(between(later?, earlier?)))
        .collect();
    Ok(Arc::new(ages))
}

/// From one time to another, in nanoseconds since 1970.
fn between(later: i64, earlier: i64) -> IntervalMonthDayNano {
    if later < earlier {
        let turned = between(earlier, later);
        return IntervalMonthDayNano::new(-turned.months, -turned.days, -turned.nanoseconds);
    }
    let (end, start) = (time(later), time(earlier));
    let of_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond())
    };
    let mut months = (end.year() - start.year()) * 12 + end.month() as i32 - start.month() as i32;
    let mut days = end.day() as i32 - start.day() as i32;
    let mut nanoseconds = of_day(end) - of_day(start);
    if nanoseconds < 0 {
        nanoseconds += NANOSECONDS_A_DAY;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(start.date().num_days_in_month());
        months -= 1;
    }
    IntervalMonthDayNano::new(months, days, nanoseconds)
}

fn time(nanoseconds: i64) -> NaiveDateTime {
    DateTime::from_timestamp_nanos(nanoseconds).naive_utc()
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn ages_are_postgresqls() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "SELECT age(TIMESTAMP '2024-03-01', TIMESTAMP '2023-01-31') AS a",
                "SELECT INTERVAL '13 months 1 day' AS a",
            ),
            (
                "SELECT age(DATE '2001-04-10', DATE '1957-06-13') AS a",
                "SELECT INTERVAL '43 years 9 months 27 days' AS a",
            ),
            (
                "SELECT age(DATE '1957-06-13', DATE '2001-04-10') AS a",
                "SELECT INTERVAL '-43 years -9 months -27 days' AS a",
            ),
            (
                "SELECT age(TIMESTAMP '2024-02-28 13:30:15', TIMESTAMP '2024-02-27 14:00:00') AS a",
                "SELECT INTERVAL '23 hours 30 minutes 15 seconds' AS a",
            ),
            (
                "SELECT extract(year FROM age(d, h)) AS y, date_part('month', age(d, h)) AS m FROM (VALUES (DATE '2024-06-15', DATE '2000-06-16'), (DATE '2024-06-15', DATE '2000-06-15'), (DATE '2000-06-16', DATE '2024-06-15'), (NULL, DATE '2024-06-15')) t(d, h)",
                "SELECT column1 AS y, column2 AS m FROM (VALUES (23, 11), (24, 0), (-23, -11), (NULL, NULL))",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
