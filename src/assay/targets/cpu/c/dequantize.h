/* (x − zero) · scale

   T, STORE: the result, see storage.h; W: what is computed with; the rest in quantized.h.
   Grid: rows and columns of x.
   p: x, scale, zero (anything if there is none), result; n: the number of columns, granularity. */
#include "quantized.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const granularity *g = (const granularity *)(c->n + 1);
  for (int64_t r = r0; r < r1; r++) {
    const parameters p = parameters_of(g, c->p[1], c->p[2], r);
    const Q *x = (const Q *)c->p[0] + r * c->n[0];
    T *result = (T *)c->p[3] + r * c->n[0];
    if (g->col_step) {
      for (int64_t i = c0; i < c1; i++) result[i] = STORE((number_of(x[i]) - zero_at(p, i)) * scale_at(p, i));
    } else {
      const W scale = scale_at(p, 0), zero = zero_at(p, 0);
      for (int64_t i = c0; i < c1; i++) result[i] = STORE((number_of(x[i]) - zero) * scale);
    }
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
