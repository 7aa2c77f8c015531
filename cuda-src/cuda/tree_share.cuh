// How the warps of a tree-shaped kernel (`tree.cuh`) share their work: partitions of the source, parts of a queue for warps
// without work, or pieces of a fixed granularity (Themis, PVLDB 2024, sections 4 to 7); and what they count of it.
#pragma once
#include "tree.cuh"
#include "stop.cuh"

// Classes of workload sizes a level: the bits of a number of nodes.
#define WL_TREE_CLASSES 64
// Most visits between two looks at the other warps, less one.
#define WL_TREE_INTERVAL 32
// In a warp's flag: all nodes have been visited.
#define WL_TREE_END 0x80000000u
// Rounds of a waiting lane between two looks whether the query was stopped: a word that all look at.
#if WL_EMULATED
#define WL_TREE_STOP_ROUNDS 16
#else
#define WL_TREE_STOP_ROUNDS 64
#endif

WL_DEVICE u32 wl_warp_bits(u64 n) { return n == 0 ? 0u : 64u - (u32)__clzll((i64)n); }

// Counters of a launch, at the beginning of the zeroed words. Those that are asked for often, or changed by all warps, have
// a line of the cache of their own: accesses to one queue.
struct TreeCounters {
  // Partitions of the source that have been taken; warps that have started; whether a warp found that the query was
  // stopped.
  u32 taken, started, stopped, line0[29];
  // Warps without work.
  u32 idle, line1[31];
  // Entries of the queue of fixed granularity that have been taken and reserved.
  u64 popped, pushed, line2[14];
  // Visits, lanes without a node in them, cycles of warps with work: of all warps, and most of one; most visits of one.
  u64 visits, idle_lanes, busy, most_busy, most_visits, line3[11];
};

// The warps of a launch. `words` are zeroed before it: TreeCounters, counts of warps by workload size
// (levels x WL_TREE_CLASSES), idle warps in a bitmap of two levels (u64), a flag a warp, the turns of the queue
// (fws). `entries` need not be: WL_TREE_QUEUE entries of `entry_words` words a warp, then those of the queue, each
// behind a word for its level. TreeLayout of the host computes the same places.
struct TreeShare {
  TreeCounters* counters;
  u32* sizes;
  u64* groups;
  u64* idle;
  u32* flags;
  u32* turns;
  u32* entries;
  u32* queue;
  u32 warps, levels, entry_words, room;

  WL_METHOD void open(u32* words, u32* buffers, u32 level_count, u32 words_an_entry, u32 queue_entries) {
    warps = gridDim.x * block_warps();
    levels = level_count;
    entry_words = words_an_entry;
    room = queue_entries;
    counters = (TreeCounters*)words;
    sizes = words + sizeof(TreeCounters) / 4;
    u32* end = sizes + levels * WL_TREE_CLASSES;
    groups = (u64*)end;
    end += 2 * ((warps + 4095) / 4096);
    idle = (u64*)end;
    end += 2 * ((warps + 63) / 64);
    flags = end;
    turns = end + warps;
    entries = buffers;
    queue = buffers + (u64)warps * WL_TREE_QUEUE * entry_words;
  }

  WL_METHOD u32 number() const { return blockIdx.x * block_warps() + warp_id(); }
  WL_METHOD u32* buffer(u32 warp) const { return entries + (u64)warp * WL_TREE_QUEUE * entry_words; }
  WL_METHOD u32* queued(u64 position) const { return queue + (position & (room - 1)) * (entry_words + 1); }
};

