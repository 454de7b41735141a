/* arg_max and arg_min over the middle one of three axes of a dense tensor: where the first extreme element
   lies, or the first NaN.

   BEATS(a, b): if a is more extreme than b; T, W, LOAD: see storage.h; LAST: 1 if the third axis has one
   element.
   p: x, error (an axis without elements), result; n: the length of the axis, the size of the third axis.
   Grid: a row for each place of the first axis, a column for each of the third. */
#include "math.h"
#include "positions.h"

enum { SIDE = 4 * LANES(W), BLOCK = 256 };

#if LAST
SCALAR W better(W so_far, W x) { return BEATS(x, so_far) | (x != x) ? x : so_far; }

static W extreme(const T *x, int64_t length) {
  W side[SIDE], found = LOAD(x[0]);
  for (int j = 0; j < SIDE; j++) side[j] = found;
  int64_t i = 0;
  for (; i + SIDE <= length; i += SIDE)
#pragma omp simd
    for (int j = 0; j < SIDE; j++) side[j] = better(side[j], LOAD(x[i + j]));
  for (; i < length; i++) found = better(found, LOAD(x[i]));
  for (int j = 0; j < SIDE; j++) found = better(found, side[j]);
  return found;
}

/* There is a NaN only if `wanted` is one. */
static int64_t first_of(const T *x, W wanted) {
  int64_t i = 0;
  while (LOAD(x[i]) == LOAD(x[i]) && LOAD(x[i]) != wanted) i++;
  return i;
}

static void find(const T *x, int64_t length, int64_t step, int64_t width, int64_t *result) {
  (void)step, (void)width;
  *result = first_of(x, extreme(x, length));
}
#else
static void find(const T *x, int64_t length, int64_t step, int64_t width, int64_t *result) {
  W best[BLOCK];
  for (int64_t j = 0; j < width; j++) best[j] = LOAD(x[j]), result[j] = 0;
  for (int64_t i = 1; i < length; i++)
    for (int64_t j = 0; j < width; j++) {
      const W item = LOAD(x[i * step + j]);
      const int is_better = BEATS(item, best[j]) | ((item != item) & (best[j] == best[j]));
      best[j] = is_better ? item : best[j];
      result[j] = is_better ? i : result[j];
    }
}
#endif

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], step = c->n[1];
  if (length == 0) {
    report(c->p[1]);
    return;
  }
  for (int64_t r = r0; r < r1; r++) {
    for (int64_t j = c0; j < c1; j += BLOCK)
      find((const T *)c->p[0] + r * length * step + j, length, step, MIN(BLOCK, c1 - j),
           (int64_t *)c->p[2] + r * step + j);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
