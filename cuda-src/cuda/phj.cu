// Join of two radix-partitioned sides: a table in shared memory for each build partition.
//
// A4 with the direct output of D2: no second probe; a block reserves room for the pairs of a round of probe rows (8 a
// thread) at once, so pairs of a partition lie near each other and gathers by them are clustered. Partitions are cut into
// chunks: of the build side what fits the table, of the probe side what one block shall do (D3), and each pair of chunks
// is a task. The first task of every partition is the block of its number (`phj_join`); the others, which only skew
// brings forth, are shared by the blocks of a second launch by ticket (`phj_extra`). So nothing is read back by the host.
//
// The table is chains: a row is entered by one exchange at the head of its slot, without a loop, and the head carries
// 16 bits of the hash, so that a look-up that misses seldom reads a key. The hash is the one that partitions go by, by its
// other bits; keys of up to 8 bytes stand in the table as their hashes, as which they come with PHJ_BUILD_HASHED and
// PHJ_PROBE_HASHED. With PHJ_ARRAY it is an array by the part of the
// key above the partition's bits (E6). With duplicates the rows of a key form a run, and a warp writes the
// runs of its rows together, so that a frequent key costs no more than its pairs.
//
// Launch: `phj_tasks` any grid; `phj_join` a block a partition; `phj_extra`, `phj_distinct` and `phj_rest` any number.
// Bytes moved: keys of both sides once (and row numbers, 4 bytes), 8 a pair: 2^27 rows of 4-byte keys on both sides with
// one match each 2.1 GB, 0.51 ms at 4.2 TB/s. Measured on an H200: arrays 0.76 ms, tables with a quarter matched 1.06, with
// 3 % 0.96 (with row numbers 1.11), Zipf 1.5 0.98; 2^26 rows on both sides, 4 a key on each, 268 million pairs, 1.3.
// It is instructions that count, not bytes: 206 a probe row and its build row filled three quarters of all issue slots before
// the common path had a kernel of its own. Asking for the probe keys while the table is built gains nothing. Tables of 2048
// rows with 6 blocks a multiprocessor do best.
//
// Each of the two large kernels takes the compiler half a second, so that they can be modules of their own: PHJ_PART says which
// kernels there are, 0 for all.
#include "pairs.cuh"
#include "radix.cuh"
#include "stop.cuh"

#define PHJ_HAS(part) (PHJ_PART == 0 || PHJ_PART == (part))

static const u32 PHJ_EMPTY = 0xFFFFFFFFu;
static const u32 PHJ_ABSENT = 0xFFFFu;
static const u32 PHJ_ITEMS = 8;
static const u32 PHJ_ROUND = WL_BLOCK_THREADS * PHJ_ITEMS;
static const u32 PHJ_BUILD_ITEMS = (PHJ_ROWS + WL_BLOCK_THREADS - 1) / WL_BLOCK_THREADS;
// No partition has more tasks: beyond, its probe chunks grow.
static const u64 PHJ_MOST_TASKS = 1u << 30;

// Keys are told apart by their hashes.
#define PHJ_HASHES (!PHJ_ARRAY && PAIR_KEY_BYTES <= 8)

// A key as it stands in the table; `hashed`: as it comes.
WL_DEVICE PairKey phj_key(PairKey key, bool hashed) {
#if PHJ_HASHES
  return hashed ? key : (PairKey)radix_hash(key);
#else
  return key;
#endif
}

// Is it the key of a row without key?
WL_DEVICE bool phj_none(PairKey key) {
#if PHJ_HASHES
  return key == (PairKey)radix_hash((PairKey)~(PairKey)0);
#else
  return key_none(key);
#endif
}

// The heads of the table's chains, by hash.
struct PhjShared {
#if PHJ_ARRAY
  u16 slots[PHJ_SLOTS];
#else
  // The last row that came to a slot: above 16 bits of its hash, below its place in the chunk.
  u32 heads[PHJ_SLOTS];
  // The row that was there before, PHJ_ABSENT if none.
  u16 next[PHJ_ROWS];
  alignas(16) PairKey keys[PHJ_ROWS];
#endif
  // Build rows of the chunk with a match.
  u32 hits[(PHJ_ROWS + 31) / 32];
#if !PHJ_UNIQUE
  // Of the row that stands for its key: the rows of the key, then their number and (above 16 bits) first place in `order`.
  u32 runs[PHJ_ROWS];
  u16 order[PHJ_ROWS];
  u32 cursor;
#endif
  ReserveScratch reserve;
  // Of blocks that take tasks: the task at hand, when to look whether the query goes on, and the task's partition.
  u64 ticket;
  StopWatch watch;
  u32 partition;
};

