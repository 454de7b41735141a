/* Rows of elements that are computed with as W; T, W, LOAD: see storage.h. */
#ifndef ROWS_H
#define ROWS_H
#include "math.h"

/* The elements as W: where they are if that is how they are stored, else converted into `room`. */
static inline const W *wide_row(const T *x, int64_t length, W *room) {
  if (sizeof(T) == sizeof(W)) return (const W *)x;
  for (int64_t i = 0; i < length; i++) room[i] = LOAD(x[i]);
  return room;
}
#endif
