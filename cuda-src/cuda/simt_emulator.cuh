// The emulator's half of simt.cuh: CUDA's names on top of lanes that are coroutines. Included by simt.cuh alone.
//
// Everything that waits is a call through the lane's function table into the emulator; memory operations
// that other lanes may race with are ordinary atomics with a point around them where the emulator may switch.
#pragma once

#define WL_DEVICE static inline
#define WL_OUTLINED WL_DEVICE
#define WL_METHOD inline
#define WL_UNROLL
#define WL_UNROLL_4
#define WL_NO_UNROLL
#define WL_UNROLL_BY(n)
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))

// The operations a lane can wait in; generated, so that both languages share one list.
#include "wl_abi.cuh"

#define WL_OFFSETOF(Type, member) __builtin_offsetof(Type, member)

struct wl_lane;

struct wl_functions {
    // Wait until the lanes named by `mask` of the warp have come to the same operation.
    void (*warp)(wl_lane*);
    // Wait until every live lane of the block has come to the same operation.
    void (*block)(wl_lane*);
    // Let other lanes run.
    void (*pause)(wl_lane*);
    // End the launch with the error `op` (see wl_abi.cuh).
    void (*fail)(wl_lane*);
};

// One lane; its first fields are shared with the emulator, which owns and fills them.
struct wl_lane {
    u32 thread_x, block_x, block_dim_x, grid_dim_x;
    u8* shared;
    u64 shared_bytes;
    const wl_functions* functions;
    // Incremented when memory that other lanes may wait for has changed.
    u64* progress;
    // Memory operations left until the emulator gets a chance to switch.
    u32 budget;
    // What the lane asks for: operation, mask, operands, place in the source.
    u32 op, mask, line;
    const char* file;
    u64 in[2];
    u64 extra;
    // What it gets.
    u64 out[2];
};

WL_ABI_ASSERTS

// The lane that runs on this thread. One per compiled module; the emulator sets it at every switch.
static __thread wl_lane* wl_current;
extern "C" __attribute__((visibility("default"))) wl_lane** wl_current_slot() { return &wl_current; }

struct wl_dim3 {
    u32 x, y, z;
};
#define threadIdx (wl_dim3{wl_current->thread_x, 0, 0})
#define blockIdx (wl_dim3{wl_current->block_x, 0, 0})
#define blockDim (wl_dim3{wl_current->block_dim_x, 1, 1})
#define gridDim (wl_dim3{wl_current->grid_dim_x, 1, 1})

// The place in the source that a waiting lane reports.
#define WL_HERE const char *wl_file = __builtin_FILE(), u32 wl_line = __builtin_LINE()
// The same as a further parameter of a function that passes its caller's place on.
#define WL_PLACE , WL_HERE
#define WL_PASS_PLACE , wl_file, wl_line

static inline wl_lane* wl_place(u32 op, const char* file, u32 line) {
    wl_lane* lane = wl_current;
    lane->op = op;
    lane->file = file;
    lane->line = line;
    return lane;
}

static inline wl_lane* wl_warp_op(u32 op, u32 mask, u64 lo, u64 hi, u64 extra, const char* file, u32 line) {
    wl_lane* lane = wl_place(op, file, line);
    lane->mask = mask;
    lane->in[0] = lo;
    lane->in[1] = hi;
    lane->extra = extra;
    lane->functions->warp(lane);
    return lane;
}

static inline wl_lane* wl_block_op(u32 op, u64 lo, u64 hi, const char* file, u32 line) {
    wl_lane* lane = wl_place(op, file, line);
    lane->in[0] = lo;
    lane->in[1] = hi;
    lane->functions->block(lane);
    return lane;
}

static inline void wl_fail(u32 op, u64 lo, u64 hi, const char* file, u32 line) {
    wl_lane* lane = wl_place(op, file, line);
    lane->in[0] = lo;
    lane->in[1] = hi;
    lane->functions->fail(lane);
    __builtin_unreachable();
}

// A point at which another lane may run.
static inline void wl_point(const char* file, u32 line) {
    wl_lane* lane = wl_current;
    if (__builtin_expect(--lane->budget == 0, 0)) {
        wl_place(WL_OP_POLL, file, line);
        lane->functions->pause(lane);
    }
}

static inline void wl_changed(bool changed) { *wl_current->progress += changed; }

