//! The function that multiplies an interval by a number.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(IntervalProduct::new())));

/// Its name in plans.
pub const NAME: &str = "warpline_interval_product";

/// The type of what it multiplies, and of the product.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `warpline_interval_product(interval, number)`: so many times the interval, months, days and nanoseconds each. Of what a fraction leaves
/// of months are days, 30 to the month, and of days nanoseconds, as PostgreSQL has it. NULL where either is.
pub fn interval_product() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalProduct {
    signature: Signature,
}

impl IntervalProduct {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for IntervalProduct {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let number = match arguments {
            [DataType::Interval(_), number] if number.is_integer() || number.is_null() => {
                DataType::Int64
            }
            [DataType::Interval(_), number] if number.is_numeric() => DataType::Float64,
            _ => return exec_err!("{NAME} takes an interval and a number, not {arguments:?}"),
        };
        Ok(vec![INTERVAL, number])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(products, vec![])(&arguments.args)
    }
}

/// The products, row by row.
fn products(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let [intervals, numbers] = arguments else {
        return exec_err!("{NAME} takes an interval and a number");
    };
    let Some(intervals) = intervals.as_primitive_opt::<IntervalMonthDayNanoType>() else {
        return exec_err!("{NAME} takes an interval, not {}", intervals.data_type());
    };
    let products: IntervalMonthDayNanoArray = match numbers.data_type() {
        DataType::Int64 => pairs(intervals, numbers.as_primitive::<Int64Type>())
            .map(|pair| pair.map(|(of, n)| times(of, n)).transpose())
            .collect::<Result<_>>()?,
        DataType::Float64 => pairs(intervals, numbers.as_primitive::<Float64Type>())
            .map(|pair| pair.map(|(of, n)| portion(of, n)).transpose())
            .collect::<Result<_>>()?,
        other => return exec_err!("{NAME} takes a BIGINT or a DOUBLE, not {other}"),
    };
    Ok(Arc::new(products))
}

/// The values of both, row by row, where neither is NULL.
fn pairs<'a, T: Copy + 'a>(
    intervals: &'a IntervalMonthDayNanoArray,
    numbers: impl IntoIterator<Item = Option<T>> + 'a,
) -> impl Iterator<Item = Option<(IntervalMonthDayNano, T)>> + 'a {
    intervals
        .iter()
        .zip(numbers)
        .map(|(interval, number)| Some((interval?, number?)))
}

fn times(interval: IntervalMonthDayNano, number: i64) -> Result<IntervalMonthDayNano> {
    let small = |part: i32| i32::try_from(i64::from(part).checked_mul(number)?).ok();
    let product = || {
        Some(IntervalMonthDayNano::new(
            small(interval.months)?,
            small(interval.days)?,
            interval.nanoseconds.checked_mul(number)?,
        ))
    };
    product().ok_or_else(|| out_of_range(interval, number))
}

fn portion(interval: IntervalMonthDayNano, number: f64) -> Result<IntervalMonthDayNano> {
    const DAYS_A_MONTH: f64 = 30.0;
    const NANOSECONDS_A_DAY: f64 = 86_400e9;
    let months = f64::from(interval.months) * number;
    let days = f64::from(interval.days) * number + months.fract() * DAYS_A_MONTH;
    let nanoseconds = interval.nanoseconds as f64 * number + days.fract() * NANOSECONDS_A_DAY;
    let (months, days, nanoseconds) = (months.trunc(), days.trunc(), nanoseconds.round());
    let small = |part: f64| part.abs() <= f64::from(i32::MAX);
    match small(months) && small(days) && nanoseconds.abs() < i64::MAX as f64 {
        true => Ok(IntervalMonthDayNano::new(
            months as i32,
            days as i32,
            nanoseconds as i64,
        )),
        false => Err(out_of_range(interval, number)),
    }
}

fn out_of_range(interval: IntervalMonthDayNano, number: impl std::fmt::Display) -> DataFusionError {
    exec_datafusion_err!("{number} times {interval:?} is no interval")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn products_of_whole_numbers() {
        let interval = IntervalMonthDayNano::new(1, -2, 3);
        assert_eq!(
            times(interval, -5).unwrap(),
            IntervalMonthDayNano::new(-5, 10, -15)
        );
        assert!(times(interval, i64::from(i32::MAX) + 1).is_err());
        assert!(times(IntervalMonthDayNano::new(0, 0, i64::MAX), 2).is_err());
    }

    #[test]
    fn products_of_fractions() {
        let of = |months, days, nanoseconds| IntervalMonthDayNano::new(months, days, nanoseconds);
        let hours = |n: i64| n * 3_600_000_000_000;
        for (interval, number, product) in [
            (of(1, 0, 0), 1.5, of(1, 15, 0)),
            (of(0, 1, 0), 1.0 / 24.0, of(0, 0, hours(1))),
            (of(0, 3, 0), -0.5, of(0, -1, hours(-12))),
            (of(1, 1, 0), 0.5, of(0, 15, hours(12))),
        ] {
            assert_eq!(portion(interval, number).unwrap(), product, "{number}");
        }
        assert!(portion(of(1, 0, 0), f64::NAN).is_err());
        assert!(portion(of(0, 1, 0), 1e300).is_err());
    }
}