// How a partition is cut.
struct PhjCut {
  u32 build_chunks;
  u32 probe_rows;
  u64 tasks;
};

WL_DEVICE PhjCut phj_cut(const PhjArgs& args, u64 build, u64 probe) {
  // Most partitions are a task, and divisions of 64 bits a quarter of what a block would do for it.
  if (build - 1 < PHJ_ROWS && probe - 1 < args.probe_chunk) return {1, args.probe_chunk, 1};
  PhjCut cut = {0, args.probe_chunk, 0};
  // Keys that nobody asks for may still be wanted to be unique.
  if (probe == 0 && build != 0 && args.duplicate != 0) return {(u32)((build + PHJ_ROWS - 1) / PHJ_ROWS), args.probe_chunk, 1};
  if (probe == 0 || (build == 0 && (args.kind & PAIR_UNMATCHED) == 0)) return cut;
  cut.build_chunks = build == 0 ? 1 : (u32)((build + PHJ_ROWS - 1) / PHJ_ROWS);
  const u64 most = PHJ_MOST_TASKS / cut.build_chunks;
  const u64 least_rows = (probe + most - 1) / most;
  if (cut.probe_rows < least_rows) cut.probe_rows = (u32)least_rows;
  cut.tasks = (probe + cut.probe_rows - 1) / cut.probe_rows * cut.build_chunks;
  return cut;
}

#if PHJ_HAS(1)
// Tasks of each partition beyond its first; which partitions have several build chunks.
WL_KERNEL(phj_tasks, PhjArgs, args) {
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < args.partitions; p += (u64)gridDim.x * blockDim.x) {
    const PhjCut cut = phj_cut(args, args.build_ends[p] - args.build_begins[p],
                               args.probe_ends[p] - args.probe_begins[p]);
    args.extra[p] = cut.tasks == 0 ? 0 : (u32)(cut.tasks - 1);
    if (cut.build_chunks > 1 && args.oversize != 0) args.oversize[1 + atomicAdd(args.oversize, 1u)] = (u32)p;
  }
}
#endif

#if PHJ_ARRAY
// The chunk's row with the key (one of them), PHJ_ABSENT when there is none.
WL_DEVICE u32 phj_find(const PhjArgs& args, const PhjShared& shared, PairKey key) {
  const PairKey slot = key >> args.shift;
  return slot < PHJ_SLOTS ? shared.slots[slot] : PHJ_ABSENT;
}
#else
// The upper bits of the hash that partitions go by the lowest bits of.
WL_DEVICE u32 phj_hash(PairKey key) {
#if PAIR_KEY_BYTES == 4
  return key;
#elif PAIR_KEY_BYTES == 8
  return (u32)(key >> 32);
#else
  return (u32)(hash64(hash64(key.low) ^ key.high) >> 32);
#endif
}

// Above 16 bits, bits that neither slots nor, but for the lowest, partitions of a common size go by.
WL_DEVICE u32 phj_tag(u32 hash) { return hash << 12; }

WL_DEVICE u32 phj_slot(u32 hash) {
  return (PHJ_SLOTS & (PHJ_SLOTS - 1)) == 0 ? hash / (0xFFFFFFFFu / PHJ_SLOTS + 1)
                                            : (u32)((u64)hash * PHJ_SLOTS >> 32);
}

WL_DEVICE u32 phj_find(const PhjArgs&, const PhjShared& shared, PairKey key) {
  const u32 hash = phj_hash(key);
  const u32 word = shared.heads[phj_slot(hash)];
  u32 row = word & 0xFFFFu;
  if (row == PHJ_ABSENT) return row;
  if ((word ^ phj_tag(hash)) < 0x10000u && key_equal(shared.keys[row], key)) return row;
  do {
    row = shared.next[row];
  } while (row != PHJ_ABSENT && !key_equal(shared.keys[row], key));
  return row;
}
#endif

