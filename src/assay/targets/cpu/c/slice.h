/* x[start::step] along some axes, as many elements as the result has room for; starts and steps are data.

   T: an element. Grid: the result's last axis across, all other axes down.
   p: x, starts, steps, error, result (dense); n: the rank, the shape of the result, that of x, the strides of
   x, and for each axis which of the starts and steps is its own, −1 if none is. */
#include "odometer.h"
#include "positions.h"

/* Where a slice begins on an axis, as Python has it. */
static int64_t first(int64_t start, int64_t step, int64_t size) {
  if (start < 0) start += size;
  return step < 0 ? MIN(MAX(start, -1), size - 1) : MIN(MAX(start, 0), size);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t rank = c->n[0], *shape = c->n + 1, *x_shape = shape + rank, *x_strides = x_shape + rank;
  const int64_t *own = x_strides + rank;
  int64_t strides[MOST_AXES], begin = 0;
  for (int64_t axis = 0; axis < rank; axis++) {
    int64_t start = 0, step = 1;
    if (own[axis] >= 0) {
      step = ((const int64_t *)c->p[2])[own[axis]];
      start = first(((const int64_t *)c->p[1])[own[axis]], step, x_shape[axis]);
    }
    int64_t end = start + (shape[axis] - 1) * step;
    if (MIN(start, end) < 0 || MAX(start, end) >= x_shape[axis]) {
      report(c->p[3]);
      return;
    }
    begin += start * x_strides[axis];
    strides[axis] = shape[axis] > 1 ? step * x_strides[axis] : 0;
  }
  odometer row;
  odometer_set(&row, rank - 1, shape, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    const T *from = (const T *)c->p[0] + begin + odometer_place(&row, strides);
    T *to = (T *)c->p[4] + r * shape[rank - 1];
    for (int64_t i = c0; i < c1; i++) to[i] = from[i * strides[rank - 1]];
  }
}
