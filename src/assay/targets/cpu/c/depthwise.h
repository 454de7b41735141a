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

#ifdef IN_PLACE
/* TAPS positions of one row for PIXELS windows next to each other: every pixel is read once. */
ALWAYS void add_taps(vec sum[PIXELS][PARTS], const ACC *row, int64_t step, const T *taps) {
#pragma GCC unroll 8
  for (int v = 0; v < PARTS; v++) {
    vec tap[TAPS];
#pragma GCC unroll 8
    for (int t = 0; t < TAPS; t++) tap[t] = *(const loose *)(taps + t * PANEL + v * WIDTH);
#pragma GCC unroll 128
    for (int j = 0; j < ACROSS; j++) {
      const vec pixel = *(const loose *)(row + j * step + v * WIDTH);
#pragma GCC unroll 8
      for (int t = 0; t < TAPS; t++)
        if (j >= t * SPREAD && (j - t * SPREAD) % STEP == 0 && (j - t * SPREAD) / STEP < PIXELS)
          sum[(j - t * SPREAD) / STEP][v] += tap[t] * pixel;
    }
  }
}

/* PIXELS windows next to each other that lie within x from left to right, PANEL channels. */
static void pixels_inside(const shape *g, const band *b, const ACC *x, const T *panel, ACC *out) {
  const int64_t step = g->x_step[2];
  vec sum[PIXELS][PARTS];
  for (int i = 0; i < PIXELS; i++)
    for (int v = 0; v < PARTS; v++) sum[i][v] = (vec){0};
  for (int64_t h = 0; h < g->stride[1]; h++) /* what the next output row needs */
    for (int i = 0; i < PIXELS * STEP; i++) __builtin_prefetch(row_of(b, x, 0, b->rows + h) + i * step);
  for (int64_t d = 0; d < b->planes; d++)
    for (int64_t h = 0; h < b->rows; h++)
      for (int64_t k = 0; k < g->kernel[2]; k += TAPS)
        add_taps(sum, row_of(b, x, d, h) + k * SPREAD * step, step, taps_of(g, b, panel, d, h) + k * PANEL);
  for (int i = 0; i < PIXELS; i++)
    for (int v = 0; v < PARTS; v++) *(loose *)(out + i * g->channels + v * WIDTH) = sum[i][v];
}

/* One window, of which only some columns may lie within x, PANEL channels. */
static void pixel_at_edge(const shape *g, const band *b, const ACC *x, range across, const T *panel,
                          ACC *out) {
  vec sum[PARTS];
  for (int v = 0; v < PARTS; v++) sum[v] = (vec){0};
  for (int64_t d = 0; d < b->planes; d++)
    for (int64_t h = 0; h < b->rows; h++)
      for (int64_t k = across.from; k < across.to; k++) {
        const ACC *at = row_of(b, x, d, h) + k * SPREAD * g->x_step[2];
        const T *tap = taps_of(g, b, panel, d, h) + k * PANEL;
        for (int v = 0; v < PARTS; v++)
          sum[v] += *(const loose *)(tap + v * WIDTH) * *(const loose *)(at + v * WIDTH);
      }
  for (int v = 0; v < PARTS; v++) *(loose *)(out + v * WIDTH) = sum[v];
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

/* The first few of `pixels` windows from column `first` on, in channels c0 to c1; how many. */
static int64_t some_pixels(const shape *g, const band *b, const T *panels, T *out, int64_t first,
                           int64_t pixels, int64_t c0, int64_t c1) {
  const range across = clip(g, 2, first);
  const T *x = b->x + across.origin * g->x_step[2];
  const int64_t depth = g->kernel[0] * g->kernel[1] * g->kernel[2] * PANEL;
  int64_t c = c0;
#ifdef IN_PLACE
  const range last = clip(g, 2, first + PIXELS - 1);
  const int64_t inside = pixels >= PIXELS && across.from == 0 && last.to == g->kernel[2];
  const int64_t made = inside ? PIXELS : 1, whole = g->x_channel == 1 ? c0 + (c1 - c0) / PANEL * PANEL : c0;
  for (; c < whole; c += PANEL, panels += depth)
    if (inside) pixels_inside(g, b, x + c, panels, out + c);
    else pixel_at_edge(g, b, x + c, across, panels, out + c);
#else
  const int64_t made = 1;
#endif
  for (; c < c1; c += PANEL, panels += depth)
    for (int64_t i = 0; i < made; i++)
      pixel(g, b, x + i * STEP * g->x_step[2] + c * g->x_channel, i ? clip(g, 2, first + i) : across, panels,
            out + i * g->channels + c, MIN(PANEL, c1 - c));
  return made;
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const shape *g = (const shape *)c->n;
  const int64_t width = g->made[2];
  const T *panels = (const T *)c->p[1] + c0 * g->kernel[0] * g->kernel[1] * g->kernel[2];
  T *out = (T *)c->p[2];
  for (int64_t r = r0, end; r < r1; r = end) {
    const int64_t line = r / width, plane = line / g->made[1];
    const T *x = (const T *)c->p[0] + plane / g->made[0] * g->x_image;
    const band b = place_band(g, x, clip(g, 0, plane % g->made[0]), clip(g, 1, line % g->made[1]));
    end = MIN(r1, (line + 1) * width);
    for (int64_t i = r; i < end;)
      i += some_pixels(g, &b, panels, out + i * g->channels, i - line * width, end - i, c0, c1);
    finish(c, scratch, r, end, c0, c1);
  }
}