// Was the query stopped? A warp with work looks at the host's word, and tells the warps that wait for work, of which
// there would be too many looks. Who waits for a warp that has left would wait for ever: every loop that waits asks.
WL_DEVICE bool tree_stopped(const TreeShare& share, StopWatch& watch) {
  const bool stopped = query_stopped_warp(watch);
  if (stopped && lane_id() == 0) store_relaxed(&share.counters->stopped, 1u);
  return stopped;
}
// For one lane that waits, in its round `round`.
WL_DEVICE bool tree_wait_stopped(const TreeShare& share, u32 round) {
  return round % WL_TREE_STOP_ROUNDS == WL_TREE_STOP_ROUNDS - 1 && load_relaxed(&share.counters->stopped) != 0;
}

// The warp takes part. Whoever sees what it does from now on sees that, too.
WL_DEVICE void tree_start(const TreeShare& share) {
  if (lane_id() != 0) return;
  atomicAdd(&share.counters->started, 1u);
  __threadfence();
}

// The next of `parts` partitions of `rows` rows from `start` on, each a multiple of 32 rows but the last; false when none is
// left. A warp that starts late finds none: nobody waits for blocks that the device cannot hold yet.
template <class Tree>
WL_DEVICE bool tree_partition(const TreeShare& share, Tree& tree, u64 start, u64 rows, u64 parts) {
  u32 part = 0;
  if (lane_id() == 0) part = load_relaxed(&share.counters->taken) < parts ? atomicAdd(&share.counters->taken, 1u) : (u32)parts;
  part = __shfl_sync(WL_FULL_MASK, part, 0);
  if (part >= parts) return false;
  const u64 each = ((rows + parts - 1) / parts + WL_WARP - 1) / WL_WARP * WL_WARP;
  tree.next = start + min_u64(part * each, rows);
  tree.last = min_u64(tree.next + each, start + rows);
  return true;
}

// Visits until the next look at the others: few when most warps are idle (Algorithm 3), and at most twice those of the
// last time (0: there was none), for a warp that has just begun may have most of the work while nobody is idle yet.
WL_DEVICE u32 tree_interval(u32 warps, u32 idle, u32 before) {
  const u32 later = before == 0 ? 1 : 2 * before;
  u32 interval = 1 + WL_TREE_INTERVAL;
  if (idle != 0) {
    const u32 log = 31u - (u32)__clz((int)(warps / idle > 0 ? warps / idle : 1u));
    interval = 1 + (log < WL_TREE_INTERVAL ? log : WL_TREE_INTERVAL);
  }
  return later < interval ? later : interval;
}

// Count the caller under the workload size `now` (0: none) in place of `before`.
WL_DEVICE void tree_resize(const TreeShare& share, u32 before, u32 now) {
  if (before == now || lane_id() != 0) return;
  if (before != 0) atomicSub(share.sizes + before, 1u);
  if (now != 0) atomicAdd(share.sizes + now, 1u);
}

// Up to `most` idle warps that are now the caller's to give work to: bits of a word of the bitmap, 0 when there are
// none, and the warp `first` of its lowest bit. One lane calls it.
WL_DEVICE u64 tree_claim(const TreeShare& share, u32 most, u32& first) {
  const u32 words = (share.warps + 63) / 64, tops = (words + 63) / 64, me = share.number();
  first = 0;
  for (u32 i = 0; i < tops; ++i) {
    const u32 top = (me + i) % tops;
    u64 some = load_relaxed(share.groups + top);
    while (some != 0) {
      // From a place on that differs between warps, so that they do not all ask for the same word.
      const u64 later = some & ~0ull << (me % 64);
      const u32 bit = (u32)__ffsll((i64)(later != 0 ? later : some)) - 1;
      some &= ~(1ull << bit);
      const u32 word = top * 64 + bit;
      u64 idle = load_relaxed(share.idle + word);
      while (idle != 0) {
        u64 rest = idle;
        WL_NO_UNROLL
        for (u32 taken = 0; taken < most && rest != 0; ++taken) rest &= rest - 1;
        const u64 wanted = idle & ~rest;
        const u64 before = atomicAnd(share.idle + word, ~wanted);
        const u64 claimed = before & wanted;
        if (claimed != 0) {
          // They count as busy before they have the work, so that nobody takes the end for near.
          atomicSub(&share.counters->idle, (u32)__popcll((i64)claimed));
          first = word * 64;
          return claimed;
        }
        idle = before & ~wanted;
      }
      // Nobody is left here, unless somebody came just now.
      atomicAnd(share.groups + top, ~(1ull << bit));
      if (load_relaxed(share.idle + word) != 0) atomicOr(share.groups + top, 1ull << bit);
    }
  }
  return 0;
}

