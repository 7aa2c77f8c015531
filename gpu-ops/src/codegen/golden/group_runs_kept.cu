// groups result 0: Scan(0), 256 threads, 256 rows a tile, 2816 bytes shared
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
  f64 lit1;
  u8* r0state;
  u64 cap0;
  u32* r0keys;
  u32* r0states;
  u32* r0tablekeys;
  u32* r0ids;
  u64 slots0;
  u64* control;
  u64 rows;
  u64 first;
  const u16* c0;
  const u8* n6;
  const f64* c6;
};
static_assert(sizeof(Args) == 120, "host and device disagree on the arguments");

struct Shared {
  alignas(16) RunScratch<u32> runs;
  alignas(16) u32 run_keys[128];
  alignas(16) ReserveScratch reserve;
  alignas(16) u8 states[2048];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  constexpr u32 WL_ROWS = 1;
  u32 fault = 0;
  u8* const states = args.r0state;
  const u64 cap = args.cap0;
  const NumberTable<u32> numbering = {args.r0states, args.r0tablekeys, args.r0ids, args.slots0 - 1, &args.control[0], args.r0keys, cap};
  u32* const p0 = (u32*)(shared.states + 0);
  u32* const p1 = (u32*)(shared.states + 512);
  u64* const p2 = (u64*)(shared.states + 1024);
  block_zero<128>((u128*)shared.states);
  __syncthreads();
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
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    u32 key_of[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c0[k]);
        if (alive) key_of[k] = (u32)((u64)v3);
      }
    }
    u32 run_of_row[WL_ROWS];
    const u32 runs = block_number_runs<128>(key_of, live, shared.runs, shared.run_keys, (u64*)0, run_of_row);
    {
      bool open = false; u32 run = 0;
      u32 key = 0;
      i32 q0 = 0;
      u32 q1 = 0;
      u64 q2 = 0;
      const auto close_run = [&]() {
        if (run < 128u) {
          if (q0 != 0) { atomicAdd((p0 + run), (u32)(q0)); }
          if (q1 != 0) { store_once_block((p1 + run), (u32)q1); }
          if (q2 != 0) { raise_block((p2 + run), (u64)q2); }
          return;
        }
        u8* const at = numbered_state<16>(numbering, key, 128, states, &args.control[1]);
        if (at == 0) return;
        if (q0 != 0) { atomicAdd((u32*)(at + 8), (u32)(q0)); }
        if (q1 != 0) { store_once((u32*)(at + 12), (u32)q1); }
        if (q2 != 0) { raise((u64*)(at + 0), (u64)q2); }
      };
      if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c0[k]);
        const bool v4 = ((n6 >> k) & 1) != 0;
        const f64 v5 = c6[k];
        const bool v6 = alive && v4;
        const u64 key7 = min_key((i64)grouped_min_order(v5));
        const u32 run_of_k = alive ? run_of_row[k] : run;
        if (alive && open && run_of_k != run) {
          close_run();
          q0 = 0;
          q1 = 0;
          q2 = 0;
        }
        run = run_of_k; open = open || alive;
        if (alive) key = key_of[k];
        q0 += alive ? (i32)1 : (i32)0;
        q1 |= v6 ? 1u : 0u;
        q2 = max_u64(q2, v6 ? key7 : (u64)0);
      }
      }
      u32 leader;
      if (warp_is_one_run(open, run, leader)) {
        const auto t0 = (u32)warp_sum((u64)(i64)q0);
        const auto t1 = warp_max(q1);
        const auto t2 = warp_max(q2);
      const auto close_warp = [&]() {
        if (run < 128u) {
          if (t0 != 0) { atomicAdd((p0 + run), (u32)(t0)); }
          if (t1 != 0) { store_once_block((p1 + run), (u32)t1); }
          if (t2 != 0) { raise_block((p2 + run), (u64)t2); }
          return;
        }
        u8* const at = numbered_state<16>(numbering, key, 128, states, &args.control[1]);
        if (at == 0) return;
        if (t0 != 0) { atomicAdd((u32*)(at + 8), (u32)(t0)); }
        if (t1 != 0) { store_once((u32*)(at + 12), (u32)t1); }
        if (t2 != 0) { raise((u64*)(at + 0), (u64)t2); }
      };
        if (lane_id() == leader) close_warp();
      } else if (open) close_run();
    }
    __syncthreads();
    u32 kept = 0;
    WL_NO_UNROLL for (u32 j = 0; j * 256u < (runs < 128u ? runs : 128u); ++j) {
      constexpr u32 WL_ROWS = 1;
      const u32 g = j * 256u + threadIdx.x;
      u32 live = g != 0 && g + 1 < runs && g < 128u ? 1u : 0u;
      u32 run_key = 0;
      alignas(16) u8 group[16];
      if (live != 0) {
        run_key = shared.run_keys[g];
        u8* const at = group;
        *((u32*)(at + 8)) = *((p0 + g));
        *((u32*)(at + 12)) = *((p1 + g));
        *((u64*)(at + 0)) = *((p2 + g));
      }
    f64 c2[WL_ROWS] = {};
    u32 n2 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = group;
      const bool valid = *((u32*)(at + 12)) != 0;
      n2 |= (u32)valid << k;
      c2[k] = valid ? f64_of_order(value_of_min(*((u64*)(at + 0)))) : 0.0;
    }
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v8 = ((n2 >> k) & 1) != 0;
        const f64 v9 = c2[k];
        const f64 v10 = args.lit1;
        const bool v11 = comparison_order(v9) < comparison_order(v10);
        const bool v12 = v8 && v11;
        pass |= (u32)(v12) << k;
      }
      live &= pass;
    }
      kept |= live << j;
    }
    u64 first_kept = 0;
    if (__syncthreads_or(kept != 0)) first_kept = block_reserve((u32)__popc(kept), &args.control[0], shared.reserve);
    for (u32 g = threadIdx.x; g < (runs < 128u ? runs : 128u); g += 256) {
      const u32 j = g / 256u;
      const u64 number = first_kept + (u32)__popc(kept & ((1u << j) - 1u));
      if (g == 0 || g + 1 == runs) {
        const auto meet = [&]() {
        u8* const at = numbered_state<16>(numbering, shared.run_keys[g], 128, states, &args.control[1]);
        if (at == 0) return;
        if (*((p0 + g)) != 0) { atomicAdd((u32*)(at + 8), (u32)(*((p0 + g)))); }
        if (*((p1 + g)) != 0) { store_once((u32*)(at + 12), (u32)*((p1 + g))); }
        if (*((p2 + g)) != 0) { raise((u64*)(at + 0), (u64)*((p2 + g))); }
        };
        meet();
      } else if ((kept >> j & 1u) != 0 && number < cap) {
        args.r0keys[number] = shared.run_keys[g];
        u8* const at = states + number * 16;
        *((u32*)(at + 8)) = *((p0 + g));
        *((u32*)(at + 12)) = *((p1 + g));
        *((u64*)(at + 0)) = *((p2 + g));
      }
      ((p0 + g))[0] = 0;
      ((p1 + g))[0] = 0;
      ((p2 + g))[0] = 0;
    }
    __syncwarp();
  }
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
  const u32* r0keys;
  f64 lit2;
  u64 rows;
  u64* control;
  u16* r1c0;
  u16* r1c1;
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
    f64 c2[WL_ROWS] = {};
    u32 n2 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      const bool valid = *((u32*)(at + 12)) != 0;
      n2 |= (u32)valid << k;
      c2[k] = valid ? f64_of_order(value_of_min(*((u64*)(at + 0)))) : 0.0;
    }
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n2 >> k) & 1) != 0;
        const f64 v1 = c2[k];
        const f64 v2 = args.lit2;
        const bool v3 = comparison_order(v1) < comparison_order(v2);
        const bool v4 = v0 && v3;
        pass |= (u32)(v4) << k;
      }
      live &= pass;
    }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i32 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = (((u64)args.r0keys[row + k] >> 0) & 8191ull);
      c0[k] = (i32)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      c1[k] = (i32)*((u32*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v5 = c0[k];
        const i32 v6 = c1[k];
        const bool v7 = ((n2 >> k) & 1) != 0;
        const f64 v8 = c2[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u16)v5;
          args.r1c1[at] = (u16)v6;
          args.r1c2[at] = v7 ? (f64)v8 : (f64)0;
          args.r1n2[at] = (u8)(v7);
        }
      }
    }
    __syncwarp();
  }
}

