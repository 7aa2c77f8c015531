// index result 0: Scan(0), 256 threads, 2048 rows a tile, 0 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 8
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
  const u16* c0;
  const u32* c3;
  u32* r0bits;
  u32* r0c0;
  u64* control;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u32 entered = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 2047) / 2048;
  for (u64 tile = args.first / 2048 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 2048 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 255u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    if (live != 0) {
      BitRun run = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)((u32)c3[k]);
        if (alive) {
          const u32 place = (u32)((u64)v0);
          bit_run_set(run, args.r0bits, place);
          ++entered;
          args.r0c0[place] = (u32)v1;
        }
      }
      bit_run_flush(run, args.r0bits);
      if (run.twice) store_relaxed(&args.control[2], (u64)1);
    }
    __syncwarp();
  }
  { const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&args.control[0], total); }
}

// index result 1: Scan(0), 256 threads, 2048 rows a tile, 0 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 8
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
  const u16* c0;
  u32* r1bits;
  u64* control;
};
static_assert(sizeof(Args) == 40, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u32 entered = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 2047) / 2048;
  for (u64 tile = args.first / 2048 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 2048 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 255u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      BitRun run = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        if (alive) {
          const u32 place = (u32)((u64)v0);
          bit_run_set(run, args.r1bits, place);
          ++entered;
        }
      }
      bit_run_flush(run, args.r1bits);
    }
    __syncwarp();
  }
  { const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&args.control[5], total); }
}

// rows result 2: Scan(0), 256 threads, 1024 rows a tile, 10240 bytes shared
#define WL_BLOCK_THREADS 256
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  i64 lit0;
  i64 lit1;
  i64 lit2;
  u64 rows;
  u64 first;
  const u16* c0;
  const u8* n1;
  const u8* c1;
  const u32* r0bits;
  const u64* c2;
  const u32* r1bits;
  u16* r2c0;
  u32* r2c1;
  u8* r2n1;
  u64* control;
  u32* r0c0;
  u64 cap2;
};
static_assert(sizeof(Args) == 136, "host and device disagree on the arguments");

struct alignas(16) Waiting {
  u32 row[160];
  u32 e0[160];
};
struct Shared {
  alignas(16) Waiting waiting[8];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  constexpr u32 WL_ROWS = 4;
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 1023) / 1024;
  Waiting& waiting = shared.waiting[warp_id()];
  u32 held = 0;
  TileChunks chunks = tile_chunks(args.first / 1024, tiles);
  u64 tile = chunks.first();
  while (true) {
  for (; held < 32 && tile < tiles; tile = chunks.next(tile)) {
    const u64 row = tile * 1024 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 15u : (1u << (u32)(rows - row)) - 1u;
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
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n1 >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c1[k]);
        const bool possible = alive && v3;
        const u32 place = (u32)((u64)v4);
        const u32 found = look_up_bit(args.r0bits, place, possible);
        h0 |= (u32)found << k;
        e0[k] = place;
      }
    }
    WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
      const bool goes_on = ((live >> k) & 1) != 0;
      const u32 votes = __ballot_sync(WL_FULL_MASK, goes_on);
      if (goes_on) {
        const u32 to = held + (u32)__popc(votes & ((1u << lane_id()) - 1u));
        waiting.row[to] = (u32)(row + k);
        waiting.e0[to] = (h0 >> k & 1u) != 0 ? e0[k] : WL_NO_ENTRY;
      }
      held += (u32)__popc(votes);
    }
    __syncwarp();
  }
  if (held == 0) break;
  { u32 taken;
    constexpr u32 WL_ROWS = 1;
    taken = held < WL_WARP ? held : WL_WARP; held -= taken;
    u32 live = lane_id() < taken ? 1u : 0u; const u32 slot = held + lane_id();
    const u64 row = live != 0 ? (u64)waiting.row[slot] : 0ull;
    u32 e0[1] = {live != 0 ? waiting.e0[slot] : 0u};
    const u32 h0 = e0[0] != WL_NO_ENTRY ? live : 0u; (void)h0;
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 h1 = 0; u32 e1[WL_ROWS] = {}; (void)e1;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v5 = (i64)((u64)c2[k]);
        const bool v6 = v5 >= (i64)(i32)args.lit1 && v5 <= (i64)(i32)args.lit2;
        const bool possible = alive && v6;
        const u32 place = (u32)((u64)v5);
        const u32 found = look_up_bit(args.r1bits, place, possible);
        h1 |= (u32)found << k;
      }
    }
    live &= h1;
    const u32 spot[WL_ROWS] = {}; const u64 first = warp_reserve(live & 1u, &args.control[10]);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 c8[WL_ROWS] = {};
    u32 n8 = 0;
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c8[k] = args.r0c0[e0[k]]; n8 |= 1u << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v7 = (i32)((u32)c0[k]);
        const bool v8 = ((n8 >> k) & 1) != 0;
        const i32 v9 = (i32)((u32)c8[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u16)v7;
          args.r2c1[at] = v8 ? (u32)v9 : (u32)0;
          args.r2n1[at] = (u8)(v8);
        }
      }
    }
    __syncwarp();
  }
  }
}

