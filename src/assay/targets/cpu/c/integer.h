/* Integer arithmetic as the core ops define it, in 64 bits, of which narrower integers keep the lowest. */
#ifndef INTEGER_H
#define INTEGER_H
#include "convert.h"

SCALAR uint64_t magnitude(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

SCALAR int64_t div_i64(int64_t x, int64_t y) {
  return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

SCALAR uint64_t div_u64(uint64_t x, uint64_t y) { return y == 0 ? 0 : x / y; }

SCALAR int64_t fmod_i64(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }

SCALAR uint64_t fmod_u64(uint64_t x, uint64_t y) { return y == 0 ? 0 : x % y; }

SCALAR int64_t mod_i64(int64_t x, int64_t y) {
  int64_t rest = fmod_i64(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

SCALAR uint64_t mod_u64(uint64_t x, uint64_t y) { return fmod_u64(x, y); }

SCALAR uint64_t pow_u64(uint64_t x, uint64_t y) {
  uint64_t result = 1;
  for (; y; y >>= 1, x *= x) result *= y & 1 ? x : 1;
  return result;
}

SCALAR int64_t pow_i64(int64_t x, int64_t y) {
  int64_t result = (int64_t)pow_u64((uint64_t)x, magnitude(y));
  return y >= 0 || x == 1 || x == -1 ? result : 0;
}

/* A negative number of bits is, unsigned, beyond every width. */
SCALAR uint64_t shift_left(uint64_t x, uint64_t y, uint64_t width) { return y < width ? x << y : 0; }

SCALAR uint64_t shift_right_u64(uint64_t x, uint64_t y, uint64_t width) { return y < width ? x >> y : 0; }

SCALAR int64_t shift_right_i64(int64_t x, uint64_t y, uint64_t width) { return x >> (y < width ? y : 63); }

SCALAR uint64_t gcd_u64(uint64_t x, uint64_t y) {
  while (y) {
    uint64_t rest = x % y;
    x = y, y = rest;
  }
  return x;
}

SCALAR uint64_t lcm_u64(uint64_t x, uint64_t y) { return x == 0 || y == 0 ? 0 : x / gcd_u64(x, y) * y; }

SCALAR int64_t gcd_i64(int64_t x, int64_t y) { return (int64_t)gcd_u64(magnitude(x), magnitude(y)); }

SCALAR int64_t lcm_i64(int64_t x, int64_t y) { return (int64_t)lcm_u64(magnitude(x), magnitude(y)); }
#endif
