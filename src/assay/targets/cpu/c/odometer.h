/* Coordinates of one row after the other, in row-major order, without a division for each. */
#ifndef ODOMETER_H
#define ODOMETER_H
#include "storage.h"

enum { MOST_AXES = 64 };

typedef struct {
  int64_t rank;
  const int64_t *shape;
  int64_t at[MOST_AXES];
} odometer;

static inline void odometer_set(odometer *o, int64_t rank, const int64_t *shape, int64_t flat) {
  o->rank = rank;
  o->shape = shape;
  for (int64_t axis = rank - 1; axis >= 0; axis--) {
    int64_t size = MAX(shape[axis], 1);
    o->at[axis] = flat % size;
    flat /= size;
  }
}

static inline void odometer_step(odometer *o) {
  for (int64_t axis = o->rank - 1; axis >= 0; axis--) {
    if (++o->at[axis] < o->shape[axis]) return;
    o->at[axis] = 0;
  }
}

/* Where the coordinates lie in an operand with these strides. */
static inline int64_t odometer_place(const odometer *o, const int64_t *strides) {
  int64_t place = 0;
  for (int64_t axis = 0; axis < o->rank; axis++) place += o->at[axis] * strides[axis];
  return place;
}
#endif
