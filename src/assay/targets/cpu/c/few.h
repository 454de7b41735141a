/* Products with few rows, in which each element is a dot product: vectors go along k, where both sides lie in one
   stretch, so that nothing has to be laid out anew. With BLOCK, columns are rows of quantised blocks (blocks.h). */
#ifndef FEW_H
#define FEW_H
#include "lanes.h"
#ifdef BLOCK
#include "blocks.h"
typedef uint8_t COLUMN;
#define FROM(k) ((k) / ELEMENTS * BLOCK)
#else
typedef T COLUMN;
#define FROM(k) (k)
#endif

/* TOGETHER: rows that are done at once, at most. STRETCH: elements of k whose products are summed up in lanes before that
   joins the total, as a long chain of additions loses digits. KEPT: columns that stay in the cache while other rows are
   done. */
enum { TOGETHER = 4, STRETCH = 2048, KEPT = 96 };
/* Rows for which this pays. */
#if defined(BLOCK) && VECTOR_BYTES == 64
enum { FEW = 12 };
#else
enum { FEW = 8 };
#endif
/* Columns that are done at once with as many rows: the registers hold their sums, and scales and offsets beside them. */
#if VECTOR_BYTES != 64
enum { ACROSS = 2 };
#elif defined(SCALED_OFFSET)
enum { ACROSS = 3 };
#else
enum { ACROSS = 4 };
#endif
#ifdef BLOCK
/* SCALED_LATE: rows for which scales are applied late. AHEAD: how many bytes of blocks are on their way from memory, at
   least, while others are used. */
enum { SCALED_LATE = 1, AHEAD = 8 << 10 };
#endif

/* Loops over registers are unrolled, or sums would not live in them. */
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < count; i++)

typedef struct {
  const T *a;      /* the rows of the left side */
  const COLUMN *b; /* the columns of the right side */
  int64_t a_step, b_step, length;
  ACC *wide; /* room for (TOGETHER + 8) · STRETCH numbers, where these must be widened */
#ifdef BLOCK
  const ACC *sums; /* of each SPAN numbers of a row, row after row; NULL if they are not known */
  int64_t ahead;   /* how far behind the blocks that are used lie those that are asked for */
#endif
} dots;

/* The sum of all lanes: halves are added to each other until one lane is left. */
ALWAYS ACC total(vec x) {
  typedef __typeof__((vec){0} > (vec){0}) places;
#pragma GCC unroll 8
  for (int some = WIDTH / 2; some; some /= 2) {
    places from;
#pragma GCC unroll 64
    for (int i = 0; i < WIDTH; i++) from[i] = i ^ some;
    x += __builtin_shuffle(x, from);
  }
  return x[0];
}

/* `count` numbers as a vector, zeros behind them. */
ALWAYS vec part(const ACC *x, int64_t count) {
  vec whole;
#pragma GCC unroll 1
  for (int i = 0; i < WIDTH; i++) whole[i] = i < count ? x[i] : 0;
  return whole;
}

#ifdef BLOCK
/* Prefetch a block of each of some columns. */
ALWAYS void ask_for(const uint8_t *b, int64_t b_step, const int columns) {
  EACH(j, columns) EACH(line, CEIL_DIV(BLOCK, 64)) __builtin_prefetch(b + j * b_step + 64 * line);
}

/* sum[i][j] += a stretch of row i · the same of column j. */
ALWAYS void add_dots(vec sum[TOGETHER][8], const ACC *a, int64_t a_step, const uint8_t *b, int64_t b_step, int64_t ahead,
                     int64_t length, const int rows, const int columns) {
  for (int64_t k = 0; k < length; k += ELEMENTS, a += ELEMENTS, b += BLOCK) {
    ask_for(b + ahead, b_step, columns);
    scaling by[8];
    EACH(j, columns) by[j] = scaling_of(b + j * b_step);
    EACH_NUMBER(e) {
      vec left[TOGETHER];
      EACH(i, rows) left[i] = *(const loose *)(a + i * a_step + e);
      if (VECTOR_BYTES == 64) EACH(i, rows) HOLD(left[i]); /* narrower ones have too few registers */
      EACH(j, columns) {
        const vec right = numbers_at(b + j * b_step, &by[j], e);
        EACH(i, rows) sum[i][j] += left[i] * right;
      }
    }
  }
}

