/* saturate(round(x / scale) + zero), and NaN as the lowest number

   T, W, LOAD: see storage.h, T being the dtype of x; ROUNDED(w): w as a value of that dtype; HIGH: the
   highest number; the rest in quantized.h. Grid: rows and columns of x.
   p: x, scale, zero (anything if there is none), result; n: the number of columns, granularity. */
#include "quantized.h"

static inline Q quantized(W x, W scale, W zero) {
  W whole = (W)rint(ROUNDED(x / scale)) + zero;
  whole = whole > LOW ? whole : LOW;
  const int32_t number = (int32_t)(whole < HIGH ? whole : HIGH);
  return (Q)(TINY ? number & MASK : number);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const granularity *g = (const granularity *)(c->n + 1);
  for (int64_t r = r0; r < r1; r++) {
    const parameters p = parameters_of(g, c->p[1], c->p[2], r);
    const T *x = (const T *)c->p[0] + r * c->n[0];
    Q *result = (Q *)c->p[3] + r * c->n[0];
    if (g->col_step) {
      for (int64_t i = c0; i < c1; i++) result[i] = quantized(LOAD(x[i]), scale_at(p, i), zero_at(p, i));
    } else {
      const W scale = scale_at(p, 0), zero = zero_at(p, 0);
      for (int64_t i = c0; i < c1; i++) result[i] = quantized(LOAD(x[i]), scale, zero);
    }
  }
}
