/* Elements and vectors of matrix products and convolutions.

   T is the type of elements in memory, ACC the one that sums are kept in; WIDEN leads from T to ACC, NARROW
   back. With BF16 or F16, T is uint16_t; IN_PLACE says that T is ACC. PANEL numbers of type ACC are 64
   bytes, which is PARTS vectors. */
#ifndef LANES_H
#define LANES_H
#pragma GCC optimize("fp-contract=fast")
#include "convert.h"

#define ALWAYS static inline __attribute__((always_inline))

#if defined(BF16)
#define WIDEN(x) bf16_to_f32(x)
#define NARROW(x) bf16_bits(rounded_bf16(x))
#elif defined(F16)
#define WIDEN(x) f16_to_f32(x)
#define NARROW(x) f16_bits(rounded_f16(x))
#else
#define WIDEN(x) ((ACC)(x))
#define NARROW(x) ((T)(x))
#endif

typedef ACC vec __attribute__((vector_size(VECTOR_BYTES)));
typedef ACC loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(ACC)), may_alias)); /* anywhere */
enum { WIDTH = LANES(ACC), PANEL = 64 / sizeof(ACC), PARTS = PANEL / WIDTH };

/* Keep a vector in its register: else compilers read it again for every use. */
#if defined(__x86_64__) && defined(__GNUC__)
#define HOLD(x) __asm__("" : "+v"(x))
#else
#define HOLD(x) (void)(x)
#endif
#endif