/* The same for very few rows: a scale is applied to a sum of products, and an offset to the sum of a row's numbers. What
   offsets add is in `beside`. `sums` are those of the rows, `sums_step` apart. */
ALWAYS void add_scaled_dots(vec sum[TOGETHER][8], ACC beside[TOGETHER][8], const ACC *a, int64_t a_step, const ACC *sums,
                            int64_t sums_step, const uint8_t *b, int64_t b_step, int64_t ahead, int64_t length,
                            const int rows, const int columns) {
  for (int64_t k = 0; k < length; k += ELEMENTS, a += ELEMENTS, b += BLOCK, sums += SCALED_PARTS) {
    ask_for(b + ahead, b_step, columns);
    scaling by[8];
    EACH(j, columns) by[j] = scaling_of(b + j * b_step);
    _Pragma("GCC unroll 2") for (unsigned part = 0; part < SCALED_PARTS; part++) {
      EACH(j, columns) {
        vec found[TOGETHER];
        _Pragma("GCC unroll 8") for (unsigned e = 0; e < SPAN; e += SIDE_BY_SIDE) {
          const vec right = plain_at(b + j * b_step, part * SPAN + e);
          EACH(i, rows) {
            const vec left = *(const loose *)(a + i * a_step + part * SPAN + e);
            found[i] = e ? found[i] + left * right : left * right;
          }
        }
        EACH(i, rows) sum[i][j] += found[i] * by[j].scale[part];
        if (HAS_OFFSETS) EACH(i, rows) beside[i][j] += sums[i * sums_step + part] * by[j].offset[part];
      }
    }
  }
}
#else
/* sum[i][j] += a stretch of row i · the same of column j. */
ALWAYS void add_dots(vec sum[TOGETHER][8], const ACC *a, int64_t a_step, const ACC *b, int64_t b_step, int64_t length,
                     const int rows, const int columns) {
  int64_t k = 0;
  vec left[TOGETHER];
  for (; k + WIDTH <= length; k += WIDTH) {
    EACH(i, rows) left[i] = *(const loose *)(a + i * a_step + k);
    EACH(i, rows) HOLD(left[i]);
    EACH(j, columns) {
      vec right = *(const loose *)(b + j * b_step + k);
      HOLD(right);
      EACH(i, rows) sum[i][j] += left[i] * right;
    }
  }
  if (k == length) return;
  EACH(i, rows) left[i] = part(a + i * a_step + k, length - k);
  EACH(j, columns) {
    const vec right = part(b + j * b_step + k, length - k);
    EACH(i, rows) sum[i][j] += left[i] * right;
  }
}
#endif

/* A stretch of `lines` lines, widened. */
ALWAYS void widen_lines(ACC *to, const T *from, int64_t step, int64_t length, int lines) {
  for (int i = 0; i < lines; i++)
    for (int64_t k = 0; k < length; k++) to[i * STRETCH + k] = WIDEN(from[i * step + k]);
}

/* Some columns that are `apart` from each other. */
ALWAYS void dot_block(const dots *d, T *c, int64_t c_step, int64_t apart, const int rows, const int columns) {
  const int64_t b_step = apart * d->b_step;
  ACC result[TOGETHER][8];
  EACH(i, rows) EACH(j, columns) result[i][j] = 0;
  for (int64_t k = 0; k < d->length; k += STRETCH) {
    const int64_t length = MIN(STRETCH, d->length - k);
    vec sum[TOGETHER][8];
    EACH(i, rows) EACH(j, columns) sum[i][j] = (vec){0};
#ifdef BLOCK
    ACC beside[TOGETHER][8];
    EACH(i, rows) EACH(j, columns) beside[i][j] = 0;
    if (rows <= SCALED_LATE && d->sums)
      add_scaled_dots(sum, beside, d->a + k, d->a_step, d->sums + k / SPAN, d->length / SPAN, d->b + FROM(k), b_step,
                      d->ahead, length, rows, columns);
    else add_dots(sum, d->a + k, d->a_step, d->b + FROM(k), b_step, d->ahead, length, rows, columns);
    EACH(i, rows) EACH(j, columns) result[i][j] += beside[i][j];
#elif defined(IN_PLACE)
    add_dots(sum, d->a + k, d->a_step, d->b + FROM(k), b_step, length, rows, columns);
#else
    widen_lines(d->wide, d->a + k, d->a_step, length, rows);
    widen_lines(d->wide + TOGETHER * STRETCH, d->b + k, b_step, length, columns);
    add_dots(sum, d->wide, STRETCH, d->wide + TOGETHER * STRETCH, STRETCH, length, rows, columns);
#endif
    EACH(i, rows) EACH(j, columns) result[i][j] += total(sum[i][j]);
  }
  EACH(i, rows) EACH(j, columns) c[i * c_step + j * apart] = NARROW(result[i][j]);
}

