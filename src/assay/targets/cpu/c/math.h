/* Elementary functions of floats, free of branches: once they are inlined, a loop over elements vectorises.

   Those of f32 are own ones. `exp`, `log`, `tanh`, `sigmoid`, `erf`, `gelu` and what is made of them compute in
   f32 throughout; the others go through f64, where a fit of some 35 bits leaves little but the final rounding.
   Those of f64 are the C library's, or the formula of the op's reference; loops over these do not vectorise.
   docs/performance.md states the largest error of each. */
#include_next <math.h> /* the C library's, in whatever way this file was found */
#ifndef ASSAY_MATH_H
#define ASSAY_MATH_H
#if defined(__GNUC__) && !defined(__clang__)
/* These passes turn a choice between values into paths of control: no loop around such would vectorise. */
#pragma GCC optimize("no-thread-jumps", "no-tree-pre")
#endif
#include "assay.h"
#include "convert.h"
#include "integer.h"
#include "tiny.h"

#ifdef __FP_FAST_FMAF
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* --- the exponential function and its relatives, in f32 */

#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f /* few bits: products with whole numbers are exact */
#define LN2_LOW -2.12194440e-4f
#define WHOLE 12582912.0f /* 1.5 · 2^23: added to it, a number is rounded to a whole one, in the lowest bits */

/* eʳ − 1 for |r| ≤ ln 2 / 2. */
SCALAR float expm1_near_f32(float r) {
  float q = FMA(1.3882485e-3f, r, 8.366713e-3f);
  q = FMA(q, r, 4.1667204e-2f);
  q = FMA(q, r, 0.16666542f);
  q = FMA(q, r, 0.49999997f);
  return FMA(r * r, q, r);
}

/* x · 2ⁿ, rounded once; `whole` is WHOLE + n with |n| < 253. */
SCALAR float scaled_f32(float x, float whole) {
  int32_t n = (int32_t)(bits_of_f32(whole) - bits_of_f32(WHOLE)), half = n >> 1;
  float first = f32_of_bits((uint32_t)(half + 127) << 23);
  float second = f32_of_bits((uint32_t)(n - half + 127) << 23);
  return x * first * second;
}

SCALAR float exp_f32(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float whole = FMA(x, LOG2_E, WHOLE), n = whole - WHOLE;
  float r = FMA(n, -LN2_LOW, FMA(n, -LN2_HIGH, x));
  return scaled_f32(1.0f + expm1_near_f32(r), whole);
}

SCALAR float exp2_f32(float x) {
  x = x < -151.0f ? -151.0f : x;
  x = x > 129.0f ? 129.0f : x;
  float whole = x + WHOLE, r = (x - (whole - WHOLE)) * 0.693147181f;
  return scaled_f32(1.0f + expm1_near_f32(r), whole);
}

/* −(1 − e) / (1 + e) with e = exp(−2|x|), the difference being computed as such. */
SCALAR float tanh_f32(float x) {
  float y = -2.0f * __builtin_fabsf(x);
  y = y < -19.0f ? -19.0f : y;
  float whole = FMA(y, LOG2_E, WHOLE), n = whole - WHOLE;
  float r = FMA(n, -LN2_LOW, FMA(n, -LN2_HIGH, y));
  float scale = f32_of_bits((bits_of_f32(whole) << 23) + bits_of_f32(1.0f));
  float less = FMA(scale, expm1_near_f32(r), scale - 1.0f);
  return __builtin_copysignf(less / (less + 2.0f), x);
}

SCALAR float sigmoid_f32(float x) {
  float small = exp_f32(-__builtin_fabsf(x));
  return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}

SCALAR float silu_f32(float x) { return x * sigmoid_f32(x); }

SCALAR float gelu_tanh_f32(float x) {
  float u = 0.797884561f * FMA(0.044715f * x * x, x, x);
  return x * sigmoid_f32(2.0f * u);
}

/* tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2). */
SCALAR float mish_f32(float x) {
  float e = exp_f32(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

/* --- the logarithm, in f32 */

SCALAR float log_f32(float x) {
  int tiny = x < 0x1p-126f;
  uint32_t bits = bits_of_f32(tiny ? x * 0x1p23f : x) - 0x3f2aaaab; /* of 2/3 */
  float f = f32_of_bits((bits & 0x7fffff) + 0x3f2aaaab) - 1.0f, s = f * f;
  float k = (float)((int32_t)bits >> 23) - (tiny ? 23.0f : 0.0f);
  float p = FMA(-0.12891687f, f, 0.13984436f);
  p = FMA(p, f, -0.12184261f);
  p = FMA(p, f, 0.1400587f);
  p = FMA(p, f, -0.16680488f);
  p = FMA(p, f, 0.20010406f);
  p = FMA(p, f, -0.24999797f);
  p = FMA(p, f, 0.33333215f);
  float low = FMA(s * f, p, -0.5f * s);
  float y = FMA(k, LN2_HIGH, f + FMA(k, LN2_LOW, low));
  return x > 0.0f ? (x < INFINITY ? y : x) : (x == 0.0f ? -INFINITY : NAN);
}

/* --- the error function and its relatives, in f32 */

/* How likely a normal variable exceeds a ≥ 0: exp(−a²/2) · W(a), W being a polynomial in 4 / (a + 4). */
SCALAR float normal_tail_f32(float a) {
  a = a > 15.0f ? 15.0f : a;
  float t = 4.0f / (a + 4.0f);
  float w = FMA(0.017176995f, t, -0.06611825f);
  w = FMA(w, t, 0.05969091f);
  w = FMA(w, t, 0.017387623f);
  w = FMA(w, t, 0.022210758f);
  w = FMA(w, t, 0.08136867f);
  w = FMA(w, t, 0.07390229f);
  w = FMA(w, t, 0.09508968f);
  w = FMA(w, t, 0.099546336f);
  w = FMA(w, t, 0.09974499f);
  float half = 0.5f * a, s = half * a, lost = FMA(half, a, -s);
  float e = exp_f32(-s);
  return w * t * (e - e * lost);
}

SCALAR float erf_f32(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = FMA(8.179205e-5f, s, -8.087386e-4f);
  p = FMA(p, s, 5.195074e-3f);
  p = FMA(p, s, -2.685648e-2f);
  p = FMA(p, s, 0.11283632f);
  p = FMA(p, s, -0.3761263f);
  p = FMA(p, s, 0.12837917f);
  float far = 1.0f - 2.0f * normal_tail_f32(a * 1.41421356f);
  return a < 0.92f ? FMA(x, p, x) : __builtin_copysignf(far, x);
}

SCALAR float gelu_f32(float x) {
  float tail = normal_tail_f32(__builtin_fabsf(x));
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

/* --- the same in f64, to some 35 bits, for f32 functions that go through it */

#define WHOLE_WIDE 0x1.8p52

/* eˣ − `less`, which is 0 or 1; beyond the range of f32 it is merely large or small. */
SCALAR double exp_wide(double x, double less) {
  x = x < -120.0 ? -120.0 : x;
  x = x > 100.0 ? 100.0 : x;
  double whole = x * 1.4426950408889634 + WHOLE_WIDE, n = whole - WHOLE_WIDE;
  double r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10;
  double q = 2.756055310799668e-06 * r + 2.4876121667036692e-05;
  q = q * r + 1.984136080391743e-04;
  q = q * r + 1.388882199090084e-03;
  q = q * r + 8.333333244812084e-03;
  q = q * r + 4.1666666887293966e-02;
  q = q * r + 0.1666666666687377;
  q = q * r + 0.4999999999980808;
  double scale = f64_of_bits((bits_of_f64(whole) << 52) + bits_of_f64(1.0));
  return scale * (r * r * q + r) + (scale - less);
}

/* log x; `less` is x − 1, which may be more accurate than x. */
SCALAR double log_wide(double x, double less) {
  uint64_t bits = bits_of_f64(x) - 0x3fe6a09e667f3bcd + (1023ull << 52); /* of √½ */
  double k = (0x1p52 + 1023.0) - f64_of_bits(bits >> 52 | 0x4330000000000000); /* negated, so that 0 is +0 */
  double m = f64_of_bits((bits & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
  double f = k == 0.0 ? less : m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 0.09799392711343705 * z + 0.11087618910985211;
  p = p * z + 0.14286065100744236;
  p = p * z + 0.199999977205402;
  p = p * z + 0.3333333333813704;
  double y = 2.0 * (s * z * p + s) - k * 0.6931471805599453;
  return x > 0.0 ? (x < HUGE_VAL ? y : x) : (x == 0.0 ? -HUGE_VAL : (double)NAN);
}

SCALAR double log1p_wide(double x) { return log_wide(1.0 + x, x); }

/* From the eighth of the circle around 0, 1 or ∞ to the first. */
SCALAR double atan_wide(double x) {
  double a = __builtin_fabs(x);
  int middle = a > 0.4142135623730951, far = a > 2.414213562373095;
  double z = (far ? -1.0 : middle ? a - 1.0 : a) / (far ? a : middle ? a + 1.0 : 1.0), s = z * z;
  double p = 0.04726790350314667 * s - 0.08468426886503592;
  p = p * s + 0.11043384575367657;
  p = p * s - 0.14281910668951037;
  p = p * s + 0.19999900837147092;
  p = p * s - 0.3333333246866582;
  double turn = far ? 1.5707963267948966 : middle ? 0.7853981633974483 : 0.0;
  return __builtin_copysign(turn + (z * s * p + z), x);
}

/* Arguments are f32, as doubles. */
SCALAR float expm1_f32(double x) { return (float)__builtin_copysign(exp_wide(x, 1.0), x); }
SCALAR float log1p_f32(double x) { return (float)log1p_wide(x); }
SCALAR float log2_f32(double x) { return (float)(log_wide(x, x - 1.0) * 1.4426950408889634); }
SCALAR float log10_f32(double x) { return (float)(log_wide(x, x - 1.0) * 0.4342944819032518); }
SCALAR float atan_f32(double x) { return (float)atan_wide(x); }
SCALAR float asin_f32(double x) { return (float)atan_wide(x / __builtin_sqrt((1.0 - x) * (1.0 + x))); }
SCALAR float acos_f32(double x) { return (float)(2.0 * atan_wide(__builtin_sqrt((1.0 - x) / (1.0 + x)))); }
SCALAR float atanh_f32(double x) { return (float)(0.5 * log1p_wide(2.0 * x / (1.0 - x))); }

SCALAR float acosh_f32(double x) {
  return (float)log1p_wide(x - 1.0 + __builtin_sqrt(x - 1.0) * __builtin_sqrt(x + 1.0));
}

SCALAR float asinh_f32(double x) {
  double size = __builtin_fabs(x), root = __builtin_sqrt(size * size + 1.0);
  double y = log1p_wide(size + size * (size / (1.0 + root)));
  return (float)__builtin_copysign(size < HUGE_VAL ? y : size, x);
}

SCALAR float sinh_f32(double x) {
  double grown = exp_wide(__builtin_fabs(x), 1.0);
  return (float)__builtin_copysign(0.5 * (grown + grown / (grown + 1.0)), x);
}

SCALAR float cosh_f32(double x) {
  double grown = exp_wide(__builtin_fabs(x), 0.0);
  return (float)(0.5 * (grown + 1.0 / grown));
}

SCALAR float softplus_f32(double x) {
  double rest = log1p_wide(exp_wide(-__builtin_fabs(x), 0.0));
  return (float)(x > 0.0 ? x + rest : rest);
}

/* The angle of the point (x, y): that of (|x|, |y|), mirrored. */
SCALAR float atan2_f32(double y, double x) {
  double high = __builtin_fabs(y), wide = __builtin_fabs(x), ratio = high / wide;
  double angle = atan_wide(high == wide ? (high == 0.0 ? 0.0 : 1.0) : ratio);
  return (float)__builtin_copysign(bits_of_f64(x) >> 63 ? 3.141592653589793 - angle : angle, y);
}

SCALAR float hypot_f32(double x, double y) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y), length = __builtin_sqrt(a * a + b * b);
  return (float)(a == HUGE_VAL ? a : b == HUGE_VAL ? b : length);
}

SCALAR float pow_f32(double x, double y) {
  if (__builtin_constant_p(y) && y == 2.0) return (float)x * (float)x;
  if (__builtin_constant_p(y) && y == 3.0) return (float)(x * x * x);
  double size = __builtin_fabs(x), half = 0.5 * y, power = y * log_wide(size, size - 1.0);
  int whole = __builtin_floor(y) == y, odd = __builtin_floor(half) != half;
  double result = exp_wide(size == 1.0 || y == 0.0 ? 0.0 : power, 0.0);
  result = x < 0.0 && size < HUGE_VAL && !whole ? (double)NAN : result;
  return (float)(whole && odd ? __builtin_copysign(result, x) : result);
}

/* --- sine and cosine, through f64 */

/* 2^(8 q) · 2/π mod 4 for q = 0 … 13 in three parts; products of the first two with an f32 are exact, and so
   is the sum of these. */
static const double TURNS_HIGH[14] = {
    0x1.45f304p-1, 0x1.7cc1b7p+1, 0x1.836e4ep+0, 0x1.b72722p+1, 0x1.27220ap+1, 0x1.220a94p+1, 0x1.529fcp-4,
    0x1.29fc26p+0, 0x1.fc2756p+0, 0x1.3abe8p-3, 0x1.abe8fap+1, 0x1.e8fa9ap+1, 0x1.f534dcp+0, 0x1.34ddcp+0,
};
static const double TURNS_MIDDLE[14] = {
    0x1.6e4e44p-24, 0x1.391054p-26, 0x1.1054a4p-26, 0x1.529fcp-28, 0x1.29fc27p-24, 0x1.fc2757p-24,
    0x1.3abe88p-27, 0x1.57d1f5p-24, 0x1.d1f534p-24, 0x1.f534ddp-24, 0x1.34ddcp-24, 0x1.bb81b6p-25,
    0x1.c0db62p-24, 0x1.b6c52ap-25,
};
static const double TURNS_LOW[14] = {
    0x1.529fc2757d1f5p-52, 0x1.4fe13abe8fa9ap-51, 0x1.f84eafa3ea69cp-49, 0x1.3abe8fa9a6ee0p-51,
    0x1.5f47d4d377037p-50, 0x1.a3ea69bb81b6cp-49, 0x1.ea69bb81b6c53p-49, 0x1.a6ee06db14acdp-51,
    0x1.bb81b6c52b328p-49, 0x1.81b6c52b32788p-49, 0x1.b6c52b3278872p-49, 0x1.8a5664f10e410p-50,
    0x1.2b32788720840p-49, 0x1.3278872083fcap-49,
};

/* x = (quarter + rest) · π/2: a whole number of quarter turns, of which the lowest bits are in `quarter`, and a
   rest in [−½, ½], which is returned in radians. Of x = m · 2^(8 q), m is whole unless q is 0, so that what the
   table leaves out are whole turns. */
SCALAR double turned(float x, uint64_t *quarter) {
  uint64_t exponent = bits_of_f32(x) >> 23 & 255;
  uint64_t q = ((exponent < 150 ? 150 : exponent) - 150) >> 3;
  double m = x * f64_of_bits((1023 - 8 * q) << 52);
  double first = m * TURNS_HIGH[q], second = m * TURNS_MIDDLE[q];
  double n1 = __builtin_rint(first), n2 = __builtin_rint(second);
  double rest = (first - n1) + (second - n2), n3 = __builtin_rint(rest);
  *quarter = bits_of_f64(n1 + n2 + n3 + WHOLE_WIDE);
  return ((rest - n3) + m * TURNS_LOW[q]) * 1.5707963267948966;
}

SCALAR double sin_near(double r) {
  double s = r * r, p = 2.717939915733906e-06 * s - 1.9839296133302342e-04;
  p = p * s + 8.333329266739823e-03;
  p = p * s - 0.166666666406131;
  return r * s * p + r;
}

SCALAR double cos_near(double r) {
  double s = r * r, p = 2.4434846193871013e-05 * s - 1.3887337084634987e-03;
  p = p * s + 4.166664626871173e-02;
  return s * s * p + (1.0 - 0.5 * s);
}

SCALAR float sin_f32(float x) {
  uint64_t quarter;
  double r = turned(x, &quarter), y = quarter & 1 ? cos_near(r) : sin_near(r);
  return x == 0.0f ? x : (float)(quarter & 2 ? -y : y);
}

SCALAR float cos_f32(float x) {
  uint64_t quarter;
  double r = turned(x, &quarter), y = quarter & 1 ? sin_near(r) : cos_near(r);
  return (float)((quarter + 1) & 2 ? -y : y);
}

SCALAR float tan_f32(float x) {
  uint64_t quarter;
  double r = turned(x, &quarter), s = sin_near(r), c = cos_near(r);
  return x == 0.0f ? x : (float)(quarter & 1 ? -c / s : s / c);
}

/* --- floats of any kind */

#define FOR_BOTH(T, f, t)                                                                                      \
  SCALAR T min_##t(T x, T y) {                                                                                 \
    T smaller = y < x ? y : x;                                                                                 \
    return y == y ? smaller : y;                                                                               \
  }                                                                                                            \
  SCALAR T max_##t(T x, T y) {                                                                                 \
    T larger = y > x ? y : x;                                                                                  \
    return y == y ? larger : y;                                                                                \
  }                                                                                                            \
  SCALAR T mod_##t(T x, T y) {                                                                                 \
    T rest = __builtin_fmod##f(x, y);                                                                          \
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;                                               \
  }
