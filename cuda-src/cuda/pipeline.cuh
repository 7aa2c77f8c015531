// What generated pipeline kernels call: arithmetic with SQL's faults, calendar fields,
// order-preserving keys and the open-addressing group table.
//
// Values inside a pipeline are signed integers wide enough for their exact range (i32, i64, i128),
// floats, or dictionary codes (i32). A fault is recorded, never trapped: the host decides what an
// arithmetic fault means for the query (see `ArithmeticFault` in warpline-gpu).
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "open_addressing.cuh"
#include "strings.cuh"

// Values of the fault word; they agree with `ArithmeticFault` on the host.
enum : u32 { WL_FAULT_DIVIDE_BY_ZERO = 1, WL_FAULT_OVERFLOW = 2, WL_FAULT_CAST = 3, WL_FAULT_WIDE_SUM = 4,
             WL_FAULT_DOMAIN = 5 };

// ---- checked 128-bit arithmetic: decimals fault when they leave 128 bits ------------------------

WL_DEVICE i128 wrap_add(i128 a, i128 b) { return (i128)((u128)a + (u128)b); }
WL_DEVICE i128 wrap_sub(i128 a, i128 b) { return (i128)((u128)a - (u128)b); }
WL_DEVICE i128 wrap_mul(i128 a, i128 b) { return (i128)((u128)a * (u128)b); }

WL_DEVICE bool add_overflows(i128 a, i128 b) {
  i128 sum = wrap_add(a, b);
  return ((a ^ sum) & (b ^ sum)) < 0;
}
WL_DEVICE bool sub_overflows(i128 a, i128 b) {
  i128 difference = wrap_sub(a, b);
  return ((a ^ b) & (a ^ difference)) < 0;
}
WL_DEVICE bool mul_overflows(i128 a, i128 b) {
  if (a == 0 || b == 0) return false;
  i128 product = wrap_mul(a, b);
  // The smallest i128 has no positive twin, so dividing by -1 is tested apart.
  i128 smallest = (i128)((u128)1 << 127);
  if ((a == -1 && b == smallest) || (b == -1 && a == smallest)) return true;
  return product / b != a;
}

// ---- division: truncates toward zero; zero and MIN / -1 are replaced so that nothing traps --------

template <typename T>
WL_DEVICE T safe_divisor(T divisor, bool usable) {
  return usable ? divisor : (T)1;
}

// Inlined, a division of 128 bits is hundreds of instructions a row of the thread; most numbers fit 64 bits, where it is a tenth.
WL_OUTLINED i128 divide(i128 value, i128 divisor) {
  // Of a row that is not there; no other comes here with it.
  if (divisor == 0) return 0;
  const i64 a = (i64)value, b = (i64)divisor;
  return a == value && b == divisor && b != -1 ? (i128)(a / b) : value / divisor;
}
template <typename T>
WL_DEVICE T divide(T value, T divisor) { return value / divisor; }
WL_DEVICE i128 remainder_of(i128 value, i128 divisor) { return wrap_sub(value, wrap_mul(divide(value, divisor), divisor)); }

// Division by a power of ten, rounding half away from zero, as Arrow rescales decimals down.
template <typename T>
WL_DEVICE T div_round_half_up(T value, T divisor) {
  T quotient = divide(value, divisor);
  T remainder = value - quotient * divisor;
  T half = divisor / 2;
  if (value >= 0) return remainder >= half ? quotient + 1 : quotient;
  return remainder <= -half ? quotient - 1 : quotient;
}

// ---- floats: Arrow compares them in IEEE total order ----------------------------------------------

