/* result[o, j, :] = Σ weights[t, j] · x[o, positions[t, j], :] over t

   X, Y: elements of x and of the result; LOAD and STORE lead from X to W, in which sums are kept, and from W
   to Y.
   LAST: 1 if nothing lies below the axis, else 0.
   Grid: if LAST, j across and o down; else what lies below the axis across, o and j down.
   p: x, positions, weights (of W), error, result (all dense); n: the sizes of x's axis and of the result's,
   the number of taps, of elements below the axis. */
#include "positions.h"
#pragma GCC optimize("fp-contract=fast")

enum { RUN = 64 };

#define ALWAYS static inline __attribute__((always_inline))

/* Make `n` results from `begin` on; `j` is the place of the first, or of all of them, on the axis. */
ALWAYS void make_run(const call *c, const X *x, Y *result, int64_t j, int64_t begin, int64_t n) {
  const int64_t count = c->n[1], taps = c->n[2], inner = c->n[3];
  const int64_t *positions = (const int64_t *)c->p[1] + j;
  const W *weights = (const W *)c->p[2] + j;
  W sum[RUN];
  for (int64_t i = 0; i < n; i++) sum[i] = 0;
  for (int64_t t = 0; t < taps; t++, positions += count, weights += count)
    if (LAST) {
      for (int64_t i = 0; i < n; i++) sum[i] += weights[i] * LOAD(x[positions[i]]);
    } else {
      const X *from = x + *positions * inner + begin;
      for (int64_t i = 0; i < n; i++) sum[i] += *weights * LOAD(from[i]);
    }
  for (int64_t i = 0; i < n; i++) result[begin + i] = STORE(sum[i]);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t size = c->n[0], count = c->n[1], inner = c->n[3], cols = LAST ? count : inner;
  if (!size) {
    report(c->p[3]);
    return;
  }
  for (int64_t r = r0; r < r1; r++) {
    const X *x = (const X *)c->p[0] + (LAST ? r : r / count) * size * inner;
    Y *result = (Y *)c->p[4] + r * cols;
    for (int64_t i = c0; i < c1; i += RUN)
      if (i + RUN <= c1) make_run(c, x, result, LAST ? i : r % count, i, RUN);
      else make_run(c, x, result, LAST ? i : r % count, i, c1 - i);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
