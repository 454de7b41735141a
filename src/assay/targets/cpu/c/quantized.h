/* Numbers that stand for floats, and which scale and zero point belong to a place.

   Q: what is stored; LOW: the lowest number; BITS: of a number, fewer than those of Q for tiny integers.
   S, LOAD_SCALE: elements of scales, and how they are loaded; ZEROS: 1 if there are zero points, which are of
   Q. */
#ifndef QUANTIZED_H
#define QUANTIZED_H
#include "convert.h"

enum {
  TINY = BITS < 8 * sizeof(Q),
  MASK = (int)((1ull << BITS) - 1),
  SIGN = LOW < 0 ? (int)(1u << (BITS - 1)) : 0,
};

static inline W number_of(Q q) { return (W)(TINY ? ((q & MASK) ^ SIGN) - SIGN : q); }

/* Scale and zero point of the rows of a grid: row r has those of place (r / group % period) · row_step, and
   its columns lie col_step apart from there on. */
typedef struct {
  int64_t group, period, row_step, col_step;
} granularity;

typedef struct {
  const S *scale;
  const Q *zero;
} parameters;

static inline parameters parameters_of(const granularity *g, const char *scale, const char *zero, int64_t r) {
  const int64_t place = r / g->group % g->period * g->row_step;
  return (parameters){(const S *)scale + place, ZEROS ? (const Q *)zero + place : NULL};
}

static inline W scale_at(parameters p, int64_t place) { return LOAD_SCALE(p.scale[place]); }

static inline W zero_at(parameters p, int64_t place) { return ZEROS ? number_of(p.zero[place]) : 0; }
#endif