// What the emulator checks before a launch.
struct wl_kernel_info {
    u32 arguments_bytes, block_threads;
};

#define WL_KERNEL(name, Args, args)                                                                           \
    static void name##_body(const Args& args);                                                                \
    extern "C" __attribute__((visibility("default"))) void name(void** params) { name##_body(*(const Args*)params[0]); } \
    extern "C" __attribute__((visibility("default"))) void name##_wl_info(wl_kernel_info* info) {             \
        info->arguments_bytes = sizeof(Args);                                                                 \
        info->block_threads = WL_BLOCK_THREADS;                                                               \
    }                                                                                                         \
    static void name##_body(const Args& args)

template <class T>
static inline T& wl_shared_view(WL_HERE) {
    static_assert(alignof(T) <= 16, "shared memory is aligned to 16 bytes");
    wl_lane* lane = wl_current;
    if (sizeof(T) > lane->shared_bytes) wl_fail(WL_OP_SHARED_TOO_SMALL, sizeof(T), lane->shared_bytes, wl_file, wl_line);
    return *(T*)lane->shared;
}
#define WL_SHARED(Type, name) Type& name = wl_shared_view<Type>()

static inline void wl_check_aligned(const void* p, u32 bytes, WL_HERE) {
    if ((u64)p % bytes != 0) wl_fail(WL_OP_MISALIGNED, (u64)p, bytes, wl_file, wl_line);
}

template <u32 WIDTH>
struct wl_vec_access {
    static void load(const u8* p, u8* out) { __builtin_memcpy(out, p, WIDTH); }
    static void load_stream(const u8* p, u8* out) { __builtin_memcpy(out, p, WIDTH); }
    static void store(u8* p, const u8* in) { __builtin_memcpy(p, in, WIDTH); }
};

static inline void __trap(WL_HERE) { wl_fail(WL_OP_TRAP, 0, 0, wl_file, wl_line); }

// ---------------------------------------------------------------- waiting

static inline void __syncthreads(WL_HERE) { wl_block_op(WL_OP_BARRIER, 0, 0, wl_file, wl_line); }
static inline int __syncthreads_count(int p, WL_HERE) {
    return (int)wl_block_op(WL_OP_BARRIER_COUNT, p != 0, 0, wl_file, wl_line)->out[0];
}
static inline int __syncthreads_and(int p, WL_HERE) {
    return (int)wl_block_op(WL_OP_BARRIER_AND, p != 0, 0, wl_file, wl_line)->out[0];
}
static inline int __syncthreads_or(int p, WL_HERE) {
    return (int)wl_block_op(WL_OP_BARRIER_OR, p != 0, 0, wl_file, wl_line)->out[0];
}
static inline void __syncwarp(u32 mask = 0xffffffffu, WL_HERE) {
    wl_warp_op(WL_OP_SYNCWARP, mask, 0, 0, 0, wl_file, wl_line);
}

