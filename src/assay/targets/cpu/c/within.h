/* Reports positions that lie outside of an axis.

   Grid: a column for each position. p: positions, error; n: the size of the axis. */
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t *positions = (const int64_t *)c->p[0];
  const int64_t size = c->n[0];
  for (int64_t i = c0; i < c1; i++)
    if (!is_inside(from_start(positions[i], size), size)) report(c->p[1]);
}
