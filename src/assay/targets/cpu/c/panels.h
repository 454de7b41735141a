/* Blocks of a matrix copied to where and how the tiles read them. */
#ifndef PANELS_H
#define PANELS_H
#include "lanes.h"

/* Three rows of colours as one row of pixels. */
static void interleave(ACC *restrict to, const T *restrict from, int64_t step, int64_t pixels) {
  for (int64_t i = 0; i < pixels; i++) {
    to[3 * i] = WIDEN(from[i]);
    to[3 * i + 1] = WIDEN(from[i + step]);
    to[3 * i + 2] = WIDEN(from[i + 2 * step]);
  }
}

/* rows × columns elements, widened: to[i * to_step + j] from from[i * row_step + j * step]. */
static void copy_block(ACC *to, int64_t to_step, const T *from, int64_t row_step, int64_t step, int64_t rows,
                       int64_t columns) {
  if (step == 1 || columns == 1) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[i * to_step + j] = WIDEN(from[i * row_step + j]);
    return;
  }
  if (columns == 3 && to_step == 3 && row_step == 1) {
    interleave(to, from, step, rows);
    return;
  }
  /* Short runs of rows, so that both sides stay in the cache while one of them is crossed. */
  for (int64_t i0 = 0; i0 < rows; i0 += 16)
    for (int64_t j = 0; j < columns; j++)
      for (int64_t i = i0; i < MIN(i0 + 16, rows); i++)
        to[i * to_step + j] = WIDEN(from[i * row_step + j * step]);
}
#endif
