/* Matrices as panels: PANEL columns side by side, row after row, zeros beyond the last column.

   T: an element, of whatever kind. Grid: the panels of all matrices down, one across. p: the matrices, the
   panels; n: K, N, the width, the panels of a matrix, strides from matrix to matrix, along K and N. */
#define ACC T
#define IN_PLACE
#include "panels.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)c0, (void)c1;
  const int64_t K = c->n[0], N = c->n[1], width = c->n[2], panels = c->n[3];
  for (int64_t r = r0; r < r1; r++) {
    const int64_t first = r % panels * width, columns = MIN(width, N - first);
    const T *from = (const T *)c->p[0] + r / panels * c->n[4] + first * c->n[6];
    T *to = (T *)c->p[1] + r * K * width;
    if (columns < width) memset(to, 0, (size_t)(K * width) * sizeof(T));
    copy_block(to, width, from, c->n[5], c->n[6], K, columns);
  }
}
