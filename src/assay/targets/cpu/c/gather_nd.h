/* result[b, i, :] = x[b, positions[b, i, 0], positions[b, i, 1], …, :]

   T: an element. Grid: a row for each b and i, a column for each element of what lies below the positions'
   axes.
   p: x, positions, error, result (all dense); n: how many i, the number of columns, of positions for one
   place, and the sizes of their axes. */
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t count = c->n[0], inner = c->n[1], depth = c->n[2];
  const int64_t *shape = c->n + 3;
  int64_t volume = inner;
  for (int64_t axis = 0; axis < depth; axis++) volume *= shape[axis];
  for (int64_t r = r0; r < r1; r++) {
    int64_t place = place_of((const int64_t *)c->p[1] + r * depth, depth, shape, c->p[2]);
    if (place < 0) continue;
    const T *from = (const T *)c->p[0] + r / count * volume + place * inner;
    T *to = (T *)c->p[3] + r * inner;
    memcpy(to + c0, from + c0, (size_t)(c1 - c0) * sizeof(T));
  }
}
