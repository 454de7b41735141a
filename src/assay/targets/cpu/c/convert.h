/* Conversions between element types, without undefined behaviour and so that loops over them vectorise. */
#ifndef CONVERT_H
#define CONVERT_H
#include "storage.h"

#define SCALAR static inline __attribute__((always_inline))

SCALAR uint32_t bits_of_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SCALAR float f32_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

SCALAR uint64_t bits_of_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SCALAR double f64_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The same bits as another type; memory may be read as it whatever else it is. */
typedef uint16_t __attribute__((may_alias)) bits16;

/* Floats of 16 bits and the f32 of the same value. This way loops vectorise also where the compiler has no
   vectors of f16, and every bit of a NaN is kept. */
SCALAR float f16_to_f32(uint16_t x) {
  uint32_t size = (uint32_t)(x & 0x7fff) << 13, bits = bits_of_f32(f32_of_bits(size) * 0x1p112f);
  return f32_of_bits((size < 0x0f800000 ? bits : bits | 0x7f800000) | (uint32_t)(x & 0x8000) << 16);
}

SCALAR uint16_t f16_bits(float x) {
  uint32_t bits = bits_of_f32(x), size = bits & 0x7fffffff;
  uint32_t finite = bits_of_f32(f32_of_bits(size) * 0x1p-112f) >> 13;
  return (uint16_t)((size < 0x47800000 ? finite : (size >> 13 & 0x3ff) | 0x7c00) | (bits >> 16 & 0x8000));
}

SCALAR uint16_t bf16_bits(float x) { return (uint16_t)(bits_of_f32(x) >> 16); }

SCALAR _Float16 f16_of_bits(uint16_t bits) {
  _Float16 x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x rounded to a narrow float, to the nearest and to even, as an f32. */
SCALAR float rounded_bf16(float x) {
  uint32_t bits = bits_of_f32(x);
  uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
  return f32_of_bits((x != x ? bits | 0x400000 : nearest) & 0xffff0000);
}

SCALAR float rounded_f16(float x) {
  uint32_t sign = bits_of_f32(x) & 0x80000000, size = bits_of_f32(x) ^ sign;
  uint32_t normal = (size + 0xfff + (size >> 13 & 1)) & 0xffffe000;
  uint32_t subnormal = bits_of_f32((f32_of_bits(size) + 0.5f) - 0.5f);
  uint32_t nearest = size < 0x38800000 ? subnormal : normal < 0x47800000 ? normal : 0x7f800000;
  return f32_of_bits((size > 0x7f800000 ? normal | 0x7fc00000 : nearest) | sign);
}

/* x rounded to odd: the f32 from which a narrower float is rounded just as it were from x itself. */
SCALAR float f32_to_odd(double x) {
  float near = (float)x;
  uint32_t bits = bits_of_f32(near);
  bits -= __builtin_fabs((double)near) > __builtin_fabs(x);
  return f32_of_bits(bits | ((double)near != x));
}

/* Floats become integers by truncation and wrap-around; what no i64 holds is its least number, of which
   narrower integers keep the lowest bits: 0. */
SCALAR int64_t f64_to_i64(double x) {
  int inside = x >= -0x1p63 && x < 0x1p63;
  int64_t whole = (int64_t)(inside ? x : 0.0);
  return inside ? whole : INT64_MIN;
}

SCALAR uint64_t f64_to_u64(double x) {
  int high = x >= 0x1p63;
  return (uint64_t)f64_to_i64(high ? x - 0x1p63 : x) ^ (uint64_t)high << 63;
}

SCALAR int32_t f64_to_i32(double x) {
  double whole = __builtin_fabs(x) < 0x1p63 ? __builtin_trunc(x) : 0.0;
  double low = whole - __builtin_floor(whole * 0x1p-32 + 0.5) * 0x1p32;
  return (int32_t)low;
}
#endif