// Visits of `nodes` nodes. What warps give each other is whole visits: half a visit each would take them as long as one
// of them alone, with half of the lanes idle.
WL_DEVICE u64 tree_visits(u64 nodes) { return (nodes + WL_WARP - 1) / WL_WARP; }

// Where part `part` of `parts` parts of `nodes` nodes begins.
WL_DEVICE u64 tree_part(u64 nodes, u32 part, u32 parts) {
  return part == parts ? nodes : tree_visits(nodes) * part / parts * WL_WARP;
}

// The idle warps that shall have a part each of the caller's `nodes` nodes (as tree_claim says; 0: keep them). `mine` is
// its workload size: only the busiest give, and they divide the idle warps among them. With many idle warps that is many
// parts at once, so that one range comes to all warps in a few steps, where halves would take one for each doubling.
WL_DEVICE u64 tree_takers(const TreeShare& share, u32 mine, u64 nodes, u32 idle, u32& first) {
  first = 0;
  if (mine == 0) return 0;
  bool larger = false;
  WL_NO_UNROLL
  for (u32 c = mine + 1 + lane_id(); c < share.levels * WL_TREE_CLASSES; c += WL_WARP)
    larger = larger || load_relaxed(share.sizes + c) != 0;
  if (__any_sync(WL_FULL_MASK, larger)) return 0;
  u64 takers = 0;
  if (lane_id() == 0) {
    const u32 alike = load_relaxed(share.sizes + mine);
    const u32 fair = alike == 0 || idle < alike ? 1 : idle / alike;
    // With the caller's own part there is a part a lane.
    const u64 most = min_u64(min_u64(fair, WL_WARP - 1), tree_visits(nodes) - 1);
    takers = tree_claim(share, (u32)most, first);
  }
  first = __shfl_sync(WL_FULL_MASK, first, 0);
  return __shfl_sync(WL_FULL_MASK, takers, 0);
}

// The warp of the lane's bit of `takers`, of lane 0 the lowest.
WL_DEVICE u32 tree_taker(u32 first, u64 takers) {
  WL_NO_UNROLL
  for (u32 i = 0; i < lane_id(); ++i) takers &= takers - 1;
  return first + (takers != 0 ? (u32)__ffsll((i64)takers) - 1 : 0u);
}