WL_DEVICE i64 f64_bits(f64 value) {
  union { f64 value; i64 bits; } pun;
  pun.value = value;
  return pun.bits;
}
WL_DEVICE i32 f32_bits(f32 value) {
  union { f32 value; i32 bits; } pun;
  pun.value = value;
  return pun.bits;
}
// Signed integers that order as the total order of the floats.
WL_DEVICE i64 total_order(f64 value) {
  i64 bits = f64_bits(value);
  return bits ^ (i64)((u64)(bits >> 63) >> 1);
}
WL_DEVICE i32 total_order(f32 value) {
  i32 bits = f32_bits(value);
  return bits ^ (i32)((u32)(bits >> 31) >> 1);
}
// The same for SQL's comparison operators, to which the two zeros are equal (IN, NULLIF and CASE with a base
// expression tell them apart).
WL_DEVICE i64 comparison_order(f64 value) { return total_order(value == 0.0 ? 0.0 : value); }
WL_DEVICE i32 comparison_order(f32 value) { return total_order(value == 0.0f ? 0.0f : value); }
// A whole number of magnitude below 2^127, exactly.
WL_DEVICE i128 f64_to_i128(f64 value) {
  const f64 magnitude = value < 0 ? -value : value;
  // Scaling by powers of two is exact, and so is the difference: both share the float's last bits.
  const u64 high = (u64)(magnitude * (1.0 / 18446744073709551616.0));
  const u64 low = (u64)(magnitude - (f64)high * 18446744073709551616.0);
  const i128 whole = (i128)(((u128)high << 64) | low);
  return value < 0 ? -whole : whole;
}
// For grouped MIN and MAX: DataFusion begins with the largest (smallest) finite value, and any value replaces a NaN.
// So an infinity does not win against the beginning, and NaN loses against everything.
WL_DEVICE i64 grouped_min_order(f64 value) {
  if (value != value) return 0x7FF8000000000000ll;
  return total_order(value > 1.7976931348623157e308 ? 1.7976931348623157e308 : value);
}
WL_DEVICE i64 grouped_max_order(f64 value) {
  if (value != value) return ~0x7FF8000000000000ll;
  return total_order(value < -1.7976931348623157e308 ? -1.7976931348623157e308 : value);
}
WL_DEVICE i32 grouped_min_order(f32 value) {
  if (value != value) return 0x7FC00000;
  return total_order(value > 3.40282347e38f ? 3.40282347e38f : value);
}
WL_DEVICE i32 grouped_max_order(f32 value) {
  if (value != value) return ~0x7FC00000;
  return total_order(value < -3.40282347e38f ? -3.40282347e38f : value);
}
// True when truncating `value` gives an integer in [min, max] (bounds exact in f64, max exclusive).
WL_DEVICE bool float_in_range(f64 value, f64 min, f64 max_exclusive) {
  return value > min - 1.0 && value < max_exclusive;
}

// ---- minima and maxima as zero-initialised unsigned maxima --------------------------------------
// `max` keeps the largest key, `min` the largest complement, so a state of zero bytes is neutral.

