/* Matrix products: C[row, n] = sum over k of A[row, k] · B[k, n].

   Operands: A, B, C. Numbers: M, N, K, B2; A's strides along two batch axes, m and k; B's along the batch
   axes, k and n (with PACKED, where B was laid out as panels beforehand: along the batch axes, and from
   panel to panel). The grid is (batch · M) × N, batch b being (b / B2, b % B2) of the two axes. C is dense.
   With BYTES, which goes with PACKED, B has 8-bit integers. With BLOCK, the columns of B are rows of quantised blocks
   (blocks.h), which lie as far apart as the stride along n says; that along k is 1.
   Elements: see lanes.h. Scratch: a `workspace`. */
#include "few.h"
#include "panels.h"
#include "tile.h"

#if defined(BYTES)
typedef int8_t RIGHT;
#define WIDEN_RIGHT(x) ((ACC)(x))
#elif defined(BLOCK)
typedef uint8_t RIGHT;
#else
typedef T RIGHT;
#define WIDEN_RIGHT(x) WIDEN(x)
#endif
#if defined(PACKED) && defined(IN_PLACE) && !defined(BYTES)
#define READY /* the right side is read as it is */
enum { ROW_BLOCK = 96, DEPTH = 768, PANELS_LAID_OUT = 1 };
#elif defined(BLOCK)
enum { ROW_BLOCK = 384, DEPTH = 256, PANELS_LAID_OUT = MAX(MOST, PANELS) };
#else
enum { ROW_BLOCK = 384, DEPTH = 384, PANELS_LAID_OUT = 256 / PANEL };
#endif
enum { COLUMN_BLOCK = 256, NEXT = PANEL * (DEPTH + 1) }; /* panels must not compete for lines of the cache */

typedef struct {
  const ACC *row[ROW_BLOCK];
  ACC left[ROW_BLOCK * DEPTH], panels[PANELS_LAID_OUT * NEXT];
#ifndef IN_PLACE
  ACC sums[ROW_BLOCK * COLUMN_BLOCK];
#endif
#ifdef BLOCK
  ACC columns[PANEL * (DEPTH + WIDTH)];
#endif
} workspace;
_Static_assert(sizeof(workspace) <= 1 << 21, "as kernels/matmul.py has it");

/* Where the right side lies, from k on in some columns: the first panel, how far apart rows and panels are. */
typedef struct {
  const ACC *first;
  int64_t step, next;
} panels;

#ifdef BLOCK
/* `length` numbers of `columns` columns of blocks, which are `step` bytes apart, as panels. */
static void lay_out_blocks(workspace *w, const uint8_t *b, int64_t step, int64_t length, int64_t columns) {
  for (int64_t j = 0; j < columns; j += PANEL) {
    const int64_t some = MIN(PANEL, columns - j);
    for (int64_t i = 0; i < some; i++)
      for (int64_t k = 0; k < length; k += ELEMENTS) {
        const uint8_t *block = b + (j + i) * step + FROM(k);
        const scaling by = scaling_of(block);
        EACH_NUMBER(e)
          *(loose *)(w->columns + i * (DEPTH + WIDTH) + k + e) = numbers_at(block, &by, e);
      }
    copy_block(w->panels + j / PANEL * NEXT, PANEL, w->columns, 1, DEPTH + WIDTH, length, some);
  }
}
#endif

/* The right side from k on, in `columns` columns from j on: as it is, or laid out as panels in `w`. */
static panels place_right(const product *p, workspace *w, const int64_t *n, const RIGHT *b, int64_t k, int64_t j,
                          int64_t columns) {
#if defined(READY)
  (void)p, (void)w, (void)columns;
  return (panels){b + j / PANEL * n[10] + k * PANEL, PANEL, n[10]};
#elif defined(PACKED)
  b += j / PANEL * n[10] + k * PANEL;
  for (int64_t i = 0; i * PANEL < columns; i++)
    for (int64_t e = 0; e < p->length * PANEL; e++) w->panels[i * NEXT + e] = WIDEN_RIGHT(b[i * n[10] + e]);
  return (panels){w->panels, PANEL, NEXT};
#elif defined(BLOCK)
  lay_out_blocks(w, b + FROM(k) + j * n[11], n[11], p->length, columns);
  return (panels){w->panels, PANEL, NEXT};
#else
  b += k * n[10] + j * n[11];
#ifdef IN_PLACE
  const int serves_one_tile = n[11] == 1 && columns % PANEL == 0 && p->rows <= ROWS;
  if (serves_one_tile) return (panels){b, n[10], PANEL};
#endif
  lay_out(w->panels, NEXT, b, n[10], n[11], p->length, columns);
  return (panels){w->panels, PANEL, NEXT};
#endif
}

/* Point `p` at the left side from k on. */
static void place_left(product *p, workspace *w, const int64_t *n, const T *a, int64_t k) {
  p->row = w->row;
#ifdef IN_PLACE
  if (n[7] == 1) {
    for (int64_t i = 0; i < p->rows; i++) w->row[i] = a + i * n[6] + k;
    return;
  }
#endif
  for (int64_t i = 0; i < p->rows; i++) w->row[i] = w->left + i * DEPTH;
  copy_block(w->left, DEPTH, a + k * n[7], n[6], n[7], p->rows, p->length);
}

/* Whether the columns of the right side lie in one stretch each, and are laid out some at a time: each is read from end
   to end, and panels are used while they are in the first cache. */
ALWAYS int are_stretches(const int64_t *n) {
#ifdef PACKED
  (void)n;
  return 0;
#else
  return n[10] == 1; /* always so for blocks */
#endif
}

