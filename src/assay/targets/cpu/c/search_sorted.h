/* How many elements of a sorted sequence lie before each x, with RIGHT also those equal to it.

   T, W, LOAD: see storage.h. Grid: x's last axis across, all other axes down.
   p: edges, x, result (all dense); n: the length of a sequence, the number of columns, the distance from one
   row's sequence to the next, 0 if there is one for all. */
#include "storage.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t size = c->n[0], cols = c->n[1];
  for (int64_t r = r0; r < r1; r++) {
    const T *edges = (const T *)c->p[0] + r * c->n[2];
    for (int64_t i = r * cols + c0; i < r * cols + c1; i++) {
      const W x = LOAD(((const T *)c->p[1])[i]);
      int64_t low = 0, high = size;
      while (low < high) {
        const int64_t middle = (low + high) >> 1;
        const W found = LOAD(edges[middle]);
        if (RIGHT ? x < found : x <= found) high = middle;
        else low = middle + 1;
      }
      ((int64_t *)c->p[2])[i] = low;
    }
  }
}
