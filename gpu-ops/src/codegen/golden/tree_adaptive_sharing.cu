// index result 0: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  u64 rows;
  u64 first;
  const u8* n1;
  const u8* c1;
  const u64* c2;
  u64* control;
  u64* r0c0;
  u64* r0k0;
  u64 cap0;
};
static_assert(sizeof(Args) == 72, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 keyed = 0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n1 >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c1[k]);
        const bool v2 = v0;
        const i64 v3 = (i64)((u64)c2[k]);
        keyed |= (u32)(alive && v2) << k;
      }
      if ((live & ~keyed) != 0) store_relaxed(&args.control[3], (u64)1);
    }
    live &= keyed;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n1 >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c1[k]);
        const bool v2 = v0;
        const i64 v3 = (i64)((u64)c2[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u64)v3;
          args.r0k0[at] = (u64)v1;
        }
      }
    }
    __syncwarp();
  }
}

// index result 1: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  u64 rows;
  u64 first;
  const u64* c2;
  const u32* c3;
  u32* r1c0;
  u64* r1k0;
  u64* control;
  u64 cap1;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i32 v1 = (i32)((u32)c3[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u32)v1;
          args.r1k0[at] = (u64)v0;
        }
      }
    }
    __syncwarp();
  }
}

// groups result 2: Scan(0), 128 threads, 128 rows a tile, 5216 bytes shared
#define WL_BLOCK_THREADS 128
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"
#include "tree.cuh"
#include "tree_share.cuh"

struct Args {
  i64 lit0;
  u8* r2state;
  u64 rows;
  u64 first;
  u32* tree;
  u32* treebuffers;
  const u64* stopword;
  u64 stopnumber;
  const u16* c0;
  const u8* n1;
  const u8* c1;
  const u32* r0offsets;
  const u32* r0rows;
  u64* r0c0;
  const u64* r1keys;
  u64 slots1;
  const u32* r1offsets;
  const u32* r1rows;
  u32* r1c0;
};
static_assert(sizeof(Args) == 152, "host and device disagree on the arguments");

