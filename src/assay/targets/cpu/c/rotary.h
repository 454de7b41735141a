/* rotary_embedding: pairs of a row's elements turned by angles given as cosines and sines.

   INTERLEAVED: 1 if a pair is two neighbours, 0 if its second one lies as far behind the first as there are
   pairs; T, W, LOAD, STORE: see storage.h.
   Grid: a row for each row of x, one column.
   p: x, cosines, sines, result; n: the number of axes above the rows, the length of a row, the number of pairs,
   the sizes of those axes, and along them the strides of x, cosines, sines and result. */
#include "math.h"
#include "odometer.h"

static void turn(const T *x, const T *cosine, const T *sine, T *result, int64_t pairs) {
  const int64_t next = INTERLEAVED ? 2 : 1, other = INTERLEAVED ? 1 : pairs;
#pragma omp simd
  for (int64_t i = 0; i < pairs; i++) {
    const W a = LOAD(x[i * next]), b = LOAD(x[i * next + other]), c = LOAD(cosine[i]), s = LOAD(sine[i]);
    result[i * next] = STORE(a * c - b * s);
    result[i * next + other] = STORE(a * s + b * c);
  }
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const int64_t rank = c->n[0], length = c->n[1], pairs = c->n[2], *shape = c->n + 3, *strides = shape + rank;
  odometer row;
  odometer_set(&row, rank, shape, r0);
  for (int64_t r = r0; r < r1; r++, odometer_step(&row)) {
    T *place[4];
    for (int i = 0; i < 4; i++) place[i] = (T *)c->p[i] + odometer_place(&row, strides + i * rank);
    turn(place[0], place[1], place[2], place[3], pairs);
    for (int64_t i = 2 * pairs; i < length; i++) place[3][i] = place[0][i];
  }
}
