/* The numbers of rows of quantised blocks.

   The format: see blocks.h. Grid: the rows, and the numbers of each, in whole blocks. p: the blocks, the result; n: the
   bytes and the numbers of a row. */
#include "blocks.h"

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  for (int64_t r = r0; r < r1; r++) {
    const uint8_t *block = (const uint8_t *)c->p[0] + r * c->n[0] + c0 / ELEMENTS * BLOCK;
    float *to = (float *)c->p[1] + r * c->n[1] + c0;
    for (int64_t k = c0; k < c1; k += ELEMENTS, block += BLOCK) {
      const scaling by = scaling_of(block);
      for (int e = 0; e < ELEMENTS; e += VECTOR_BYTES / 4, to += VECTOR_BYTES / 4) {
        const floats numbers = numbers_at(block, &by, e);
        memcpy(to, &numbers, sizeof numbers);
      }
    }
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
