// The GPU half of simt.cuh: what CUDA C++ itself does not name. Included by simt.cuh alone.
#pragma once

#define WL_DEVICE __device__ __forceinline__
// Of code that is large beside a call.
#define WL_OUTLINED __device__ __noinline__
// In front of a member function.
#define WL_METHOD __device__ __forceinline__
// The emulator's reports name the caller's place in the source; here nobody asks.
#define WL_PLACE
#define WL_PASS_PLACE
#define WL_UNROLL _Pragma("unroll")
#define WL_UNROLL_4 _Pragma("unroll 4")
#define WL_NO_UNROLL _Pragma("unroll 1")
// `n` may be a template argument.
#define WL_UNROLL_BY(n) WL_PRAGMA(unroll n)
#define WL_PRAGMA(text) _Pragma(#text)

#ifdef WL_MIN_BLOCKS
#define WL_BOUNDS __launch_bounds__(WL_BLOCK_THREADS, WL_MIN_BLOCKS)
#else
#define WL_BOUNDS __launch_bounds__(WL_BLOCK_THREADS)
#endif

#define WL_KERNEL(name, Args, args) extern "C" __global__ void WL_BOUNDS name(const __grid_constant__ Args args)

// The offset of a member, as a constant. NVRTC has no offsetof, only what its front end makes it of.
#ifdef __CUDACC_RTC__
#define WL_OFFSETOF(Type, member) __INTADDR__(&(((Type*)0)->member))
#else
#define WL_OFFSETOF(Type, member) __builtin_offsetof(Type, member)
#endif

#define WL_SHARED(Type, name)                                          \
    extern __shared__ __align__(16) unsigned char wl_shared_bytes[];   \
    Type& name = *reinterpret_cast<Type*>(wl_shared_bytes)

// Give up the processor for about ns nanoseconds inside a waiting loop.
WL_DEVICE void spin_pause(u32 ns) { __nanosleep(ns); }

// A clock of the multiprocessor, in cycles: differences tell how long something took.
WL_DEVICE u64 cycle_count() { return (u64)clock64(); }

// Loads and stores that other lanes may race with, at device scope; acquire and release order what surrounds them.
WL_DEVICE u32 load_relaxed(const u32* p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
WL_DEVICE u64 load_relaxed(const u64* p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
WL_DEVICE u32 load_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
WL_DEVICE u64 load_acquire(const u64* p) {
    u64 v;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
// The same among the lanes of a block, in its shared memory: nothing waits for what is under way to device memory. At device scope a
// release waits for all that the lane has written, and an acquire throws away what the multiprocessor has cached.
WL_DEVICE u64 load_acquire_block(const u64* p) {
    u64 v;
    asm volatile("ld.acquire.cta.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
WL_DEVICE void store_release_block(u64* p, u64 v) {
    asm volatile("st.release.cta.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// The same at the scope of the whole system: the host may write it while the kernel runs.
WL_DEVICE u64 load_system(const u64* p) {
    u64 v;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
WL_DEVICE void store_relaxed(u32* p, u32 v) {
    asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WL_DEVICE void store_relaxed(u64* p, u64 v) {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
WL_DEVICE void store_release(u32* p, u32 v) {
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WL_DEVICE void store_release(u64* p, u64 v) {
    asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Bring the line at p, which may be read, to L2; nobody waits for it.
WL_DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p))); }

WL_DEVICE void wl_check_aligned(const void*, u32) {}

// One access of WIDTH bytes between global memory and a lane's buffer.
template <u32 WIDTH>
struct wl_vec_access;

template <>
struct wl_vec_access<16> {
    static WL_DEVICE void load(const u8* p, u8* out) { *(uint4*)out = *(const uint4*)p; }
    static WL_DEVICE void load_stream(const u8* p, u8* out) {
        uint4 v;
        asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(p)));
        *(uint4*)out = v;
    }
    static WL_DEVICE void store(u8* p, const u8* in) { *(uint4*)p = *(const uint4*)in; }
};
template <>
struct wl_vec_access<8> {
    static WL_DEVICE void load(const u8* p, u8* out) { *(uint2*)out = *(const uint2*)p; }
    static WL_DEVICE void load_stream(const u8* p, u8* out) {
        uint2 v;
        asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                     : "=r"(v.x), "=r"(v.y)
                     : "l"(__cvta_generic_to_global(p)));
        *(uint2*)out = v;
    }
    static WL_DEVICE void store(u8* p, const u8* in) { *(uint2*)p = *(const uint2*)in; }
};
template <>
struct wl_vec_access<4> {
    static WL_DEVICE void load(const u8* p, u8* out) { *(u32*)out = *(const u32*)p; }
    static WL_DEVICE void load_stream(const u8* p, u8* out) {
        u32 v;
        asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)));
        *(u32*)out = v;
    }
    static WL_DEVICE void store(u8* p, const u8* in) { *(u32*)p = *(const u32*)in; }
};
template <>
struct wl_vec_access<2> {
    static WL_DEVICE void load(const u8* p, u8* out) { *(u16*)out = *(const u16*)p; }
    static WL_DEVICE void load_stream(const u8* p, u8* out) {
        u16 v;
        asm("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(__cvta_generic_to_global(p)));
        *(u16*)out = v;
    }
    static WL_DEVICE void store(u8* p, const u8* in) { *(u16*)p = *(const u16*)in; }
};
template <>
struct wl_vec_access<1> {
    static WL_DEVICE void load(const u8* p, u8* out) { *out = *p; }
    static WL_DEVICE void load_stream(const u8* p, u8* out) {
        u32 v;
        asm("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)));
        *out = (u8)v;
    }
    static WL_DEVICE void store(u8* p, const u8* in) { *p = *in; }
};
