/* Sizes as data.

   Grid: one row; a column for each size. p: result; n: the sizes. */
#include "assay.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1;
  memcpy((int64_t *)c->p[0] + c0, c->n + c0, (size_t)(c1 - c0) * sizeof(int64_t));
}