WL_DEVICE u64 max_key(i64 value) { return (u64)value ^ 0x8000000000000000ull; }
WL_DEVICE u64 min_key(i64 value) { return ~max_key(value); }
WL_DEVICE u64 max_u64(u64 a, u64 b) { return a > b ? a : b; }
WL_DEVICE u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
// Stores the one value that all writers of a cell agree on; later writers only look.
template <class T>
WL_DEVICE void store_once(T* cell, T value) {
  if (load_relaxed(cell) != value) store_relaxed(cell, value);
}
// Raises a cell to `value`. It only grows: whoever finds it as large has nothing to do, and most rows of a group
// do not raise its extreme, so a look costs less than an atomic.
template <class T>
WL_DEVICE void raise(T* cell, T value) {
  if (load_relaxed(cell) < value) atomicMax(cell, value);
}
// The same for two neighbouring cells, aligned to 8 bytes, with one look.
WL_DEVICE void raise2(u32* cells, u32 a, u32 b) {
  const u64 seen = load_relaxed((const u64*)cells);
  if ((u32)seen < a) atomicMax(cells, a);
  if ((u32)(seen >> 32) < b) atomicMax(cells + 1, b);
}
// The same for cells in shared memory, which has loads of its own.
template <class T>
WL_DEVICE void store_once_block(T* cell, T value) {
  // Seldom: an atomic in place of a store costs nothing, and no two stores race.
  if (*(volatile T*)cell != value) atomicExch(cell, value);
}
template <class T>
WL_DEVICE void raise_block(T* cell, T value) {
  if (*(volatile T*)cell < value) atomicMax(cell, value);
}
// Adds to WORDS words of 32 bits, low first, in shared memory, which together are one number, modulo 2^(32 WORDS): who makes a
// word overflow adds the carry to the next, so that the number is right when all have added. Shared memory has no addition of 64
// bits: atomicAdd is a loop around a compare-and-swap, which lanes that meet in a cell go through one after the other.
template <u32 WORDS>
WL_DEVICE void block_add_words(u32* cell, const u32 (&value)[WORDS]) {
  u32 carry = 0;
  WL_UNROLL
  for (u32 word = 0; word < WORDS; ++word) {
    const u64 sum = (u64)value[word] + carry;
    const u32 add = (u32)sum;
    carry = (u32)(sum >> 32);
    if (add != 0) carry += (u32)(atomicAdd(cell + word, add) > ~add);
  }
}
WL_DEVICE void block_add_u64(u64* cell, u64 v) {
  const u32 words[2] = {(u32)v, (u32)(v >> 32)};
  block_add_words<2>((u32*)cell, words);
}
WL_DEVICE void block_add_u128(u64* cell, u128 v) {
  const u32 words[4] = {(u32)v, (u32)(v >> 32), (u32)(v >> 64), (u32)(v >> 96)};
  block_add_words<4>((u32*)cell, words);
}
WL_DEVICE u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }
// Back from keys to values.
WL_DEVICE i64 value_of_max(u64 key) { return (i64)(key ^ 0x8000000000000000ull); }
WL_DEVICE i64 value_of_min(u64 key) { return value_of_max(~key); }
// The same for values of up to 128 bits.
WL_DEVICE u128 max_key128(i128 value) { return (u128)value ^ ((u128)1 << 127); }
WL_DEVICE u128 min_key128(i128 value) { return ~max_key128(value); }
WL_DEVICE i128 value_of_max128(u128 key) { return (i128)(key ^ ((u128)1 << 127)); }
WL_DEVICE i128 value_of_min128(u128 key) { return value_of_max128(~key); }
WL_DEVICE u128 max_u128(u128 a, u128 b) { return a > b ? a : b; }
// Raises the 128 bits at words[0], words[1] (low first) to `key`; words[2] is a lock, 0 when free. A key below the
// upper half, which only grows, costs a load; others queue at the lock, which nobody holds for longer than two
// loads and two stores.
WL_DEVICE void atomic_max_u128(u64* words, u128 key) {
  const u64 high = (u64)(key >> 64);
  if (load_relaxed(words + 1) > high) return;
  // What the lock protects is inside of the loop: lanes of one warp that wait must not keep its holder from going on.
  for (bool done = false; !done;) {
    if (atomicCAS(words + 2, (u64)0, (u64)1) == 0) {
      __threadfence();
      const u128 held = ((u128)load_relaxed(words + 1) << 64) | load_relaxed(words);
      if (key > held) {
        store_relaxed(words, (u64)key);
        store_relaxed(words + 1, high);
      }
      store_release(words + 2, (u64)0);
      done = true;
    } else {
      spin_pause(20);
    }
  }
}
// A sum in two words that are sums of their own: of the lowest LOW bits of all values, and of what is above them. Neither
// needs to know the other, so that no carry is waited for. The host has seen to it that neither overflows.
// With TELLS the low word adds up numbers from 1 to 2^LOW, so that it is not 0 once there was a row.
template <u32 LOW, bool TELLS>
WL_DEVICE void atomic_add_split(u64* words, i128 v) {
  const u64 mask = (1ull << LOW) - 1;
  const i128 above = TELLS ? wrap_sub(v, 1) : v;
  const u64 low = ((u64)above & mask) + (TELLS ? 1u : 0u);
  const u64 high = (u64)(above >> LOW);
  if (low != 0) atomicAdd(words, low);
  if (high != 0) atomicAdd(words + 1, high);
}
// The same in shared memory.
template <u32 LOW, bool TELLS>
WL_DEVICE void block_add_split(u64* words, i128 v) {
  const u64 mask = (1ull << LOW) - 1;
  const i128 above = TELLS ? wrap_sub(v, 1) : v;
  block_add_u64(words, ((u64)above & mask) + (TELLS ? 1u : 0u));
  block_add_u64(words + 1, (u64)(above >> LOW));
}
template <u32 LOW>
WL_DEVICE u128 split_sum(const u64* words) {
  return ((u128)(i128)(i64)words[1] << LOW) + words[0];
}
// Back from the total order to floats.
WL_DEVICE f64 f64_of_order(i64 order) {
  union { f64 value; i64 bits; } pun;
  pun.bits = order ^ (i64)((u64)(order >> 63) >> 1);
  return pun.value;
}
// A value of a column, or what stands for none: a NaN that no value is, since all NaNs of columns become the usual one.
WL_DEVICE f64 known_value(bool known, f64 value) {
  return known && value == value ? value : f64_of_order(known ? (i64)0x7ff8000000000000 : (i64)(~0ull >> 1));
}
WL_DEVICE bool is_unknown(f64 value) { return total_order(value) == (i64)(~0ull >> 1); }
WL_DEVICE f32 f32_of_order(i32 order) {
  union { f32 value; i32 bits; } pun;
  pun.bits = order ^ (i32)((u32)(order >> 31) >> 1);
  return pun.value;
}

