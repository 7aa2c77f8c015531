// Tables that are made on the device from row numbers, and sums over rows in any order that show whether an answer
// over such tables is right without having computed it the same way.
//
// Launch: every kernel takes any grid of blocks of 256 threads; threads go over the rows in strides. Bytes moved: the
// column that is written, or the columns that are read, once: 2^27 values of 4 bytes take 0.13 ms at 4.2 TB/s.
// `synthetic_states` updates counters of its groups in device memory, as slow as contention makes them.
#include "simt.cuh"
#include "primitives.cuh"

// The column number of a key.
static const u32 KEY = 0xffffffffu;
// Multiplier that spreads numbers over a range of up to 2^32, to which it is prime.
static const u64 SPREAD = 2654435761ull;

// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
WL_DEVICE u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

WL_DEVICE u64 scaled(u64 bits, u64 values) { return (u64)(((u128)bits * values) >> 64); }

WL_DEVICE u64 first_row() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
WL_DEVICE u64 all_threads() { return (u64)gridDim.x * blockDim.x; }

// What a row's key is made of, and the number that its payload is made of.
struct Row {
  u64 number;
  u64 place;
};

// Bands of ranks with their shares of the draws: `bands[2i]` is where band i begins among 2^64 draws, `bands[2i + 1]` its
// first rank; ranks of a band are equally frequent. One band more than there are ends the list.
WL_DEVICE u64 drawn(const SyntheticNumbers& of, u64 row) {
  const u64 bits = mix(row ^ of.seed);
  u64 low = 0, high = of.band_count;
  while (high - low > 1) {
    const u64 middle = (low + high) / 2;
    if (of.bands[2 * middle] <= bits) low = middle;
    else high = middle;
  }
  const u64 first = of.bands[2 * low + 1];
  return first + scaled(mix(bits), of.bands[2 * low + 3] - first);
}

WL_DEVICE Row row_of(const SyntheticNumbers& of, u64 row) {
  if (of.band_count == 0) {
    const u64 place = row * SPREAD % of.range;
    return Row{place % of.distinct * of.stride, place};
  }
  return Row{drawn(of, row) * SPREAD % of.range, row};
}

WL_DEVICE u64 key_code(u64 number, u64 factor, u64 mask) { return (number * factor) & mask; }

struct Value {
  u64 low;
  u64 high;
};

// Column `column` of the row with this place: as many random bits as its width has, less the sign.
WL_DEVICE Value payload(u64 seed, u64 place, u32 column, u32 width) {
  const u64 bits = mix((place * 16 + column) ^ seed);
  if (width == 16) return Value{bits, mix(bits) >> 48};
  return Value{bits >> (64 - (8 * width - 1)), 0};
}

WL_DEVICE u32 width_of(u64 widths, u32 column) { return 1u << ((widths >> (4 * column)) & 15); }

WL_DEVICE void put(void* out, u64 row, u32 width, Value v) {
  if (width == 1) ((u8*)out)[row] = (u8)v.low;
  else if (width == 2) ((u16*)out)[row] = (u16)v.low;
  else if (width == 4) ((u32*)out)[row] = (u32)v.low;
  else if (width == 8) ((u64*)out)[row] = v.low;
  else {
    const u64 words[2] = {v.low, v.high};
    store_vec((u64*)out + 2 * row, words);
  }
}

WL_DEVICE Value get(const void* from, u64 row, u32 width) {
  if (width == 1) return Value{((const u8*)from)[row], 0};
  if (width == 2) return Value{((const u16*)from)[row], 0};
  if (width == 4) return Value{((const u32*)from)[row], 0};
  if (width == 8) return Value{((const u64*)from)[row], 0};
  u64 words[2];
  load_vec((const u64*)from + 2 * row, words);
  return Value{words[0], words[1]};
}

// A column: of keys, or of payload.
WL_KERNEL(synthetic_column, SyntheticColumnArgs, args) {
  for (u64 i = first_row(); i < args.rows; i += all_threads()) {
    const Row row = row_of(args.numbers, i);
    const Value v = args.column == KEY ? Value{key_code(row.number, args.factor, args.mask), 0}
                                       : payload(args.numbers.seed, row.place, args.column, args.width);
    put(args.out, i, args.width, v);
  }
}

// The least and the greatest code, and the distinct hashes below a bound in a set of `mask + 1` slots, 0 where free. The
// set is to be so large that hashes find places.
WL_KERNEL(synthetic_sketch, SyntheticSketchArgs, args) {
  u64 least = ~0ull, greatest = 0;
  for (u64 i = first_row(); i < args.rows; i += all_threads()) {
    const Value v = get(args.data, i, (u32)args.width);
    least = v.low < least ? v.low : least;
    greatest = v.low > greatest ? v.low : greatest;
    // As the host hashes values: the high half less the sign.
    const u64 low = args.width == 16 ? v.low : v.low + args.base;
    const u64 hash = mix(low ^ mix(v.high ^ (u64)((i64)v.high >> 63)));
    if (hash == 0 || hash >= args.bound) continue;
    u64 slot = mix(hash) & args.mask;
    for (u64 tries = 0; tries <= args.mask; ++tries) {
      u64 there = load_relaxed(args.slots + slot);
      if (there == 0) there = atomicCAS(args.slots + slot, (u64)0, hash);
      if (there == 0 || there == hash) break;
      slot = (slot + 1) & args.mask;
    }
  }
  least = warp_min(least);
  greatest = warp_max(greatest);
  if (lane_id() == 0) {
    atomicMin(args.ends, least);
    atomicMax(args.ends + 1, greatest);
  }
}

