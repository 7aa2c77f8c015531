// rows of result 0: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  u32* r2c0;
  u64* r2k0;
  u64* control;
  const u64* c2;
  const u32* c3;
  u64 cap2;
};
static_assert(sizeof(Args) == 80, "host and device disagree on the arguments");

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
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v3 = (i64)((u64)c2[k]);
        const i32 v4 = (i32)((u32)c3[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u32)v4;
          args.r2k0[at] = (u64)((u64)v3);
        }
      }
    }
    __syncwarp();
  }
}

// groups result 0: Rows(2), 256 threads, 256 rows a tile, 5264 bytes shared
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
  u64* r2k0;
  u8* r0state;
  u64 cap0;
  u64* r0keys;
  u32* r0states;
  u64* r0tablekeys;
  u32* r0ids;
  u64 slots0;
  u64* control;
  u64 rows;
  const u32* r2offsets;
  u32* r2c0;
};
static_assert(sizeof(Args) == 96, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
  alignas(16) u8 table[2048];
  alignas(16) u8 states[3072];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  const u64 cap = args.cap0;
  u64* const table = (u64*)shared.table;
  const NumberTable<u64> numbering = {args.r0states, args.r0tablekeys, args.r0ids, args.slots0 - 1, &args.control[0], args.r0keys, cap};
  u64* const p0 = (u64*)(shared.states + 0);
  u32* const p1 = (u32*)(shared.states + 2048);
  PartitionPieces pieces = partition_pieces(args.r2offsets, 64ull, min_u64(args.control[10], args.rows));
  while (pieces.next()) {
    block_zero<128>((u128*)shared.table);
  block_zero<192>((u128*)shared.states);
    __syncthreads();
  for (u64 first = pieces.begin / WL_ROWS * WL_ROWS; first < pieces.end; first += 256) {
    const u64 row = first + threadIdx.x * WL_ROWS;
    u32 live = rows_within<WL_ROWS>(row, pieces.begin, pieces.end);
    u32 c0[WL_ROWS] = {};
    load_live(args.r2c0 + row, live, c0);
    i64 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      c1[k] = (i64)args.r2k0[row + k];
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        if (alive) {
          const u64 key = (u64)c1[k];
          const u32 slot = block_slot(table, 256u, key, 6u);
          if (slot != WL_NO_NUMBER) {
          block_add_u64((p0 + slot), (u64)(v0));
          atomicAdd((p1 + slot), (u32)(1));
          } else if (u8* const at = numbered_state<16>(numbering, key, 128, states, &args.control[1])) {
          atomicAdd((u64*)(at + 0), (u64)(v0));
          atomicAdd((u32*)(at + 8), (u32)(1));
          }
        }
      }
    }
  }
  __syncthreads();
  if (pieces.whole) {
    block_number_groups<256>(table, &args.control[0], shared.reserve, [&](u32 slot, u64 number) {
      if (number >= cap) return;
      args.r0keys[number] = block_key(table, slot);
      u8* const at = states + number * 16;
      *((u64*)(at + 0)) = *((p0 + slot));
      *((u32*)(at + 8)) = *((p1 + slot));
    });
  } else {
    for (u32 slot = threadIdx.x; slot < 256u; slot += 256) {
      if (table[slot] == 0) continue;
        u8* const at = numbered_state<16>(numbering, block_key(table, slot), 128, states, &args.control[1]);
        if (at == 0) continue;
      if (*((p0 + slot)) != 0) { atomicAdd((u64*)(at + 0), (u64)(*((p0 + slot)))); }
      if (*((p1 + slot)) != 0) { atomicAdd((u32*)(at + 8), (u32)(*((p1 + slot)))); }
    }
  }
  __syncthreads();
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
  const u64* r0keys;
  u64 rows;
  u64* control;
  u64* r1c0;
  u32* r1c1;
  u16* r1c2;
  u64 cap1;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

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
      u64 code = (((u64)args.r0keys[row + k] >> 0) & 1099511627775ull);
      c0[k] = (i64)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      const bool valid = true;
      c1[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    i32 c2[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      c2[k] = (i32)*((u32*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = c0[k];
        const i32 v1 = c1[k];
        const i32 v2 = c2[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u64)v0;
          args.r1c1[at] = (u32)v1;
          args.r1c2[at] = (u16)v2;
        }
      }
    }
    __syncwarp();
  }
}