struct Level1 {
  static const bool RANGES = false;
  static const u32 WORDS = 1;
  u32 row[WL_TREE_QUEUE];
  WL_METHOD void save(u32 i, u32* to) const { (void)i; (void)to; tree_copy<1>(to + 0, (const u32*)(row + i)); }
  WL_METHOD void load(u32 i, const u32* from) { (void)i; (void)from; tree_copy<1>((u32*)(row + i), from + 0); }
};
struct Level2 {
  static const bool RANGES = true;
  static const u32 WORDS = 2;
  u32 begin[WL_TREE_QUEUE];
  u32 end[WL_TREE_QUEUE];
  WL_METHOD void save(u32 i, u32* to) const { (void)i; (void)to; tree_copy<1>(to + 0, (const u32*)(begin + i)); tree_copy<1>(to + 1, (const u32*)(end + i)); }
  WL_METHOD void load(u32 i, const u32* from) { (void)i; (void)from; tree_copy<1>((u32*)(begin + i), from + 0); tree_copy<1>((u32*)(end + i), from + 1); }
};
struct Level3 {
  static const bool RANGES = true;
  static const u32 WORDS = 2;
  u32 begin[WL_TREE_QUEUE];
  u32 end[WL_TREE_QUEUE];
  WL_METHOD void save(u32 i, u32* to) const { (void)i; (void)to; tree_copy<1>(to + 0, (const u32*)(begin + i)); tree_copy<1>(to + 1, (const u32*)(end + i)); }
  WL_METHOD void load(u32 i, const u32* from) { (void)i; (void)from; tree_copy<1>((u32*)(begin + i), from + 0); tree_copy<1>((u32*)(end + i), from + 1); }
};
struct alignas(16) Queues {
  Level1 level1;
  WL_METHOD Level1& operator[](TreeLevel<1>) { return level1; }
  Level2 level2;
  WL_METHOD Level2& operator[](TreeLevel<2>) { return level2; }
  Level3 level3;
  WL_METHOD Level3& operator[](TreeLevel<3>) { return level3; }
};
struct Shared {
  alignas(16) u8 warp_states[96];
  alignas(16) Queues queues[4];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r2state;
  u32 s0[1] = {};
  i64 s1[1] = {};
  i64 s2[1] = {};
  const u64 rows = args.rows - args.first;
  Queues& queues = shared.queues[warp_id()];
  TreeShare share;
  share.open(args.tree, args.treebuffers, 4, 4, 16384);
  WarpTree<4> tree;
  tree.clear();
  tree_start(share);
  const u64 parts = min_u64((u64)share.warps * 4, (rows + WL_WARP - 1) / WL_WARP);
  bool more = true;
  TreeWork work = tree_work();
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  while (true) {
    if (++unasked == WL_STOP_VISITS) { unasked = 0; if (tree_stopped(share, watch)) break; }
    if (more && !tree.fed() && !tree.full()) more = tree_partition(share, tree, args.first, rows, parts);
    tree_give_work(share, tree, queues, work);
    const u32 level = tree.pick();
    if (level == WL_TREE_IDLE) {
      if (!tree_take_work(share, tree, queues, work)) break;
      continue;
    }
    switch (level) {
    case 0: {
    u64 row; u32 live = tree.take_row(row) ? 1u : 0u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)args.lit0;
        const bool v2 = v0 < v1;
        pass |= (u32)(v2) << k;
      }
      live &= pass;
    }
    const bool goes_on = live != 0;
    const u32 to = tree.template push<1>(queues.level1, goes_on, 0u, 1u);
    if (goes_on) {
      queues.level1.row[to] = (u32)row;
    }
    __syncwarp();
    } break;
    case 1: {
    u32 slot, at; u32 live = tree.template take<1>(queues.level1, slot, at) ? 1u : 0u; (void)at;
    const u64 row = live != 0 ? (u64)queues.level1.row[slot] : 0ull;
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    u32 first0[WL_ROWS] = {}; u32 length0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n1 >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c1[k]);
        const bool possible = alive && v3;
        const u32 place = (u32)((u64)v4);
        const bool found = possible;
        if (found) {
          const u32* const range = args.r0offsets + place; const u32 first = range[0], length = range[1] - first;
          h0 |= (u32)(length != 0) << k;
          first0[k] = first; length0[k] = length;
        }
      }
    }
    const bool goes_on = (live & h0) != 0 && length0[0] != 0;
    const u32 to = tree.template push<2>(queues.level2, goes_on, first0[0], length0[0]);
    if (goes_on) {
    }
    __syncwarp();
    } break;
    case 2: {
    u32 slot, at; u32 live = tree.template take<2>(queues.level2, slot, at) ? 1u : 0u; (void)at;
    const u32 h0 = live != 0 ? live : 0u; (void)h0;
    u32 e0[1] = {h0 != 0 ? args.r0rows[at] : 0u};
    u64 c8[WL_ROWS] = {};
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c8[k] = args.r0c0[e0[k]];
      }
    }
    u32 h1 = 0; u32 e1[WL_ROWS] = {}; (void)e1;
    u32 first1[WL_ROWS] = {}; u32 length1[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v5 = (i64)((u64)c8[k]);
        const bool possible = alive && true;
        const u64 place = possible ? hash_find(args.r1keys, args.slots1 - 1, (u64)v5) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        if (found) {
          const u32* const range = args.r1offsets + place; const u32 first = range[0], length = range[1] - first;
          h1 |= (u32)(length != 0) << k;
          first1[k] = first; length1[k] = length;
        }
      }
    }
    const bool goes_on = live != 0;
    const u32 to = tree.template push<3>(queues.level3, goes_on, length1[0] != 0 ? first1[0] : WL_TREE_NO_MATCH, length1[0] != 0 ? length1[0] : 1u);
    if (goes_on) {
    }
    __syncwarp();
    } break;
    case 3: {
    u32 slot, at; u32 live = tree.template take<3>(queues.level3, slot, at) ? 1u : 0u; (void)at;
    const u32 h1 = live != 0 && at != WL_TREE_NO_MATCH ? live : 0u; (void)h1;
    u32 e1[1] = {h1 != 0 ? args.r1rows[at] : WL_NO_ENTRY};
    u32 c9[WL_ROWS] = {};
    u32 n9 = 0;
    if ((live & h1) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h1) >> k & 1) {
        c9[k] = args.r1c0[e1[k]]; n9 |= 1u << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v6 = ((n9 >> k) & 1) != 0;
        const i32 v7 = (i32)((u32)c9[k]);
        const bool v8 = alive && v6;
        s0[0] |= v8 ? 1u : 0u;
        s1[0] = (i64)((u64)s1[0] + (v8 ? (u64)v7 : 0ull));
        s2[0] += alive ? (i64)1 : (i64)0;
      }
    }
    } break;
    }
    __syncwarp();
  }
  WL_UNROLL for (u32 g = 0; g < 1; ++g) {
    u8* const mine = shared.warp_states + ((u64)warp_id() * 1 + g) * 24;
    { const auto t = warp_max(s0[g]); u32* const to = (u32*)(mine + 16); if (lane_id() == 0) { *to = t; } }
    { const auto t = (u64)warp_sum((u64)(i64)s1[g]); u64* const to = (u64*)(mine + 0); if (lane_id() == 0) { *to = t; } }
    { const auto t = (u64)warp_sum((u64)(i64)s2[g]); u64* const to = (u64*)(mine + 8); if (lane_id() == 0) { *to = t; } }
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 1; g += 128) {
    u8* const at = states + (u64)g * 32;
    { u32 t = 0; for (u32 w = 0; w < 4; ++w) t = max_u32(t, *((u32*)(shared.warp_states + ((u64)w * 1 + g) * 24 + 16)));
      if (t != 0) store_once((u32*)(at + 16), (u32)t); }
    { u64 t = 0; for (u32 w = 0; w < 4; ++w) t += *((u64*)(shared.warp_states + ((u64)w * 1 + g) * 24 + 0));
      if (t != 0) atomicAdd((u64*)(at + 0), (u64)(t)); }
    { u64 t = 0; for (u32 w = 0; w < 4; ++w) t += *((u64*)(shared.warp_states + ((u64)w * 1 + g) * 24 + 8));
      if (t != 0) atomicAdd((u64*)(at + 8), (u64)(t)); }
  }
}

// rows result 3: Slots(2), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  const u8* r2state;
  u64 rows;
  u64* r3c0;
  u8* r3n0;
  u64* r3c1;
  u64* control;
  u64 cap3;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(true) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[15], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    u32 n0 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r2state + (row + k) * 32;
      const bool valid = *((u32*)(at + 16)) != 0;
      n0 |= (u32)valid << k;
      c0[k] = valid ? (i64)((i64)*((u64*)(at + 0))) : (i64)0;
    }
    i64 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r2state + (row + k) * 32;
      c1[k] = (i64)*((u64*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n0 >> k) & 1) != 0;
        const i64 v1 = c0[k];
        const i64 v2 = c1[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap3) {
          args.r3c0[at] = v0 ? (u64)v1 : (u64)0;
          args.r3n0[at] = (u8)(v0);
          args.r3c1[at] = (u64)v2;
        }
      }
    }
    __syncwarp();
  }
}

