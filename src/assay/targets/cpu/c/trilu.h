/* The upper or lower triangle of matrices, counted from a diagonal k that is data; zeros elsewhere.

   T: an element. UPPER: 1 or 0. Grid: columns of the matrices across, rows of all matrices down.
   p: x, k, result (all dense); n: rows and columns of one matrix. */
#include "positions.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch;
  const int64_t rows = c->n[0], cols = c->n[1];
  /* Beyond the matrix it makes no difference how far. */
  const int64_t k = MIN(MAX(*(const int64_t *)c->p[1], -rows - 1), cols + 1);
  for (int64_t r = r0; r < r1; r++) {
    const int64_t diagonal = r % rows + k + !UPPER; /* the first column of the upper part */
    const int64_t border = MIN(MAX(diagonal, c0), c1);
    const int64_t from = UPPER ? border : c0, to = UPPER ? c1 : border;
    T *result = (T *)c->p[2] + r * cols;
    memset(result + c0, 0, (size_t)(from - c0) * sizeof(T));
    memcpy(result + from, (const T *)c->p[0] + r * cols + from, (size_t)(to - from) * sizeof(T));
    memset(result + to, 0, (size_t)(c1 - to) * sizeof(T));
  }
}
