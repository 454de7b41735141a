/* The least and the largest of 0 and each stretch of elements; NaN if there is one.

   T: an element. Grid: a row for each stretch, one column. p: x (dense), least, largest; n: the number of
   elements, of those in a stretch. */
#include "assay.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)c0, (void)c1;
  for (int64_t r = r0; r < r1; r++) {
    const T *x = (const T *)c->p[0] + r * c->n[1];
    const int64_t n = MIN(c->n[1], c->n[0] - r * c->n[1]);
    T low = 0, high = 0, odd = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : odd)
    for (int64_t i = 0; i < n; i++) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
      odd += x[i] != x[i];
    }
    ((T *)c->p[1])[r] = odd ? (T)NAN : low;
    ((T *)c->p[2])[r] = odd ? (T)NAN : high;
  }
}
