// rows result 0: Scan(0), 256 threads, 256 rows a tile, 3232 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"
#include "text_search.cuh"

struct Args {
  const u8* base0c;
  const u64* base0o;
  i64 lit2;
  const u64* table0;
  i64 lit4;
  const u64* table1;
  const u64* table2;
  i64 lit7;
  const u8* table3;
  u64 rows;
  u64 first;
  const u8* n4;
  const u8* c5;
  u16* r0c0;
  u16* r0c1;
  u8* r0n1;
  u8* r0c2;
  u64* control;
  const u16* c0;
  u64 cap0;
};
static_assert(sizeof(Args) == 160, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
  alignas(16) TextTile<256> search0;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  TextPace pace0 = {};
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 n4 = 0; if (live != 0) n4 = load_bits<WL_ROWS>(args.n4, row);
    const TextParts<2> parts0 = {{args.table0, args.table1}, {(u64)((i32)args.lit2), (u64)((i32)args.lit4)}};
    const bool together0 = block_text_after<256, WL_ROWS>(args.base0c, args.base0o, tile * 256, rows, live, parts0, shared.search0, pace0);
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n4 >> k) & 1) != 0;
        const i32 v1 = (i32)(row + k);
        const bool v2 = alive && v0;
        const i64 v3 = v2 ? (i64)__ldg(args.base0o + v1) : 0;
        const i64 v4 = v2 ? (i64)__ldg(args.base0o + v1 + 1) : 0;
        const Text v5 = text_at(args.base0c, (u64)v3, (u64)v4);
        const i64 v6 = together0 ? text_found(v5, shared.search0.ends[threadIdx.x * WL_ROWS + k]) : text_after(v5, (i64)v5.b, parts0);
        const bool v7 = v6 >= 0;
        const bool v8 = v0 && v7;
        const bool v9 = text_starts(v5, args.table2, (u64)((i32)args.lit2));
        const bool v10 = v9;
        const bool v11 = v0 && v10;
        pass |= (u32)(v8 && v11) << k;
      }
      live &= pass;
    }
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v12 = (i32)c5[k];
        const i32 v13 = v12;
        const bool v14 = (((u32)args.lit7 >> v13) & 1) != 0;
        pass |= (u32)(v14) << k;
      }
      live &= pass;
    }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v15 = (i32)((u32)c0[k]);
        const bool v16 = ((n4 >> k) & 1) != 0;
        const i32 v17 = (i32)(row + k);
        const i32 v18 = (i32)c5[k];
        const i32 v19 = v18;
        const i32 v20 = (i32)__ldg(args.table3 + v19);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u16)v15;
          args.r0c1[at] = v16 ? (u16)v17 : (u16)0;
          args.r0n1[at] = (u8)(v16);
          args.r0c2[at] = (u8)v20;
        }
      }
    }
    __syncwarp();
  }
}

