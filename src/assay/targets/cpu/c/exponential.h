/* The functions that softmax and attention need, of W. */
#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H
#include "math.h"

/* eˣ for x ≤ 0; what is less than e⁻¹⁰⁴ is 0. Half the work of `exp_f32`. The result is made 2³² times as large first, as
   it may be denormal; but not that of what is 0, since numbers that small are slow on some processors, and what masks
   leave out comes here. */
SCALAR float exp_falling_f32(float x) {
  float near = x < -104.0f ? 0.0f : x;
  float whole = FMA(near, LOG2_E, WHOLE), n = whole - WHOLE;
  float r = FMA(n, -LN2_LOW, FMA(n, -LN2_HIGH, near));
  float scale = f32_of_bits((bits_of_f32(whole) << 23) + bits_of_f32(0x1p32f));
  float y = FMA(scale, expm1_near_f32(r), scale) * 0x1p-32f;
  return x < -104.0f ? 0.0f : y;
}

#define EXP(x) _Generic((W)0, float: exp_f32, double: exp)(x)
#define EXP_FALLING(x) _Generic((W)0, float: exp_falling_f32, double: exp)(x)
#define LOG(x) _Generic((W)0, float: log_f32, double: log)(x)
#define TANH(x) _Generic((W)0, float: tanh_f32, double: tanh)(x)
#endif