// ---- calendar: days since 1970-01-01, proleptic Gregorian -----------------------------------------

struct CivilDate {
  i32 year, month, day;
};
// Eras of 400 years; years start in March so that the leap day comes last.
WL_DEVICE CivilDate civil_from_days(i32 days) {
  i64 shifted = (i64)days + 719468;
  i64 era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  u32 day_of_era = (u32)(shifted - era * 146097);
  u32 year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  u32 day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  u32 month_from_march = (5 * day_of_year + 2) / 153;
  CivilDate date;
  date.day = (i32)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  date.month = (i32)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  date.year = (i32)((i64)year_of_era + era * 400 + (date.month <= 2 ? 1 : 0));
  return date;
}
WL_DEVICE i32 days_from_civil(i32 year, i32 month, i32 day) {
  i64 y = (i64)year - (month <= 2 ? 1 : 0);
  i64 era = (y >= 0 ? y : y - 399) / 400;
  i64 year_of_era = y - era * 400;
  i64 day_of_year = (153 * (i64)(month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  i64 day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return (i32)(era * 146097 + day_of_era - 719468);
}
WL_DEVICE i64 floor_div(i64 value, i64 divisor) {
  i64 quotient = value / divisor;
  return (value % divisor != 0 && (value < 0) != (divisor < 0)) ? quotient - 1 : quotient;
}
WL_DEVICE i64 floor_mod(i64 value, i64 divisor) { return value - floor_div(value, divisor) * divisor; }
// Sunday = 0.
WL_DEVICE i32 day_of_week(i32 days) { return (i32)floor_mod((i64)days + 4, 7); }
WL_OUTLINED i32 day_of_year(i32 days) {
  return days - days_from_civil(civil_from_days(days).year, 1, 1) + 1;
}
// ISO 8601: the week that holds the year's first Thursday is week 1.
WL_OUTLINED i32 iso_week(i32 days) {
  i32 thursday = days - (i32)floor_mod((i64)days + 3, 7) + 3;
  return (day_of_year(thursday) - 1) / 7 + 1;
}

// ---- columns ----------------------------------------------------------------------------------------

// The validity or boolean bits of a thread's ROWS rows from `row` on; ROWS is 1, 2, 4 or 8 and divides `row`.
template <u32 ROWS>
WL_DEVICE u32 load_bits(const u8* bits, u64 row) {
  const u32 byte = __ldg(bits + (row >> 3));
  if constexpr (ROWS == 8) return byte;
  return (byte >> (row & 7)) & ((1u << ROWS) - 1u);
}

// Reads what a thread's live rows have from `p` on. Past the last row, and at unused places of an index, there may be
// anything: rows that are not live are 0.
template <class T, int ROWS>
WL_DEVICE void load_live(const T* p, u32 live, T (&out)[ROWS]) {
  if (live == 0) return;
  load_vec_stream<T, ROWS>(p, out);
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k)
    if ((live >> k & 1) == 0) out[k] = 0;
}

// Which of a thread's live rows are not NULL, of a byte each.
template <u32 ROWS>
WL_DEVICE u32 valid_rows(const u8* valid, u32 live) {
  u32 known = 0;
  if (live == 0) return known;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k)
    if ((live >> k & 1) != 0) known |= (u32)(valid[k] != 0) << k;
  return known;
}

