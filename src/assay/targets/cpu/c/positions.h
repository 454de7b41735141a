/* Positions that are given as data. */
#ifndef POSITIONS_H
#define POSITIONS_H
#include "storage.h"

static inline void report(char *error) { __atomic_store_n((int64_t *)error, 1, __ATOMIC_RELAXED); }

/* A position along an axis of `size`, counted from the end if negative; −1 and an error if it lies outside. */
static inline int64_t position_within(int64_t position, int64_t size, char *error) {
  if (position < 0) position += size;
  if (position >= 0 && position < size) return position;
  report(error);
  return -1;
}

/* Where a row of `depth` positions lies on the leading axes of a dense tensor, counted in what remains below them;
   −1 and an error if it lies outside. */
static inline int64_t place_of(const int64_t *positions, int64_t depth, const int64_t *shape, char *error) {
  int64_t place = 0;
  for (int64_t axis = 0; axis < depth; axis++) {
    int64_t position = position_within(positions[axis], shape[axis], error);
    if (position < 0) return -1;
    place = place * shape[axis] + position;
  }
  return place;
}
#endif
