/* group_norm of a tensor whose channels lie innermost in memory.

   SCALED, SHIFTED: 0 or 1; T, W, LOAD, STORE: see storage.h.
   p: x, scale if any, bias if any, result; f: epsilon; n: the places of an image, its channels, those of a
   group. Grid: a row for each image, a column for each channel, cut between groups only.
   Scratch: six numbers for each channel. */
#include "math.h"

/* How many places are summed up before that joins the total: a long chain of additions loses digits. */
enum { CHAIN = 64 };

/* What is known of each channel: its own sums, or after `spread` those of its group. The last two are for
   chains of additions. */
typedef struct {
  W *mean, *rest, *power, *shift, *chain, *chain1;
} channels;

/* Chains that are full join the totals. */
static void join(W *restrict total, W *restrict chain, int64_t c0, int64_t c1) {
  for (int64_t j = c0; j < c1; j++) total[j] += chain[j], chain[j] = 0;
}

static void sum_up(const T *x, int64_t places, int64_t step, int64_t c0, int64_t c1, channels s) {
  for (int64_t j = c0; j < c1; j++) s.mean[j] = s.chain[j] = 0;
  for (int64_t i = 0; i < places; i++) {
#pragma omp simd
    for (int64_t j = c0; j < c1; j++) s.chain[j] += LOAD(x[i * step + j]);
    if (i % CHAIN == CHAIN - 1 || i == places - 1) join(s.mean, s.chain, c0, c1);
  }
}

/* Of what is left of x without the mean: the sum, made by the mean's rounding, and that of the squares. */
static void sum_up_rest(const T *x, int64_t places, int64_t step, int64_t c0, int64_t c1, channels s) {
  for (int64_t j = c0; j < c1; j++) s.rest[j] = s.power[j] = s.chain[j] = s.chain1[j] = 0;
  for (int64_t i = 0; i < places; i++) {
#pragma omp simd
    for (int64_t j = c0; j < c1; j++) {
      const W y = LOAD(x[i * step + j]) - s.mean[j];
      s.chain[j] += y;
      s.chain1[j] += y * y;
    }
    if (i % CHAIN != CHAIN - 1 && i != places - 1) continue;
    join(s.rest, s.chain, c0, c1);
    join(s.power, s.chain1, c0, c1);
  }
}

/* Every channel's sum becomes the mean of all of its group. */
static void spread(W *sums, int64_t c0, int64_t c1, int64_t group, int64_t places) {
  for (int64_t g = c0; g < c1; g += group) {
    W sum = 0;
    for (int64_t j = g; j < g + group; j++) sum += sums[j];
    for (int64_t j = g; j < g + group; j++) sums[j] = sum / (W)(group * places);
  }
}

/* `power` becomes what elements are multiplied with, `shift` what is added then. */
static void settle(const call *c, int64_t c0, int64_t c1, channels s) {
  const T *scale = (const T *)c->p[1], *bias = (const T *)c->p[1 + SCALED];
  for (int64_t j = c0; j < c1; j++) {
    const W variance = s.power[j] - s.rest[j] * s.rest[j];
    s.power[j] = (SCALED ? LOAD(scale[j]) : 1) / (W)sqrt((variance < 0 ? 0 : variance) + (W)c->f[0]);
    s.shift[j] = (SHIFTED ? LOAD(bias[j]) : 0) - s.rest[j] * s.power[j];
  }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t places = c->n[0], step = c->n[1], group = c->n[2];
  W *room = (W *)scratch;
  const channels s = {room, room + step, room + 2 * step, room + 3 * step, room + 4 * step, room + 5 * step};
  for (int64_t r = r0; r < r1; r++) {
    const T *x = (const T *)c->p[0] + r * places * step;
    T *result = (T *)c->p[1 + SCALED + SHIFTED] + r * places * step;
    sum_up(x, places, step, c0, c1, s);
    spread(s.mean, c0, c1, group, places);
    sum_up_rest(x, places, step, c0, c1, s);
    spread(s.rest, c0, c1, group, places);
    spread(s.power, c0, c1, group, places);
    settle(c, c0, c1, s);
    for (int64_t i = 0; i < places; i++)
#pragma omp simd
      for (int64_t j = c0; j < c1; j++)
        result[i * step + j] = STORE((LOAD(x[i * step + j]) - s.mean[j]) * s.power[j] + s.shift[j]);
  }
}
