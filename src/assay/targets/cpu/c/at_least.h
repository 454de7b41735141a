/* An error unless a size is as large as it must be.

   Grid: one cell. p: error; n: the size, the least that it may be. */
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1, (void)c0, (void)c1;
  if (c->n[0] < c->n[1]) report(c->p[0]);
}
