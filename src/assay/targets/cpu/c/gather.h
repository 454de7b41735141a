/* result[o, i, :] = x[o, positions[i], :]

   T: an element. Grid: a row for each o and i, a column for each element of what lies below the axis.
   p: x, positions, error, result; n: the size of the axis, the number of positions, of columns. */
#include "positions.h"

enum { BLOCK_BYTES = 16384 };

static void pick(const call *c, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t size = c->n[0], count = c->n[1], inner = c->n[2];
  const int64_t *positions = (const int64_t *)c->p[1];
  const T *x = (const T *)c->p[0] + r0 / count * size * inner;
  T *result = (T *)c->p[3];
  for (int64_t r = r0, i = r0 % count; r < r1; r++, i++) {
    if (i == count) {
      i = 0;
      x += size * inner;
    }
    const int64_t at = from_start(positions[i], size);
    if (!is_inside(at, size)) report(c->p[2]);
    else memcpy(result + r * inner + c0, x + at * inner + c0, (size_t)(c1 - c0) * sizeof(T));
  }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t block = MAX(BLOCK_BYTES / ((c1 - c0) * (int64_t)sizeof(T)), 1);
  for (int64_t r = r0; r < r1; r += block) {
    const int64_t end = MIN(r + block, r1);
    pick(c, r, end, c0, c1);
    finish(c, scratch, r, end, c0, c1);
  }
}
