/* result[i, j, …] = x[i, positions[i, j, …], …], the position standing at one axis

   T: an element. Grid: the result's last axis across, all other axes down.
   p: x, positions, error, result (dense); n: the size of x's axis, its stride, the number of columns, the
   strides of x and of positions along them, the rank of the rows, their shape, the strides of x and of
   positions along them. The strides of x are 0 where the position stands. */
#include "odometer.h"
#include "positions.h"

#define ALWAYS static inline __attribute__((always_inline))

typedef struct {
  int64_t size, step, x_step, p_step;
} line;

/* Without branches, so that it may be vectorised: a position outside is taken for 0. */
ALWAYS int64_t pick(line l, const T *x, const int64_t *positions, T *result, int64_t c0, int64_t c1) {
  int64_t wrong = 0;
  for (int64_t i = c0; i < c1; i++) {
    const int64_t at = from_start(positions[i * l.p_step], l.size), inside = is_inside(at, l.size);
    wrong |= !inside;
    result[i] = x[i * l.x_step + (inside ? at : 0) * l.step];
  }
  return wrong;
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const line l = {c->n[0], c->n[1], c->n[3], c->n[4]};
  const int64_t cols = c->n[2], rank = c->n[5], *shape = c->n + 6;
  int64_t wrong = !l.size;
  odometer row;
  odometer_set(&row, rank, shape, r0);
  for (int64_t r = r0; r < r1 && l.size; r++, odometer_step(&row)) {
    const T *x = (const T *)c->p[0] + odometer_place(&row, shape + rank);
    const int64_t *positions = (const int64_t *)c->p[1] + odometer_place(&row, shape + 2 * rank);
    T *result = (T *)c->p[3] + r * cols;
    if (l.step == 1 && l.x_step == 0 && l.p_step == 1)
      wrong |= pick((line){l.size, 1, 0, 1}, x, positions, result, c0, c1);
    else wrong |= pick(l, x, positions, result, c0, c1);
    finish(c, scratch, r, r + 1, c0, c1);
  }
  if (wrong) report(c->p[2]);
}