// Which of a thread's rows, from `row` on, lie between `begin` and `end`.
template <u32 ROWS>
WL_DEVICE u32 rows_within(u64 row, u64 begin, u64 end) {
  u32 live = 0;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) live |= (u32)(row + k >= begin && row + k < end) << k;
  return live;
}

// Binary search in an ascending array: is `value` in `list`?
WL_DEVICE bool contains_sorted(const i64* list, u32 length, i64 value) {
  u32 low = 0, high = length;
  while (low < high) {
    u32 middle = (low + high) >> 1;
    i64 at = __ldg(list + middle);
    if (at == value) return true;
    if (at < value) low = middle + 1;
    else high = middle;
  }
  return false;
}

// ---- group tables (Karnagel et al., DaMoN 2015, sections 3 and 4) ---------------------------------------------------------------------

// Slot of a key of one word in a linear-probing table of `mask + 1` slots; inserts it when absent.
// Keys never equal WL_EMPTY_KEY. WL_NO_SLOT after `limit` probes: the table is too full.
WL_DEVICE u64 find_or_insert(u64* keys, u64 mask, u64 key, u32 limit) {
  const WordTable<DeviceLoad, u64> table = {keys, WL_EMPTY_KEY, key};
  return probe_slots<1>(linear_order(hash64(key), mask), table, limit - 1, WL_NO_SLOT);
}

// A table of `mask + 1` slots of STRIDE bytes, zeroed at first, with the key at byte KEY of a slot: u32 or u64, never 0.
// The slot of `key`, inserted when absent; null after `limit` probes: the table is too full.
template <u32 STRIDE, u32 KEY, class T>
WL_DEVICE u8* find_or_insert_slot(u8* table, u64 mask, T key, u32 limit) {
  const RecordTable<STRIDE, KEY, T> records = {table, key};
  const u64 slot = probe_slots<1>(linear_order((u64)hash_of_key(key), mask), records, limit - 1, WL_NO_SLOT);
  return slot == WL_NO_SLOT ? (u8*)0 : table + slot * STRIDE;
}

// The same as find_or_insert for keys of WORDS words, slot after slot; `states` has a word a slot, all 0 at first.
template <u32 WORDS>
WL_DEVICE u64 find_or_insert_wide(u32* states, u64* keys, u64 mask, const u64 (&key)[WORDS], u32 limit) {
  const WideTable<WORDS> table = {states, keys, key};
  return probe_slots<1>(linear_order(hash_words<WORDS>(key), mask), table, limit - 1, WL_NO_SLOT);
}
