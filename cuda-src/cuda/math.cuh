// Functions of doubles with DataFusion's semantics (crate `datafusion-functions`, module `math`, over Rust's f64). No memory is
// read or written. The GPU's library is within 2 units in the last place for all of them; those of `math_sqrt`, `math_ceil`,
// `math_floor`, `math_trunc` and `math_round` are exact. So are powers, logarithms and cubic roots that are whole numbers, as on
// the CPU: what is cut to integers, masks and buckets say, must not be one less. Long ones are functions of their own: a kernel that
// calls several compiles in half the time, and the call is little beside them.
#pragma once
#include "simt.cuh"

WL_DEVICE f64 math_abs(f64 x) { return fabs(x); }
WL_DEVICE f64 math_acos(f64 x) { return acos(x); }
WL_OUTLINED f64 math_acosh(f64 x) { return acosh(x); }
WL_DEVICE f64 math_asin(f64 x) { return asin(x); }
WL_OUTLINED f64 math_asinh(f64 x) { return asinh(x); }
WL_DEVICE f64 math_atan(f64 x) { return atan(x); }
WL_OUTLINED f64 math_atan2(f64 y, f64 x) { return atan2(y, x); }
WL_OUTLINED f64 math_atanh(f64 x) { return atanh(x); }
WL_DEVICE f64 math_cbrt(f64 x) {
  const f64 root = cbrt(x), whole = round(root);
  // Its cube is exact.
  return fabs(whole) <= 200000.0 && whole * whole * whole == x ? whole : root;
}
WL_DEVICE f64 math_ceil(f64 x) { return ceil(x); }
WL_OUTLINED f64 math_cos(f64 x) { return cos(x); }
WL_OUTLINED f64 math_cosh(f64 x) { return cosh(x); }
WL_DEVICE f64 math_cot(f64 x) { return 1.0 / tan(x); }
WL_DEVICE f64 math_degrees(f64 x) { return x * 57.295779513082320876798154814105; }
WL_DEVICE f64 math_exp(f64 x) { return exp(x); }
WL_DEVICE f64 math_floor(f64 x) { return floor(x); }
WL_DEVICE f64 math_ln(f64 x) { return log(x); }
// Whole numbers to whole powers: exact up to 2^53, and those of two as far as doubles go. Everything else by the library.
WL_OUTLINED f64 whole_power(f64 x, f64 exponent) {
  if (x == trunc(x) && exponent == trunc(exponent) && fabs(exponent) <= 1023.0) {
    f64 power = 1.0, factor = x;
    for (u32 left = (u32)fabs(exponent);;) {
      if ((left & 1) != 0) power *= factor;
      left >>= 1;
      if (left == 0) break;
      factor *= factor;
    }
    if (fabs(power) <= 9007199254740992.0 || x == 2.0) return exponent < 0.0 ? 1.0 / power : power;
  }
  return pow(x, exponent);
}
// A logarithm, or the whole number next to it where that is the logarithm.
WL_OUTLINED f64 whole_log(f64 x, f64 base, f64 log) {
  const f64 whole = round(log);
  return fabs(log - whole) < 1e-9 && whole_power(base, whole) == x ? whole : log;
}
WL_DEVICE f64 math_log10(f64 x) { return whole_log(x, 10.0, log10(x)); }
WL_DEVICE f64 math_log2(f64 x) { return whole_log(x, 2.0, log2(x)); }
WL_DEVICE f64 math_nanvl(f64 x, f64 otherwise) { return x != x ? otherwise : x; }
WL_DEVICE f64 math_radians(f64 x) { return x * 0.017453292519943295769236907684886; }
WL_OUTLINED f64 math_sin(f64 x) { return sin(x); }
WL_OUTLINED f64 math_sinh(f64 x) { return sinh(x); }
WL_OUTLINED f64 math_tan(f64 x) { return tan(x); }
WL_DEVICE f64 math_tanh(f64 x) { return tanh(x); }
// Zero, of either sign, is 0; NaN stays.
WL_DEVICE f64 math_signum(f64 x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == 0.0 ? 0.0 : x; }

WL_DEVICE f64 math_sqrt(f64 x) { return sqrt(x); }
WL_DEVICE bool math_sqrt_fails(f64 x) { return x < 0.0; }
WL_DEVICE f64 math_power(f64 x, f64 exponent) { return whole_power(x, exponent); }
WL_DEVICE bool math_power_fails(f64 x, f64 exponent) { return x == 0.0 && exponent < 0.0; }

// `factor`: 10 to the number of decimal places. Halves go away from zero.
WL_DEVICE f64 math_round(f64 x, f64 factor) { return round(x * factor) / factor; }
WL_DEVICE f64 math_trunc(f64 x, f64 factor) { return trunc(x * factor) / factor; }
