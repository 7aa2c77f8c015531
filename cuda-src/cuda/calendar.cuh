// Arithmetic with days of the proleptic Gregorian calendar, counted from 1970-01-01, as Arrow and DataFusion do it. Callers see
// to it that no result leaves the calendar. No memory is read or written, but tables of zones, of a few hundred bytes, through the cache.
#pragma once
#include "pipeline.cuh"

// The same day `months` later, or the last one of that month if it has fewer days.
WL_OUTLINED i32 add_months(i32 days, i32 months) {
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
WL_OUTLINED i32 first_of_quarter(i32 days) {
  const CivilDate date = civil_from_days(days);
  return days_from_civil(date.year, 1 + 3 * ((date.month - 1) / 3), 1);
}
WL_DEVICE i32 first_of_year(i32 days) { return days_from_civil(civil_from_days(days).year, 1, 1); }

// The year that the ISO week of a day belongs to.
WL_OUTLINED i32 iso_year(i32 days) { return civil_from_days(first_of_week(days) + 3).year; }

// ---- zones: periods in which a zone's clocks are the same time before UTC's. `zone` has `count` seconds since 1970 at which they begin,
// ascending, the first one before all others that are asked for, and then as many offsets in seconds.

// The period that a second of UTC is in.
WL_DEVICE u32 zone_period(const i64* zone, u32 count, i64 second) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    const u32 middle = (low + high) >> 1;
    if (__ldg(zone + middle) <= second) low = middle;
    else high = middle;
  }
  return low;
}
WL_DEVICE i64 zone_offset(const i64* zone, u32 count, i64 second) {
  return __ldg(zone + count + zone_period(zone, count, second));
}

// When clocks show `local`: how many times, the first of them and the last.
struct ZoneMoments {
  u32 count;
  i64 first, last;
};
WL_DEVICE ZoneMoments zone_moments(const i64* zone, u32 count, i64 local) {
  // No clock is further from UTC's.
  const i64 furthest = 26 * 3600;
  const u32 end = zone_period(zone, count, local + furthest);
  ZoneMoments moments = {0, 0, 0};
  for (u32 period = zone_period(zone, count, local - furthest); period <= end; ++period) {
    const i64 moment = local - __ldg(zone + count + period);
    if (zone_period(zone, count, moment) != period) continue;
    if (moments.count == 0) moments.first = moment;
    moments.last = moment;
    ++moments.count;
  }
  return moments;
}

// The moment that the start of a span is cut to, for a value whose own offset is `offset`. What has no moment is sought three hours
// before, which callers know to have one.
WL_DEVICE i64 zone_start(const i64* zone, u32 count, i64 local, i64 offset) {
  const ZoneMoments moments = zone_moments(zone, count, local);
  if (moments.count == 0) return zone_moments(zone, count, local - 3 * 3600).first + 3 * 3600;
  return local - moments.first == offset ? moments.first : moments.last;
}
