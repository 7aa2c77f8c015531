//! The proleptic Gregorian calendar over days counted from 1970-01-01, as `pipeline.cuh` and `calendar.cuh` have it: what
//! ranges of values become.

use crate::expr::Span;

/// Year, month and day of the month of a day.
fn civil(day: i128) -> (i128, i128, i128) {
    // Eras of 400 years that begin in March, so that the leap day comes last.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (era * 400 + year_of_era + i128::from(month <= 2), month, day)
}

/// The day of a year, month and day of the month.
fn day_of(year: i128, month: i128, day: i128) -> i128 {
    let year = year - i128::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The year of a day.
pub(super) fn year_of(day: i128) -> i128 {
    civil(day).0
}

/// The same day `months` later, or the last one of that month if it has fewer days.
pub(super) fn add_months(day: i128, months: i32) -> i128 {
    let (year, month, of_month) = civil(day);
    let month = year * 12 + month - 1 + i128::from(months);
    let start = |month: i128| day_of(month.div_euclid(12), month.rem_euclid(12) + 1, 1);
    let days = start(month + 1) - start(month);
    start(month) + of_month.min(days) - 1
}

/// The first day of the span that a day is in.
pub(super) fn first_of(span: Span, day: i128) -> i128 {
    let (year, month, of_month) = civil(day);
    match span {
        Span::Week => day - (day + 3).rem_euclid(7),
        Span::Month => day - of_month + 1,
        Span::Quarter => day_of(year, 1 + 3 * ((month - 1) / 3), 1),
        Span::Year => day_of(year, 1, 1),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::datatypes::{Date32Type, IntervalYearMonthType};

    use super::*;

    #[test]
    fn days_are_those_of_arrow() {
        for day in (-1_000_000..1_000_000).step_by(97).chain(-800..800) {
            let (year, month, of_month) = civil(day);
            assert_eq!(day_of(year, month, of_month), day);
            for months in [-1_201, -13, -1, 0, 1, 2, 11, 12, 4_801] {
                let interval = IntervalYearMonthType::make_value(0, months);
                let expected = Date32Type::add_year_months_opt(day as i32, interval).unwrap();
                assert_eq!(
                    add_months(day, months),
                    i128::from(expected),
                    "{day} {months}"
                );
            }
        }
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(first_of(Span::Quarter, 11_016), 10_957);
        assert_eq!(first_of(Span::Year, 11_016), 10_957);
        assert_eq!(first_of(Span::Month, 11_016), 10_988);
        assert_eq!(first_of(Span::Week, 11_016), 11_015);
    }
}
