/* Convolutions of each channel by itself, many channels at a time.

   Operands: x, panels (PANEL channels next to each other for each kernel position), result. Numbers: a
   `shape`. The grid is (images · output pixels) × channels; the result lies in that order. Elements: see
   lanes.h. TAPS: kernel positions along the last axis that are done at once, of which there are a multiple;
   STEP, SPREAD: the stride and the dilation there. Each element is one chain of multiply-adds over the
   kernel positions. */
#include "lanes.h"

enum { PIXELS = 8 / PARTS, ACROSS = (PIXELS - 1) * STEP + (TAPS - 1) * SPREAD + 1 };

typedef struct {
  int64_t channels;
  int64_t size[3], made[3], kernel[3], stride[3], dilation[3], before[3];
  int64_t x_image, x_channel, x_step[3];
} shape;

/* Along one axis: where in x the window begins, and which of its positions lie within x. */
typedef struct {
  int64_t origin, from, to;
} range;

static range clip(const shape *g, int axis, int64_t at) {
  const int64_t origin = at * g->stride[axis] - g->before[axis];
  const int64_t spread = g->dilation[axis], size = g->size[axis];
  const int64_t fit = origin >= size ? 0 : MIN(g->kernel[axis], CEIL_DIV(size - origin, spread));
  return (range){origin, origin < 0 ? CEIL_DIV(-origin, spread) : 0, fit};
}

/* The rows of x that an output row needs, from the first on, and the first row's place in a panel. */
typedef struct {
  const T *x;
  int64_t planes, rows, plane_step, row_step, place;
} band;

static band place_band(const shape *g, const T *x, range z, range y) {
  const int64_t plane_step = g->dilation[0] * g->x_step[0], row_step = g->dilation[1] * g->x_step[1];
  x += z.origin * g->x_step[0] + z.from * plane_step + y.origin * g->x_step[1] + y.from * row_step;
  const int64_t place = (z.from * g->kernel[1] + y.from) * g->kernel[2];
  return (band){x, z.to - z.from, y.to - y.from, plane_step, row_step, place};
}

ALWAYS const T *row_of(const band *b, const T *x, int64_t d, int64_t h) {
  return x + d * b->plane_step + h * b->row_step;
}

ALWAYS const T *taps_of(const shape *g, const band *b, const T *panel, int64_t d, int64_t h) {
  return panel + (b->place + (d * g->kernel[1] + h) * g->kernel[2]) * PANEL;
}

ALWAYS int64_t panel_size(const shape *g) { return g->kernel[0] * g->kernel[1] * g->kernel[2] * PANEL; }

#ifdef IN_PLACE
/* TAPS positions of one row for PIXELS windows next to each other: every pixel is read once. */
ALWAYS void add_taps(vec sum[PIXELS][PARTS], const ACC *row, int64_t step, const T *taps) {
  vec tap[TAPS][PARTS];
#pragma GCC unroll 64
  for (int t = 0; t < TAPS * PARTS; t++)
    tap[t / PARTS][t % PARTS] = *(const loose *)(taps + t / PARTS * PANEL + t % PARTS * WIDTH);
#pragma GCC unroll 128
  for (int j = 0; j < ACROSS; j++, row += step)
#pragma GCC unroll 8
    for (int v = 0; v < PARTS; v++) {
      const vec pixel = *(const loose *)(row + v * WIDTH);
#pragma GCC unroll 8
      for (int t = 0; t < TAPS; t++)
        if (j >= t * SPREAD && (j - t * SPREAD) % STEP == 0 && (j - t * SPREAD) / STEP < PIXELS)
          sum[(j - t * SPREAD) / STEP][v] += tap[t][v] * pixel;
    }
}

/* PIXELS windows next to each other that lie within x from left to right, in `channels` channels, which are
   whole panels. */
static void pixels_inside(const shape *g, const band *b, const ACC *x, const T *panel, ACC *out,
                          int64_t channels) {
  const int64_t step = g->x_step[2], across = TAPS > 1 ? TAPS : g->kernel[2];
  for (int64_t c = 0; c < channels; c += PANEL, panel += panel_size(g)) {
    vec sum[PIXELS][PARTS];
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS * PARTS; i++) sum[i / PARTS][i % PARTS] = (vec){0};
    for (int64_t d = 0; d < b->planes; d++)
      for (int64_t h = 0; h < b->rows; h++)
        for (int64_t k = 0; k < across; k += TAPS)
          add_taps(sum, row_of(b, x + c, d, h) + k * SPREAD * step, step,
                   taps_of(g, b, panel, d, h) + k * PANEL);
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS * PARTS; i++)
      *(loose *)(out + c + i / PARTS * g->channels + i % PARTS * WIDTH) = sum[i / PARTS][i % PARTS];
  }
}

