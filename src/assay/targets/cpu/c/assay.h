/* What every kernel is to the machine that runs it.

   A kernel works on a grid of rows and columns and is called with a part of it, from several threads at once: the
   parts that one run asks for are disjoint and cover the grid, and each element's result must not depend on how
   the grid is cut. What the rows and columns are, the kernel says. */
#ifndef ASSAY_H
#define ASSAY_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An element of 16 bytes that is only moved. */
typedef struct {
  uint64_t half[2];
} bytes16;

typedef struct call call;
typedef void kernel_function(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1);

struct call {
  char *const *p;       /* where the operands lie, offsets of views included */
  const int64_t *n;     /* sizes and strides; strides count elements */
  const double *f;      /* other numbers, such as an epsilon */
  const call *then;     /* what goes on with each finished part of the result, on the same grid; NULL: nothing */
  kernel_function *run; /* this kernel */
};

/* Hand a finished part of the result, still in the cache, to the kernel that goes on with it. */
static inline void finish(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  if (c->then) c->then->run(c->then, scratch, r0, r1, c0, c1);
}

/* Vectors of the widest unit that the code is compiled for. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES(T) ((int)(VECTOR_BYTES / sizeof(T)))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#endif
