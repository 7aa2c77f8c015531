// What a warp of a tree-shaped kernel has to do: its queues of offset ranges, and which level it visits next (Themis, PVLDB
// 2024, sections 4 to 7). How warps share their work is in `tree_share.cuh`.
//
// A pipeline is a tree: the rows of its source are the nodes of level 0; what a visit of a node yields are nodes of the
// next level. A node is a place in a range of entries and the numbers of the rows and entries above it. A warp keeps the
// ranges of each level in a queue of WL_TREE_QUEUE entries in shared memory and visits up to 32 nodes of one level at a
// time. A generated kernel declares one struct a level (`Level`, below), a struct `Queues` of all of them, and one `switch`
// over the levels.
//
// `Level` has: `RANGES`, whether an entry is a range of nodes (arrays `begin`, `end`) or one node; `WORDS`, its
// size in u32 words; `save(slot, u32*)` and `load(slot, const u32*)`, which copy an entry from and to the queue.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"

// Entries of a queue: fewer than 32 are there when up to 32 are added.
#define WL_TREE_QUEUE 64
#define WL_TREE_IDLE 0xffffffffu
// The range of a row of an outer probe that has no match begins here.
#define WL_TREE_NO_MATCH 0xfffffffeu

// Names level L, for the queue of it among those of all levels.
template <u32 L>
struct TreeLevel {
  static const u32 NUMBER = L;
};

WL_METHOD u32 wl_lanes_below() { return (1u << lane_id()) - 1u; }

// ---- no-imbalance-first search: lanes take what any of them has yielded --------------------------------

// All lanes of a warp hold the same values. LEVELS counts level 0, whose nodes are rows `next` .. `last` - 1.
template <u32 LEVELS>
struct WarpTree {
  u64 next, last;
  // By level: the queue's first entry, its entries, and the nodes in them.
  u32 head[LEVELS], size[LEVELS];
  u64 nodes[LEVELS];

  WL_METHOD void clear() {
    next = last = 0;
    WL_UNROLL
    for (u32 l = 0; l < LEVELS; ++l) {
      head[l] = size[l] = 0;
      nodes[l] = 0;
    }
  }

  // Are there rows of the source?
  WL_METHOD bool fed() const { return next < last; }

  // Is there work for all lanes without more rows?
  WL_METHOD bool full() const {
    bool enough = false;
    WL_UNROLL
    for (u32 l = 1; l < LEVELS; ++l) enough = enough || nodes[l] >= WL_WARP;
    return enough;
  }

  // The highest level with 32 nodes; else the lowest with any, all of whose nodes are taken then; else WL_TREE_IDLE.
  WL_METHOD u32 pick() const {
    u32 level = WL_TREE_IDLE;
    WL_UNROLL
    for (u32 l = LEVELS - 1; l > 0; --l)
      if (nodes[l] != 0) level = l;
    if (next < last) level = 0;
    WL_UNROLL
    for (u32 l = 1; l < LEVELS; ++l)
      if (nodes[l] >= WL_WARP) level = l;
    return level;
  }

  // The lane's row of level 0, if it has one.
  WL_METHOD bool take_row(u64& row) {
    row = next + lane_id();
    const bool mine = row < last;
    next = last - next > WL_WARP ? next + WL_WARP : last;
    return mine;
  }

