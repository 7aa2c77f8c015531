// Arithmetic with days of the proleptic Gregorian calendar, counted from 1970-01-01, as Arrow and DataFusion do it. Callers see
// to it that no result leaves the calendar. No memory is read or written.
#pragma once
#include "pipeline.cuh"

// The same day `months` later, or the last one of that month if it has fewer days.
WL_DEVICE i32 add_months(i32 days, i32 months) {
  const CivilDate date = civil_from_days(days);
  const i64 month = (i64)date.year * 12 + (date.month - 1) + months;
  const i32 year = (i32)floor_div(month, 12);
  const i32 of_year = (i32)(month - (i64)year * 12) + 1;
  const i32 first = days_from_civil(year, of_year, 1);
  const i32 next = of_year == 12 ? days_from_civil(year + 1, 1, 1) : days_from_civil(year, of_year + 1, 1);
  const i32 last = next - first;
  return first + (date.day < last ? date.day : last) - 1;
}

// The first days of the week (a Monday), month, quarter and year of a day.
WL_DEVICE i32 first_of_week(i32 days) { return days - (i32)floor_mod((i64)days + 3, 7); }
WL_DEVICE i32 first_of_month(i32 days) { return days - civil_from_days(days).day + 1; }
WL_DEVICE i32 first_of_quarter(i32 days) {
  const CivilDate date = civil_from_days(days);
  return days_from_civil(date.year, 1 + 3 * ((date.month - 1) / 3), 1);
}
WL_DEVICE i32 first_of_year(i32 days) { return days_from_civil(civil_from_days(days).year, 1, 1); }

// The year that the ISO week of a day belongs to.
WL_DEVICE i32 iso_year(i32 days) { return civil_from_days(first_of_week(days) + 3).year; }