// What the rows of a chunk are.
enum PhjChunk { PHJ_NO_KEYS, PHJ_DISTINCT, PHJ_REPEATED };

// An empty table. The caller meets the block before it enters rows.
WL_DEVICE void phj_clear(PhjShared& shared) {
  const u32 empty[4] = {PHJ_EMPTY, PHJ_EMPTY, PHJ_EMPTY, PHJ_EMPTY};
#if PHJ_ARRAY
  for (u32 i = threadIdx.x * 4; i < PHJ_SLOTS / 2; i += WL_BLOCK_THREADS * 4) store_vec((u32*)shared.slots + i, empty);
#else
  for (u32 i = threadIdx.x * 4; i < PHJ_SLOTS; i += WL_BLOCK_THREADS * 4) store_vec(shared.heads + i, empty);
#endif
}

// Enters row i.
WL_DEVICE void phj_enter(const PhjArgs& args, PhjShared& shared, PairKey key, u32 i) {
#if PHJ_ARRAY
  const PairKey slot = key >> args.shift;
  // Of rows with equal keys any one may stay, whichever store comes last; compute-sanitizer's racecheck reports that here.
  if (slot < PHJ_SLOTS) shared.slots[slot] = (u16)i;
#else
  const u32 hash = phj_hash(key);
  shared.keys[i] = key;
  shared.next[i] = (u16)atomicExch(&shared.heads[phj_slot(hash)], (phj_tag(hash) & 0xFFFF0000u) | i);
#endif
}

// Were several rows with the key of row i entered? At least one of them says so. All have been entered.
WL_DEVICE bool phj_entered_twice(const PhjArgs& args, const PhjShared& shared, PairKey key, u32 i) {
#if PHJ_ARRAY
  const u32 row = phj_find(args, shared, key);
  return row != i && row != PHJ_ABSENT;
#else
  u32 row = shared.next[i];
  while (row != PHJ_ABSENT && !key_equal(shared.keys[row], key)) row = shared.next[row];
  return row != PHJ_ABSENT;
#endif
}

#if PHJ_UNIQUE
// Does any key of the thread's rows occur twice in the chunk?
WL_DEVICE bool phj_repeats(const PhjArgs& args, const PhjShared& shared, const PairKey (&mine)[PHJ_BUILD_ITEMS], u32 rows) {
  bool twice = false;
#if PHJ_ARRAY
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    if (i < rows && !phj_none(mine[k])) twice = twice || phj_entered_twice(args, shared, mine[k], i);
  }
#else
  // Most rows are the first of their slot or the second: loads of all items go out together. The others take turns.
  u32 later = 0;
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    const u32 before = i < rows ? shared.next[i] : PHJ_ABSENT;
    if (before == PHJ_ABSENT) continue;
    twice = twice || key_equal(shared.keys[before], mine[k]);
    if (shared.next[before] != PHJ_ABSENT) later |= 1u << k;
  }
  while (later != 0 && !twice) {
    const u32 i = threadIdx.x + ((u32)__ffs((int)later) - 1) * WL_BLOCK_THREADS;
    later &= later - 1;
    twice = phj_entered_twice(args, shared, shared.keys[i], i);
  }
#endif
  return twice;
}
#endif

// The table of build rows first .. first + rows; `look` for equal keys among them.
WL_DEVICE PhjChunk phj_build(const PhjArgs& args, PhjShared& shared, u32 first, u32 rows, bool look) {
  const PairKey* keys = (const PairKey*)args.build_keys + first;
  PairKey mine[PHJ_BUILD_ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    if (i < rows) mine[k] = phj_key(keys[i], PHJ_BUILD_HASHED);
  }
  phj_clear(shared);
  if (args.marks != 0) {
    for (u32 i = threadIdx.x; i < (PHJ_ROWS + 31) / 32; i += WL_BLOCK_THREADS) shared.hits[i] = 0;
  }
#if !PHJ_UNIQUE
  for (u32 i = threadIdx.x; i < rows; i += WL_BLOCK_THREADS) shared.runs[i] = 0;
  if (threadIdx.x == 0) shared.cursor = 0;
#endif
  __syncthreads();
  bool keys_there = false;
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    if (i >= rows) continue;
    if (phj_none(mine[k])) {
#if !PHJ_ARRAY
      shared.next[i] = (u16)PHJ_ABSENT;
#endif
      continue;
    }
    keys_there = true;
    phj_enter(args, shared, mine[k], i);
  }
  if (!__syncthreads_or(keys_there)) return PHJ_NO_KEYS;
