/* Updates written to, or combined with, what is there at positions[i, :], one after the other.

   Grid: one row; a column for each element of what lies below the positions' axes.
   p: positions, updates, error, result (all dense); n: the number of updates, of columns, of positions for
   one place, and the sizes of their axes. */
#include "scatter.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1;
  const int64_t count = c->n[0], inner = c->n[1], depth = c->n[2];
  for (int64_t i = 0; i < count; i++) {
    int64_t place = place_of((const int64_t *)c->p[0] + i * depth, depth, c->n + 3, c->p[2]);
    if (place < 0) continue;
    const T *from = (const T *)c->p[1] + i * inner;
    T *to = (T *)c->p[3] + place * inner;
    for (int64_t j = c0; j < c1; j++) to[j] = COMBINE(to[j], from[j]);
  }
}
