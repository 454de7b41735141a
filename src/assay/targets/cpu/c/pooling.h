/* One number out of each window over three spatial axes (fewer are filled up with axes of one element).

   Results are made in runs along the innermost axis of the result in memory: the channels if CHANNELS_LAST is
   1, else the last spatial axis, on which neighbouring windows are STEP elements of x apart.
   KIND: what becomes of a window; T, W, LOAD, STORE: see storage.h; START: what W begins with.
   Grid: runs across, all other axes of the result down, in the order of memory.
   p: x, result, and for POSITIONS where each lies; n: the shape of the rows, the length of a run, the strides
   of x along images and channels, three lines; f: the power of a NORM. */
#include "odometer.h"

#define MAXIMUM 1
#define POSITIONS 2 /* the maximum, and where it lies: first, NaN last */
#define MEAN 3
#define MEAN_WITH_PADDING 4
#define NORM 5

#define ALWAYS static inline __attribute__((always_inline))

enum { RUN = 64, ROW_RANK = 4 };

/* The windows along one axis of x. */
typedef struct {
  int64_t size, step, kernel, stride, before, after, dilation; /* `step` is the stride of x */
} line;

/* What is known of the windows of a run so far. */
typedef struct {
  W value[RUN];
#if KIND == POSITIONS
  int64_t place[RUN];
#elif KIND == MEAN || KIND == MEAN_WITH_PADDING
  W held[RUN];
#endif
  double power;
} results;

/* From one number to another. */
typedef struct {
  int64_t begin, end;
} range;

/* Take an element of x, which lies `at` within its channel, into result i. */
ALWAYS void take(results *s, int64_t i, W item, int64_t at) {
  (void)at;
#if KIND == MAXIMUM
  s->value[i] = item > s->value[i] || item != item ? item : s->value[i];
#elif KIND == POSITIONS
  int better = s->place[i] < 0 || item > s->value[i] || item != item;
  s->value[i] = better ? item : s->value[i];
  s->place[i] = better ? at : s->place[i];
#elif KIND == NORM
  s->value[i] += s->power == 2 ? item * item : s->power == 1 ? fabs(item) : pow(fabs(item), s->power);
#else
  s->value[i] += item;
#endif
}

ALWAYS void begin_run(results *s, double power, int64_t n) {
  s->power = power;
  for (int64_t i = 0; i < n; i++) {
    s->value[i] = START;
#if KIND == POSITIONS
    s->place[i] = -1;
#elif KIND == MEAN || KIND == MEAN_WITH_PADDING
    s->held[i] = 0;
#endif
  }
}

ALWAYS W made_of(const results *s, int64_t i) {
#if KIND == NORM
  return s->power == 2 ? sqrt(s->value[i]) : s->power == 1 ? s->value[i] : pow(s->value[i], 1 / s->power);
#elif KIND == MEAN || KIND == MEAN_WITH_PADDING
  return s->value[i] / s->held[i];
#else
  return s->value[i];
#endif
}

/* The steps of `stride` from `start` on, `count` at most, that lead to 0 … size − 1. */
ALWAYS range steps_within(int64_t start, int64_t stride, int64_t size, int64_t count) {
  if (start >= 0 && start + (count - 1) * stride < size) return (range){0, count};
  int64_t begin = start < 0 ? CEIL_DIV(-start, stride) : 0;
  return (range){begin, MAX(MIN(count, CEIL_DIV(MAX(size - start, 0), stride)), begin)};
}

/* The taps of window i that lie in x. */
ALWAYS range taps(const line *l, int64_t i) {
  return steps_within(i * l->stride - l->before, l->dilation, l->size, l->kernel);
}

/* Where window i has tap k. */
ALWAYS int64_t tap(const line *l, int64_t i, int64_t k) {
  return i * l->stride - l->before + k * l->dilation;
}

