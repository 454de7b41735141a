/* Convolutions of each channel by itself, many channels at a time.

   Operands: x, panels (PANEL channels next to each other for each kernel position), result. Numbers: a
   `shape`. The grid is (images · output pixels) × channels; the result lies in that order. Elements: see
   lanes.h. TAPS: kernel positions along the last axis that are done at once, of which there are a multiple;
   STEP, SPREAD: the stride and the dilation there. Each element is one chain of multiply-adds over the
   kernel positions. */
#include "window.h"

enum { PIXELS = 8 / PARTS, ACROSS = (PIXELS - 1) * STEP + (TAPS - 1) * SPREAD + 1 };

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
