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
  const u32* c3;
  const u8* n1;
  const u8* c1;
  u32* r0bits;
  u32* r0c0;
  u8* r0c1;
  u8* r0n1;
  u64* control;
};
static_assert(sizeof(Args) == 88, "host and device disagree on the arguments");

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
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    if (live != 0) {
      BitRun run = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)((u32)c3[k]);
        const bool v2 = ((n1 >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c1[k]);
        if (alive) {
          const u32 place = (u32)((u64)v0);
          bit_run_set(run, args.r0bits, place);
          ++entered;
          args.r0c0[place] = (u32)v1;
          args.r0c1[place] = v2 ? (u8)v3 : (u8)0;
          args.r0n1[place] = (u8)(v2);
        }
      }
      bit_run_flush(run, args.r0bits);
      if (run.twice) store_relaxed(&args.control[2], (u64)1);
    }
    __syncwarp();
  }
  { const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&args.control[0], total); }
}

// rows result 1: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  u64 rows;
  u64 first;
  const u16* c0;
  const u8* n1;
  const u8* c1;
  const u32* r0bits;
  const u32* c3;
  u32* r0c0;
  u16* r1c0;
  u32* r1c1;
  u8* r1c2;
  u8* r1n2;
  u64* control;
  u8* r0c1;
  u8* r0n1;
  u64 cap1;
};
static_assert(sizeof(Args) == 136, "host and device disagree on the arguments");

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
    live &= h0;
    u32 m0 = live & h0;
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 c8[WL_ROWS] = {};
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c8[k] = args.r0c0[e0[k]];
      }
    }
    if (m0 != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((m0 >> k) & 1) != 0;
        const i32 v5 = (i32)((u32)c3[k]);
        const i32 v6 = (i32)((u32)c8[k]);
        const bool v7 = v5 < v6;
        pass |= (u32)(v7) << k;
      }
      m0 &= pass;
    }
    h0 = m0;
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    u8 c9[WL_ROWS] = {};
    u32 n9 = 0;
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c9[k] = args.r0c1[e0[k]]; n9 |= (u32)(args.r0n1[e0[k]] != 0) << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v8 = (i32)((u32)c0[k]);
        const i32 v9 = (i32)((u32)c8[k]);
        const bool v10 = ((n9 >> k) & 1) != 0;
        const i32 v11 = (i32)((u32)c9[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u16)v8;
          args.r1c1[at] = (u32)v9;
          args.r1c2[at] = v10 ? (u8)v11 : (u8)0;
          args.r1n2[at] = (u8)(v10);
        }
      }
    }
    __syncwarp();
  }
}

