/* Register tiles: the innermost loops that matrix products and convolutions share.

   A tile is a few rows by a few panels of C. Each element of C is one chain of fused multiply-adds over k
   in rising order, kept in C between blocks of k, so no result depends on how rows, columns or k were cut.
   A *panel* is PANEL columns of the right side; its rows are `b_step` elements apart. */
#ifndef TILE_H
#define TILE_H
#include "lanes.h"

/* The registers hold ROWS × PANELS. Fewer rows go with more panels: many sums hide their latency. */
#if defined(__AVX512F__)
enum { ROWS = 12, PANELS = 2, MOST = 8 };
#elif defined(__AVX__) || defined(__ARM_NEON)
enum { ROWS = 6, PANELS = 1, MOST = 4 };
#else
enum { ROWS = 3, PANELS = 1, MOST = 2 };
#endif

ALWAYS int panels_for(int64_t rows) {
  return rows == 1 ? MOST : rows <= ROWS / 2 ? MAX(MOST / 2, PANELS) : PANELS;
}

typedef struct {
  const ACC *const *row; /* the left side: segment s of row i begins at row[s * rows + i] */
  int64_t rows, segments, begin, length; /* of each segment, `length` elements from `begin` on are used */
  const ACC *b;
  int64_t b_step, next_panel;
  ACC *c;
  int64_t c_step;
  int add; /* to what C holds already */
} product;

ALWAYS void tile(const product *p, int64_t first, ACC *c, int64_t c_step, const int rows, const int panels) {
  vec sum[ROWS][MOST * PARTS];
  const int width = panels * PARTS;
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < width; v++) sum[i][v] = (vec){0};
  if (p->add)
    for (int i = 0; i < rows; i++)
      for (int v = 0; v < width; v++) sum[i][v] = *(loose *)(c + i * c_step + v * WIDTH);
  const ACC *b = p->b;
  const int64_t b_step = p->b_step, next_panel = p->next_panel, length = p->length;
  for (int64_t s = 0; s < p->segments; s++) {
    const ACC *a[ROWS];
    for (int i = 0; i < rows; i++) a[i] = p->row[s * p->rows + first + i] + p->begin;
#pragma GCC unroll 4
    for (int64_t k = 0; k < length; k++, b += b_step) {
      vec right[MOST * PARTS];
      for (int v = 0; v < width; v++)
        right[v] = *(const loose *)(b + v / PARTS * next_panel + v % PARTS * WIDTH);
      for (int i = 0; i < rows; i++)
        for (int v = 0; v < width; v++) sum[i][v] += a[i][k] * right[v];
    }
  }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < width; v++) *(loose *)(c + i * c_step + v * WIDTH) = sum[i][v];
}

#define TILE_OF(n)                                                            \
  case n:                                                                     \
    if (panels == panels_for(n)) tile(p, first, c, c_step, n, panels_for(n)); \
    else if (panels == PANELS) tile(p, first, c, c_step, n, PANELS);          \
    else tile(p, first, c, c_step, n, 1);                                     \
    break;

static void some_rows(const product *p, int64_t first, int64_t rows, int64_t panels, ACC *c, int64_t c_step) {
  switch (rows) {
    TILE_OF(1) TILE_OF(2) TILE_OF(3)
#if defined(__AVX__) || defined(__ARM_NEON)
    TILE_OF(4) TILE_OF(5) TILE_OF(6)
#endif
#if defined(__AVX512F__)
    TILE_OF(7) TILE_OF(8) TILE_OF(9) TILE_OF(10) TILE_OF(11) TILE_OF(12)
#endif
  }
}

/* How many of `rows` rows to take next: ROWS, but so that no tile of very few rows is left for the end. */
ALWAYS int64_t next_rows(int64_t rows) {
  return rows > ROWS && rows <= ROWS + ROWS / 2 ? (rows + 1) / 2 : MIN(rows, ROWS);
}

/* All rows of `columns` columns of C from p->c on: as many as `next_columns` says. */
static void strip(const product *p, int64_t columns) {
  for (int64_t i = 0, n; i < p->rows; i += n) {
    n = next_rows(p->rows - i);
    ACC *c = p->c + i * p->c_step;
    if (columns % PANEL == 0) {
      some_rows(p, i, n, columns / PANEL, c, p->c_step);
      continue;
    }
    ACC edge[ROWS][PANEL];
    for (int64_t r = 0; r < n && p->add; r++) memcpy(edge[r], c + r * p->c_step, columns * sizeof(ACC));
    some_rows(p, i, n, 1, edge[0], PANEL);
    for (int64_t r = 0; r < n; r++) memcpy(c + r * p->c_step, edge[r], columns * sizeof(ACC));
  }
}

ALWAYS int64_t next_columns(int64_t rows, int64_t columns) {
  const int64_t most = panels_for(rows) * PANEL;
  return columns >= most ? most : MIN(columns, PANEL);
}
#endif
