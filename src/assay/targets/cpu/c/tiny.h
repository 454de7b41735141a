/* Floats of at most 8 bits, each of which takes a byte.

   Formats are constants wherever they are used, so that nothing of them is left in a loop. */
#ifndef TINY_H
#define TINY_H
#include "convert.h"

typedef struct {
  uint32_t mantissa, bias; /* the bits of the one, and what is added to the exponent */
  uint32_t sign;           /* the bit of the sign */
  uint32_t highest;        /* the largest finite number, as bits */
  uint32_t infinity;       /* what infinity becomes: itself, or NaN where there is none */
  uint32_t nan;            /* what NaN becomes */
  uint32_t one_zero;       /* whether zero and NaN have no sign: what were −0 is NaN */
} tiny_float;

SCALAR float tiny_to_f32(uint8_t x, tiny_float f) {
  uint32_t size = x & (f.sign - 1), sign = (uint32_t)(x >= f.sign) << 31;
  float unit = f32_of_bits((254 - f.bias) << 23);
  uint32_t finite = bits_of_f32(f32_of_bits(size << (23 - f.mantissa)) * unit);
  uint32_t special = size == f.infinity && f.infinity != f.nan ? 0x7f800000 : 0x7fc00000;
  return f32_of_bits((size > f.highest || (f.one_zero && x == f.sign) ? special : finite) | sign);
}

/* x rounded to the nearest and to even; what were larger than the highest number is `beyond`. Subnormal numbers
   are rounded by adding a number of which the last bit is the least of them. */
SCALAR uint8_t f32_to_tiny(float x, tiny_float f, uint32_t beyond) {
  uint32_t size = bits_of_f32(x) & 0x7fffffff, sign = bits_of_f32(x) >> 31 ? f.sign : 0;
  uint32_t shift = 23 - f.mantissa, rebased = size - ((127 - f.bias) << 23);
  uint32_t normal = (rebased + (1u << (shift - 1)) - 1 + (rebased >> shift & 1)) >> shift;
  uint32_t coarse = (151 - f.bias - f.mantissa) << 23;
  uint32_t subnormal = bits_of_f32(f32_of_bits(size) + f32_of_bits(coarse)) - coarse;
  uint32_t nearest = size < (128 - f.bias) << 23 ? subnormal : normal;
  uint32_t bits = size > 0x7f800000 ? f.nan : nearest > f.highest ? beyond : nearest;
  return (uint8_t)(f.one_zero && !(bits & (f.sign - 1)) ? bits : bits ^ sign);
}

/* f8e8m0 is an exponent and nothing else. */
SCALAR float power_to_f32(uint8_t x) {
  return f32_of_bits(x == 255 ? 0x7fc00000 : x == 0 ? 0x00400000 : (uint32_t)x << 23);
}

/* `up` is what to add to the bits for the exponent to be rounded; numbers beyond the range are `highest`. */
SCALAR uint8_t f64_to_power(double x, uint64_t up, int64_t highest) {
  int64_t power = (int64_t)(((bits_of_f64(x) & INT64_MAX) + up) >> 52) - (1023 - 127);
  return (uint8_t)(x != x ? 255 : power < 0 ? 0 : power > highest ? highest : power);
}
#endif
