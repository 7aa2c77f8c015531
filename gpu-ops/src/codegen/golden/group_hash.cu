// groups result 0: Scan(0), 512 threads, 512 rows a tile, 65536 bytes shared
#define WL_BLOCK_THREADS 512
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
  u64 d0slots;
  u64* d0keys;
  u64* control;
  u8* r0state;
  u64 rows;
  u64 first;
  const u16* c0;
  const u64* c2;
  const u32* c3;
  const u8* c5;
  const u8* n6;
  const f64* c6;
  u64 slots0;
};
static_assert(sizeof(Args) == 112, "host and device disagree on the arguments");

struct Shared {
  alignas(16) u8 states[49152];
  alignas(16) u8 front[16384];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  u64* const p0 = (u64*)(shared.states + 0);
  u32* const p1 = (u32*)(shared.states + 16384);
  u64* const p2 = (u64*)(shared.states + 24576);
  u32* const p3 = (u32*)(shared.states + 40960);
  u64* const front = (u64*)shared.front;
  block_zero<2048>(front);
  block_zero<3072>((u128*)shared.states);
  __syncthreads();
  const u64 rows = args.rows;
  const u64 tiles = (rows + 511) / 512;
  u64 overflowed = 0;
  for (u64 tile = args.first / 512 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 512 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (overflowed != 0) live = 0; overflowed = load_relaxed(&args.control[1]);
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
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v3 = (i64)((u64)c2[k]);
        const i32 v4 = (i32)((u32)c3[k]);
        const bool v5 = ((n6 >> k) & 1) != 0;
        const f64 v6 = c6[k];
        const bool v7 = alive && v5;
        const u64 key8 = min_key((i64)grouped_min_order(v6));
        const i32 v9 = (i32)c5[k];
        bool first0 = false;
        if (alive) {
          const u64 member[1] = {(u64)v3 | ((u64)v9 << 40)}; bool full = false;
          first0 = insert_new<1>((u32*)0, args.d0keys, args.d0slots - 1, member, 128, full);
          if (full) store_relaxed(args.control + 1, (u64)2);
        }
        if (alive) {
          const u32 hot = front_slot(front, 2048u, (u64)(((u64)v3) + 1));
          if (hot != WL_NO_NUMBER) {
          block_add_u64((p0 + hot), (u64)(v4));
          if (v7) { store_once_block((p1 + hot), (u32)1u); }
          if (v7) { raise_block((p2 + hot), (u64)key8); }
          if (first0) { atomicAdd((p3 + hot), (u32)(1)); }
          continue; }
          u8* const at = find_or_insert_slot<32, 24, u64>(states, args.slots0 - 1, (u64)(((u64)v3) + 1), 128);
          if (at == 0) { store_relaxed(&args.control[1], (u64)1); continue; }
          atomicAdd((u64*)(at + 0), (u64)(v4));
          if (v7) { store_once((u32*)(at + 16), (u32)1u); }
          if (v7) { raise((u64*)(at + 8), (u64)key8); }
          if (first0) { atomicAdd((u32*)(at + 20), (u32)(1)); }
        }
      }
    }
    __syncwarp();
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 2048; g += 512) {
    if (front[g] == 0) continue;
          u8* const at = find_or_insert_slot<32, 24, u64>(states, args.slots0 - 1, (u64)((((u64)front[g] - 1)) + 1), 128);
          if (at == 0) { store_relaxed(&args.control[1], (u64)1); continue; }
    if (*((p0 + g)) != 0) { atomicAdd((u64*)(at + 0), (u64)(*((p0 + g)))); }
    if (*((p1 + g)) != 0) { store_once((u32*)(at + 16), (u32)*((p1 + g))); }
    if (*((p2 + g)) != 0) { raise((u64*)(at + 8), (u64)*((p2 + g))); }
    if (*((p3 + g)) != 0) { atomicAdd((u32*)(at + 20), (u32)(*((p3 + g)))); }
  }
}

// rows result 1: Slots(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  u64 rows;
  u64* r1c0;
  u32* r1c1;
  f64* r1c2;
  u8* r1n2;
  u16* r1c3;
  u64* control;
  u64 cap1;
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
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(*(const u64*)(args.r0state + (row + k) * 32 + 24) != 0) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((((u64)*(const u64*)(args.r0state + (row + k) * 32 + 24) - 1) >> 0) & 1099511627775ull);
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
    i32 c3[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      c3[k] = (i32)*((u32*)(at + 20));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = c0[k];
        const i32 v1 = c1[k];
        const bool v2 = ((n2 >> k) & 1) != 0;
        const f64 v3 = c2[k];
        const i32 v4 = c3[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u64)v0;
          args.r1c1[at] = (u32)v1;
          args.r1c2[at] = v2 ? (f64)v3 : (f64)0;
          args.r1n2[at] = (u8)(v2);
          args.r1c3[at] = (u16)v4;
        }
      }
    }
    __syncwarp();
  }
}

