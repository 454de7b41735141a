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

/* Turning: lines that lie side by side in memory become columns, a square of vectors at a time. It takes numbers of 32
   bits. Lines are read in whole vectors, and vectors are made of each other in registers: one that were put together
   in memory would be waited for. */
enum { TURNS = sizeof(ACC) == 4, DEEP = VECTOR_BYTES / 4 };

typedef __typeof__((vec){0} > (vec){0}) places;

ALWAYS vec numbers(const T *x) {
#ifdef IN_PLACE
  return *(const loose *)x;
#else
  vec wide;
#pragma GCC unroll 16
  for (int i = 0; i < WIDTH; i++) wide[i] = WIDEN(x[i]);
  return wide;
#endif
}

/* Within each four lanes: a and b by turns, `size` numbers at a time, from the lower or the upper half. */
ALWAYS vec mixed(vec a, vec b, int size, int upper) {
  places from;
#pragma GCC unroll 64
  for (int i = 0; i < WIDTH; i++)
    from[i] = i / 4 * 4 + upper * 2 + (size == 2 ? i % 2 : i % 4 / 2) + (i / size % 2 ? WIDTH : 0);
  return __builtin_shuffle(a, b, from);
}

/* The lower or the upper half of a, then that of b. */
ALWAYS vec joined(vec a, vec b, int upper) {
  places from;
#pragma GCC unroll 64
  for (int i = 0; i < WIDTH; i++) from[i] = i % (WIDTH / 2) + upper * WIDTH / 2 + (i < WIDTH / 2 ? 0 : WIDTH);
  return __builtin_shuffle(a, b, from);
}

/* Two fours of a, then two of b: those with even numbers or those with odd ones. */
ALWAYS vec halves(vec a, vec b, int odd) {
  places from;
#pragma GCC unroll 64
  for (int i = 0; i < WIDTH; i++) from[i] = (i / 4 % 2 * 2 + odd) * 4 + i % 4 + (i / 8 ? WIDTH : 0);
  return __builtin_shuffle(a, b, from);
}

/* Within each four lanes, four vectors turned. */
ALWAYS void turn_fours(vec a, vec b, vec c, vec d, vec *to) {
  const vec low = mixed(a, b, 1, 0), high = mixed(a, b, 1, 1), low1 = mixed(c, d, 1, 0), high1 = mixed(c, d, 1, 1);
  to[0] = mixed(low, low1, 2, 0);
  to[1] = mixed(low, low1, 2, 1);
  to[2] = mixed(high, high1, 2, 0);
  to[3] = mixed(high, high1, 2, 1);
}

/* DEEP neighbouring numbers of WIDTH lines that are `step` apart: the first ones, the second ones … */
#if VECTOR_BYTES == 64
ALWAYS void turn(const T *x, int64_t step, vec *to) {
  vec part[4][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++, x += 4 * step)
    turn_fours(numbers(x), numbers(x + step), numbers(x + 2 * step), numbers(x + 3 * step), part[i]);
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const vec even = halves(part[0][j], part[1][j], 0), odd = halves(part[0][j], part[1][j], 1);
    const vec even1 = halves(part[2][j], part[3][j], 0), odd1 = halves(part[2][j], part[3][j], 1);
    to[j] = halves(even, even1, 0);
    to[4 + j] = halves(odd, odd1, 0);
    to[8 + j] = halves(even, even1, 1);
    to[12 + j] = halves(odd, odd1, 1);
  }
}
#else
ALWAYS void turn(const T *x, int64_t step, vec *to) {
  vec part[DEEP / 4][4];
#pragma GCC unroll 2
  for (int i = 0; i < DEEP / 4; i++, x += 4 * step)
    turn_fours(numbers(x), numbers(x + step), numbers(x + 2 * step), numbers(x + 3 * step), part[i]);
#pragma GCC unroll 8
  for (int j = 0; j < DEEP; j++) to[j] = DEEP == 4 ? part[0][j] : joined(part[0][j % 4], part[DEEP / 4 - 1][j % 4], j / 4);
}
#endif

/* As `copy_block` where a column lies in one stretch; all rows and columns that fill vectors. */
static void turn_block(ACC *to, int64_t to_step, const T *from, int64_t step, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i + DEEP <= rows; i += DEEP)
    for (int64_t j = 0; j + WIDTH <= columns; j += WIDTH) {
      vec turned[DEEP];
      turn(from + i + j * step, step, turned);
#pragma GCC unroll 16
      for (int m = 0; m < DEEP; m++) *(loose *)(to + (i + m) * to_step + j) = turned[m];
    }
}

/* Short runs of rows, so that both sides stay in the cache while one of them is crossed. */
static void cross_block(ACC *to, int64_t to_step, const T *from, int64_t row_step, int64_t step, int64_t rows,
                        int64_t columns) {
  for (int64_t i0 = 0; i0 < rows; i0 += 16)
    for (int64_t j = 0; j < columns; j++)
      for (int64_t i = i0; i < MIN(i0 + 16, rows); i++)
        to[i * to_step + j] = WIDEN(from[i * row_step + j * step]);
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
  int64_t down = 0, across = 0;
  if (TURNS && row_step == 1) {
    turn_block(to, to_step, from, step, rows, columns);
    down = rows / DEEP * DEEP, across = columns / WIDTH * WIDTH;
  }
  cross_block(to + across, to_step, from + across * step, row_step, step, down, columns - across);
  cross_block(to + down * to_step, to_step, from + down * row_step, row_step, step, rows - down, columns);
}

/* rows × columns elements as panels that are `next` apart. Rows that lie in one stretch are read from end to end. */
static void lay_out(ACC *to, int64_t next, const T *from, int64_t row_step, int64_t step, int64_t rows,
                    int64_t columns) {
  const int64_t whole = step == 1 ? columns / PANEL : 0;
  for (int64_t i = 0; i < rows && whole; i++)
    for (int64_t j = 0; j < whole; j++)
#pragma GCC unroll 16
      for (int v = 0; v < PANEL; v += WIDTH)
        *(loose *)(to + j * next + i * PANEL + v) = numbers(from + i * row_step + j * PANEL + v);
  for (int64_t j = whole; j * PANEL < columns; j++)
    copy_block(to + j * next, PANEL, from + j * PANEL * step, row_step, step, rows, MIN(PANEL, columns - j * PANEL));
}
#endif
