// Finishing of join indexes: key words of materialised rows become open-addressing tables or ranges of entries.
//
// The key of row i is words[0][i], words[1][i], ..., WL_KEY_WORDS of them (defined in front of this
// file); a row whose first word is WL_EMPTY_KEY has no key and is skipped. Tables are those of
// find_or_insert (one word) and find_or_insert_wide.
// Launch: any grid of 256-thread blocks; grid-stride, one row a thread.
// Bytes moved, for W words and rows in random order: each row reads 8 W and touches one 32-byte sector
// of the keys (and one of the states) to insert, one more for its entry number, count or offset.
//   insert_unique: 8 W + 2 sectors read and written: about 136 bytes a row for W = 1, 10^8 rows in 3.3 ms at 4.2 TB/s.
//   count + scatter: 8 W, 3 sectors read and written, 8 of slot and rank twice: about 220 bytes, 10^8 rows in 5.2 ms.
//   count_dense + scatter_dense: about 130 bytes; tables of up to 50 MB stay in L2 and cost a third of it.
#include "simt.cuh"
#include "primitives.cuh"
#include "join.cuh"

// In place of a slot: the row has none.
static const u32 WL_NO_SLOT32 = 0xFFFFFFFFu;

// The row's key; false when it has none.
WL_DEVICE bool load_key(const HashIndexArgs& args, u64 row, u64 (&key)[WL_KEY_WORDS]) {
  WL_UNROLL
  for (u32 w = 0; w < WL_KEY_WORDS; ++w) key[w] = args.words[w][row];
  return key[0] != WL_EMPTY_KEY;
}

// Unique keys: the entry of a slot is its row. A key that occurs twice sets `*duplicate`.
WL_KERNEL(insert_unique, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    u64 key[WL_KEY_WORDS];
    if (!load_key(args, row, key)) continue;
    bool inserted;
    const u64 slot = find_or_insert_new<WL_KEY_WORDS>(args.keys, args.states, args.mask, key, args.limit, inserted);
    if (slot == WL_NO_SLOT) {
      store_relaxed(args.overflow, (u64)1);
    } else if (inserted) {
      args.entry[slot] = (u32)row;
    } else {
      store_relaxed(args.duplicate, (u64)1);
    }
  }
}

// The set of keys alone.
WL_KERNEL(insert_set, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    u64 key[WL_KEY_WORDS];
    if (!load_key(args, row, key)) continue;
    bool inserted;
    const u64 slot = find_or_insert_new<WL_KEY_WORDS>(args.keys, args.states, args.mask, key, args.limit, inserted);
    if (slot == WL_NO_SLOT) store_relaxed(args.overflow, (u64)1);
  }
}

// Adds one to the count of `slot` for each lane that has one and returns the lane's place among the slot's
// rows. Lanes of the warp with the same slot share one atomic, so one frequent key costs a 32nd.
WL_DEVICE u32 count_slot(u32* counts, u32 slot) {
  const u32 same = __match_any_sync(WL_FULL_MASK, slot);
  const u32 leader = (u32)__ffs((int)same) - 1;
  u32 base = 0;
  if (lane_id() == leader && slot != WL_NO_SLOT32) base = atomicAdd(counts + slot, (u32)__popc(same));
  base = __shfl_sync(WL_FULL_MASK, base, (int)leader);
  return base + (u32)__popc(same & ((1u << lane_id()) - 1u));
}

// Keys with duplicates, first half: inserts the keys, counts the rows of each slot, and notes each row's slot and
// its place among the slot's rows.
WL_KERNEL(count_slots, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 threads = (u64)gridDim.x * blockDim.x;
  // Every lane takes part in every round: warps count together.
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < rows; base += threads) {
    const u64 row = base + threadIdx.x;
    u32 slot = WL_NO_SLOT32;
    u64 key[WL_KEY_WORDS];
    if (row < rows && load_key(args, row, key)) {
      bool inserted;
      const u64 found =
          find_or_insert_new<WL_KEY_WORDS>(args.keys, args.states, args.mask, key, args.limit, inserted);
      if (found == WL_NO_SLOT) store_relaxed(args.overflow, (u64)1);
      else slot = (u32)found;
    }
    __syncwarp();
    const u32 place = count_slot(args.offsets, slot);
    if (row < rows) {
      args.slot_of_row[row] = slot;
      args.place_of_row[row] = place;
    }
  }
}

