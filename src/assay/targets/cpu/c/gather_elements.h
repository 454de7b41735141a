/* result[i, j, …] = x[i, positions[i, j, …], …], the position standing at one axis

   T: an element. Grid: the result's last axis across, all other axes down.
   p: x, positions, error, result (dense); n: the size of x's axis, its stride, the number of columns, the strides of
   x and of positions along them, the rank of the rows, their shape, the strides of x and of positions along them.
   The strides of x are 0 where the position stands. */
#include "odometer.h"
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t size = c->n[0], step = c->n[1], cols = c->n[2], x_step = c->n[3], p_step = c->n[4], rank = c->n[5];
  const int64_t *shape = c->n + 6;
  odometer row;
  odometer_set(&row, rank, shape, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    const T *x = (const T *)c->p[0] + odometer_place(&row, shape + rank);
    const int64_t *positions = (const int64_t *)c->p[1] + odometer_place(&row, shape + 2 * rank);
    T *result = (T *)c->p[3] + r * cols;
    for (int64_t i = c0; i < c1; i++) {
      int64_t at = position_within(positions[i * p_step], size, c->p[2]);
      if (at >= 0) result[i] = x[i * x_step + at * step];
    }
  }
}