FOR_BOTH(float, f, f32)
FOR_BOTH(double, , f64)
#undef FOR_BOTH

/* The number after x in the direction of y, among those whose bits are multiples of `step`. */
SCALAR float stepped(float x, float y, uint32_t step) {
  uint32_t bits = bits_of_f32(x), away = (x < y) == (x > 0.0f);
  float moved = f32_of_bits(away ? bits + step : bits - step);
  float least = __builtin_copysignf(f32_of_bits(step), y);
  return x != x || y != y ? x + y : x == y ? y : x == 0.0f ? least : moved;
}

SCALAR float nextafter_f32(float x, float y) { return stepped(x, y, 1); }
SCALAR float nextafter_bf16(float x, float y) { return stepped(x, y, 0x10000); }

SCALAR float nextafter_f16(float x, float y) {
  float moved = f16_to_f32((uint16_t)(f16_bits(x) + ((x < y) == (x > 0.0f) ? 1 : -1)));
  float least = __builtin_copysignf(0x1p-24f, y);
  return x != x || y != y ? x + y : x == y ? x : x == 0.0f ? least : moved;
}

/* --- f64, by the formulas of the references */

SCALAR double sigmoid_f64(double x) {
  double small = exp(-__builtin_fabs(x));
  return (x < 0.0 ? small : 1.0) / (1.0 + small);
}

SCALAR double silu_f64(double x) { return x * sigmoid_f64(x); }
SCALAR double softplus_f64(double x) { return max_f64(x, 0.0) + log1p(exp(-__builtin_fabs(x))); }
SCALAR double mish_f64(double x) { return x * tanh(softplus_f64(x)); }
SCALAR double gelu_f64(double x) { return 0.5 * x * (1.0 + erf(x / 1.4142135623730951)); }

SCALAR double gelu_tanh_f64(double x) {
  return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * pow(x, 3.0))));
}
#endif