// Second half, when counts have become offsets: row numbers go to their places, without atomics.
WL_KERNEL(scatter_entries, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    const u32 slot = args.slot_of_row[row];
    if (slot != WL_NO_SLOT32) args.entry[args.offsets[slot] + args.place_of_row[row]] = (u32)row;
  }
}

// The same two halves where the one key word is the slot; words of `mask` (here the number of slots) and more
// are no keys. Rows that are in the order of their words need no places and no second half.
WL_KERNEL(count_dense, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 threads = (u64)gridDim.x * blockDim.x;
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < rows; base += threads) {
    const u64 row = base + threadIdx.x;
    const u64 word = row < rows ? args.words[0][row] : WL_EMPTY_KEY;
    const u32 place = count_slot(args.offsets, word < args.mask ? (u32)word : WL_NO_SLOT32);
    if (row < rows && args.place_of_row != nullptr) args.place_of_row[row] = place;
  }
}

WL_KERNEL(scatter_dense, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    const u64 word = args.words[0][row];
    if (word < args.mask) args.entry[args.offsets[word] + args.place_of_row[row]] = (u32)row;
  }
}

// Where few of the possible keys occur, entries are counted by the number of the key among those that do (ranked_find
// in join.cuh). `keys` are the words of ranks, zeroed; `mask` the number of possible keys. Four steps, between which sums are
// made: keys set their bits; words count theirs into `slot_of_row`; words take the sums; then the two halves as above.
// Bytes moved: ranks of n possible keys take n / 4 bytes, which are cleared, set, counted and completed: n bytes in all,
// 600 million keys 0.15 ms at 4.2 TB/s, where offsets of all of them would take 12 n bytes.
WL_KERNEL(mark_ranks, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    const u64 word = args.words[0][row];
    if (word >= args.mask) continue;
    // The low half comes first in memory.
    u32* const present = (u32*)(args.keys + (word >> 5));
    const u32 bit = 1u << (u32)(word & 31);
    if ((load_relaxed(present) & bit) == 0) atomicOr(present, bit);
  }
}

// Launched over words of ranks, which are `most`.
WL_KERNEL(count_ranks, HashIndexArgs, args) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.most; i += (u64)gridDim.x * blockDim.x)
    args.slot_of_row[i] = (u32)__popc((u32)args.keys[i]);
}
WL_KERNEL(complete_ranks, HashIndexArgs, args) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.most; i += (u64)gridDim.x * blockDim.x)
    args.keys[i] = (u64)(u32)args.keys[i] | (u64)args.slot_of_row[i] << 32;
}

WL_KERNEL(count_ranked, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 threads = (u64)gridDim.x * blockDim.x;
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < rows; base += threads) {
    const u64 row = base + threadIdx.x;
    const u64 word = row < rows ? args.words[0][row] : WL_EMPTY_KEY;
    const u32 slot = word < args.mask ? (u32)ranked_find(args.keys, word) : WL_NO_SLOT32;
    const u32 place = count_slot(args.offsets, slot);
    if (row < rows && args.place_of_row != nullptr) args.place_of_row[row] = place;
  }
}

WL_KERNEL(scatter_ranked, HashIndexArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    const u64 word = args.words[0][row];
    if (word >= args.mask) continue;
    const u64 slot = ranked_find(args.keys, word);
    args.entry[args.offsets[slot] + args.place_of_row[row]] = (u32)row;
  }
}
