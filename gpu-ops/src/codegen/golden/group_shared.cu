// groups result 0: Scan(0), 256 threads, 256 rows a tile, 416 bytes shared
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
  u8* r0state;
  u64 rows;
  u64 first;
  const u8* n1;
  const u8* c1;
  const u32* c3;
  const u8* c5;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

struct Shared {
  alignas(16) u8 states[416];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  u64* const p0 = (u64*)(shared.states + 0);
  u32* const p1 = (u32*)(shared.states + 272);
  block_zero<26>((u128*)shared.states);
  __syncthreads();
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n1 >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c1[k]);
        const i32 v2 = (i32)c5[k];
        const i32 v3 = (i32)((u32)c3[k]);
        const u64 group = (v0 ? ((u64)v1 + 1u) : (u64)0) * 3ull + (u64)v2;
        if (alive) {
          block_add_u64((p0 + (u32)group), (u64)(v3));
          atomicAdd((p1 + (u32)group), (u32)(1));
        }
      }
    }
    __syncwarp();
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 33; g += 256) {
    u8* const at = states + (u64)g * 16;
    if (*((p0 + g)) != 0) { atomicAdd((u64*)(at + 0), (u64)(*((p0 + g)))); }
    if (*((p1 + g)) != 0) { atomicAdd((u32*)(at + 8), (u32)(*((p1 + g)))); }
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
  u8* r1c0;
  u8* r1n0;
  u8* r1c1;
  u32* r1c2;
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
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(*((u32*)((args.r0state + (row + k) * 16) + 8)) != 0) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i32 c0[WL_ROWS] = {};
    u32 n0 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((row + k) / 3ull % 11ull);
      if (code != 0) { n0 |= 1u << k; code -= 1; }
      c0[k] = (i32)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((row + k) / 1ull % 3ull);
      c1[k] = (i32)(code + 0ull);
    }
    i32 c2[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      const bool valid = true;
      c2[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    i32 c3[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      c3[k] = (i32)*((u32*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n0 >> k) & 1) != 0;
        const i32 v1 = c0[k];
        const i32 v2 = c1[k];
        const i32 v3 = c2[k];
        const i32 v4 = c3[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = v0 ? (u8)v1 : (u8)0;
          args.r1n0[at] = (u8)(v0);
          args.r1c1[at] = (u8)v2;
          args.r1c2[at] = (u32)v3;
          args.r1c3[at] = (u16)v4;
        }
      }
    }
    __syncwarp();
  }
}

