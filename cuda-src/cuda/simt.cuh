// The contract between a kernel and the machine it runs on; the only header that knows who compiles it.
//
// Kernels include this file, and nothing of the host or of a CUDA toolkit. NVRTC (or nvcc) compiles them
// for the GPU, the machine's C++ compiler for Warpline's emulator, which runs every lane as a coroutine.
// Both halves offer the same names with CUDA's meaning; what CUDA lacks, the emulator lacks too, so that a
// kernel which compiles for one compiles for the other.
//
// Rules for kernels:
//   - one kernel is `WL_KERNEL(name, Args, args) { ... }`: one struct argument, by value;
//   - shared memory is one struct, viewed by `WL_SHARED(Type, name)`; no `__shared__` variables;
//   - launches are one-dimensional; a source may define WL_BLOCK_THREADS and WL_MIN_BLOCKS first;
//   - a loop that waits for another lane reads through load_acquire / load_relaxed / an atomic and calls
//     spin_pause(ns) each round;
//   - masks of warp operations name live lanes only, and a lane never exits while others wait for it.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;
typedef float f32;
typedef double f64;
typedef u64 usize;
// An address in device memory whose element type the kernel decides.
typedef void* DevicePtr;

static_assert(sizeof(i8) == 1 && sizeof(i16) == 2 && sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(i128) == 16,
              "the fixed-width integers must have the widths of their names");
static_assert(sizeof(void*) == 8, "kernels assume 64-bit addresses");

#ifndef WL_BLOCK_THREADS
#define WL_BLOCK_THREADS 256
#endif

// Lanes of a warp.
#define WL_WARP 32
// The mask of a warp all of whose lanes are live.
#define WL_FULL_MASK 0xffffffffu

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WL_EMULATED 0
#include "simt_gpu.cuh"
#else
#define WL_EMULATED 1
#include "simt_emulator.cuh"
#endif

// The lane's position in its warp, 0..31.
WL_DEVICE u32 lane_id() { return threadIdx.x & (WL_WARP - 1); }

// The warp's position in its block.
WL_DEVICE u32 warp_id() { return threadIdx.x / WL_WARP; }

// Warps of the block, counting a partial last one.
WL_DEVICE u32 block_warps() { return (blockDim.x + WL_WARP - 1) / WL_WARP; }

// Bytes moved by each access of a load_vec or store_vec of BYTES bytes: the widest power of two that divides them.
template <u32 BYTES>
struct wl_vec_width {
    static const u32 value = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : BYTES % 4 == 0 ? 4 : BYTES % 2 == 0 ? 2 : 1;
};

// Read N consecutive values starting at p with the widest aligned accesses.
// p must be aligned to the largest power of two that divides N * sizeof(T), at most 16.
template <class T, int N>
WL_DEVICE void load_vec(const T* p, T (&out)[N] WL_PLACE) {
    const u32 width = wl_vec_width<sizeof(T) * N>::value;
    wl_check_aligned(p, width WL_PASS_PLACE);
    alignas(16) T buffer[N];
    WL_UNROLL
    for (u32 i = 0; i < sizeof(T) * N / width; ++i)
        wl_vec_access<width>::load((const u8*)p + i * width, (u8*)buffer + i * width);
    WL_UNROLL
    for (int i = 0; i < N; ++i) out[i] = buffer[i];
}

// load_vec for data read once and written by nobody during the kernel: goes past L1.
template <class T, int N>
WL_DEVICE void load_vec_stream(const T* p, T (&out)[N] WL_PLACE) {
    const u32 width = wl_vec_width<sizeof(T) * N>::value;
    wl_check_aligned(p, width WL_PASS_PLACE);
    alignas(16) T buffer[N];
    WL_UNROLL
    for (u32 i = 0; i < sizeof(T) * N / width; ++i)
        wl_vec_access<width>::load_stream((const u8*)p + i * width, (u8*)buffer + i * width);
    WL_UNROLL
    for (int i = 0; i < N; ++i) out[i] = buffer[i];
}

// Write N consecutive values starting at p; alignment as for load_vec.
template <class T, int N>
WL_DEVICE void store_vec(T* p, const T (&values)[N] WL_PLACE) {
    const u32 width = wl_vec_width<sizeof(T) * N>::value;
    wl_check_aligned(p, width WL_PASS_PLACE);
    alignas(16) T buffer[N];
    WL_UNROLL
    for (int i = 0; i < N; ++i) buffer[i] = values[i];
    WL_UNROLL
    for (u32 i = 0; i < sizeof(T) * N / width; ++i)
        wl_vec_access<width>::store((u8*)p + i * width, (const u8*)buffer + i * width);
}