#if PHJ_UNIQUE
  if (look && phj_repeats(args, shared, mine, rows)) store_relaxed(args.duplicate, (u64)1);
  return PHJ_DISTINCT;
#else
  // The row that stands for the key, and above 16 bits the place among the rows of the key.
  u32 spots[PHJ_BUILD_ITEMS];
  bool twice = false;
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    spots[k] = i < rows && !phj_none(mine[k]) ? phj_find(args, shared, mine[k]) : PHJ_ABSENT;
    twice = twice || (spots[k] != PHJ_ABSENT && spots[k] != i);
  }
  if (!__syncthreads_or(twice)) return PHJ_DISTINCT;
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    if (spots[k] != PHJ_ABSENT) spots[k] |= atomicAdd(&shared.runs[spots[k]], 1u) << 16;
  }
  __syncthreads();
  // Each run gets its places.
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    const bool head = (spots[k] & 0xFFFFu) == i;
    const u32 length = head ? shared.runs[i] : 0;
    const u32 before = warp_scan_exclusive_sum(length);
    u32 base = 0;
    if (lane_id() == WL_WARP - 1 && before + length != 0) base = atomicAdd(&shared.cursor, before + length);
    base = __shfl_sync(WL_FULL_MASK, base, WL_WARP - 1);
    if (head) shared.runs[i] = (base + before) << 16 | length;
  }
  __syncthreads();
  WL_UNROLL
  for (u32 k = 0; k < PHJ_BUILD_ITEMS; ++k) {
    const u32 i = threadIdx.x + k * WL_BLOCK_THREADS;
    const u32 head = spots[k] & 0xFFFFu;
    if (head != PHJ_ABSENT) shared.order[(shared.runs[head] >> 16) + (spots[k] >> 16)] = (u16)i;
  }
  __syncthreads();
  return PHJ_REPEATED;
#endif
}


// Number of a build row of the chunk. Read where a row has a match: the numbers of a chunk are a few KiB that L1 holds, and
// with few matches most of them are never asked for.
WL_DEVICE u32 phj_number(const PhjArgs& args, u32 first, u32 row) {
#if PHJ_NUMBERS
  return args.build_numbers[(u64)first + row];
#else
  return first + row;
#endif
}

// Writes a pair for each item of `live`, whose keys no two rows of the chunk have.
template <u32 ITEMS>
WL_DEVICE void phj_write(const PhjArgs& args, const PhjShared& shared, const u32 (&found)[ITEMS], u32 live, u32 pairs, u64 to,
                         u32 first, u32 at) {
  const PairSpan out = pair_span(args.entries, args.rows, args.capacity, to);
  if (pairs == 0) return;
  const bool entries = (args.kind & PAIR_ENTRIES) != 0;
  auto write = [&](u32 k, u32 place) {
    const bool entry = found[k] != PHJ_ABSENT && entries;
    write_pair(out, place, entry ? phj_number(args, first, found[k]) : WL_NO_ENTRY,
               number_of(args.probe_numbers, at + k * WL_WARP));
  };
  // Few pairs lie side by side in whatever order; of many, those of one item do, so that stores are whole sectors.
  if (pairs <= WL_WARP) {
    u32 place = warp_scan_exclusive_sum((u32)__popc(live));
    WL_UNROLL
    for (u32 k = 0; k < ITEMS; ++k) {
      if ((live >> k & 1u) != 0) write(k, place++);
    }
    return;
  }
  const u32 lower = (1u << lane_id()) - 1u;
  u32 place = 0;
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const bool lives = (live >> k & 1u) != 0;
    const u32 votes = __ballot_sync(WL_FULL_MASK, lives);
    if (lives) write(k, place + (u32)__popc(votes & lower));
    place += (u32)__popc(votes);
  }
}