// Keep the first part of the nodes of level L, and hand another part to each of `takers` (see tree_takers). A range that
// two share is cut, whatever its length.
template <u32 L, u32 LEVELS, class Level>
WL_DEVICE void tree_give(const TreeShare& share, WarpTree<LEVELS>& tree, Level& queue, u32 first, u64 takers) {
  const u32 lane = lane_id(), parts = (u32)__popcll((i64)takers) + 1;
  // Of part lane + 1: the warp that shall have it, its first node, and its entries so far.
  const u32 taker = tree_taker(first, takers);
  const u64 bound = lane < parts ? tree_part(tree.nodes[L], lane + 1, parts) : 0;
  u32 given = 0, size = 0;
  u64 sum = 0;
  // 32 entries of the queue, one a lane, at a time.
  WL_NO_UNROLL
  for (u32 done = 0; done < tree.size[L]; done += WL_WARP) {
    const u32 slot = (tree.head[L] + done + lane) % WL_TREE_QUEUE;
    u32 begin = 0, length = done + lane < tree.size[L] ? 1u : 0u;
    if constexpr (Level::RANGES) {
      begin = length != 0 ? queue.begin[slot] : 0u;
      length = length != 0 ? queue.end[slot] - begin : 0u;
    }
    // The nodes before the entry.
    const u64 before = sum + warp_scan_exclusive_sum((u64)length);
    sum = __shfl_sync(WL_FULL_MASK, before + length, WL_WARP - 1);
    WL_NO_UNROLL
    for (u32 part = 1; part < parts; ++part) {
      const u64 from = __shfl_sync(WL_FULL_MASK, bound, (int)part - 1);
      const u64 upto = __shfl_sync(WL_FULL_MASK, bound, (int)part);
      const u64 low = from > before ? from : before;
      const u64 high = min_u64(upto, before + length);
      const u32 votes = __ballot_sync(WL_FULL_MASK, low < high);
      const u32 place = __shfl_sync(WL_FULL_MASK, given, (int)part - 1) + (u32)__popc(votes & wl_lanes_below());
      u32* const out = share.buffer(__shfl_sync(WL_FULL_MASK, taker, (int)part - 1));
      if (low < high) {
        if constexpr (Level::RANGES) {
          queue.begin[slot] = begin + (u32)(low - before);
          queue.end[slot] = begin + (u32)(high - before);
        }
        queue.save(slot, out + place * Level::WORDS);
      }
      if (lane == part - 1) given += (u32)__popc(votes);
    }
    // What stays.
    const u64 kept = __shfl_sync(WL_FULL_MASK, bound, 0);
    const bool stays = length != 0 && before < kept;
    if constexpr (Level::RANGES) {
      if (stays) {
        queue.begin[slot] = begin;
        queue.end[slot] = begin + (u32)min_u64(length, kept - before);
      }
    }
    size += (u32)__popc(__ballot_sync(WL_FULL_MASK, stays));
  }
  tree.size[L] = size;
  tree.nodes[L] = __shfl_sync(WL_FULL_MASK, bound, 0);
  __threadfence();
  __syncwarp();
  if (lane < parts - 1) store_release(share.flags + taker, given << 8 | (L + 1));
}

// The same for rows of the source.
template <u32 LEVELS>
WL_DEVICE void tree_give_rows(const TreeShare& share, WarpTree<LEVELS>& tree, u32 first, u64 takers) {
  const u32 lane = lane_id(), parts = (u32)__popcll((i64)takers) + 1;
  const u64 rows = tree.last - tree.next;
  const u32 taker = tree_taker(first, takers);
  if (lane < parts - 1) {
    u64* const out = (u64*)share.buffer(taker);
    out[0] = tree.next + tree_part(rows, lane + 1, parts);
    out[1] = tree.next + tree_part(rows, lane + 2, parts);
    __threadfence();
    store_release(share.flags + taker, 1u << 8 | 1u);
  }
  tree.last = tree.next + tree_part(rows, 1, parts);
}

// The entries that another warp has left for this one, into the empty queue of level L.
template <u32 L, u32 LEVELS, class Level>
WL_DEVICE void tree_receive(WarpTree<LEVELS>& tree, Level& queue, const u32* from, u32 entries) {
  u64 nodes = entries;
  for (u32 i = lane_id(); i < entries; i += WL_WARP) queue.load(i, from + i * Level::WORDS);
  __syncwarp();
  if constexpr (Level::RANGES) {
    nodes = 0;
    for (u32 i = lane_id(); i < entries; i += WL_WARP) nodes += queue.end[i] - queue.begin[i];
    nodes = warp_sum(nodes);
  }
  tree.head[L] = 0;
  tree.size[L] = entries;
  tree.nodes[L] = nodes;
  __syncwarp();
}