#ifdef BLOCK
/* `columns` columns of a few rows, neighbours together. Their blocks lie one behind the other, and so do those that are
   asked for. */
ALWAYS void dot_columns(dots d, T *c, int64_t c_step, int64_t columns, const int rows, const int at_once) {
  const int64_t step = at_once * d.b_step;
  d.ahead = CEIL_DIV(AHEAD, step) * step;
  int64_t j = 0;
  for (; j + at_once <= columns; j += at_once, d.b += step) dot_block(&d, c + j, c_step, 1, rows, at_once);
  for (; j < columns; j++, d.b += d.b_step) dot_block(&d, c + j, c_step, 1, rows, 1);
}
#else
/* `columns` columns of up to four rows. They are cut into `at_once` shares that are read side by side, each from end to
   end: memory gives several long stretches at once faster than one, or than many short ones. */
ALWAYS void dot_columns(dots d, T *c, int64_t c_step, int64_t columns, const int rows, const int at_once) {
  const int64_t share = columns / at_once;
  for (int64_t j = 0; j < share; j++, d.b += d.b_step) dot_block(&d, c + j, c_step, share, rows, at_once);
  d.b += (at_once - 1) * share * d.b_step;
  for (int64_t j = at_once * share; j < columns; j++, d.b += d.b_step) dot_block(&d, c + j, c_step, 1, rows, 1);
}
#endif

#ifdef BLOCK
/* The sums of each SPAN numbers of `rows` rows; NULL if there is no room for them. */
static const ACC *sums_of(const T *a, int64_t a_step, int64_t length, int64_t rows, ACC *to, int64_t room) {
  const int64_t each = length / SPAN;
  if (rows * each > room) return NULL;
  for (int64_t i = 0; HAS_OFFSETS && i < rows; i++)
    for (int64_t k = 0; k < each; k++) {
      vec sum = *(const loose *)(a + i * a_step + k * SPAN);
      for (int e = WIDTH; e < SPAN; e += WIDTH) sum += *(const loose *)(a + i * a_step + k * SPAN + e);
      to[i * each + k] = total(sum);
    }
  return to;
}
#endif

/* `rows` rows of `columns` columns of C. If rows are done one after the other, the columns come in turns. */
static void few_rows(dots d, T *c, int64_t c_step, int64_t rows, int64_t columns) {
  for (int64_t j = 0, n; j < columns; j += n, d.b += n * d.b_step) {
    n = rows <= TOGETHER ? columns : MIN(KEPT, columns - j);
    dots some = d;
    for (int64_t i = 0, r; i < rows; i += r, some.a += r * d.a_step) {
#ifdef BLOCK
      some.sums = d.sums ? d.sums + i * (d.length / SPAN) : NULL;
#endif
      T *to = c + i * c_step + j;
      r = CEIL_DIV(rows - i, CEIL_DIV(rows - i, TOGETHER));
      switch (r) {
        case 1: dot_columns(some, to, c_step, n, 1, 8); break;
        case 2: dot_columns(some, to, c_step, n, 2, 4); break;
        case 3: dot_columns(some, to, c_step, n, 3, VECTOR_BYTES == 64 ? 4 : 3); break;
        default: dot_columns(some, to, c_step, n, TOGETHER, ACROSS);
      }
    }
  }
}
#endif
