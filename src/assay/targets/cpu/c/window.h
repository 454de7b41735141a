/* The windows of a convolution that reads x where it lies: what they are, and where they stick out of x. */
#ifndef WINDOW_H
#define WINDOW_H
#include "lanes.h"

typedef struct {
  int64_t channels; /* of the result */
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

/* The columns whose windows lie within x from left to right. */
static range columns_inside(const shape *g) {
  const int64_t room = g->size[2] + g->before[2] - (g->kernel[2] - 1) * g->dilation[2] - 1;
  const int64_t from = CEIL_DIV(g->before[2], g->stride[2]), to = room < 0 ? 0 : room / g->stride[2] + 1;
  return (range){0, from, MIN(to, g->made[2])};
}
#endif
