/* Register tiles: the innermost loops that matrix products and convolutions share.

   A tile is a few rows by a few panels of C. Each element of C is a sum of sums: chains of at most CHAIN
   fused multiply-adds over k in rising order, each added to C when it is full, as a long chain loses the
   more digits the longer it gets. No result depends on how rows and columns were cut.
   A *panel* is PANEL columns of the right side; its rows are `b_step` elements apart. */
#ifndef TILE_H
#define TILE_H
#include "lanes.h"

/* The registers hold ROWS × PANELS. Fewer rows go with more panels: many sums hide their latency. A panel of
   two vectors may be cut in half. */
#if defined(__AVX512F__)
enum { ROWS = 12, PANELS = 2, MOST = 8 };
#elif defined(__AVX__) || defined(__ARM_NEON)
enum { ROWS = 6, PANELS = 1, MOST = 4 };
#else
enum { ROWS = 3, PANELS = 1, MOST = 2 };
#endif
enum { SUMS = ROWS * PANELS * PARTS, UNIT = PARTS == 2 ? WIDTH : PANEL, CHAIN = 128 };

ALWAYS int64_t panels_for(int64_t rows) {
  return rows == 1 ? MOST : rows <= ROWS / 2 ? MAX(MOST / 2, PANELS) : PANELS;
}

/* How many of `columns` columns to take next: as many panels as the registers hold, or half of them, or a quarter, down
   to one. */
ALWAYS int64_t next_columns(int64_t rows, int64_t columns) {
  if (PARTS == 2 && rows > ROWS / 2 && columns == PANEL + WIDTH) return columns;
  int64_t some = panels_for(rows);
  while (some > 1 && columns < some * PANEL) some /= 2;
  return MIN(columns, some * PANEL);
}

/* How many of `rows` rows to take next: all that the registers hold, but so that no tile of very few rows is
   left for the end. */
ALWAYS int64_t next_rows(int64_t rows, int64_t width) {
  const int64_t most = MIN(ROWS, SUMS / width);
  return rows > most && rows <= most + most / 2 ? (rows + 1) / 2 : MIN(rows, most);
}

/* Memory that is read soon: pieces of some lines of the cache each, `step` bytes apart. */
typedef struct {
  const char *first;
  int64_t pieces, lines, step;
} coming;

typedef struct {
  const ACC *const *row; /* the left side: segment s of row i begins at row[s * rows + i] */
  int64_t rows, segments, begin, length; /* of each segment, `length` elements from `begin` on are used */
  const ACC *b;
  int64_t b_step, next_panel;
  ACC *c;
  int64_t c_step;
  int add; /* to what C holds already */
  coming next;
} product;

/* Loops over the registers of a tile are unrolled, or it would not live in registers. */
#define EACH_ROW _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++)
#define EACH_VECTOR _Pragma("GCC unroll 16") for (int v = 0; v < width; v++)
#define KEEP_SUMS                                                                           \
  do {                                                                                      \
    if (add) EACH_ROW EACH_VECTOR sum[i][v] += *(loose *)(c + i * c_step + v * WIDTH);      \
    EACH_ROW EACH_VECTOR *(loose *)(c + i * c_step + v * WIDTH) = sum[i][v];                \
  } while (0)

