/* How an axis is resampled: for each new element the old ones that it is made of, with their weights.

   PLACE(at): where a new element lies among the old ones, one of the functions below; NEAREST: the old
   element that is copied, one of the roundings below; or else KERNEL: a weight by distance. W: of the
   weights.
   Grid: one row; a column for each new element.
   p: positions (taps, new elements), and as many weights unless NEAREST; n: the old size, the new one, and
   unless NEAREST the number of taps, the first of them, whether elements beyond the ends count for nothing,
   whether weights must add up to one;
   f: new elements per old one (0: by the sizes), the inverse of the kernel's stretch, the slope of a cubic.
   Scratch: a double for each tap. */
#include "storage.h"

typedef struct {
  double size, count, scale;
} axis;

static inline double half_pixel(axis a, double at) { return (at + 0.5) / a.scale - 0.5; }

static inline double half_pixel_symmetric(axis a, double at) {
  return a.size / 2 * (1 - a.count / (a.scale * a.size)) + half_pixel(a, at);
}

static inline double pytorch_half_pixel(axis a, double at) { return a.count > 1 ? half_pixel(a, at) : 0; }

static inline double half_pixel_if_resized(axis a, double at) { return a.count == a.size ? at : half_pixel(a, at); }

static inline double align_corners(axis a, double at) {
  return a.count == 1 ? 0 : at * (a.size - 1) / (a.scale * a.size - 1);
}

static inline double asymmetric(axis a, double at) { return at / a.scale; }

static inline double half_down(double x) { return ceil(x - 0.5); }

static inline double half_up(double x) { return floor(x + 0.5); }

/* Places within the rounding of f32, in which scales come, of a half element are taken to be there. */
static inline double settled(double place) {
  const double half = rint(2 * place) / 2;
  return fabs(place - half) <= fmax(fabs(place), 1) * 0x1p-22 ? half : place;
}

static inline double linear(double distance, double a) {
  (void)a;
  return fmax(1 - fabs(distance), 0);
}

static inline double cubic(double distance, double a) {
  const double d = fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static inline int64_t clamped(double position, int64_t size) {
  return (int64_t)fmin(fmax(position, 0), (double)(size - 1));
}

#ifndef NEAREST
static void weigh(const call *c, double *weight, double place, int64_t i) {
  const int64_t size = c->n[0], count = c->n[1], taps = c->n[2], exclude = c->n[4];
  int64_t *positions = (int64_t *)c->p[0] + i;
  W *weights = (W *)c->p[1] + i;
  double total = 0;
  for (int64_t t = 0; t < taps; t++) {
    const double position = floor(place) + (double)(c->n[3] + t);
    const int outside = position < 0 || position > (double)(size - 1);
    weight[t] = exclude && outside ? 0 : KERNEL((position - place) * c->f[1], c->f[2]);
    positions[t * count] = clamped(position, size);
    total += weight[t];
  }
  const double whole = c->n[5] && total != 0 ? total : 1;
  for (int64_t t = 0; t < taps; t++) weights[t * count] = (W)(weight[t] / whole);
}
#endif

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)scratch, (void)r0, (void)r1;
  const double size = (double)c->n[0], count = (double)c->n[1];
  const axis a = {size, count, c->f[0] != 0 ? c->f[0] : count / fmax(size, 1)};
  for (int64_t i = c0; i < c1; i++) {
    const double place = PLACE(a, (double)i);
#ifdef NEAREST
    ((int64_t *)c->p[0])[i] = clamped(NEAREST(settled(place)), c->n[0]);
#else
    weigh(c, (double *)scratch, place, i);
#endif
  }
}