// `rows` probe rows from `begin` on against the table; `single`: the partition has no other build chunk; `distinct`: no
// two rows of the chunk have equal keys.
WL_DEVICE void phj_probe(const PhjArgs& args, PhjShared& shared, u32 first, u32 begin, u32 rows, bool single,
                         bool distinct) {
  const bool entries = (args.kind & PAIR_ENTRIES) != 0;
  // Only the last word on a row can say that it has no match, or has one at all: phj_rest does.
  const u32 matched = (args.kind & PAIR_MATCHED) != 0 && (single || entries) ? ~0u : 0;
  const u32 unmatched = (args.kind & PAIR_UNMATCHED) != 0 && single ? ~0u : 0;
  const bool note = !single && args.matched != 0;
  const u32 lane_first = warp_id() * WL_WARP * PHJ_ITEMS + lane_id();
  for (u32 base = 0; base < rows; base += PHJ_ROUND) {
    const u32 left = rows - base;
    const u32 at = begin + base + lane_first;
    // Items of this lane.
    const u32 items = lane_first < left ? (left - lane_first + WL_WARP - 1) / WL_WARP : 0;
    const PairKey* keys = (const PairKey*)args.probe_keys + at;
    PairKey key[PHJ_ITEMS];
    WL_UNROLL
    for (u32 k = 0; k < PHJ_ITEMS; ++k) {
      if (k < items) key[k] = keys[k * WL_WARP];
    }
    u32 found[PHJ_ITEMS];
    u32 hits = 0;
    WL_UNROLL
    for (u32 k = 0; k < PHJ_ITEMS; ++k) {
      found[k] = k < items ? phj_find(args, shared, phj_key(key[k], PHJ_PROBE_HASHED)) : PHJ_ABSENT;
      if (found[k] != PHJ_ABSENT) hits |= 1u << k;
    }
    if (args.marks != 0 || note) {
      WL_UNROLL
      for (u32 k = 0; k < PHJ_ITEMS; ++k) {
        if ((hits >> k & 1u) == 0) continue;
        if (args.marks != 0) wl_set_bit(shared.hits, found[k]);
        if (note) wl_set_bit(args.matched, (u64)at + k * WL_WARP);
      }
    }
    const u32 there = items < PHJ_ITEMS ? (1u << items) - 1u : (1u << PHJ_ITEMS) - 1u;
    const u32 live = (hits & matched) | (there & ~hits & unmatched);
    __syncwarp();
    if (PHJ_UNIQUE || distinct) {
      const u32 pairs = warp_sum((u32)__popc(live));
      const u64 to = block_reserve_warps(pairs, args.pairs, shared.reserve);
      phj_write(args, shared, found, live, pairs, to, first, at);
      continue;
    }
#if !PHJ_UNIQUE
    // Pairs of item k of the lanes before.
    u32 before[PHJ_ITEMS];
    u32 pairs = 0;
    WL_UNROLL
    for (u32 k = 0; k < PHJ_ITEMS; ++k) {
      const bool lives = (live >> k & 1u) != 0;
      const u32 mine = !lives ? 0 : found[k] == PHJ_ABSENT ? 1 : shared.runs[found[k]] & 0xFFFFu;
      before[k] = warp_scan_exclusive_sum(mine);
      pairs += __shfl_sync(WL_FULL_MASK, before[k] + mine, WL_WARP - 1);
    }
    const u64 to = block_reserve_warps(pairs, args.pairs, shared.reserve);
    const PairSpan out = pair_span(args.entries, args.rows, args.capacity, to);
    u32 place = 0;
    WL_UNROLL
    for (u32 k = 0; k < PHJ_ITEMS; ++k) {
      const bool hit = found[k] != PHJ_ABSENT;
      const bool lives = (live >> k & 1u) != 0;
      const u32 run = hit ? shared.runs[found[k]] : WL_NO_ENTRY;
      const u32 mine = !lives ? 0 : hit ? run & 0xFFFFu : 1;
      const u32 total = __shfl_sync(WL_FULL_MASK, before[k] + mine, WL_WARP - 1);
      const u32 row = lives ? number_of(args.probe_numbers, at + k * WL_WARP) : 0;
      for (u32 item = 0; item < total; item += WL_WARP) {
        const u32 j = item + lane_id();
        const u32 lane = lane_of_item(before[k], j);
        const u32 start = __shfl_sync(WL_FULL_MASK, before[k], (int)lane);
        const u32 its_run = __shfl_sync(WL_FULL_MASK, run, (int)lane);
        const u32 its_row = __shfl_sync(WL_FULL_MASK, row, (int)lane);
        if (j >= total) continue;
        const u32 entry = its_run == WL_NO_ENTRY
                              ? WL_NO_ENTRY
                              : phj_number(args, first, shared.order[(its_run >> 16) + (j - start)]);
        write_pair(out, place + j, entry, its_row);
      }
      place += total;
    }
#endif
  }
}