// rows result 3: Scan(0), 256 threads, 1024 rows a tile, 16384 bytes shared
#define WL_BLOCK_THREADS 256
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  i64 lit0;
  u64 rows;
  u64 first;
  const u16* c0;
  const u8* n1;
  const u8* c1;
  const u32* r0bits;
  u64* control;
  u16* r3c0;
  u32* r3c1;
  u8* r3n1;
  u32* r0c0;
  u64 cap3;
};
static_assert(sizeof(Args) == 104, "host and device disagree on the arguments");

struct alignas(16) Waiting {
  u32 row[256];
  u32 e0[256];
};
struct Shared {
  alignas(16) Waiting waiting[8];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  constexpr u32 WL_ROWS = 4;
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 1023) / 1024;
  Waiting& waiting = shared.waiting[warp_id()];
  u32 held = 0;
  TileChunks chunks = tile_chunks(args.first / 1024, tiles);
  u64 tile = chunks.first();
  while (true) {
  for (; held < 128 && tile < tiles; tile = chunks.next(tile)) {
    const u64 row = tile * 1024 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 15u : (1u << (u32)(rows - row)) - 1u;
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
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n1 >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c1[k]);
        const bool possible = alive && v3;
        const u32 place = (u32)((u64)v4);
        const u32 found = look_up_bit(args.r0bits, place, possible);
        h0 |= (u32)found << k;
        e0[k] = place;
      }
    }
    WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
      const bool goes_on = ((live >> k) & 1) != 0;
      const u32 votes = __ballot_sync(WL_FULL_MASK, goes_on);
      if (goes_on) {
        const u32 to = held + (u32)__popc(votes & ((1u << lane_id()) - 1u));
        waiting.row[to] = (u32)(row + k);
        waiting.e0[to] = (h0 >> k & 1u) != 0 ? e0[k] : WL_NO_ENTRY;
      }
      held += (u32)__popc(votes);
    }
    __syncwarp();
  }
  if (held == 0) break;
  const u64 reserved = warp_reserve_rows(held, &args.control[15]);
  for (u32 taken; held != 0;) {
    constexpr u32 WL_ROWS = 1;
    taken = held < WL_WARP ? held : WL_WARP; held -= taken;
    u32 live = lane_id() < taken ? 1u : 0u; const u32 slot = held + lane_id();
    const u64 row = live != 0 ? (u64)waiting.row[slot] : 0ull;
    u32 e0[1] = {live != 0 ? waiting.e0[slot] : 0u};
    const u32 h0 = e0[0] != WL_NO_ENTRY ? live : 0u; (void)h0;
    const u32 spot[WL_ROWS] = {}; const u64 first = reserved + slot;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 c8[WL_ROWS] = {};
    u32 n8 = 0;
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c8[k] = args.r0c0[e0[k]]; n8 |= 1u << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v5 = (i32)((u32)c0[k]);
        const bool v6 = ((n8 >> k) & 1) != 0;
        const i32 v7 = (i32)((u32)c8[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap3) {
          args.r3c0[at] = (u16)v5;
          args.r3c1[at] = v6 ? (u32)v7 : (u32)0;
          args.r3n1[at] = (u8)(v6);
        }
      }
    }
    __syncwarp();
  }
  }
}

