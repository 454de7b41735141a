/* Positions that are given as data: counted from the end if negative, and an error if they lie outside. */
#ifndef POSITIONS_H
#define POSITIONS_H
#include "storage.h"

static inline void report(char *error) { __atomic_store_n((int64_t *)error, 1, __ATOMIC_RELAXED); }

static inline int64_t from_start(int64_t position, int64_t size) {
  return position < 0 ? position + size : position;
}

static inline int is_inside(int64_t position, int64_t size) { return (uint64_t)position < (uint64_t)size; }

/* Where a row of `depth` positions lies on the leading axes of a dense tensor, counted in what remains below
   them; −1 and an error if it lies outside. */
static inline int64_t place_of(const int64_t *positions, int64_t depth, const int64_t *shape, char *error) {
  int64_t place = 0;
  for (int64_t axis = 0; axis < depth; axis++) {
    const int64_t position = from_start(positions[axis], shape[axis]);
    if (!is_inside(position, shape[axis])) {
      report(error);
      return -1;
    }
    place = place * shape[axis] + position;
  }
  return place;
}
#endif