// Marks the chunk's build rows whose key had a match.
WL_DEVICE void phj_mark(const PhjArgs& args, PhjShared& shared, u32 first, u32 rows) {
  __syncthreads();
  for (u32 i = threadIdx.x; i < rows; i += WL_BLOCK_THREADS) {
    const PairKey key = ((const PairKey*)args.build_keys)[(u64)first + i];
    const u32 row = phj_find(args, shared, phj_key(key, PHJ_BUILD_HASHED));
    if (row != PHJ_ABSENT && wl_bit(shared.hits, row)) wl_set_bit(args.marks, phj_number(args, first, i));
  }
}

// The partition of extra task `task`: first[p] <= task < first[p + 1]. All 32 lanes of a warp call: each looks at another
// place, so that 2^16 partitions take four rounds.
WL_DEVICE u32 phj_partition(const u64* first, u64 partitions, u64 task) {
  u64 low = 0, high = partitions;
  while (high - low > 1) {
    const u64 step = (high - low + WL_WARP - 1) / WL_WARP;
    const u64 at = low + lane_id() * step;
    const u32 before = (u32)__popc(__ballot_sync(WL_FULL_MASK, at < high && first[at] <= task));
    low += (u64)(before - 1) * step;
    if (low + step < high) high = low + step;
  }
  return (u32)low;
}

// The block's next extra task and its partition, in shared memory; false when there are none.
WL_DEVICE bool phj_take(const PhjArgs& args, PhjShared& shared) {
  __syncthreads();
  if (warp_id() == 0) {
    u64 mine = 0;
    if (lane_id() == 0) mine = atomicAdd(args.ticket, (u64)1);
    mine = __shfl_sync(WL_FULL_MASK, mine, 0);
    bool exists = mine < args.first_extra[args.partitions];
    // Tasks are as many as pairs of chunks of a key that both sides repeat.
    if (exists) exists = __shfl_sync(WL_FULL_MASK, lane_id() == 0 && query_stopped(shared.watch) ? 1u : 0u, 0) == 0;
    const u32 partition = exists ? phj_partition(args.first_extra, args.partitions, mine) : 0;
    if (lane_id() == 0) {
      shared.partition = partition;
      shared.ticket = exists ? mine - args.first_extra[partition] + 1 : 0;
    }
  }
  __syncthreads();
  return shared.ticket != 0;
}

// Task `task` of partition p: a chunk of its build rows and one of its probe rows. The threads of a block call together.
WL_DEVICE void phj_task(const PhjArgs& args, PhjShared& shared, u32 p, u64 task) {
  const u32 build_begin = args.build_begins[p], build_end = args.build_ends[p];
  const u32 probe_begin = args.probe_begins[p], probe_end = args.probe_ends[p];
  const PhjCut cut = phj_cut(args, build_end - build_begin, probe_end - probe_begin);
  if (cut.tasks == 0) return;
  // Of a partition's first task both are 0.
  const u32 build_chunk = task == 0 ? 0 : (u32)(task % cut.build_chunks);
  const u32 probe_chunk = task == 0 ? 0 : (u32)(task / cut.build_chunks);
  const u32 first = build_begin + build_chunk * PHJ_ROWS;
  const u32 rows = build_end - first < PHJ_ROWS ? build_end - first : PHJ_ROWS;
  const u32 begin = probe_begin + probe_chunk * cut.probe_rows;
  const u32 probes = probe_end - begin < cut.probe_rows ? probe_end - begin : cut.probe_rows;
  const PhjChunk chunk = phj_build(args, shared, first, rows, args.duplicate != 0 && task < cut.build_chunks);
  const bool single = cut.build_chunks == 1;
  if (chunk != PHJ_NO_KEYS || (single && (args.kind & PAIR_UNMATCHED) != 0)) {
    phj_probe(args, shared, first, begin, probes, single, chunk != PHJ_REPEATED);
    if (args.marks != 0) phj_mark(args, shared, first, rows);
  }
}

