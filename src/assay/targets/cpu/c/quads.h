/* Products of bytes: C[row, n] = sum over k of A[row, k] · B[k, n], A unsigned, B signed, C in 32 bits, exactly.

   Operands: A, B, C. Numbers: N, K, how far apart panels are. B lies as panels of 16 columns; in these four numbers
   of a column that follow each other along k, a quad, lie side by side, for which processors have an instruction.
   A and C are dense. The grid is rows × N, columns in multiples of 16. */
#include "assay.h"
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#endif

typedef int32_t quads __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t loose __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
enum { PANEL = 16, PARTS = 64 / VECTOR_BYTES, ROWS = VECTOR_BYTES == 64 ? 12 : 5, PANELS = VECTOR_BYTES == 64 ? 2 : 1 };

#define ALWAYS static inline __attribute__((always_inline))
#define EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < count; i++)

/* sum + the dot product of each lane's four bytes, those of x unsigned, those of w signed. */
ALWAYS quads add_dots(quads sum, quads x, quads w) {
#if defined(__AVX512VNNI__) && VECTOR_BYTES == 64
  return (quads)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__) && VECTOR_BYTES == 32
  return (quads)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
#else
  EACH(i, 4) sum += (x >> 8 * i & 255) * ((w << (24 - 8 * i)) >> 24);
  return sum;
#endif
}

/* The quad at k of a row, zeros behind the end of the row. */
ALWAYS int32_t quad_at(const uint8_t *row, int64_t k, int64_t K) {
  int32_t quad = 0;
  if (k + 4 <= K) memcpy(&quad, row + k, 4);
  else memcpy(&quad, row + k, (size_t)(K - k));
  return quad;
}

/* `rows` rows of C in some panels, of which the last may stick out of C. */
ALWAYS void tile(const int64_t *n, const uint8_t *a, const int8_t *b, int32_t *c, int64_t columns, const int rows,
                 const int panels) {
  const int64_t N = n[0], K = n[1];
  quads sum[ROWS][PANELS * PARTS];
  EACH(i, rows) EACH(j, panels * PARTS) sum[i][j] = (quads){0};
  for (int64_t k = 0; k < K; k += 4, b += 64) {
    quads w[PANELS * PARTS];
    EACH(j, panels * PARTS) w[j] = *(const loose *)(b + j / PARTS * n[2] + j % PARTS * VECTOR_BYTES);
    EACH(i, rows) {
      const quads x = quad_at(a + i * K, k, K) - (quads){0};
      EACH(j, panels * PARTS) sum[i][j] = add_dots(sum[i][j], x, w[j]);
    }
  }
  EACH(i, rows) {
    int32_t made[PANELS * PANEL];
    EACH(j, panels * PARTS) memcpy(made + j * (VECTOR_BYTES / 4), &sum[i][j], VECTOR_BYTES);
    memcpy(c + i * N, made, (size_t)columns * sizeof *c);
  }
}

/* `rows` rows, in turns of ROWS. */
ALWAYS void strip(const int64_t *n, const uint8_t *a, const int8_t *b, int32_t *c, int64_t rows, int64_t columns,
                  const int panels) {
  for (; rows >= ROWS; rows -= ROWS, a += ROWS * n[1], c += ROWS * n[0]) tile(n, a, b, c, columns, ROWS, panels);
  for (; rows >= 4; rows -= 4, a += 4 * n[1], c += 4 * n[0]) tile(n, a, b, c, columns, 4, panels);
  for (; rows; rows--, a += n[1], c += n[0]) tile(n, a, b, c, columns, 1, panels);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t *n = c->n, N = n[0], K = n[1];
  const uint8_t *a = (const uint8_t *)c->p[0] + r0 * K;
  for (int64_t j = c0, end; j < c1; j = end) {
    end = MIN(c1, j + PANELS * PANEL);
    const int8_t *b = (const int8_t *)c->p[1] + j / PANEL * n[2];
    int32_t *out = (int32_t *)c->p[2] + r0 * N + j;
    if (end - j > PANEL) strip(n, a, b, out, r1 - r0, end - j, PANELS);
    else strip(n, a, b, out, r1 - r0, end - j, 1);
    finish(c, scratch, r0, r1, j, end);
  }
}
