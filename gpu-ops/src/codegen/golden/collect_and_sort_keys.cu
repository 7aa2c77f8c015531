// rows of result 0: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  f64* r2c1;
  u8* r2n1;
  u64* control;
  const u8* n6;
  const f64* c6;
  u64 cap2;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (row == args.first && threadIdx.x == 0) args.control[10] = rows;
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0 && row < args.cap2) {
      f64 w0[WL_ROWS] = {};
      u8 w1[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v2 = ((n6 >> k) & 1) != 0;
        const f64 v3 = c6[k];
        if (alive) {
          w0[k] = v2 ? (f64)v3 : (f64)0;
          w1[k] = (u8)(v2);
        }
      }
      store_vec(args.r2c1 + row, w0);
      store_vec(args.r2n1 + row, w1);
    }
    __syncwarp();
  }
}

// groups result 0: Rows(2), 256 threads, 1024 rows a tile, 0 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 4
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  const u32* r2numbers;
  u64* r2k0;
  const u32* r2starts;
  u8* r0state;
  u64 cap0;
  u64* control;
  u64 rows;
  u32* r2c0;
  f64* r2c1;
  u8* r2n1;
};
static_assert(sizeof(Args) == 80, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u8* const states = args.r0state;
  const u64 cap = args.cap0;
  const u64 groups = args.control[14];
  if (blockIdx.x == 0 && threadIdx.x == 0) store_relaxed(&args.control[0], groups);
      bool open = false; u64 run = 0;
      i32 q0 = 0;
      u32 q1 = 0;
      u64 q2 = 0;
      const auto close_run = [&]() {
          if (run >= cap) return;
          u8* const at = states + run * 32;
          if (q0 != 0) { atomicAdd((u64*)(at + 0), (u64)(q0)); }
          if (q1 != 0) { store_once((u32*)(at + 16), (u32)q1); }
          if (q2 != 0) { raise((u64*)(at + 8), (u64)q2); }
      };
  bool carried = false;
  const auto close_carried = [&]() {
        const auto t0 = (u64)warp_sum((u64)(i64)q0);
        const auto t1 = warp_max(q1);
        const auto t2 = warp_max(q2);
      const auto add = [&]() {
          if (run >= cap) return;
          u8* const at = states + run * 32;
          if (t0 != 0) { atomicAdd((u64*)(at + 0), (u64)(t0)); }
          if (t1 != 0) { store_once((u32*)(at + 16), (u32)t1); }
          if (t2 != 0) { raise((u64*)(at + 8), (u64)t2); }
      };
    if (lane_id() == 0) add();
          q0 = 0;
          q1 = 0;
          q2 = 0;
    open = false; carried = false;
  };
  const u64 rows = min_u64(args.control[10], args.rows);
  const u64 tiles = (rows + 1023) / 1024;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 1024 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 15u : (1u << (u32)(rows - row)) - 1u;
    u32 from_row[WL_ROWS] = {}; if (live != 0) load_vec_stream<u32, WL_ROWS>(args.r2numbers + row, from_row);
    u32 group_of[WL_ROWS] = {}; run_numbers(args.r2starts, groups, args.r2k0, row, live, group_of);
    u32 c0[WL_ROWS] = {};
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c0[k] = args.r2c0[from_row[k]];
      }
    }
    f64 c1[WL_ROWS] = {};
    u32 n1 = 0;
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c1[k] = args.r2c1[from_row[k]]; n1 |= (u32)(args.r2n1[from_row[k]] != 0) << k;
      }
    }
    if (carried) {
      bool same = true;
      if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        if (alive) same = same && (group_of[k]) == run;
      }
      }
      if (!__all_sync(WL_FULL_MASK, same)) close_carried();
    }
      if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const bool v1 = ((n1 >> k) & 1) != 0;
        const f64 v2 = c1[k];
        const bool v3 = alive && v1;
        const u64 key4 = min_key((i64)grouped_min_order(v2));
        const u64 run_of_k = alive ? group_of[k] : run;
        if (alive && open && run_of_k != run) {
          close_run();
          q0 = 0;
          q1 = 0;
          q2 = 0;
        }
        run = run_of_k; open = open || alive;
        q0 += alive ? (i32)v0 : (i32)0;
        q1 |= v3 ? 1u : 0u;
        q2 = max_u64(q2, v3 ? key4 : (u64)0);
      }
      }
    u32 leader;
    if (warp_is_one_run(open, run, leader)) {
      run = __shfl_sync(WL_FULL_MASK, run, (int)leader); open = true; carried = true;
    } else if (open) {
      close_run();
          q0 = 0;
          q1 = 0;
          q2 = 0;
      open = false;
    }
    __syncwarp();
  }
  if (carried) close_carried();
}

// rows result 1: Rows(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u8* r0state;
  const u64* r2k0;
  const u32* r2starts;
  u64 rows;
  u64* control;
  u64* r1c0;
  u32* r1c1;
  f64* r1c2;
  u8* r1n2;
  u64 cap1;
};
static_assert(sizeof(Args) == 80, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = min_u64(args.control[0], args.rows);
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = (((u64)args.r2k0[args.r2starts[row + k]] >> 0) & 1099511627775ull);
      c0[k] = (i64)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = true;
      c1[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    f64 c2[WL_ROWS] = {};
    u32 n2 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = *((u32*)(at + 16)) != 0;
      n2 |= (u32)valid << k;
      c2[k] = valid ? f64_of_order(value_of_min(*((u64*)(at + 8)))) : 0.0;
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = c0[k];
        const i32 v1 = c1[k];
        const bool v2 = ((n2 >> k) & 1) != 0;
        const f64 v3 = c2[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u64)v0;
          args.r1c1[at] = (u32)v1;
          args.r1c2[at] = v2 ? (f64)v3 : (f64)0;
          args.r1n2[at] = (u8)(v2);
        }
      }
    }
    __syncwarp();
  }
}

