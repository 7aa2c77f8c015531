// Sums, minima, maxima and scans of a warp and of a block, and the hash and wide atomics that kernels share.
//
// Warp functions are for full warps: all 32 lanes call them together. Block functions are called by every
// thread of a block whose size is a multiple of 32; the caller provides the scratch in shared memory and may
// use it again at once, because each function ends with a barrier.
// On the GPU they are shuffle trees; the emulator meets once instead, and adds floats in the order of the
// tree so that both give the same bits. Define WL_SHUFFLE_TREES to run the trees in the emulator as well.
#pragma once
#include "simt.cuh"

#if WL_EMULATED && !defined(WL_SHUFFLE_TREES)
#define WL_RENDEZVOUS 1
#else
#define WL_RENDEZVOUS 0
#endif

// Shared memory of the block functions: one partial result a warp.
template <class T>
struct BlockScratch {
    T partial[WL_WARP];
};

#if WL_RENDEZVOUS

// A value as the 128 bits the emulator computes with: integers extended by their sign, floats as their bits.
template <class T>
static inline u128 wl_wide(T v) {
    return (u128)(i128)v;
}
static inline u128 wl_wide(f64 v) { return wl_bits(v); }
template <class T>
static inline void wl_narrow(const wl_lane* lane, T& out) {
    out = (T)((u128)lane->out[1] << 64 | lane->out[0]);
}
static inline void wl_narrow(const wl_lane* lane, f64& out) { out = wl_from_bits<f64>(lane->out[0]); }

template <class T>
static inline T wl_warp_compute(u32 op, T v, const char* file, u32 line) {
    u128 wide = wl_wide(v);
    T out;
    wl_narrow(wl_warp_op(op, WL_FULL_MASK, (u64)wide, (u64)(wide >> 64), 0, file, line), out);
    return out;
}
template <class T>
static inline T wl_block_compute(u32 op, T v, const char* file, u32 line) {
    u128 wide = wl_wide(v);
    T out;
    wl_narrow(wl_block_op(op, (u64)wide, (u64)(wide >> 64), file, line), out);
    return out;
}

template <class T>
struct wl_ops {
    static const u32 warp_sum = WL_OP_WARP_SUM, block_sum = WL_OP_BLOCK_SUM;
};
template <>
struct wl_ops<f64> {
    static const u32 warp_sum = WL_OP_WARP_SUM_F64, block_sum = WL_OP_BLOCK_SUM_F64;
};

// Names are written out, not pasted, so that who looks for uses of a function finds them.
#define WL_PRIMITIVE(name, compute, Type, op) \
    static inline Type name(Type v, WL_HERE) { return compute<Type>(op, v, wl_file, wl_line); }
#define WL_SUM(Type) WL_PRIMITIVE(warp_sum, wl_warp_compute, Type, wl_ops<Type>::warp_sum)
#define WL_MIN_MAX(Type)                                              \
    WL_PRIMITIVE(warp_min, wl_warp_compute, Type, WL_OP_WARP_MIN)     \
    WL_PRIMITIVE(warp_max, wl_warp_compute, Type, WL_OP_WARP_MAX)
#define WL_SCAN(Type) WL_PRIMITIVE(warp_scan_exclusive_sum, wl_warp_compute, Type, WL_OP_WARP_SCAN)

#else

WL_DEVICE u128 wl_shfl_xor(u128 v, int lanes) {
    u64 lo = __shfl_xor_sync(WL_FULL_MASK, (u64)v, lanes);
    u64 hi = __shfl_xor_sync(WL_FULL_MASK, (u64)(v >> 64), lanes);
    return (u128)hi << 64 | lo;
}
WL_DEVICE i128 wl_shfl_xor(i128 v, int lanes) { return (i128)wl_shfl_xor((u128)v, lanes); }
template <class T>
WL_DEVICE T wl_shfl_xor(T v, int lanes) {
    return __shfl_xor_sync(WL_FULL_MASK, v, lanes);
}

