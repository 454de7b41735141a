/* The scale and zero point with which u8 holds all of a range.

   T: an element. Grid: one cell. p: least and largest of each stretch, scale, zero; n: the number of
   stretches. */
#include "assay.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1, (void)c0, (void)c1;
  T low = 0, high = 0;
  for (int64_t i = 0; i < c->n[0]; i++) {
    const T least = ((const T *)c->p[0])[i], largest = ((const T *)c->p[1])[i];
    low = least < low || least != least ? least : low;
    high = largest > high || largest != largest ? largest : high;
  }
  const T span = high - low, scale = span == 0 ? 1 : span / 255, zero = rint(-low / scale);
  *(T *)c->p[2] = scale;
  *(uint8_t *)c->p[3] = (uint8_t)(zero > 0 ? MIN(zero, 255) : 0);
}
