/* updates[i, j, …] written to, or combined with, what is there at [i, positions[i, j, …], …], the position
   standing at one axis, along which updates come one after the other.

   Grid: the last of the other axes across, the rest of them down.
   p: positions, updates, error, result; n: the size of the result's axis, the number of updates along it, the
   strides along it and along the columns of positions, updates and result in turn, the rank of the rows,
   their shape, and the strides along them of positions, updates and result. */
#include "scatter.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t size = c->n[0], count = c->n[1], *along = c->n + 2, *across = c->n + 5, rank = c->n[8];
  const int64_t *shape = c->n + 9;
  odometer row;
  odometer_set(&row, rank, shape, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    const int64_t *positions = (const int64_t *)c->p[0] + odometer_place(&row, shape + rank);
    const T *updates = (const T *)c->p[1] + odometer_place(&row, shape + 2 * rank);
    T *result = (T *)c->p[3] + odometer_place(&row, shape + 3 * rank);
    for (int64_t i = 0; i < count; i++, positions += along[0], updates += along[1])
      for (int64_t j = c0; j < c1; j++) {
        const int64_t at = from_start(positions[j * across[0]], size);
        if (is_inside(at, size)) {
          T *to = result + at * along[2] + j * across[2];
          *to = COMBINE(*to, updates[j * across[1]]);
        } else report(c->p[2]);
      }
  }
}