#if PHJ_HAS(1)
// The first task of each partition. In a kernel of its own: what a loop over tasks keeps in registers would be spilled.
WL_KERNEL(phj_join, PhjArgs, args) {
  WL_SHARED(PhjShared, shared);
  phj_task(args, shared, blockIdx.x, 0);
}
#endif

#if PHJ_HAS(2)
// All other tasks.
WL_KERNEL(phj_extra, PhjArgs, args) {
  WL_SHARED(PhjShared, shared);
  if (threadIdx.x == 0) shared.watch = stop_watch(args.stop_word, args.stop_number);
  while (phj_take(args, shared)) phj_task(args, shared, shared.partition, shared.ticket);
}
#endif

#if PHJ_HAS(3)
// Whether keys of different chunks of a partition are equal, of partitions with several. Rows without key may be
// many, but where the others do not fit into a table the answer is yes, to be on the safe side.
WL_KERNEL(phj_distinct, PhjArgs, args) {
  WL_SHARED(PhjShared, shared);
  const u32 partitions = args.oversize[0];
  for (u32 n = blockIdx.x; n < partitions; n += gridDim.x) {
    const u32 p = args.oversize[1 + n];
    const u32 first = args.build_begins[p];
    const u32 rows = args.build_ends[p] - first;
    const PairKey* keys = (const PairKey*)args.build_keys + first;
    phj_clear(shared);
    if (threadIdx.x == 0) shared.partition = 0;
    __syncthreads();
    bool distinct = true;
    for (u32 base = 0; base < rows && distinct; base += WL_BLOCK_THREADS) {
      const u32 i = base + threadIdx.x;
      bool twice = false;
      u32 place = 0;
      const PairKey key = i < rows ? phj_key(keys[i], PHJ_BUILD_HASHED) : PairKey();
      const bool live = i < rows && !phj_none(key);
      if (live) {
        place = atomicAdd(&shared.partition, 1u);
        twice = place >= PHJ_ROWS || phj_find(args, shared, key) != PHJ_ABSENT;
      }
      __syncthreads();
      if (live && !twice) phj_enter(args, shared, key, place);
      __syncthreads();
      if (live && !twice) twice = phj_entered_twice(args, shared, key, place);
      distinct = !__syncthreads_or(twice);
    }
    if (!distinct) store_relaxed(args.duplicate, (u64)1);
  }
}
#endif

struct PhjRestShared {
  ReserveScratch reserve;
};

#if PHJ_HAS(3)
// Probe rows of partitions with several build chunks, once all of them have noted which rows have matches.
WL_KERNEL(phj_rest, PhjArgs, args) {
  WL_SHARED(PhjRestShared, shared);
  const u32 partitions = args.oversize[0];
  for (u32 i = 0; i < partitions; ++i) {
    const u32 p = args.oversize[1 + i];
    const u64 end = args.probe_ends[p];
    for (u64 base = args.probe_begins[p] + (u64)blockIdx.x * blockDim.x; base < end;
         base += (u64)gridDim.x * blockDim.x) {
      const u64 at = base + threadIdx.x;
      bool lives = false;
      if (at < end) {
        const bool hit = wl_bit(args.matched, at);
        lives = (args.kind & (hit ? PAIR_MATCHED : PAIR_UNMATCHED)) != 0 && !(hit && (args.kind & PAIR_ENTRIES) != 0);
      }
      const u64 to = block_reserve(lives ? 1 : 0, args.pairs, shared.reserve);
      if (lives) {
        write_pair(pair_span(args.entries, args.rows, args.capacity, to), 0, WL_NO_ENTRY,
                   number_of(args.probe_numbers, (u32)at));
      }
    }
  }
}
#endif
