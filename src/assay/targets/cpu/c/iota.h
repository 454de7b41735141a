/* 0, 1, 2, …

   Grid: one row; a column for each number. p: result. */
#include "assay.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1;
  for (int64_t i = c0; i < c1; i++) ((int64_t *)c->p[0])[i] = i;
}