template <class T>
WL_DEVICE T wl_tree_sum(T v) {
    WL_UNROLL
    for (int lanes = WL_WARP / 2; lanes > 0; lanes /= 2) v += wl_shfl_xor(v, lanes);
    return v;
}
// Integers add modulo 2^n: signed sums go through the unsigned type, whose overflow is defined.
WL_DEVICE i64 wl_tree_sum(i64 v) { return (i64)wl_tree_sum<u64>((u64)v); }
WL_DEVICE i128 wl_tree_sum(i128 v) { return (i128)wl_tree_sum<u128>((u128)v); }
WL_DEVICE u32 wl_tree_sum(u32 v) { return __reduce_add_sync(WL_FULL_MASK, v); }
WL_DEVICE i32 wl_tree_sum(i32 v) { return __reduce_add_sync(WL_FULL_MASK, v); }

template <class T>
WL_DEVICE T wl_tree_min(T v) {
    WL_UNROLL
    for (int lanes = WL_WARP / 2; lanes > 0; lanes /= 2) {
        T other = wl_shfl_xor(v, lanes);
        v = other < v ? other : v;
    }
    return v;
}
WL_DEVICE u32 wl_tree_min(u32 v) { return __reduce_min_sync(WL_FULL_MASK, v); }
WL_DEVICE i32 wl_tree_min(i32 v) { return __reduce_min_sync(WL_FULL_MASK, v); }

template <class T>
WL_DEVICE T wl_tree_max(T v) {
    WL_UNROLL
    for (int lanes = WL_WARP / 2; lanes > 0; lanes /= 2) {
        T other = wl_shfl_xor(v, lanes);
        v = v < other ? other : v;
    }
    return v;
}
WL_DEVICE u32 wl_tree_max(u32 v) { return __reduce_max_sync(WL_FULL_MASK, v); }
WL_DEVICE i32 wl_tree_max(i32 v) { return __reduce_max_sync(WL_FULL_MASK, v); }

template <class T>
WL_DEVICE T wl_tree_scan(T v) {
    T sum = v;
    WL_UNROLL
    for (u32 delta = 1; delta < WL_WARP; delta *= 2) {
        T other = __shfl_up_sync(WL_FULL_MASK, sum, delta);
        if (lane_id() >= delta) sum += other;
    }
    return sum - v;
}

#define WL_SUM(Type) \
    WL_DEVICE Type warp_sum(Type v) { return wl_tree_sum(v); }
#define WL_MIN_MAX(Type)                                       \
    WL_DEVICE Type warp_min(Type v) { return wl_tree_min(v); } \
    WL_DEVICE Type warp_max(Type v) { return wl_tree_max(v); }
#define WL_SCAN(Type) \
    WL_DEVICE Type warp_scan_exclusive_sum(Type v) { return wl_tree_scan(v); }

#endif

// warp_sum(v): the sum over the warp, in every lane; integers modulo 2^bits.
WL_SUM(i32)
WL_SUM(u32)
WL_SUM(i64)
WL_SUM(u64)
WL_SUM(i128)
WL_SUM(u128)
WL_SUM(f64)
// warp_min(v), warp_max(v): the least and greatest value of the warp, in every lane.
WL_MIN_MAX(i32)
WL_MIN_MAX(u32)
WL_MIN_MAX(i64)
WL_MIN_MAX(u64)
WL_MIN_MAX(i128)
// warp_scan_exclusive_sum(v): the sum over the lanes before this one.
WL_SCAN(u32)
WL_SCAN(u64)
#undef WL_SUM
#undef WL_MIN_MAX
#undef WL_SCAN