/* A tile of `rows` rows and `width` vectors. */
ALWAYS void tile(const product *p, int64_t first, ACC *c, int64_t c_step, const int rows, const int width) {
  vec sum[ROWS][MOST * PARTS];
  EACH_ROW EACH_VECTOR sum[i][v] = (vec){0};
  const ACC *b = p->b;
  const int64_t b_step = p->b_step, next_panel = p->next_panel, length = p->length;
  int64_t room = CHAIN;
  int add = p->add;
  for (int64_t s = 0; s < p->segments; s++) {
    const ACC *a[ROWS];
    EACH_ROW a[i] = p->row[s * p->rows + first + i] + p->begin;
    for (int64_t left = length, n; left > 0; left -= n, room -= n) {
      if (room == 0) {
        KEEP_SUMS;
        EACH_ROW EACH_VECTOR sum[i][v] = (vec){0};
        room = CHAIN;
        add = 1;
      }
      n = MIN(left, room);
#pragma GCC unroll 4
      for (int64_t k = 0; k < n; k++, b += b_step) {
        vec right[MOST * PARTS];
        EACH_VECTOR right[v] = *(const loose *)(b + v / PARTS * next_panel + v % PARTS * WIDTH);
        EACH_ROW EACH_VECTOR sum[i][v] += a[i][k] * right[v];
        if (rows * width == 1) HOLD(sum[0][0]); /* GCC for Zen does not fuse what it sees to be a single chain */
      }
      EACH_ROW a[i] += n;
    }
  }
  KEEP_SUMS;
}
#undef KEEP_SUMS
#undef EACH_ROW
#undef EACH_VECTOR

#define TILE(n, w)                      \
  case (n) * 32 + (w):                  \
    tile(p, first, c, c_step, (n), (w)); \
    break;
#define TILES_3(w) TILE(1, w) TILE(2, w) TILE(3, w)
#define TILES_6(w) TILES_3(w) TILE(4, w) TILE(5, w) TILE(6, w)
#define TILES_12(w) TILES_6(w) TILE(7, w) TILE(8, w) TILE(9, w) TILE(10, w) TILE(11, w) TILE(12, w)

/* The tiles that `next_rows` and `next_columns` lead to. */
static void some_rows(const product *p, int64_t first, int64_t rows, int64_t width, ACC *c, int64_t c_step) {
  switch (rows * 32 + width) {
#if defined(__AVX512F__)
    TILES_12(1) TILES_12(2) TILE(2, 4) TILE(3, 4) TILE(4, 4) TILE(5, 4) TILE(6, 4) TILE(1, 4) TILE(1, 8)
#elif defined(__AVX__)
    TILES_6(1) TILES_6(2) TILES_3(3) TILE(4, 3) TILE(2, 4) TILE(3, 4) TILE(1, 4) TILE(1, 8)
#elif defined(__ARM_NEON)
    TILES_6(4) TILE(2, 8) TILE(3, 8) TILE(1, 8) TILE(1, 16)
#else
    TILES_3(4) TILE(1, 8)
#endif
  }
}

/* Prefetch what is read soon: as much of it as the rows from `from` to `to` are of all rows. So the requests are spread
   over the tiles; all at once they would have to wait for each other. */
ALWAYS void ask_for_next(const product *p, int64_t from, int64_t to) {
  const coming *next = &p->next;
  const int64_t all = next->pieces * next->lines, end = all * to / p->rows;
  for (int64_t i = all * from / p->rows; i < end; i++)
    __builtin_prefetch(next->first + i / next->lines * next->step + i % next->lines * 64, 0, 2);
}

/* All rows of `columns` columns of C from p->c on: as many as `next_columns` says. */
static void strip(const product *p, int64_t columns) {
  const int64_t width = CEIL_DIV(columns, UNIT) * (UNIT / WIDTH);
  for (int64_t i = 0, n; i < p->rows; i += n) {
    n = next_rows(p->rows - i, width);
    ACC *c = p->c + i * p->c_step;
    if (p->next.pieces > 0) ask_for_next(p, i, i + n);
    if (columns % UNIT == 0) {
      some_rows(p, i, n, width, c, p->c_step);
      continue;
    }
    ACC edge[ROWS][PANEL];
    for (int64_t r = 0; r < n && p->add; r++) memcpy(edge[r], c + r * p->c_step, columns * sizeof(ACC));
    some_rows(p, i, n, width, edge[0], PANEL);
    for (int64_t r = 0; r < n; r++) memcpy(c + r * p->c_step, edge[r], columns * sizeof(ACC));
  }
}
#endif
