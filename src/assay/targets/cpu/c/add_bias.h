/* A number for each column added to a dense result, in place. Operands: the numbers, the result; numbers:
   columns. Elements: see lanes.h. */
#include "lanes.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const T *bias = (const T *)c->p[0];
  for (int64_t r = r0; r < r1; r++) {
    T *row = (T *)c->p[1] + r * c->n[0];
    for (int64_t j = c0; j < c1; j++) row[j] = NARROW(WIDEN(row[j]) + WIDEN(bias[j]));
  }
}