WL_DEVICE u64 chained(u64 hash, Value v, bool wide) {
  hash = mix(hash ^ v.low);
  return wide ? mix(hash ^ v.high) : hash;
}

// Adds a thread's rows and their sum to what was counted.
WL_DEVICE void count(u64* sums, u64 rows, u64 sum) {
  rows = warp_sum(rows);
  sum = warp_sum(sum);
  if (lane_id() == 0) {
    atomicAdd(sums, rows);
    atomicAdd(sums + 1, sum);
  }
}

// The sum over rows of a hash of their columns. `columns[4i]`: address, bytes a code, the base added to codes, whether
// the high half of 16 bytes counts.
WL_KERNEL(synthetic_sum, SyntheticSumArgs, args) {
  u64 rows = 0, sum = 0;
  for (u64 i = first_row(); i < args.rows; i += all_threads()) {
    u64 hash = 0;
    for (u64 c = 0; c < args.column_count; ++c) {
      const u64* const column = args.columns + 4 * c;
      Value v = get((const void*)column[0], i, (u32)column[1]);
      if (column[1] < 16) v.low += column[2];
      hash = chained(hash, v, column[3] != 0);
    }
    rows += 1;
    sum += hash;
  }
  count(args.sums, rows, sum);
}

// The same sum over the pairs of a join on the key: the key, the columns of the build side, those of the probing side.
// The build side's numbers are multiples of its stride.
WL_KERNEL(synthetic_join, SyntheticJoinArgs, args) {
  u64 pairs = 0, sum = 0;
  for (u64 i = first_row(); i < args.probe_rows; i += all_threads()) {
    const Row row = row_of(args.probe, i);
    if (row.number % args.build.stride != 0) continue;
    const u64 first = row.number / args.build.stride;
    if (first >= args.build.distinct) continue;
    const u64 key = key_code(row.number, args.factor, args.mask) + args.base;
    for (u64 place = first; place < args.build.range; place += args.build.distinct) {
      u64 hash = chained(0, Value{key, 0}, false);
      for (u32 c = 0; c < args.build_columns; ++c) {
        const u32 width = width_of(args.build_widths, c);
        hash = chained(hash, payload(args.build.seed, place, c, width), width == 16);
      }
      for (u32 c = 0; c < args.probe_columns; ++c) {
        const u32 width = width_of(args.probe_widths, c);
        hash = chained(hash, payload(args.probe.seed, row.place, c, width), width == 16);
      }
      pairs += 1;
      sum += hash;
    }
  }
  count(args.sums, pairs, sum);
}

// Words of a group: rows; then of each column least, greatest, low and high half of the sum.
WL_DEVICE u64* group_words(u64* states, u64 group, u32 columns) { return states + group * (1 + 4 * (u64)columns); }

// Counts, and adds up the columns of, the rows of each group. The words are 0 at first.
WL_KERNEL(synthetic_states, SyntheticStatesArgs, args) {
  for (u64 i = first_row(); i < args.rows; i += all_threads()) {
    const Row row = row_of(args.numbers, i);
    u64* const words = group_words(args.states, row.number, args.columns);
    atomicAdd(words, (u64)1);
    for (u32 c = 0; c < args.columns; ++c) {
      const Value v = payload(args.numbers.seed, row.place, c, width_of(args.widths, c));
      u64* const of = words + 1 + 4 * c;
      // The greatest complement is that of the least value.
      if (args.extremes) {
        if (load_relaxed(of) < ~v.low) atomicMax(of, ~v.low);
        if (load_relaxed(of + 1) < v.low) atomicMax(of + 1, v.low);
      }
      if (args.totals) {
        const u64 before = atomicAdd(of + 2, v.low);
        const u64 high = v.high + (before + v.low < before ? 1 : 0);
        if (high != 0) atomicAdd(of + 3, high);
      }
    }
  }
}

// The sum over the groups that have rows of a hash of their key and results. `results[3i]`: which (0 rows, 1 least, 2
// greatest, 3 sum), of which column, whether the high half counts.
WL_KERNEL(synthetic_groups, SyntheticGroupsArgs, args) {
  u64 groups = 0, sum = 0;
  for (u64 i = first_row(); i < args.groups; i += all_threads()) {
    const u64* const words = group_words(args.states, i, args.columns);
    if (words[0] == 0) continue;
    u64 hash = chained(0, Value{key_code(i, args.factor, args.mask) + args.base, 0}, false);
    for (u64 r = 0; r < args.result_count; ++r) {
      const u64* const result = args.results + 3 * r;
      const u64* const of = words + 1 + 4 * result[1];
      Value v = Value{words[0], 0};
      if (result[0] == 1) v.low = ~of[0];
      if (result[0] == 2) v.low = of[1];
      if (result[0] == 3) v = Value{of[2], of[3]};
      hash = chained(hash, v, result[2] != 0);
    }
    groups += 1;
    sum += hash;
  }
  count(args.sums, groups, sum);
}
