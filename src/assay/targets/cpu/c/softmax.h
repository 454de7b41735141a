/* softmax, log_softmax and log_sum_exp along one axis of a dense tensor.

   KIND: which of them; T, W, LOAD, STORE: see storage.h.
   p: x, result; n: the length of the axis, the number of elements below it.
   If the axis is the LAST one (1), the grid is that of x as a matrix, cut between rows only. Else a row is
   all that lies below one place of the axes above, and a column one element of it.
   Scratch: a row of W; if the axis is not the last, BLOCK of them. */
#include "exponential.h"
#include "rows.h"

#define SOFTMAX 1
#define LOG_SOFTMAX 2
#define LOG_SUM_EXP 3

/* Columns that are done side by side; how many exponentials one lane sums up before that joins the total. */
enum { BLOCK = 64, CHAIN = 64 };

/* What is left of x where its exponential is taken: an infinite peak would make NaN of itself in a sum. */
static inline W base_of(W peak) { return KIND == LOG_SUM_EXP && isinf(peak) ? 0 : peak; }

static inline W shrunk(W x, W base) { return KIND == LOG_SUM_EXP ? EXP(x - base) : EXP_FALLING(x - base); }

#if LAST
static void make_row(const T *stored, T *result, W *room, int64_t length) {
  const W *x = wide_row(stored, length, room);
  W *grown = sizeof(T) == sizeof(W) && KIND == SOFTMAX ? (W *)result : room, peak = -INFINITY, sum = 0;
#pragma omp simd reduction(max : peak)
  for (int64_t i = 0; i < length; i++) peak = x[i] > peak ? x[i] : peak;
  const W base = base_of(peak);
  for (int64_t first = 0, end; first < length; first = end) {
    W chain = 0;
    end = MIN(first + CHAIN * LANES(W), length);
#pragma omp simd reduction(+ : chain)
    for (int64_t i = first; i < end; i++) {
      const W y = shrunk(x[i], base);
      if (KIND == SOFTMAX) grown[i] = y;
      chain += y;
    }
    sum += chain;
  }
#if KIND == SOFTMAX
  const W factor = 1 / sum;
  for (int64_t i = 0; i < length; i++) result[i] = STORE(grown[i] * factor);
#elif KIND == LOG_SOFTMAX
  const W lost = LOG(sum);
  for (int64_t i = 0; i < length; i++) result[i] = STORE(x[i] - base - lost);
#else
  *result = STORE(LOG(sum) + base);
#endif
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], results = KIND == LOG_SUM_EXP ? 1 : length;
  for (int64_t r = r0; r < r1; r++) {
    make_row((const T *)c->p[0] + r * length, (T *)c->p[1] + r * results, (W *)scratch, length);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
#else
/* `width` neighbouring columns. */
static void make_columns(const T *x, T *result, W *grown, int64_t length, int64_t step, int64_t width) {
  W base[BLOCK], sum[BLOCK], chain[BLOCK];
  for (int64_t j = 0; j < width; j++) base[j] = -INFINITY, sum[j] = chain[j] = 0;
  for (int64_t i = 0; i < length; i++)
    for (int64_t j = 0; j < width; j++) {
      const W item = LOAD(x[i * step + j]);
      base[j] = item > base[j] ? item : base[j];
    }
  for (int64_t j = 0; j < width; j++) base[j] = base_of(base[j]);
  for (int64_t i = 0; i < length; i++) {
#pragma omp simd
    for (int64_t j = 0; j < width; j++) {
      const W y = shrunk(LOAD(x[i * step + j]), base[j]);
      if (KIND == SOFTMAX) grown[i * BLOCK + j] = y;
      chain[j] += y;
    }
    if (i % CHAIN == CHAIN - 1 || i == length - 1)
      for (int64_t j = 0; j < width; j++) sum[j] += chain[j], chain[j] = 0;
  }
  for (int64_t j = 0; j < width; j++) sum[j] = KIND == SOFTMAX ? 1 / sum[j] : LOG(sum[j]);
#if KIND == LOG_SUM_EXP
  for (int64_t j = 0; j < width; j++) result[j] = STORE(sum[j] + base[j]);
#else
  for (int64_t i = 0; i < length; i++)
#pragma omp simd
    for (int64_t j = 0; j < width; j++)
      result[i * step + j] = KIND == SOFTMAX ? STORE(grown[i * BLOCK + j] * sum[j])
                                             : STORE(LOAD(x[i * step + j]) - base[j] - sum[j]);
#endif
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0], step = c->n[1], results = (KIND == LOG_SUM_EXP ? 1 : length) * step;
  for (int64_t r = r0; r < r1; r++)
    for (int64_t j = c0; j < c1; j += BLOCK) {
      const T *x = (const T *)c->p[0] + r * length * step + j;
      make_columns(x, (T *)c->p[1] + r * results + j, (W *)scratch, length, step, MIN(BLOCK, c1 - j));
    }
}
#endif
