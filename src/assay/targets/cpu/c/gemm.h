/* Matrix products: C[row, n] = sum over k of A[row, k] · B[k, n].

   Operands: A, B, C. Numbers: M, N, K, B2; A's strides along two batch axes, m and k; B's along the batch
   axes, k and n (with PACKED, where B was laid out as panels beforehand: along the batch axes, and from
   panel to panel). The grid is (batch · M) × N, batch b being (b / B2, b % B2) of the two axes. C is dense.
   With BYTES, which goes with PACKED, B has 8-bit integers.
   Elements: see lanes.h. Scratch: a `workspace`. */
#include "panels.h"
#include "tile.h"

enum { ROW_BLOCK = 96, COLUMN_BLOCK = 256 };
#ifdef BYTES
typedef int8_t RIGHT;
#else
typedef T RIGHT;
#endif
#if defined(PACKED) && defined(IN_PLACE) && !defined(BYTES)
enum { DEPTH = 768 };
#else
enum { DEPTH = 256 };
#endif

typedef struct {
  const ACC *row[ROW_BLOCK];
  ACC left[ROW_BLOCK * DEPTH], sums[ROW_BLOCK * COLUMN_BLOCK], panels[MOST * PANEL * DEPTH];
} workspace;

/* Point `p` at the right side from k on, in `columns` columns from j on. */
static void place_right(product *p, workspace *w, const int64_t *n, const RIGHT *b, int64_t k, int64_t j,
                        int64_t columns) {
#ifdef PACKED
  const int64_t along_k = PANEL, along_n = 1, next_panel = n[10], ready = 1;
  b += j / PANEL * n[10] + k * PANEL;
#else
  const int64_t along_k = n[10], along_n = n[11], next_panel = PANEL * n[11];
  const int64_t ready = along_n == 1 && columns % PANEL == 0 && p->rows <= ROWS; /* serves one tile only */
  b += k * along_k + j * along_n;
#endif
#if defined(IN_PLACE) && !defined(BYTES)
  if (ready) {
    p->b = b;
    p->b_step = along_k;
    p->next_panel = next_panel;
    return;
  }
#endif
  (void)ready;
  p->b = w->panels;
  p->b_step = PANEL;
  p->next_panel = PANEL * DEPTH;
#ifdef BYTES
  (void)along_k, (void)along_n;
  for (int64_t i = 0; i * PANEL < columns; i++)
    for (int64_t e = 0; e < p->length * PANEL; e++) w->panels[i * PANEL * DEPTH + e] = b[i * next_panel + e];
#else
  for (int64_t i = 0; i * PANEL < columns; i++)
    copy_block(w->panels + i * PANEL * DEPTH, PANEL, b + i * next_panel, along_k, along_n, p->length,
               MIN(PANEL, columns - i * PANEL));
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
    for (int64_t j = c0, columns; j < c1; j += columns) {
      columns = next_columns(rows, c1 - j);
      place_right(&p, w, n, b, k, j, columns);
      p.c = first + j - c0;
      strip(&p, columns);
    }
  }
#ifndef IN_PLACE
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < c1 - c0; j++) out[i * N + j] = NARROW(w->sums[i * COLUMN_BLOCK + j]);
#endif
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t *n = c->n, M = n[0], N = n[1];
  for (int64_t r = r0, rows; r < r1; r += rows) {
    const int64_t batch = r / M, m = r % M, left = MIN(M - m, r1 - r);
    rows = CEIL_DIV(left, CEIL_DIV(left, ROW_BLOCK));
    const T *a = (const T *)c->p[0] + batch / n[3] * n[4] + batch % n[3] * n[5] + m * n[6];
    const RIGHT *b = (const RIGHT *)c->p[1] + batch / n[3] * n[8] + batch % n[3] * n[9];
    for (int64_t j = c0; j < c1; j += COLUMN_BLOCK) {
      const int64_t end = MIN(c1, j + COLUMN_BLOCK);
      block(n, (workspace *)scratch, a, b, (T *)c->p[2] + r * N + j, rows, j, end);
      finish(c, scratch, r, r + rows, j, end);
    }
  }
}