/* What is laid out after the columns before j: those behind them, or the first ones further down. */
ALWAYS coming read_next(const int64_t *n, const RIGHT *b, int64_t k, int64_t j, int64_t c0, int64_t c1) {
  const int64_t from = j < c1 ? k : k + DEPTH, length = MIN(DEPTH, n[2] - from), size = sizeof(RIGHT);
  if (length <= 0) return (coming){0};
  const int64_t first = j < c1 ? j : c0, columns = MIN(PANEL, c1 - first), lines = CEIL_DIV(FROM(length) * size, 64);
  return (coming){(const char *)(b + FROM(from) + first * n[11]), columns, lines, n[11] * size};
}

/* `rows` rows of C in the columns c0 to c1, from `out` on. */
static void block(const int64_t *n, workspace *w, const T *a, const RIGHT *b, T *out, int64_t rows, int64_t c0,
                  int64_t c1) {
  const int64_t N = n[1], K = n[2];
#ifdef IN_PLACE
  product p = {.rows = rows, .segments = 1, .c = out, .c_step = N};
#else
  product p = {.rows = rows, .segments = 1, .c = w->sums, .c_step = COLUMN_BLOCK};
#endif
  ACC *first = p.c;
  for (int64_t k = 0; k == 0 || k < K; k += DEPTH) {
    p.length = MIN(DEPTH, K - k);
    p.add = k > 0;
    place_left(&p, w, n, a, k);
    panels right = {0};
    for (int64_t j = c0, at = c0, columns; j < c1; j += columns) {
      columns = next_columns(rows, c1 - j);
      if (j == c0 || are_stretches(n)) {
        right = place_right(&p, w, n, b, k, j, are_stretches(n) ? columns : c1 - c0);
        at = j;
      }
      p.b = right.first + (j - at) / PANEL * right.next;
      p.b_step = right.step;
      p.next_panel = right.next;
      p.c = first + j - c0;
      p.next = are_stretches(n) ? read_next(n, b, k, j + columns, c0, c1) : (coming){0};
      strip(&p, columns);
    }
  }
#ifndef IN_PLACE
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < c1 - c0; j++) out[i * N + j] = NARROW(w->sums[i * COLUMN_BLOCK + j]);
#endif
}

#if defined(IN_PLACE) && !defined(PACKED) && !defined(BLOCK)
#define STREAMED /* one row times rows that lie in one stretch each */

/* One row of C. The right side is read as it lies: SIDE_BY_SIDE stretches at once, from end to end, as memory gives these
   faster than short pieces. Each sum is that of a tile. */
static void stream(const int64_t *n, ACC *restrict sums, const T *a, const T *b, T *c, int64_t columns) {
  enum { SIDE_BY_SIDE = 8 };
  const int64_t K = n[2], a_step = n[7], step = n[10];
  for (int64_t k = 0; k == 0 || k < K; k += CHAIN) {
    const int64_t end = MIN(k + CHAIN, K);
    memset(sums, 0, columns * sizeof(ACC));
    int64_t i = k;
    for (; i + SIDE_BY_SIDE <= end; i += SIDE_BY_SIDE) {
      ACC left[SIDE_BY_SIDE];
      for (int r = 0; r < SIDE_BY_SIDE; r++) left[r] = a[(i + r) * a_step];
      const T *right = b + i * step;
      for (int64_t j = 0; j < columns; j++) {
        ACC sum = sums[j];
#pragma GCC unroll 8
        for (int r = 0; r < SIDE_BY_SIDE; r++) sum += left[r] * right[r * step + j];
        sums[j] = sum;
      }
    }
    for (; i < end; i++)
      for (int64_t j = 0; j < columns; j++) sums[j] += a[i * a_step] * b[i * step + j];
    for (int64_t j = 0; j < columns; j++) c[j] = k ? c[j] + sums[j] : sums[j];
  }
}
#endif

#ifndef PACKED
/* Whether rows and columns lie in one stretch each, and the rows are few. */
ALWAYS int are_few(const int64_t *n) { return n[0] <= FEW && n[7] == 1 && n[10] == 1; }
#endif

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t *n = c->n, M = n[0], N = n[1];
  for (int64_t r = r0, rows; r < r1; r += rows) {
    const int64_t batch = r / M, m = r % M, left = MIN(M - m, r1 - r);
    rows = CEIL_DIV(left, CEIL_DIV(left, ROW_BLOCK));
    const T *a = (const T *)c->p[0] + batch / n[3] * n[4] + batch % n[3] * n[5] + m * n[6];
    const RIGHT *b = (const RIGHT *)c->p[1] + batch / n[3] * n[8] + batch % n[3] * n[9];
#ifndef PACKED
    if (are_few(n)) {
      dots d = {a, b + c0 * n[11], n[6], n[11], n[2], ((workspace *)scratch)->left};
#ifdef BLOCK
      d.sums = sums_of(a, n[6], n[2], rows, d.wide, ROW_BLOCK * DEPTH);
#endif
      few_rows(d, (T *)c->p[2] + r * N + c0, N, rows, c1 - c0);
      finish(c, scratch, r, r + rows, c0, c1);
      continue;
    }
#endif
#ifdef STREAMED
    if (rows == 1 && n[11] == 1 && c1 - c0 <= PANELS_LAID_OUT * NEXT) {
      stream(n, ((workspace *)scratch)->panels, a, b + c0, (T *)c->p[2] + r * N + c0, c1 - c0);
      finish(c, scratch, r, r + 1, c0, c1);
      continue;
    }
#endif
    for (int64_t j = c0; j < c1; j += COLUMN_BLOCK) {
      const int64_t end = MIN(c1, j + COLUMN_BLOCK);
      block(n, (workspace *)scratch, a, b, (T *)c->p[2] + r * N + j, rows, j, end);
      finish(c, scratch, r, r + rows, j, end);
    }
  }
}
