/* Matrix products: C[row, n] = sum over k of A[row, k] · B[k, n].

   Operands: A, B, C. Numbers: M, N, K, B2; A's strides along two batch axes, m and k; B's along the batch axes, k and n
   (with B_PANELS, where B was laid out as panels beforehand: along the batch axes and from panel to panel).
   The grid is (batch · M) × N, batch b being (b / B2, b % B2) of the two axes. C is dense.
   T: elements of A, C and plain B; B_T: of panels; ACC: of the sums; IN_PLACE: T is ACC. Scratch: a `workspace`. */
#ifdef B_PANELS
#define RIGHT B_T
#else
#define B_T ACC
#define RIGHT T
#endif
#include "panels.h"
#include "tile.h"

enum { ROW_BLOCK = 96, COLUMN_BLOCK = 256 };
#ifdef B_PANELS
enum { DEPTH = 768 };
#else
enum { DEPTH = 256 };
#endif

typedef struct {
  const ACC *row[ROW_BLOCK];
  ACC left[ROW_BLOCK * DEPTH];
#ifndef IN_PLACE
  ACC sums[ROW_BLOCK * COLUMN_BLOCK];
#endif
#ifndef B_PANELS
  ACC panels[MOST * PANEL * DEPTH];
#endif
} workspace;

/* Point `p` at the right side's rows from k on in `columns` columns from j on. */
static void place_right(product *p, workspace *w, const int64_t *n, const RIGHT *b, int64_t k, int64_t j, int64_t columns) {
#ifdef B_PANELS
  p->b = b + j / PANEL * n[10] + k * PANEL;
  p->b_step = PANEL;
  p->next_panel = n[10];
#else
  const T *from = b + k * n[10] + j * n[11];
#ifdef IN_PLACE
  if (n[11] == 1 && columns % PANEL == 0 && p->rows <= ROWS) {
    p->b = from;
    p->b_step = n[10];
    p->next_panel = PANEL;
    return;
  }
#endif
  p->b = w->panels;
  p->b_step = PANEL;
  p->next_panel = PANEL * DEPTH;
  for (int64_t first = 0; first < columns; first += PANEL)
    copy_block(w->panels + first * DEPTH, PANEL, from + first * n[11], n[10], n[11], p->length, MIN(PANEL, columns - first));
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

static void block(const call *c, workspace *w, const T *a, const RIGHT *b, T *out, int64_t rows, int64_t c0, int64_t c1) {
  const int64_t *n = c->n, N = n[1], K = n[2];
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
      block(c, (workspace *)scratch, a, b, (T *)c->p[2] + r * N + j, rows, j, end);
      finish(c, scratch, r, r + rows, j, end);
    }
  }
}