static inline void spin_pause(u32, WL_HERE) {
    wl_lane* lane = wl_place(WL_OP_SPIN, wl_file, wl_line);
    lane->functions->pause(lane);
}
static inline void __nanosleep(u32 ns, WL_HERE) { spin_pause(ns, wl_file, wl_line); }
// Lanes take turns on one processor: each look at the clock counts as a cycle.
static inline u64 cycle_count() {
    static u64 cycles = 0;
    return ++cycles;
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// ---------------------------------------------------------------- warp operations

// The bits of a value of up to 8 bytes, and back.
template <class T>
static inline u64 wl_bits(T v) {
    u64 bits = 0;
    __builtin_memcpy(&bits, &v, sizeof(T));
    return bits;
}
template <class T>
static inline T wl_from_bits(u64 bits) {
    T v;
    __builtin_memcpy(&v, &bits, sizeof(T));
    return v;
}

#define WL_SHUFFLE(Type)                                                                                          \
    static inline Type __shfl_sync(u32 mask, Type v, int lane, int width = 32, WL_HERE) {                          \
        return wl_from_bits<Type>(                                                                                \
            wl_warp_op(WL_OP_SHFL, mask, wl_bits(v), (u32)lane, (u32)width, wl_file, wl_line)->out[0]);            \
    }                                                                                                             \
    static inline Type __shfl_up_sync(u32 mask, Type v, u32 delta, int width = 32, WL_HERE) {                      \
        return wl_from_bits<Type>(                                                                                \
            wl_warp_op(WL_OP_SHFL_UP, mask, wl_bits(v), delta, (u32)width, wl_file, wl_line)->out[0]);             \
    }                                                                                                             \
    static inline Type __shfl_down_sync(u32 mask, Type v, u32 delta, int width = 32, WL_HERE) {                    \
        return wl_from_bits<Type>(                                                                                \
            wl_warp_op(WL_OP_SHFL_DOWN, mask, wl_bits(v), delta, (u32)width, wl_file, wl_line)->out[0]);           \
    }                                                                                                             \
    static inline Type __shfl_xor_sync(u32 mask, Type v, int lanes, int width = 32, WL_HERE) {                     \
        return wl_from_bits<Type>(                                                                                \
            wl_warp_op(WL_OP_SHFL_XOR, mask, wl_bits(v), (u32)lanes, (u32)width, wl_file, wl_line)->out[0]);       \
    }
WL_SHUFFLE(i32)
WL_SHUFFLE(u32)
WL_SHUFFLE(i64)
WL_SHUFFLE(u64)
WL_SHUFFLE(f32)
WL_SHUFFLE(f64)
#undef WL_SHUFFLE

static inline u32 __ballot_sync(u32 mask, int p, WL_HERE) {
    return (u32)wl_warp_op(WL_OP_BALLOT, mask, p != 0, 0, 0, wl_file, wl_line)->out[0];
}
static inline int __any_sync(u32 mask, int p, WL_HERE) {
    return wl_warp_op(WL_OP_BALLOT, mask, p != 0, 0, 0, wl_file, wl_line)->out[0] != 0;
}
static inline int __all_sync(u32 mask, int p, WL_HERE) {
    return wl_warp_op(WL_OP_BALLOT, mask, p != 0, 0, 0, wl_file, wl_line)->out[0] == mask;
}

#define WL_MATCH(Type)                                                                             \
    static inline u32 __match_any_sync(u32 mask, Type v, WL_HERE) {                                \
        return (u32)wl_warp_op(WL_OP_MATCH_ANY, mask, wl_bits(v), 0, 0, wl_file, wl_line)->out[0]; \
    }
WL_MATCH(i32)
WL_MATCH(u32)
WL_MATCH(i64)
WL_MATCH(u64)
#undef WL_MATCH

// Reductions of compute capability 8.0.
#define WL_REDUCE(name, Type, op)                                                         \
    static inline Type name(u32 mask, Type v, WL_HERE) {                                  \
        u64 sign = v < 0 ? ~(u64)0 : 0;                                                   \
        return (Type)wl_warp_op(op, mask, (u64)(i64)v, sign, 0, wl_file, wl_line)->out[0]; \
    }
WL_REDUCE(__reduce_add_sync, u32, WL_OP_WARP_SUM)
WL_REDUCE(__reduce_add_sync, i32, WL_OP_WARP_SUM)
WL_REDUCE(__reduce_min_sync, u32, WL_OP_WARP_MIN)
WL_REDUCE(__reduce_min_sync, i32, WL_OP_WARP_MIN)
WL_REDUCE(__reduce_max_sync, u32, WL_OP_WARP_MAX)
WL_REDUCE(__reduce_max_sync, i32, WL_OP_WARP_MAX)
WL_REDUCE(__reduce_and_sync, u32, WL_OP_WARP_AND)
WL_REDUCE(__reduce_or_sync, u32, WL_OP_WARP_OR)
WL_REDUCE(__reduce_xor_sync, u32, WL_OP_WARP_XOR)
#undef WL_REDUCE

// ---------------------------------------------------------------- memory shared between lanes

template <class T>
static inline T wl_load(const T* p, const char* file, u32 line) {
    wl_point(file, line);
    T v = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    wl_point(file, line);
    return v;
}
template <class T>
static inline void wl_store(T* p, T v, const char* file, u32 line) {
    wl_point(file, line);
    wl_changed(__atomic_load_n(p, __ATOMIC_RELAXED) != v);
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
    wl_point(file, line);
}
static inline u32 load_relaxed(const u32* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline u64 load_relaxed(const u64* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline u32 load_acquire(const u32* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline u64 load_acquire(const u64* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline u64 load_acquire_block(const u64* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline void store_release_block(u64* p, u64 v, WL_HERE) { wl_store(p, v, wl_file, wl_line); }
static inline u64 load_system(const u64* p, WL_HERE) { return wl_load(p, wl_file, wl_line); }
static inline void store_relaxed(u32* p, u32 v, WL_HERE) { wl_store(p, v, wl_file, wl_line); }
static inline void store_relaxed(u64* p, u64 v, WL_HERE) { wl_store(p, v, wl_file, wl_line); }
static inline void store_release(u32* p, u32 v, WL_HERE) { wl_store(p, v, wl_file, wl_line); }
static inline void store_release(u64* p, u64 v, WL_HERE) { wl_store(p, v, wl_file, wl_line); }

// One atomic update of *p from `old` to `next`, an expression of `old`; the value of the function is `old`.
#define WL_ATOMIC(name, Type, Bits, next)                                                              \
    static inline Type name(Type* p, Type v, WL_HERE) {                                                \
        wl_point(wl_file, wl_line);                                                                    \
        Bits before = __atomic_load_n((Bits*)p, __ATOMIC_SEQ_CST), after;                              \
        Type old;                                                                                      \
        do {                                                                                           \
            old = wl_from_bits<Type>(before);                                                          \
            after = (Bits)wl_bits((Type)(next));                                                       \
        } while (!__atomic_compare_exchange_n((Bits*)p, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        wl_changed(before != after);                                                                   \
        wl_point(wl_file, wl_line);                                                                    \
        return old;                                                                                    \
    }
WL_ATOMIC(atomicAdd, i32, u32, (u32)old + (u32)v)
WL_ATOMIC(atomicAdd, u32, u32, old + v)
WL_ATOMIC(atomicAdd, u64, u64, old + v)
WL_ATOMIC(atomicAdd, f32, u32, old + v)
WL_ATOMIC(atomicAdd, f64, u64, old + v)
WL_ATOMIC(atomicSub, i32, u32, (u32)old - (u32)v)
WL_ATOMIC(atomicSub, u32, u32, old - v)
WL_ATOMIC(atomicMin, i32, u32, old < v ? old : v)
WL_ATOMIC(atomicMin, u32, u32, old < v ? old : v)
WL_ATOMIC(atomicMin, i64, u64, old < v ? old : v)
WL_ATOMIC(atomicMin, u64, u64, old < v ? old : v)
WL_ATOMIC(atomicMax, i32, u32, old > v ? old : v)
WL_ATOMIC(atomicMax, u32, u32, old > v ? old : v)
WL_ATOMIC(atomicMax, i64, u64, old > v ? old : v)
WL_ATOMIC(atomicMax, u64, u64, old > v ? old : v)
WL_ATOMIC(atomicAnd, i32, u32, old & v)
WL_ATOMIC(atomicAnd, u32, u32, old & v)
WL_ATOMIC(atomicAnd, u64, u64, old & v)
WL_ATOMIC(atomicOr, i32, u32, old | v)
WL_ATOMIC(atomicOr, u32, u32, old | v)
WL_ATOMIC(atomicOr, u64, u64, old | v)
WL_ATOMIC(atomicXor, i32, u32, old ^ v)
WL_ATOMIC(atomicXor, u32, u32, old ^ v)
WL_ATOMIC(atomicXor, u64, u64, old ^ v)
WL_ATOMIC(atomicExch, i32, u32, v)
WL_ATOMIC(atomicExch, u32, u32, v)
WL_ATOMIC(atomicExch, u64, u64, v)
WL_ATOMIC(atomicExch, f32, u32, v)
#undef WL_ATOMIC

#define WL_CAS(Type)                                                                                          \
    static inline Type atomicCAS(Type* p, Type compare, Type value, WL_HERE) {                                \
        wl_point(wl_file, wl_line);                                                                           \
        Type expected = compare;                                                                              \
        bool done =                                                                                           \
            __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        wl_changed(done && compare != value);                                                                 \
        wl_point(wl_file, wl_line);                                                                           \
        return expected;                                                                                      \
    }
WL_CAS(i32)
WL_CAS(u32)
WL_CAS(u64)
#undef WL_CAS

// Read-only and streaming loads: plain loads here.
template <class T>
static inline T __ldg(const T* p) {
    return *p;
}
template <class T>
static inline T __ldcs(const T* p) {
    return *p;
}
// As a kernel may: it has to be an address that can be read.
static inline void prefetch(const void* p) { (void)*(const volatile u8*)p; }

#include "simt_emulator_math.cuh"