// warp_or(v), warp_xor(v): the bits that any, and that an odd number of lanes have, in every lane.
WL_DEVICE u32 warp_or(u32 v) { return __reduce_or_sync(WL_FULL_MASK, v); }
WL_DEVICE u32 warp_xor(u32 v) { return __reduce_xor_sync(WL_FULL_MASK, v); }
WL_DEVICE u64 warp_or(u64 v) {
  const u32 low = warp_or((u32)v);
  const u32 high = warp_or((u32)(v >> 32));
  return (u64)high << 32 | low;
}
WL_DEVICE u64 warp_xor(u64 v) {
  const u32 low = warp_xor((u32)v);
  const u32 high = warp_xor((u32)(v >> 32));
  return (u64)high << 32 | low;
}

#if WL_RENDEZVOUS

// Block functions; see the other branch for what they compute. The scratch is written so that a missing or
// overlapping one is found by the sanitizers here too.
#define WL_BLOCK(name, op)                                                           \
    template <class T>                                                               \
    static inline T name(T v, BlockScratch<T>& scratch, WL_HERE) {                   \
        T result = wl_block_compute<T>(op, v, wl_file, wl_line);                     \
        if (lane_id() == 0) scratch.partial[warp_id()] = result;                     \
        wl_block_op(WL_OP_BARRIER, 0, 0, wl_file, wl_line);                          \
        return result;                                                               \
    }
WL_BLOCK(block_sum, wl_ops<T>::block_sum)
WL_BLOCK(block_min, WL_OP_BLOCK_MIN)
WL_BLOCK(block_max, WL_OP_BLOCK_MAX)
#undef WL_BLOCK
#undef WL_PRIMITIVE

template <class T>
static inline T block_scan_exclusive_sum(T v, BlockScratch<T>& scratch, T& total, WL_HERE) {
    T before = wl_block_compute<T>(WL_OP_BLOCK_SCAN, v, wl_file, wl_line);
    total = (T)wl_current->extra;
    if (lane_id() == 0) scratch.partial[warp_id()] = total;
    wl_block_op(WL_OP_BARRIER, 0, 0, wl_file, wl_line);
    return before;
}

#else

// The sum over the block, in every thread; T as for warp_sum.
template <class T>
WL_DEVICE T block_sum(T v, BlockScratch<T>& scratch) {
    v = warp_sum(v);
    if (lane_id() == 0) scratch.partial[warp_id()] = v;
    __syncthreads();
    v = warp_sum(lane_id() < block_warps() ? scratch.partial[lane_id()] : T(0));
    __syncthreads();
    return v;
}

// The least value of the block, in every thread; T as for warp_min.
template <class T>
WL_DEVICE T block_min(T v, BlockScratch<T>& scratch) {
    v = warp_min(v);
    if (lane_id() == 0) scratch.partial[warp_id()] = v;
    __syncthreads();
    v = warp_min(scratch.partial[lane_id() < block_warps() ? lane_id() : 0]);
    __syncthreads();
    return v;
}

// The greatest value of the block, in every thread; T as for warp_max.
template <class T>
WL_DEVICE T block_max(T v, BlockScratch<T>& scratch) {
    v = warp_max(v);
    if (lane_id() == 0) scratch.partial[warp_id()] = v;
    __syncthreads();
    v = warp_max(scratch.partial[lane_id() < block_warps() ? lane_id() : 0]);
    __syncthreads();
    return v;
}

// The sum over the threads before this one; `total` becomes the sum over the block. T is u32 or u64.
template <class T>
WL_DEVICE T block_scan_exclusive_sum(T v, BlockScratch<T>& scratch, T& total) {
    T before = warp_scan_exclusive_sum(v);
    if (lane_id() == WL_WARP - 1) scratch.partial[warp_id()] = before + v;
    __syncthreads();
    T partial = lane_id() < block_warps() ? scratch.partial[lane_id()] : T(0);
    T warp_before = warp_scan_exclusive_sum(partial);
    total = __shfl_sync(WL_FULL_MASK, warp_before + partial, WL_WARP - 1);
    before += __shfl_sync(WL_FULL_MASK, warp_before, (int)warp_id());
    __syncthreads();
    return before;
}

#endif

