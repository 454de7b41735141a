/* One number out of each window over three spatial axes (fewer are filled up with axes of one element).

   Results are made in runs along the innermost axis of the result in memory: the channels if CHANNELS_LAST is 1, else
   the last spatial axis. KIND: what becomes of a window; T, W, LOAD, STORE: see storage.h; START: what W begins with.
   Grid: runs across, all other axes of the result down, in the order of memory.
   p: x, result, and for POSITIONS where each lies; n: the shape of the rows, the length of a run, the strides of x
   along images and channels, three lines; f: the power of a NORM. */
#include "odometer.h"
#include "storage.h"

#define MAXIMUM 1
#define POSITIONS 2 /* the maximum, and where it lies first */
#define MEAN 3
#define MEAN_WITH_PADDING 4
#define NORM 5

enum { RUN = 256, ROW_RANK = 4, SPATIAL = 3 };

/* The windows along one axis of x. */
typedef struct {
  int64_t size, step, kernel, stride, before, after, dilation; /* `step` is the stride of x */
} line;

typedef struct {
  W value[RUN];
#if KIND == POSITIONS
  int64_t place[RUN];
#endif
  double power;
} results;

/* Take an element of x, which lies `at` within its channel, into result i. */
static inline void take(results *s, int64_t i, W item, int64_t at) {
  (void)at;
#if KIND == MAXIMUM
  s->value[i] = item > s->value[i] || item != item ? item : s->value[i];
#elif KIND == POSITIONS
  W best = s->value[i];
  int better = s->place[i] < 0 || item > best || (item != item && best == best);
  s->value[i] = better ? item : best;
  s->place[i] = better ? at : s->place[i];
#elif KIND == NORM
  s->value[i] += s->power == 2 ? item * item : s->power == 1 ? fabs(item) : pow(fabs(item), s->power);
#else
  s->value[i] += item;
#endif
}

static inline W made_of(const results *s, int64_t i, int64_t held) {
  (void)held;
#if KIND == NORM
  return s->power == 2 ? sqrt(s->value[i]) : s->power == 1 ? s->value[i] : pow(s->value[i], 1 / s->power);
#elif KIND == MEAN || KIND == MEAN_WITH_PADDING
  return s->value[i] / (W)held;
#else
  return s->value[i];
#endif
}

static inline int64_t tap(const line *l, int64_t i, int64_t k) { return i * l->stride - l->before + k * l->dilation; }

static inline int is_within(const line *l, int64_t at) { return at >= 0 && at < l->size; }

/* How many taps of window i count. */
static inline int64_t held_by(const line *l, int64_t i) {
  const int64_t before = KIND == MEAN_WITH_PADDING ? l->before : 0, after = KIND == MEAN_WITH_PADDING ? l->after : 0;
  int64_t held = 0;
  for (int64_t k = 0; k < l->kernel; k++) held += tap(l, i, k) >= -before && tap(l, i, k) < l->size + after;
  return held;
}

/* Take tap k of the last axis into `n` results of a run, the first of which is window w of that axis. */
static inline void take_run(results *s, const line *l, const T *x, int64_t at, int64_t w, int64_t k, int64_t n) {
  const int64_t first = tap(l, w, k);
#if CHANNELS_LAST
  if (!is_within(l, first)) return;
  x += first * l->step;
  for (int64_t i = 0; i < n; i++) take(s, i, LOAD(x[i]), at + first);
#else
  const int64_t begin = first < 0 ? CEIL_DIV(-first, l->stride) : 0, step = l->stride * l->step;
  const int64_t end = MIN(n, CEIL_DIV(MAX(l->size - first, 0), l->stride)), shift = first * l->step;
  for (int64_t i = begin; i < end; i++) take(s, i, LOAD(x[shift + i * step]), at + first + i * l->stride);
#endif
}

/* Make `n` results of a run, `begin` being the first, in the row with these coordinates. */
static void make_run(const call *c, const int64_t *row, int64_t begin, int64_t n, int64_t to) {
  const line *deep = (const line *)(c->n + ROW_RANK + 3), *high = deep + 1, *wide = deep + 2;
  const int64_t channel = CHANNELS_LAST ? begin : row[1], w = CHANNELS_LAST ? row[3] : begin;
  const int64_t d = row[CHANNELS_LAST ? 1 : 2], h = row[CHANNELS_LAST ? 2 : 3];
  const T *x = (const T *)c->p[0] + row[0] * c->n[ROW_RANK + 1] + channel * c->n[ROW_RANK + 2];
  results s;
  s.power = KIND == NORM ? c->f[0] : 0;
  for (int64_t i = 0; i < n; i++) s.value[i] = START;
#if KIND == POSITIONS
  for (int64_t i = 0; i < n; i++) s.place[i] = -1;
#endif
  for (int64_t kd = 0; kd < deep->kernel; kd++)
    for (int64_t kh = 0; kh < high->kernel; kh++) {
      const int64_t z = tap(deep, d, kd), y = tap(high, h, kh);
      if (!is_within(deep, z) || !is_within(high, y)) continue;
      for (int64_t kw = 0; kw < wide->kernel; kw++)
        take_run(&s, wide, x + z * deep->step + y * high->step, (z * high->size + y) * wide->size, w, kw, n);
    }
  const int64_t held = KIND == MEAN || KIND == MEAN_WITH_PADDING ? held_by(deep, d) * held_by(high, h) : 0;
  const int64_t whole = CHANNELS_LAST && held ? held_by(wide, w) : 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t along = !held ? 0 : CHANNELS_LAST ? whole : held_by(wide, w + i);
    ((T *)c->p[1])[to + i] = STORE(made_of(&s, i, held * along));
#if KIND == POSITIONS
    ((int64_t *)c->p[2])[to + i] = s.place[i];
#endif
  }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  odometer row;
  odometer_set(&row, ROW_RANK, c->n, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    for (int64_t i = c0; i < c1; i += RUN)
      make_run(c, row.at, i, MIN(RUN, c1 - i), r * c->n[ROW_RANK] + i);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
