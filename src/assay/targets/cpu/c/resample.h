/* result[o, j, :] = Σ weights[j, t] · x[o, positions[j, t], :] over t

   X, Y: elements of x and of the result; LOAD and STORE lead from X to W, in which sums are kept, and from W to Y.
   Grid: a row for each o and j, a column for each element of what lies below the axis.
   p: x, positions, weights (of W), error, result (all dense); n: the sizes of x's axis and of the result's, the number of
   taps, of columns. */
#include "positions.h"

enum { RUN = 256 };

static inline void add_tap(W *sum, const X *x, W weight, int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] += weight * LOAD(x[i]);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t size = c->n[0], count = c->n[1], taps = c->n[2], inner = c->n[3];
  if (!size) {
    report(c->p[3]);
    return;
  }
  for (int64_t r = r0; r < r1; r++) {
    const int64_t *positions = (const int64_t *)c->p[1] + r % count * taps;
    const W *weights = (const W *)c->p[2] + r % count * taps;
    const X *x = (const X *)c->p[0] + r / count * size * inner;
    Y *result = (Y *)c->p[4] + r * inner;
    for (int64_t begin = c0; begin < c1; begin += RUN) {
      const int64_t n = MIN(RUN, c1 - begin);
      W sum[RUN];
      for (int64_t i = 0; i < n; i++) sum[i] = 0;
      for (int64_t t = 0; t < taps; t++) add_tap(sum, x + positions[t] * inner + begin, weights[t], n);
      for (int64_t i = 0; i < n; i++) result[begin + i] = STORE(sum[i]);
    }
  }
}
