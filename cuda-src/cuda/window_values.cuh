// Values of windows and how they are combined, in front of the kernels that do.
//
// Per WL_VALUE (i64, i128 or f64) and WL_COMBINE (0 sum, 1 least, 2 greatest). Integers are added modulo 2^n. Floats compare by
// their total order, as they are sorted.
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"

typedef WL_VALUE Value;

WL_DEVICE i64 running_sum(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
WL_DEVICE i128 running_sum(i128 a, i128 b) { return (i128)((u128)a + (u128)b); }
WL_DEVICE f64 running_sum(f64 a, f64 b) { return a + b; }
WL_DEVICE bool running_less(i64 a, i64 b) { return a < b; }
WL_DEVICE bool running_less(i128 a, i128 b) { return a < b; }
WL_DEVICE bool running_less(f64 a, f64 b) { return total_order(a) < total_order(b); }
// What changes no value.
#if WL_COMBINE == 0
WL_DEVICE Value running_neutral() { return (Value)0; }
#else
WL_DEVICE void running_extreme(i64& value, bool least) { value = (i64)(least ? 1ull << 63 : ~0ull >> 1); }
WL_DEVICE void running_extreme(i128& value, bool least) {
  value = (i128)(least ? (u128)1 << 127 : ~(u128)0 >> 1);
}
WL_DEVICE void running_extreme(f64& value, bool least) {
  value = f64_of_order((i64)(least ? 1ull << 63 : ~0ull >> 1));
}
WL_DEVICE Value running_neutral() {
  Value value;
  running_extreme(value, WL_COMBINE == 2);
  return value;
}
#endif
// Numbers of 64 bits are stored as what they are above the least of them.
WL_DEVICE i64 running_stored(i64 value) { return (i64)((u64)value ^ 0x8000000000000000ull); }
WL_DEVICE i128 running_stored(i128 value) { return value; }
WL_DEVICE f64 running_stored(f64 value) { return value; }

WL_DEVICE Value combine(Value a, Value b) {
#if WL_COMBINE == 0
  return running_sum(a, b);
#elif WL_COMBINE == 1
  return running_less(b, a) ? b : a;
#else
  return running_less(a, b) ? b : a;
#endif
}