// Wait for work from another warp: the flag that says what came, or 0 when there is none any more. All nodes have been
// visited when all warps that have started are idle: work is never with a warp that counts as idle, and one that was given
// work counts as busy. The last one sees that and tells the others, so that who waits looks at a word of its own: looks of
// thousands of warps at one would be in the way of those that change it.
WL_DEVICE u32 tree_wait(const TreeShare& share, u32 workload) {
  const u32 me = share.number(), lane = lane_id();
  u32 flag = 0;
  u32 last = 0;
  if (lane == 0) {
    if (workload != 0) atomicSub(share.sizes + workload, 1u);
    // It sees what has started of those that it sees idle, or sees to have taken partitions.
    __threadfence();
    const u32 idle = atomicAdd(&share.counters->idle, 1u) + 1;
    __threadfence();
    last = idle >= load_relaxed(&share.counters->started) ? 1u : 0u;
    // It has started when the others had left.
    if (load_relaxed(share.flags + me) == WL_TREE_END) last = 2;
  }
  last = __shfl_sync(WL_FULL_MASK, last, 0);
  if (last == 1)
    WL_NO_UNROLL
    for (u32 warp = lane; warp < share.warps; warp += WL_WARP) store_relaxed(share.flags + warp, WL_TREE_END);
  if (last != 0) return 0;
  if (lane == 0) {
    atomicOr(share.idle + me / 64, 1ull << (me % 64));
    atomicOr(share.groups + me / 4096, 1ull << (me / 64 % 64));
    for (u32 round = 0; !tree_wait_stopped(share, round); ++round) {
      flag = load_acquire(share.flags + me);
      if (flag != 0) break;
      spin_pause(100);
    }
    if (flag == WL_TREE_END) flag = 0;
    if (flag != 0) store_relaxed(share.flags + me, 0u);
  }
  flag = __shfl_sync(WL_FULL_MASK, flag, 0);
  // What the giver wrote is visible to the lane that saw the flag; the others read it behind this fence.
  __threadfence();
  __syncwarp();
  return flag;
}

// The queue of one of the levels: `act(TreeLevel<L>{})` for L = `level`, if it is one of FROM .. LEVELS - 1. The queues of a
// kernel are a struct with an operator [] for each TreeLevel.
template <u32 FROM, u32 LEVELS, class Act>
WL_DEVICE void tree_at_level(u32 level, const Act& act) {
  if constexpr (FROM < LEVELS) {
    if (level == FROM) act(TreeLevel<FROM>{});
    else tree_at_level<FROM + 1, LEVELS>(level, act);
  }
}

// What a warp knows of sharing between two visits: its workload size when it looked last, visits until it looks again, and
// how many those were. It begins with one visit.
struct TreeWork {
  u32 workload, look, interval;
};
WL_DEVICE TreeWork tree_work() { return {0, 1, 0}; }

// The busiest warps give parts of their work to idle ones; a warp looks only every few visits.
template <u32 LEVELS, class Queues>
WL_DEVICE void tree_give_work(const TreeShare& share, WarpTree<LEVELS>& tree, Queues& queues, TreeWork& work) {
  if (--work.look != 0) return;
  const u32 idle = __shfl_sync(WL_FULL_MASK, load_relaxed(&share.counters->idle), 0);
  work.look = work.interval = tree_interval(share.warps, idle, work.interval);
  if (idle == 0) return;
  // The lowest level, that of the highest subtrees, of which there is more than a visit.
  u32 give = 0;
  u64 nodes = 0;
  WL_UNROLL
  for (u32 l = LEVELS - 1; l > 0; --l) {
    if (tree.nodes[l] > WL_WARP) {
      give = l;
      nodes = tree.nodes[l];
    }
  }
  if (tree.last - tree.next > WL_WARP) {
    give = 0;
    nodes = tree.last - tree.next;
  }
  const u32 mine = nodes == 0 ? 0u : (LEVELS - 1 - give) * WL_TREE_CLASSES + wl_warp_bits(nodes);
  tree_resize(share, work.workload, mine);
  work.workload = mine;
  u32 first;
  const u64 takers = tree_takers(share, mine, nodes, idle, first);
  if (takers == 0) return;
  if (give == 0) tree_give_rows(share, tree, first, takers);
  tree_at_level<1, LEVELS>(
      give, [&](auto level) { tree_give<decltype(level)::NUMBER>(share, tree, queues[level], first, takers); });
  __syncwarp();
  const u64 kept = tree_part(nodes, 1, (u32)__popcll((i64)takers) + 1);
  const u32 less = kept <= WL_WARP ? 0u : mine - wl_warp_bits(nodes) + wl_warp_bits(kept);
  tree_resize(share, work.workload, less);
  work.workload = less;
}

