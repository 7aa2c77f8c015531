// CUDA's integer and floating-point intrinsics for the emulator. Included by simt_emulator.cuh alone.
#pragma once

static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline int __popcll(u64 x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(i64 x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((u32)x); }
static inline int __clzll(i64 x) { return x == 0 ? 64 : __builtin_clzll((u64)x); }
static inline u32 __brev(u32 x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline u64 __brevll(u64 x) { return (u64)__brev((u32)x) << 32 | __brev((u32)(x >> 32)); }
static inline u32 __umulhi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
static inline i32 __mulhi(i32 a, i32 b) { return (i32)((i64)a * b >> 32); }
static inline u64 __umul64hi(u64 a, u64 b) { return (u64)((u128)a * b >> 64); }
static inline i64 __mul64hi(i64 a, i64 b) { return (i64)((i128)a * b >> 64); }
static inline u32 __funnelshift_l(u32 lo, u32 hi, u32 shift) {
    return (u32)((((u64)hi << 32 | lo) << (shift & 31)) >> 32);
}
static inline u32 __funnelshift_r(u32 lo, u32 hi, u32 shift) { return (u32)(((u64)hi << 32 | lo) >> (shift & 31)); }

#define WL_MIN_MAX(Type)                                                    \
    static inline Type min(Type a, Type b) { return b < a ? b : a; }        \
    static inline Type max(Type a, Type b) { return a < b ? b : a; }
WL_MIN_MAX(i32)
WL_MIN_MAX(u32)
WL_MIN_MAX(i64)
WL_MIN_MAX(u64)
#undef WL_MIN_MAX
// Of a number and a NaN, CUDA's min and max return the number.
static inline f32 min(f32 a, f32 b) { return __builtin_fminf(a, b); }
static inline f32 max(f32 a, f32 b) { return __builtin_fmaxf(a, b); }
static inline f64 min(f64 a, f64 b) { return __builtin_fmin(a, b); }
static inline f64 max(f64 a, f64 b) { return __builtin_fmax(a, b); }

static inline int __float_as_int(f32 x) { return wl_from_bits<i32>(wl_bits(x)); }
static inline u32 __float_as_uint(f32 x) { return wl_from_bits<u32>(wl_bits(x)); }
static inline f32 __int_as_float(i32 x) { return wl_from_bits<f32>(wl_bits(x)); }
static inline f32 __uint_as_float(u32 x) { return wl_from_bits<f32>(wl_bits(x)); }
static inline i64 __double_as_longlong(f64 x) { return wl_from_bits<i64>(wl_bits(x)); }
static inline f64 __longlong_as_double(i64 x) { return wl_from_bits<f64>(wl_bits(x)); }

// Arithmetic that the compiler may not contract into a fused multiply-add.
static inline f32 __fadd_rn(f32 a, f32 b) { return a + b; }
static inline f32 __fsub_rn(f32 a, f32 b) { return a - b; }
static inline f32 __fmul_rn(f32 a, f32 b) { return a * b; }
static inline f32 __fdiv_rn(f32 a, f32 b) { return a / b; }
static inline f64 __dadd_rn(f64 a, f64 b) { return a + b; }
static inline f64 __dsub_rn(f64 a, f64 b) { return a - b; }
static inline f64 __dmul_rn(f64 a, f64 b) { return a * b; }
static inline f64 __ddiv_rn(f64 a, f64 b) { return a / b; }

#define WL_MATH1(name)                                                \
    static inline f64 name(f64 x) { return __builtin_##name(x); }      \
    static inline f32 name(f32 x) { return __builtin_##name##f(x); }
#define WL_MATH2(name)                                                        \
    static inline f64 name(f64 x, f64 y) { return __builtin_##name(x, y); }    \
    static inline f32 name(f32 x, f32 y) { return __builtin_##name##f(x, y); }
WL_MATH1(fabs)
WL_MATH1(floor)
WL_MATH1(ceil)
WL_MATH1(trunc)
WL_MATH1(round)
WL_MATH1(rint)
WL_MATH1(sqrt)
WL_MATH1(cbrt)
WL_MATH1(exp)
WL_MATH1(log)
WL_MATH1(log2)
WL_MATH1(log10)
WL_MATH1(sin)
WL_MATH1(cos)
WL_MATH1(tan)
WL_MATH1(asin)
WL_MATH1(acos)
WL_MATH1(atan)
WL_MATH1(sinh)
WL_MATH1(cosh)
WL_MATH1(tanh)
WL_MATH1(acosh)
WL_MATH1(asinh)
WL_MATH1(atanh)
WL_MATH2(pow)
WL_MATH2(fmod)
WL_MATH2(fmin)
WL_MATH2(fmax)
WL_MATH2(atan2)
WL_MATH2(copysign)
#undef WL_MATH1
#undef WL_MATH2

static inline bool isnan(f64 x) { return __builtin_isnan(x); }
static inline bool isnan(f32 x) { return __builtin_isnan(x); }
static inline bool isinf(f64 x) { return __builtin_isinf_sign(x) != 0; }
static inline bool isinf(f32 x) { return __builtin_isinf_sign(x) != 0; }
static inline bool isfinite(f64 x) { return __builtin_isfinite(x); }
static inline bool isfinite(f32 x) { return __builtin_isfinite(x); }
static inline bool signbit(f64 x) { return __builtin_signbit(x) != 0; }
static inline bool signbit(f32 x) { return __builtin_signbit(x) != 0; }
