/* Convolutions with few output channels: vectors go along the window, not across channels.

   In x the columns of a window in one row, with all their channels, are one stretch of memory, and so they are in the
   weights once these are turned: each result is a sum of dot products of stretches. Operands: x, weights, result.
   Numbers: a `shape`, then the channels of x and the steps of the weights between output channels, input channels and
   kernel positions. The grid is (images · output pixels) × output channels, of which all are done at once; the result lies in that order. OUT: output channels.
   Elements: see lanes.h, T is ACC. Scratch: the weights. */
#include "few.h"
#include "window.h"

/* PIXELS windows are done at once. In a lane up to CHAIN products are added to each other before that joins the sum. */
enum { PIXELS = OUT < 4 ? 4 / OUT : 1, CHAIN = 128 };

typedef __typeof__((vec){0} < (vec){0}) mask;
typedef mask loose_mask __attribute__((aligned(sizeof(ACC)), may_alias));

/* The last WIDTH numbers of a stretch, zeros for those that `rest` leaves out. */
ALWAYS vec end_of(const ACC *stretch, int64_t length, mask rest) {
  return (vec)(*(const loose_mask *)(stretch + length - WIDTH) & rest);
}

/* sum[p][o] += the stretch of window p · that of channel o. `rest` says which of the last WIDTH numbers are left when
   whole vectors are done. */
ALWAYS void add_stretch(vec sum[PIXELS][OUT], const ACC *x, int64_t x_step, const ACC *w, int64_t w_step, int64_t length,
                        mask rest, const int pixels) {
  int64_t k = 0;
  while (k + WIDTH <= length) {
    const int64_t end = MIN(length, k + CHAIN * WIDTH);
    vec chain[PIXELS][OUT];
    EACH(p, pixels) EACH(o, OUT) chain[p][o] = (vec){0};
    for (; k + WIDTH <= end; k += WIDTH)
      EACH(o, OUT) {
        vec weight = *(const loose *)(w + o * w_step + k);
        HOLD(weight);
        EACH(p, pixels) chain[p][o] += weight * *(const loose *)(x + p * x_step + k);
      }
    EACH(p, pixels) EACH(o, OUT) sum[p][o] += chain[p][o];
  }
  if (k == length) return;
  EACH(o, OUT) {
    const vec weight = length < WIDTH ? part(w + o * w_step, length) : end_of(w + o * w_step, length, rest);
    EACH(p, pixels) {
      const ACC *at = x + p * x_step;
      sum[p][o] += weight * (length < WIDTH ? part(at, length) : end_of(at, length, rest));
    }
  }
}

static mask rest_of(int64_t length) {
  mask rest;
  for (int i = 0; i < WIDTH; i++) rest[i] = i >= WIDTH - length % WIDTH ? -1 : 0;
  return rest;
}

typedef struct {
  const shape *g;
  const ACC *weights; /* of each output channel: kernel positions · input channels */
  int64_t in, size;   /* channels of x, weights of an output channel */
} job;

/* Windows side by side that have the columns `across` of theirs within x, of which the first begins at x. */
ALWAYS void windows(const job *j, const band *b, const ACC *x, range across, mask rest, ACC *out, const int pixels) {
  const shape *g = j->g;
  const int64_t length = (across.to - across.from) * j->in;
  vec sum[PIXELS][OUT];
  EACH(p, pixels) EACH(o, OUT) sum[p][o] = (vec){0};
  for (int64_t d = 0; d < b->planes && length > 0; d++)
    for (int64_t h = 0; h < b->rows; h++) {
      const int64_t place = (b->place + (d * g->kernel[1] + h) * g->kernel[2]) * j->in;
      const ACC *w = j->weights + place + across.from * j->in;
      const ACC *at = row_of(b, x, d, h) + across.from * g->x_step[2];
      add_stretch(sum, at, g->stride[2] * g->x_step[2], w, j->size, length, rest, pixels);
    }
  EACH(p, pixels) EACH(o, OUT) out[p * OUT + o] = total(sum[p][o]);
}

static void turn(const call *c, ACC *to, const job *j, const int64_t *step) {
  const int64_t places = j->size / j->in;
  for (int64_t o = 0; o < OUT; o++)
    for (int64_t k = 0; k < places; k++)
      for (int64_t i = 0; i < j->in; i++)
        *to++ = ((const T *)c->p[1])[o * step[0] + i * step[1] + k * step[2]];
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const shape *g = (const shape *)c->n;
  const int64_t *more = c->n + sizeof(shape) / sizeof(int64_t), width = g->made[2];
  const job j = {g, (const ACC *)scratch, more[0], more[0] * g->kernel[0] * g->kernel[1] * g->kernel[2]};
  const range inside = columns_inside(g);
  const mask whole = rest_of(g->kernel[2] * j.in);
  turn(c, (ACC *)scratch, &j, more + 1);
  for (int64_t r = r0, end; r < r1; r = end) {
    const int64_t line = r / width, plane = line / g->made[1];
    const T *x = (const T *)c->p[0] + plane / g->made[0] * g->x_image;
    const band b = place_band(g, x, clip(g, 0, plane % g->made[0]), clip(g, 1, line % g->made[1]));
    end = MIN(r1, (line + 1) * width);
    for (int64_t i = r - line * width, next; i < end - line * width; i = next) {
      const int grouped = i >= inside.from && i + PIXELS <= MIN(inside.to, end - line * width);
      const range across = clip(g, 2, i);
      const T *at = b.x + across.origin * g->x_step[2];
      ACC *out = (ACC *)c->p[2] + (line * width + i) * OUT;
      if (grouped) windows(&j, &b, at, across, whole, out, PIXELS);
      else windows(&j, &b, at, across, rest_of((across.to - across.from) * j.in), out, 1);
      next = i + (grouped ? PIXELS : 1);
    }
    finish(c, scratch, r, end, c0, c1);
  }
}
