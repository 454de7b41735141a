/* Running sums, products, extremes and sums of exponentials along the middle one of three axes of a dense
   tensor.

   KIND: which of them; T, W, LOAD, STORE: see storage.h.
   p: x, result, and for extremes where each lies (the last of equals); n: the length of the axis, the size of
   the third.
   Grid: a row for each place of the first axis, a column for each of the third. */
#include "math.h"

#define SUM 1
#define PROD 2
#define MAXIMUM 3
#define MINIMUM 4
#define LOG_SUM_EXP 5

enum { BLOCK = 256, PLACES = KIND == MAXIMUM || KIND == MINIMUM };

/* Whether x takes the place of the extreme so far; a NaN stays. */
SCALAR int is_next(W so_far, W x) {
  return (KIND == MINIMUM ? x <= so_far : x >= so_far) | (x != x);
}

SCALAR W take(W so_far, W x) {
#if KIND == SUM
  return so_far + x;
#elif KIND == PROD
  return so_far * x;
#elif KIND == LOG_SUM_EXP
  const W apart = fabs(so_far - x);
  return so_far == x ? x + log(2.0) : MAX(so_far, x) + log1p(exp(-apart));
#else
  return is_next(so_far, x) ? x : so_far;
#endif
}

/* Element i of a line; the first is there when it begins. A sum begins at 0, so that −0 becomes 0. */
SCALAR void advance(W *so_far, int64_t *place, W item, int64_t i) {
  if (PLACES) *place = is_next(*so_far, item) ? i : *place;
  *so_far = i ? take(*so_far, item) : KIND == SUM ? item + 0 : item;
}

static void scan_line(const T *x, int64_t length, T *result, int64_t *places) {
  W so_far = LOAD(x[0]);
  int64_t place = 0;
  for (int64_t i = 0; i < length; i++) {
    advance(&so_far, &place, LOAD(x[i]), i);
    result[i] = STORE(so_far);
    if (PLACES) places[i] = place;
  }
}

/* `width` lines side by side. */
static void scan_lines(const T *x, int64_t length, int64_t step, int64_t width, T *result, int64_t *places) {
  W so_far[BLOCK];
  int64_t place[BLOCK];
  for (int64_t j = 0; j < width; j++) so_far[j] = LOAD(x[j]), place[j] = 0;
  for (int64_t i = 0; i < length; i++)
    for (int64_t j = 0; j < width; j++) {
      advance(so_far + j, place + j, LOAD(x[i * step + j]), i);
      result[i * step + j] = STORE(so_far[j]);
      if (PLACES) places[i * step + j] = place[j];
    }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], step = c->n[1];
  for (int64_t r = r0; r < r1 && length; r++)
    for (int64_t j = c0; j < c1; j += BLOCK) {
      const int64_t at = r * length * step + j, width = MIN(BLOCK, c1 - j);
      const T *x = (const T *)c->p[0] + at;
      T *result = (T *)c->p[1] + at;
      int64_t *places = PLACES ? (int64_t *)c->p[2] + at : 0;
      if (step == 1) scan_line(x, length, result, places);
      else scan_lines(x, length, step, width, result, places);
    }
}