/* One window, of which only some columns may lie within x, in whole panels of channels. */
static void pixel_at_edge(const shape *g, const band *b, const ACC *x, range across, const T *panel, ACC *out,
                          int64_t channels) {
  for (int64_t c = 0; c < channels; c += PANEL, panel += panel_size(g)) {
    vec sum[PARTS];
    for (int v = 0; v < PARTS; v++) sum[v] = (vec){0};
    for (int64_t d = 0; d < b->planes; d++)
      for (int64_t h = 0; h < b->rows; h++)
        for (int64_t k = across.from; k < across.to; k++) {
          const ACC *at = row_of(b, x + c, d, h) + k * SPREAD * g->x_step[2];
          const T *tap = taps_of(g, b, panel, d, h) + k * PANEL;
          for (int v = 0; v < PARTS; v++)
            sum[v] += *(const loose *)(tap + v * WIDTH) * *(const loose *)(at + v * WIDTH);
        }
    for (int v = 0; v < PARTS; v++) *(loose *)(out + c + v * WIDTH) = sum[v];
  }
}
#endif

/* One window, up to PANEL channels, wherever they lie. */
static void pixel(const shape *g, const band *b, const T *x, range across, const T *panel, T *out,
                  int64_t channels) {
  ACC sum[PANEL] = {0};
  for (int64_t d = 0; d < b->planes; d++)
    for (int64_t h = 0; h < b->rows; h++)
      for (int64_t k = across.from; k < across.to; k++) {
        const T *at = row_of(b, x, d, h) + k * SPREAD * g->x_step[2];
        const T *tap = taps_of(g, b, panel, d, h) + k * PANEL;
        for (int64_t i = 0; i < channels; i++) sum[i] += WIDEN(tap[i]) * WIDEN(at[i * g->x_channel]);
      }
  for (int64_t i = 0; i < channels; i++) out[i] = NARROW(sum[i]);
}

/* The windows at the columns `from` to `to` of one output row, in channels c0 to c1; `inside` says which
   columns have windows that lie within x from left to right. */
static void some_pixels(const shape *g, const band *b, const T *panels, T *out, range inside, int64_t from,
                        int64_t to, int64_t c0, int64_t c1) {
  int64_t whole = 0;
#ifdef IN_PLACE
  const int64_t begin = MAX(from, inside.from), end = MIN(to, inside.to);
  if (g->x_channel == 1) whole = (c1 - c0) / PANEL * PANEL;
  for (int64_t i = from, next; i < to && whole; i = next) {
    const int64_t grouped = i >= begin && i + 1 < end && end - begin >= PIXELS;
    const int64_t first = grouped ? MIN(i, end - PIXELS) : i; /* the last group begins early */
    const range across = clip(g, 2, first);
    const T *x = b->x + across.origin * g->x_step[2] + c0;
    T *result = out + (first - from) * g->channels + c0;
    if (grouped) pixels_inside(g, b, x, panels, result, whole);
    else pixel_at_edge(g, b, x, across, panels, result, whole);
    next = first + (grouped ? PIXELS : 1);
  }
#else
  (void)inside;
#endif
  panels += whole / PANEL * panel_size(g);
  for (int64_t c = c0 + whole; c < c1; c += PANEL, panels += panel_size(g))
    for (int64_t i = from; i < to; i++) {
      const range across = clip(g, 2, i);
      const T *x = b->x + across.origin * g->x_step[2] + c * g->x_channel;
      pixel(g, b, x, across, panels, out + (i - from) * g->channels + c, MIN(PANEL, c1 - c));
    }
}

/* The columns whose windows lie within x from left to right. */
static range columns_inside(const shape *g) {
  const int64_t room = g->size[2] + g->before[2] - (g->kernel[2] - 1) * SPREAD - 1;
  const int64_t from = CEIL_DIV(g->before[2], STEP), to = room < 0 ? 0 : room / STEP + 1;
  return (range){0, from, MIN(to, g->made[2])};
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const shape *g = (const shape *)c->n;
  const int64_t width = g->made[2];
  const range inside = columns_inside(g);
  const T *panels = (const T *)c->p[1] + c0 / PANEL * panel_size(g);
  T *out = (T *)c->p[2];
  for (int64_t r = r0, end; r < r1; r = end) {
    const int64_t line = r / width, plane = line / g->made[1];
    const T *x = (const T *)c->p[0] + plane / g->made[0] * g->x_image;
    const band b = place_band(g, x, clip(g, 0, plane % g->made[0]), clip(g, 1, line % g->made[1]));
    end = MIN(r1, (line + 1) * width);
    some_pixels(g, &b, panels, out + r * g->channels, inside, r - line * width, end - line * width, c0, c1);
    finish(c, scratch, r, end, c0, c1);
  }
}
