/* x with a value around it; negative counts crop.

   T: an element. Grid: the result's innermost axis in memory across, all other axes down.
   p: x, the counts before each axis, the value, result; n: the rank, and, with the axes in the order of
   the result's memory, its shape, its strides, x's shape, x's strides, and which axes they are. */
#include "odometer.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t rank = c->n[0], last = rank - 1, *shape = c->n + 1, *strides = shape + rank;
  const int64_t *x_shape = strides + rank, *x_strides = x_shape + rank, *axes = x_strides + rank;
  const int64_t *before = (const int64_t *)c->p[1];
  const T value = *(const T *)c->p[2];
  const int64_t step = x_strides[last], to = strides[last];
  odometer row;
  odometer_set(&row, last, shape, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    T *result = (T *)c->p[3] + odometer_place(&row, strides);
    int64_t from = 0, inside = 1;
    for (int64_t axis = 0; axis < last; axis++) {
      int64_t at = row.at[axis] - before[axes[axis]];
      inside = inside && at >= 0 && at < x_shape[axis];
      from += at * x_strides[axis];
    }
    const int64_t shift = before[axes[last]];
    const int64_t begin = inside ? MIN(MAX(shift, c0), c1) : c1;
    const int64_t end = inside ? MAX(MIN(shift + x_shape[last], c1), begin) : c1;
    for (int64_t i = c0; i < begin; i++) result[i * to] = value;
    if (end > begin) {
      const T *x = (const T *)c->p[0] + from;
      if (step == 1 && to == 1) memcpy(result + begin, x + begin - shift, (size_t)(end - begin) * sizeof(T));
      else for (int64_t i = begin; i < end; i++) result[i * to] = x[(i - shift) * step];
    }
    for (int64_t i = end; i < c1; i++) result[i * to] = value;
  }
}