// A warp without nodes waits for some; false when there are none any more.
template <u32 LEVELS, class Queues>
WL_DEVICE bool tree_take_work(const TreeShare& share, WarpTree<LEVELS>& tree, Queues& queues, TreeWork& work) {
  const u32 flag = tree_wait(share, work.workload);
  work = tree_work();
  if (flag == 0) return false;
  const u32* const from = share.buffer(share.number());
  const u32 level = (flag & 255u) - 1u;
  if (level == 0) {
    tree.next = ((const u64*)from)[0];
    tree.last = ((const u64*)from)[1];
  }
  tree_at_level<1, LEVELS>(
      level, [&](auto l) { tree_receive<decltype(l)::NUMBER>(tree, queues[l], from, flag >> 8); });
  return true;
}

// ---- sharing at a fixed granularity -------------------------------------------------------------------

// Wait until the place of `position` in the queue is empty (`filled` 0) or filled (1) for its round; false when the
// query was stopped meanwhile.
WL_DEVICE bool tree_turn(const TreeShare& share, u64 position, u32 filled) {
  const u32* const turn = share.turns + (position & (share.room - 1));
  const u32 wanted = 2 * (u32)(position / share.room) + filled;
  for (u32 round = 0; load_acquire(turn) != wanted; ++round) {
    if (tree_wait_stopped(share, round)) return false;
    spin_pause(50);
  }
  return true;
}

// Cut the ranges that were just added to level L, `more` entries, into pieces of `most` nodes: the first pieces stay,
// the others go to the queue of all warps as far as it has room.
template <u32 L, u32 LEVELS, class Level>
WL_DEVICE void tree_cut(const TreeShare& share, WarpTree<LEVELS>& tree, Level& queue, u32 more, u32 most) {
  const u32 lane = lane_id();
  for (u32 i = 0; i < more; ++i) {
    const u32 slot = (tree.head[L] + tree.size[L] - 1 - i) % WL_TREE_QUEUE;
    const u32 begin = queue.begin[slot], end = queue.end[slot];
    if (end - begin <= most) continue;
    const u32 pieces = (end - begin - 1) / most;
    u64 first = 0;
    u32 reserved = 0;
    if (lane == 0) {
      u64 pushed = load_relaxed(&share.counters->pushed);
      while (true) {
        const u64 used = pushed - load_relaxed(&share.counters->popped);
        reserved = used >= share.room ? 0u : (u32)min_u64(share.room - used, pieces);
        if (reserved == 0) break;
        const u64 seen = atomicCAS(&share.counters->pushed, pushed, pushed + reserved);
        if (seen == pushed) break;
        pushed = seen;
      }
      first = pushed;
    }
    reserved = __shfl_sync(WL_FULL_MASK, reserved, 0);
    first = __shfl_sync(WL_FULL_MASK, first, 0);
    // Pieces from the end, one lane each; the last may be shorter.
    const u32 kept = (pieces + 1 - reserved) * most;
    for (u32 p = 0; p < reserved; ++p) {
      if (lane == 0) {
        const u64 position = first + p;
        // Nobody takes any more what would be overwritten.
        if (!tree_turn(share, position, 0)) break;
        u32* const entry = share.queued(position);
        const u32 from = begin + kept + p * most;
        queue.begin[slot] = from;
        queue.end[slot] = end - from > most ? from + most : end;
        entry[0] = L;
        queue.save(slot, entry + 1);
        __threadfence();
        store_release(share.turns + (position & (share.room - 1)), 2 * (u32)(position / share.room) + 1);
      }
    }
    __syncwarp();
    if (lane == 0 && reserved != 0) {
      queue.begin[slot] = begin;
      queue.end[slot] = begin + kept;
    }
    if (reserved != 0) tree.nodes[L] -= end - begin - kept;
    __syncwarp();
  }
}