#if KIND == MEAN || KIND == MEAN_WITH_PADDING
/* How many taps of window i count. */
ALWAYS int64_t held_by(const line *l, int64_t i) {
  if (KIND == MEAN) return taps(l, i).end - taps(l, i).begin;
  return steps_within(i * l->stride, l->dilation, l->before + l->size + l->after, l->kernel).end;
}

ALWAYS void count(results *s, const line *wide, int64_t w, int64_t n, int64_t of_others) {
#if CHANNELS_LAST
  const W held = (W)(of_others * held_by(wide, w));
  for (int64_t i = 0; i < n; i++) s->held[i] = held;
#else
  const int64_t padded = KIND == MEAN_WITH_PADDING;
  const int64_t shift = padded ? 0 : wide->before, size = wide->size + padded * (wide->before + wide->after);
  for (int64_t k = 0; k < wide->kernel; k++) {
    const range r = steps_within(w * wide->stride - shift + k * wide->dilation, wide->stride, size, n);
    for (int64_t i = r.begin; i < r.end; i++) s->held[i] += (W)of_others;
  }
#endif
}
#endif

/* Take a row of x into `n` results, the first of which is window w of the last axis; `at` is where the row
   begins. */
ALWAYS void take_row(results *s, const line *l, const T *x, int64_t at, int64_t w, int64_t n) {
#if CHANNELS_LAST
  const range r = taps(l, w);
  for (int64_t k = r.begin; k < r.end; k++) {
    const int64_t place = tap(l, w, k);
    const T *from = x + place * l->step;
    for (int64_t i = 0; i < n; i++) take(s, i, LOAD(from[i]), at + place);
  }
#else
  for (int64_t k = 0; k < l->kernel; k++) {
    const int64_t first = tap(l, w, k);
    const range r = steps_within(first, l->stride, l->size, n);
    const T *from = x + (first + r.begin * l->stride) * l->step;
    for (int64_t i = 0; i < r.end - r.begin; i++)
      take(s, i + r.begin, LOAD(from[i * (STEP)]), at + first + (i + r.begin) * l->stride);
  }
#endif
}

/* Make `n` results of a run, `begin` being the first, in the row with these coordinates. */
ALWAYS void make_run(const call *c, const int64_t *row, int64_t begin, int64_t n, int64_t to) {
  const line *deep = (const line *)(c->n + ROW_RANK + 3), *high = deep + 1, *wide = deep + 2;
  const int64_t channel = CHANNELS_LAST ? begin : row[1], w = CHANNELS_LAST ? row[3] : begin;
  const int64_t d = row[CHANNELS_LAST ? 1 : 2], h = row[CHANNELS_LAST ? 2 : 3];
  const T *x = (const T *)c->p[0] + row[0] * c->n[ROW_RANK + 1] + channel * c->n[ROW_RANK + 2];
  const range z = taps(deep, d), y = taps(high, h);
  results s;
  begin_run(&s, KIND == NORM ? c->f[0] : 0, n);
#if KIND == MEAN || KIND == MEAN_WITH_PADDING
  count(&s, wide, w, n, held_by(deep, d) * held_by(high, h));
#endif
  for (int64_t kd = z.begin; kd < z.end; kd++)
    for (int64_t kh = y.begin; kh < y.end; kh++) {
      const int64_t plane = tap(deep, d, kd), at_high = tap(high, h, kh);
      const int64_t at = (plane * high->size + at_high) * wide->size;
      take_row(&s, wide, x + plane * deep->step + at_high * high->step, at, w, n);
    }
  for (int64_t i = 0; i < n; i++) {
    ((T *)c->p[1])[to + i] = STORE(made_of(&s, i));
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
      if (i + RUN <= c1) make_run(c, row.at, i, RUN, r * c->n[ROW_RANK] + i);
      else make_run(c, row.at, i, c1 - i, r * c->n[ROW_RANK] + i);
    finish(c, scratch, r, r + 1, c0, c1);
  }
}