  // The lane's node of level L, if it has one: the entry `slot` of the queue and, of a range, the place `at`.
  template <u32 L, class Level>
  WL_METHOD bool take(Level& queue, u32& slot, u32& at) {
    const u32 lane = lane_id();
    if constexpr (!Level::RANGES) {
      const u32 taken = size[L] < WL_WARP ? size[L] : WL_WARP;
      slot = (head[L] + lane) % WL_TREE_QUEUE;
      at = 0;
      head[L] = (head[L] + taken) % WL_TREE_QUEUE;
      size[L] -= taken;
      nodes[L] -= taken;
      return lane < taken;
    } else {
      // The first entry alone, when it has enough: the nodes of a key with many matches.
      const u32 first_begin = queue.begin[head[L]], first_end = queue.end[head[L]];
      if (first_end - first_begin >= WL_WARP) {
        slot = head[L];
        at = first_begin + lane;
        __syncwarp();
        if (first_end - first_begin == WL_WARP) {
          head[L] = (head[L] + 1) % WL_TREE_QUEUE;
          size[L] -= 1;
        } else if (lane == 0) {
          queue.begin[head[L]] = first_begin + WL_WARP;
        }
        nodes[L] -= WL_WARP;
        __syncwarp();
        return true;
      }
      const u32 mine = (head[L] + lane) % WL_TREE_QUEUE;
      const u32 length = lane < size[L] ? queue.end[mine] - queue.begin[mine] : 0u;
      const u32 wanted = length < WL_WARP ? length : WL_WARP;
      const u32 before = warp_scan_exclusive_sum(wanted);
      const u32 all = __shfl_sync(WL_FULL_MASK, before + wanted, WL_WARP - 1);
      const u32 total = all < WL_WARP ? all : WL_WARP;
      // A bit where the nodes of each entry begin: no entry is empty, so the bits up to a lane's count entries.
      const bool begins = length != 0 && before < WL_WARP;
      const u32 marks = __reduce_or_sync(WL_FULL_MASK, begins ? 1u << before : 0u);
      const u32 upto = marks & (WL_FULL_MASK >> (WL_WARP - 1 - lane));
      slot = (head[L] + (u32)__popc(upto) - 1u) % WL_TREE_QUEUE;
      at = queue.begin[slot] + lane - (31u - (u32)__clz((int)upto));
      const u32 taken = !begins ? 0u : wanted < WL_WARP - before ? wanted : WL_WARP - before;
      const u32 finished = (u32)__popc(__ballot_sync(WL_FULL_MASK, begins && taken == length));
      __syncwarp();
      if (begins && taken < length) queue.begin[mine] += taken;
      head[L] = (head[L] + finished) % WL_TREE_QUEUE;
      size[L] -= finished;
      nodes[L] -= total;
      __syncwarp();
      return lane < total;
    }
  }

  // A new entry of level L for each lane that wants one: places begin .. begin + length - 1, length > 0. The lane
  // then writes what else belongs to the entry to `slot`, and the warp synchronises.
  template <u32 L, class Level>
  WL_METHOD u32 push(Level& queue, bool wanted, u32 begin, u32 length) {
    const u32 votes = __ballot_sync(WL_FULL_MASK, wanted);
    const u32 slot = (head[L] + size[L] + (u32)__popc(votes & wl_lanes_below())) % WL_TREE_QUEUE;
    const u32 more = (u32)__popc(votes);
    size[L] += more;
    if constexpr (Level::RANGES) {
      if (wanted) {
        queue.begin[slot] = begin;
        queue.end[slot] = begin + length;
      }
      const u32 n = wanted ? length : 0u;
      nodes[L] += (u64)__reduce_add_sync(WL_FULL_MASK, n & 0xffffu) + ((u64)__reduce_add_sync(WL_FULL_MASK, n >> 16) << 16);
    } else {
      nodes[L] += more;
    }
    return slot;
  }
};

// ---- no balance: every lane visits what it has yielded itself -----------------------------------------

// `begin` and `end` differ between lanes, entry `slot` of a queue is the lane's own.
template <u32 LEVELS>
struct LaneTree {
  u64 next, last;
  u32 begin[LEVELS], end[LEVELS];

  WL_METHOD void clear() {
    next = last = 0;
    WL_UNROLL
    for (u32 l = 0; l < LEVELS; ++l) begin[l] = end[l] = 0;
  }

  WL_METHOD bool fed() const { return next < last; }

  WL_METHOD bool full() const {
    bool some = false;
    WL_UNROLL
    for (u32 l = 1; l < LEVELS; ++l) some = some || begin[l] < end[l];
    return __any_sync(WL_FULL_MASK, some);
  }

  // As in nested loops: the innermost in which any lane has something to do.
  WL_METHOD u32 pick() const {
    u32 level = next < last ? 0u : WL_TREE_IDLE;
    WL_UNROLL
    for (u32 l = 1; l < LEVELS; ++l)
      if (__any_sync(WL_FULL_MASK, begin[l] < end[l])) level = l;
    return level;
  }

  WL_METHOD bool take_row(u64& row) {
    row = next + lane_id();
    const bool mine = row < last;
    next = last - next > WL_WARP ? next + WL_WARP : last;
    return mine;
  }

  template <u32 L, class Level>
  WL_METHOD bool take(Level&, u32& slot, u32& at) {
    slot = lane_id();
    at = begin[L];
    const bool mine = begin[L] < end[L];
    begin[L] += mine ? 1u : 0u;
    return mine;
  }

  template <u32 L, class Level>
  WL_METHOD u32 push(Level&, bool wanted, u32 first, u32 length) {
    if (wanted) {
      begin[L] = first;
      end[L] = first + length;
    }
    return lane_id();
  }
};
