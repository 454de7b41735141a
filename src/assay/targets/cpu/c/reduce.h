/* The sum, product, largest or smallest element, or mean over the middle one of three axes of a dense tensor.

   A long axis may be cut into parts, each with a result of its own for another call to go on with.
   Sums are made of shorter sums: over CHAIN elements each, then over these, which keeps their digits.
   KIND: which of them; START: what nothing is reduced to; T, W, LOAD: see storage.h; R, STORE: the type of
   results, and how a W becomes one; LAST: 1 if the third axis has one element.
   INTEGER: defined if the elements are integers; sums of these wrap, so their W has no sign.
   p: x, result; n: the length of the axis, the size of the third axis, the length and the number of the
   parts, and how many elements a mean is over.
   Grid: a row for each part of each place of the first axis, a column for each place of the third. */
#include "math.h"

#define SUM 1
#define PROD 2
#define MAXIMUM 3
#define MINIMUM 4
#define MEAN 5

enum { SIDE = 4 * LANES(W), BLOCK = 256, CHAIN = 64 };

SCALAR W take(W so_far, W x) {
#if KIND == SUM || KIND == MEAN
  return so_far + x;
#elif KIND == PROD
  return so_far * x;
#elif KIND == MAXIMUM
  return (x > so_far) | (x != x) ? x : so_far;
#else
  return (x < so_far) | (x != x) ? x : so_far;
#endif
}

static inline R made_of(W total, int64_t count) {
#if KIND != MEAN
  (void)count;
  return STORE(total);
#elif defined(INTEGER)
  return STORE((T)total / MAX(count, 1));
#else
  return STORE(total / (W)count);
#endif
}

#if LAST
/* SIDE results side by side, then two by two. */
static W reduce_chain(const T *x, int64_t length) {
  W side[SIDE], total = START;
  for (int j = 0; j < SIDE; j++) side[j] = START;
  int64_t i = 0;
  for (; i + SIDE <= length; i += SIDE)
#pragma omp simd
    for (int j = 0; j < SIDE; j++) side[j] = take(side[j], LOAD(x[i + j]));
  for (; i < length; i++) total = take(total, LOAD(x[i]));
  for (int half = SIDE / 2; half && length >= SIDE; half /= 2)
    for (int j = 0; j < half; j++) side[j] = take(side[j], side[j + half]);
  return length >= SIDE ? take(total, side[0]) : total;
}

static W reduce(const T *x, int64_t length) {
  W total = START;
  for (int64_t i = 0; i < length; i += CHAIN * SIDE)
    total = take(total, reduce_chain(x + i, MIN(CHAIN * SIDE, length - i)));
  return total;
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], part = c->n[2], parts = c->n[3];
  for (int64_t r = r0; r < r1; r++) {
    const int64_t begin = r % parts * part;
    const W total = reduce((const T *)c->p[0] + r / parts * length + begin, MIN(part, length - begin));
    ((R *)c->p[1])[r] = made_of(total, c->n[4]);
  }
}
#else
static void reduce_chain(const T *x, int64_t length, int64_t step, int64_t width, W *total) {
  for (int64_t j = 0; j < width; j++) total[j] = START;
  int64_t i = 0;
  for (; i + 4 <= length; i += 4, x += 4 * step)
#pragma omp simd
    for (int64_t j = 0; j < width; j++)
      total[j] = take(take(take(take(total[j], LOAD(x[j])), LOAD(x[step + j])), LOAD(x[2 * step + j])),
                      LOAD(x[3 * step + j]));
  for (; i < length; i++, x += step)
#pragma omp simd
    for (int64_t j = 0; j < width; j++) total[j] = take(total[j], LOAD(x[j]));
}

static void reduce(const T *x, int64_t length, int64_t step, int64_t width, W *total) {
  reduce_chain(x, MIN(CHAIN, length), step, width, total);
  for (int64_t i = CHAIN; i < length; i += CHAIN) {
    W chain[BLOCK];
    reduce_chain(x + i * step, MIN(CHAIN, length - i), step, width, chain);
    for (int64_t j = 0; j < width; j++) total[j] = take(total[j], chain[j]);
  }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], step = c->n[1], part = c->n[2], parts = c->n[3];
  for (int64_t r = r0; r < r1; r++) {
    const int64_t begin = r % parts * part;
    const T *x = (const T *)c->p[0] + (r / parts * length + begin) * step;
    for (int64_t j = c0, width; j < c1; j += width) {
      W total[BLOCK];
      width = MIN(BLOCK, c1 - j);
      reduce(x + j, MIN(part, length - begin), step, width, total);
      for (int64_t k = 0; k < width; k++) ((R *)c->p[1])[r * step + j + k] = made_of(total[k], c->n[4]);
    }
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
#endif
