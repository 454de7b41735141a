/* Reports places that lie outside of a tensor.

   Grid: a row for each place. p: the positions of each, error; n: how many positions a place has, the size that each of
   them counts in. */
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t depth = c->n[0];
  for (int64_t r = r0; r < r1; r++) place_of((const int64_t *)c->p[0] + r * depth, depth, c->n + 1, c->p[1]);
}
