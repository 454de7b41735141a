/* Rows made to have the mean 0 and the variance 1, then scaled and shifted: layer_norm, rms_norm, group_norm.

   CENTRED: 0 leaves the mean as it is (rms_norm). SCALED, SHIFTED: 0 or 1. BY_CHANNEL: 1 if a row is made of
   runs of elements, the channels, that have one scale each; else each element has its own.
   T, W, LOAD, STORE: see storage.h.
   p: x, scale if any, bias if any, result; f: epsilon; n: the length of a row; then
   by channel: the length of a run, after how many rows the channels begin anew;
   else: how far the scales of one row are from those of the next, and the biases likewise.
   Grid: x as a matrix, cut between rows only. Scratch where T is not W: a row of W. */
#include "rows.h"

/* A row's elements become (x − mean − error) · factor. */
typedef struct {
  W mean, error, factor;
} statistics;

/* How much of a row is summed up before that joins the total: a long chain of additions loses digits. */
enum { STRETCH = 128 * LANES(W) };

/* Several sums at once, over parts of a stretch, as each addition waits for the one before. */
static W sum_of_stretch(const W *x, int64_t length) {
  const int64_t part = length / 4;
  W s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < part; i++)
    s0 += x[i], s1 += x[part + i], s2 += x[2 * part + i], s3 += x[3 * part + i];
  for (int64_t i = 4 * part; i < length; i++) s0 += x[i];
  return s0 + s1 + (s2 + s3);
}

static W sum_of(const W *x, int64_t length) {
  W total = 0;
  for (int64_t i = 0; i < length; i += STRETCH) total += sum_of_stretch(x + i, MIN(STRETCH, length - i));
  return total;
}

/* Of what is left of x without the mean: the sum, and that of the squares. */
typedef struct {
  W rest, power;
} remains;

static remains remains_of_stretch(const W *x, int64_t length, W mean) {
  const int64_t part = length / 2;
  W rest = 0, rest1 = 0, power = 0, power1 = 0;
#pragma omp simd reduction(+ : rest, rest1, power, power1)
  for (int64_t i = 0; i < part; i++) {
    const W y = x[i] - mean, y1 = x[part + i] - mean;
    if (CENTRED) rest += y, rest1 += y1;
    power += y * y, power1 += y1 * y1;
  }
  if (length % 2) {
    const W y = x[length - 1] - mean;
    rest1 += y, power1 += y * y;
  }
  return (remains){rest + rest1, power + power1};
}

/* The mean is rounded; the second pass, over what is left after subtracting it, finds by how much. */
static statistics statistics_of(const W *x, int64_t length, W epsilon) {
  const W count = (W)length, mean = CENTRED ? sum_of(x, length) / count : 0;
  W rest = 0, power = 0;
  for (int64_t i = 0; i < length; i += STRETCH) {
    const remains left = remains_of_stretch(x + i, MIN(STRETCH, length - i), mean);
    rest += left.rest, power += left.power;
  }
  const W error = CENTRED ? rest / count : 0, variance = power / count - error * error;
  return (statistics){mean, error, 1 / (W)sqrt((variance < 0 ? 0 : variance) + epsilon)};
}

static inline W normal(W x, statistics s) { return (x - s.mean - s.error) * s.factor; }

static void make_row(const call *c, const W *x, statistics s, T *result, int64_t r) {
  const int64_t *n = c->n, length = n[0];
  const T *scale = (const T *)c->p[1], *bias = (const T *)c->p[1 + SCALED];
#if BY_CHANNEL
  const int64_t run = n[1], first = length / MAX(run, 1) * (r % n[2]);
  for (int64_t i = 0, channel = first; i < length; i += run, channel++) {
    const W factor = SCALED ? LOAD(scale[channel]) : 1, shift = SHIFTED ? LOAD(bias[channel]) : 0;
    for (int64_t j = i; j < i + run; j++) result[j] = STORE(normal(x[j], s) * factor + shift);
  }
#else
  scale += SCALED ? r * n[1] : 0, bias += SHIFTED ? r * n[2] : 0;
  for (int64_t i = 0; i < length; i++)
    result[i] = STORE(normal(x[i], s) * (SCALED ? LOAD(scale[i]) : 1) + (SHIFTED ? LOAD(bias[i]) : 0));
#endif
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t length = c->n[0];
  for (int64_t r = r0; r < r1; r++) {
    const W *x = wide_row((const T *)c->p[0] + r * length, length, (W *)scratch);
    make_row(c, x, statistics_of(x, length, (W)c->f[0]), (T *)c->p[1 + SCALED + SHIFTED] + r * length, r);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
