// index result 0: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  const u16* c0;
  u32* r0bits;
  u64* control;
};
static_assert(sizeof(Args) == 40, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u32 entered = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      BitRun run = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        if (alive) {
          const u32 place = (u32)((u64)v0);
          bit_run_set(run, args.r0bits, place);
          ++entered;
        }
      }
      bit_run_flush(run, args.r0bits);
    }
    __syncwarp();
  }
  { const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&args.control[0], total); }
}

// index result 1: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  const u16* c0;
  const u32* c3;
  u32* r1bits;
  u32* r1c0;
  u64* control;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u32 entered = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
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
          bit_run_set(run, args.r1bits, place);
          ++entered;
          args.r1c0[place] = (u32)v1;
        }
      }
      bit_run_flush(run, args.r1bits);
      if (run.twice) store_relaxed(&args.control[7], (u64)1);
    }
    __syncwarp();
  }
  { const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&args.control[5], total); }
}

// rows result 2: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  i64 lit0;
  i64 lit1;
  u64 rows;
  u64 first;
  const u8* n1;
  const u8* c1;
  const u32* r0bits;
  const u64* c2;
  const u32* c3;
  const u32* r1bits;
  u32* r1marks;
  u16* r2c0;
  u8* r2c1;
  u32* r2c2;
  u8* r2n2;
  u64* control;
  const u16* c0;
  u32* r1c0;
  u64 cap2;
};
static_assert(sizeof(Args) == 152, "host and device disagree on the arguments");

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
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n1 >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c1[k]);
        const bool possible = alive && v0;
        const u32 place = (u32)((u64)v1);
        const u32 found = look_up_bit(args.r0bits, place, possible);
        h0 |= (u32)found << k;
      }
    }
    live &= h0;
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 h1 = 0; u32 e1[WL_ROWS] = {}; (void)e1;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v2 = (i64)((u64)c2[k]);
        const bool v3 = v2 >= (i64)(i32)args.lit0 && v2 <= (i64)(i32)args.lit1;
        const bool possible = alive && v3;
        const u32 place = (u32)((u64)v2);
        const u32 found = look_up_bit(args.r0bits, place, possible);
        h1 |= (u32)found << k;
      }
    }
    live &= ~h1;
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 h2 = 0; u32 e2[WL_ROWS] = {}; (void)e2;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c3[k]);
        const bool v5 = v4 >= (i32)(i32)args.lit0 && v4 <= (i32)(i32)args.lit1;
        const bool possible = alive && v5;
        const u32 place = (u32)((u64)v4);
        const u32 found = look_up_bit(args.r0bits, place, possible);
        h2 |= (u32)found << k;
      }
    }
    u32 h3 = 0; u32 e3[WL_ROWS] = {}; (void)e3;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v6 = ((n1 >> k) & 1) != 0;
        const i32 v7 = (i32)((u32)c1[k]);
        const bool possible = alive && v6;
        const u32 place = (u32)((u64)v7);
        const u32 found = look_up_bit(args.r1bits, place, possible);
        h3 |= (u32)found << k;
        e3[k] = place;
      }
    }
    mark_entries(args.r1marks, live & h3, e3);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 c9[WL_ROWS] = {};
    u32 n9 = 0;
    if ((live & h3) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h3) >> k & 1) {
        c9[k] = args.r1c0[e3[k]]; n9 |= 1u << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v8 = (i32)((u32)c0[k]);
        const bool v9 = ((h2 >> k) & 1) != 0;
        const bool v10 = ((n9 >> k) & 1) != 0;
        const i32 v11 = (i32)((u32)c9[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u16)v8;
          args.r2c1[at] = (u8)v9;
          args.r2c2[at] = v10 ? (u32)v11 : (u32)0;
          args.r2n2[at] = (u8)(v10);
        }
      }
    }
    __syncwarp();
  }
}

// rows result 3: Domain(1), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u8* r1marks;
  const u32* r1bits;
  u64 rows;
  u32* r3c0;
  u64* control;
  u32* r1c0;
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
    if (live != 0) live &= ~load_bits<WL_ROWS>(args.r1marks, row);
    if (live != 0) live &= load_bits<WL_ROWS>((const u8*)args.r1bits, row);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[15], shared.reserve, spot);
    u32 c0[WL_ROWS] = {};
    load_live(args.r1c0 + row, live, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap3) {
          args.r3c0[at] = (u32)v0;
        }
      }
    }
    __syncwarp();
  }
}