// Add v to the 128-bit integer words[0] + 2^64 * words[1], modulo 2^128. Exact once every adder is done; a
// reader must not look before that, because the carry follows the low word. The low word before, or 0 when nothing was added
// to it: not 0 only after another addition.
WL_DEVICE u64 atomic_add_u128(u64* words, u128 v) {
    u64 lo = (u64)v, hi = (u64)(v >> 64), old = 0;
    if (lo != 0) {
        old = atomicAdd(&words[0], lo);
        hi += old + lo < old;
    }
    if (hi != 0) atomicAdd(&words[1], hi);
    return old;
}

// The finaliser of MurmurHash3 for 64 bits: a bijection that spreads compact keys over all bits.
WL_DEVICE u64 hash64(u64 x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    return x;
}

// The finaliser of MurmurHash3 for 32 bits.
WL_DEVICE u32 hash32(u32 x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

// Rows to go over: `*count`, at most `most`; `most` itself when `count` is null.
WL_DEVICE u64 bounded_rows(const u64* count, u64 most) {
    if (count == 0) return most;
    const u64 rows = load_relaxed(count);
    return rows < most ? rows : most;
}

// The lowest `bits` bits.
WL_DEVICE u64 low_bits(u32 bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

// A tile's word of a look-back: nothing yet (0), its sum, or the sum of it and all before. Sums stay below 2^62.
static const u64 WL_TILE_SUM = 1ull << 62;
static const u64 WL_TILE_PREFIX = 2ull << 62;
static const u64 WL_TILE_VALUE = WL_TILE_SUM - 1;

// The sum of all tiles before `tile`, for every lane of one warp; publishes `total` first and the prefix last
// (Merrill and Garland 2016, "Single-pass parallel prefix scan with decoupled look-back"). Tiles are taken by
// ticket, so that a tile only waits for tiles that have begun.
WL_DEVICE u64 tile_look_back(u64* states, u64 tile, u64 total) {
    u64 before = 0;
    if (tile > 0) {
        // The word is all there is to see, so nothing need be ordered with it.
        if (lane_id() == 0) store_relaxed(states + tile, WL_TILE_SUM | total);
        for (u64 end = tile;;) {
            const bool exists = lane_id() < end;
            const u64* at = states + (exists ? end - 1 - lane_id() : 0);
            u64 state = exists ? load_relaxed(at) : WL_TILE_PREFIX;
            while (__any_sync(WL_FULL_MASK, state == 0)) {
                spin_pause(20);
                if (state == 0) state = load_relaxed(at);
            }
            const u32 prefixes = __ballot_sync(WL_FULL_MASK, (state & WL_TILE_PREFIX) != 0);
            const u32 last = prefixes == 0 ? WL_WARP : (u32)__ffs((int)prefixes) - 1;
            before += warp_sum(lane_id() <= last ? state & WL_TILE_VALUE : (u64)0);
            if (prefixes != 0) break;
            end -= WL_WARP;
        }
    }
    if (lane_id() == 0) store_relaxed(states + tile, WL_TILE_PREFIX | (before + total));
    return before;
}

// The lanes that have this lane's `byte` (below 256), itself among them, when all 32 call; those with `live` and
// those without are told apart. Nine votes, whose cost does not depend on the values; the emulator meets once
// instead, unless WL_SHUFFLE_TREES is defined.
WL_DEVICE u32 match_byte(u32 byte, bool live) {
#if WL_RENDEZVOUS
    return __match_any_sync(WL_FULL_MASK, live ? byte : byte | 256u);
#else
    const u32 alive = __ballot_sync(WL_FULL_MASK, live);
    u32 same = live ? alive : ~alive;
    WL_UNROLL
    for (u32 bit = 0; bit < 8; ++bit) {
        const bool set = (byte >> bit & 1u) != 0;
        const u32 votes = __ballot_sync(WL_FULL_MASK, set);
        same &= set ? votes : ~votes;
    }
    return same;
#endif
}
