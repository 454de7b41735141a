/* Elements and vectors of matrix products and convolutions.

   T is the type of elements in memory, ACC the one that sums are kept in, B_T the one that prepared weights have; WIDEN
   leads from T to ACC, NARROW back. PANEL numbers of type ACC are 64 bytes, PARTS vectors. */
#ifndef LANES_H
#define LANES_H
#include "assay.h"
#pragma GCC optimize("fp-contract=fast")

#define ALWAYS static inline __attribute__((always_inline))

typedef ACC vec __attribute__((vector_size(VECTOR_BYTES)));
typedef ACC loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(ACC)), may_alias)); /* anywhere in memory */
enum { WIDTH = LANES(ACC), PANEL = 64 / sizeof(ACC), PARTS = PANEL / WIDTH };

#ifndef WIDEN
#define WIDEN(x) ((ACC)(x))
#endif
#ifndef NARROW
#define NARROW(x) ((T)(x))
#endif
#ifndef LOAD_B
#define LOAD_B(p) (*(const loose *)(p))
#endif
#endif