// Wait for a piece of the queue: its position, or ~0 when all warps are idle and the queue is empty. What the piece holds
// is to be read before tree_popped.
WL_DEVICE u64 tree_pop(const TreeShare& share) {
  u64 position = ~0ull;
  if (lane_id() == 0) {
    atomicAdd(&share.counters->idle, 1u);
    for (u32 round = 0; !tree_wait_stopped(share, round); ++round) {
      u64 popped = load_relaxed(&share.counters->popped);
      if (popped < load_relaxed(&share.counters->pushed)) {
        // Busy already while it takes: who is idle has nothing.
        atomicSub(&share.counters->idle, 1u);
        const u64 seen = atomicCAS(&share.counters->popped, popped, popped + 1);
        if (seen == popped) {
          // Nothing comes any more from a warp that has left.
          if (tree_turn(share, popped, 1)) position = popped;
          break;
        }
        atomicAdd(&share.counters->idle, 1u);
      } else if (load_relaxed(&share.counters->idle) >= load_relaxed(&share.counters->started)) {
        break;
      }
      spin_pause(100);
    }
  }
  position = __shfl_sync(WL_FULL_MASK, position, 0);
  __threadfence();
  __syncwarp();
  return position;
}

// The place of a piece may be used again.
WL_DEVICE void tree_popped(const TreeShare& share, u64 position) {
  __syncwarp();
  if (lane_id() == 0)
    store_release(share.turns + (position & (share.room - 1)), 2 * (u32)(position / share.room) + 2);
}

// A warp without nodes waits for a piece of the queue; false when there are none any more.
template <u32 LEVELS, class Queues>
WL_DEVICE bool tree_take_piece(const TreeShare& share, WarpTree<LEVELS>& tree, Queues& queues) {
  const u64 piece = tree_pop(share);
  if (piece == ~0ull) return false;
  const u32* const from = share.queued(piece);
  tree_at_level<1, LEVELS>(from[0], [&](auto level) {
    tree_receive<decltype(level)::NUMBER>(tree, queues[level], from + 1, 1);
  });
  tree_popped(share, piece);
  return true;
}

// Words of an entry's field, to and from the memory between warps.
template <u32 WORDS>
WL_DEVICE void tree_copy(u32* to, const u32* from) {
  WL_UNROLL
  for (u32 w = 0; w < WORDS; ++w) to[w] = from[w];
}

// ---- metrics ------------------------------------------------------------------------------------------

// What one warp did; all lanes hold the same values.
struct TreeMeter {
  u64 visits, idle_lanes, busy, since;
};
WL_DEVICE void tree_count(TreeMeter& meter, bool mine) {
  meter.visits += 1;
  meter.idle_lanes += WL_WARP - (u32)__popc(__ballot_sync(WL_FULL_MASK, mine));
}
WL_DEVICE void tree_report(const TreeShare& share, const TreeMeter& meter) {
  // To begin and to find nothing is no work.
  if (lane_id() != 0 || meter.visits == 0) return;
  atomicAdd(&share.counters->visits, meter.visits);
  atomicAdd(&share.counters->idle_lanes, meter.idle_lanes);
  atomicAdd(&share.counters->busy, meter.busy);
  atomicMax(&share.counters->most_busy, meter.busy);
  atomicMax(&share.counters->most_visits, meter.visits);
}
