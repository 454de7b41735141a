/* Rows of quantised blocks: which numbers their bytes stand for.

   A block is BLOCK bytes for ELEMENTS numbers: integers of LOW_BITS bits from byte LOW on, with HIGH_BITS more from byte
   HIGH on above them (0: none), less MIDDLE. Of each run of LOW_RUN (HIGH_RUN) bytes first the lowest bits are
   numbers, then the next. Each of SCALED_PARTS parts of a block has a scale and perhaps an offset: with SCALED_ONE and
   SCALED_OFFSET those of the block, which are f16 numbers at the bytes SCALE and OFFSET, else what they and the bytes
   from SCALES on make, as one of the words SCALED_NIBBLES, SCALED_SIXES, SCALED_PAIRS and SCALED_BYTES says. */
#ifndef BLOCKS_H
#define BLOCKS_H
#include "convert.h"
#if defined(__SSE4_1__)
#include <immintrin.h>
#endif

#define ALWAYS static inline __attribute__((always_inline))
#define BITS (LOW_BITS + HIGH_BITS)
enum { SIDE_BY_SIDE = VECTOR_BYTES / 4, SPAN = ELEMENTS / SCALED_PARTS }; /* SPAN: numbers that share a scale */

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t whole __attribute__((vector_size(VECTOR_BYTES)));

#if VECTOR_BYTES == 64
#define COUNT {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif VECTOR_BYTES == 32
#define COUNT {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define COUNT {0, 1, 2, 3}
#endif

/* Bytes as the lanes of a vector. Compilers go a long way if they are not told how. */
#if VECTOR_BYTES == 64
ALWAYS whole bytes_at(const uint8_t *x) { return (whole)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)x)); }
ALWAYS whole signed_at(const uint8_t *x) { return (whole)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)x)); }
#elif defined(__AVX2__)
ALWAYS whole bytes_at(const uint8_t *x) { return (whole)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)x)); }
ALWAYS whole signed_at(const uint8_t *x) { return (whole)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)x)); }
#elif VECTOR_BYTES == 16 && defined(__SSE4_1__)
ALWAYS whole bytes_at(const uint8_t *x) { return (whole)_mm_cvtepu8_epi32(_mm_loadu_si32(x)); }
ALWAYS whole signed_at(const uint8_t *x) { return (whole)_mm_cvtepi8_epi32(_mm_loadu_si32(x)); }
#else
typedef uint8_t narrow __attribute__((vector_size(VECTOR_BYTES / 4)));
typedef uint16_t middling __attribute__((vector_size(VECTOR_BYTES / 2)));
ALWAYS whole bytes_at(const uint8_t *x) {
  narrow bytes;
  memcpy(&bytes, x, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, middling), whole);
}
ALWAYS whole signed_at(const uint8_t *x) { return bytes_at(x) << 24 >> 24; }
#endif

/* All elements of a block, a vector at a time. Four vectors are unrolled: more takes compilers too long. */
enum { UNROLLED = MIN(ELEMENTS, 4 * SIDE_BY_SIDE) };
#define EACH_NUMBER(e)                                                                        \
  _Pragma("GCC unroll 1") for (unsigned e##_at = 0; e##_at < ELEMENTS; e##_at += UNROLLED)    \
      _Pragma("GCC unroll 4") for (unsigned e = e##_at; e < e##_at + UNROLLED; e += SIDE_BY_SIDE)

/* The scales and offsets of the parts of a block. */
typedef struct {
  float scale[SCALED_PARTS], offset[SCALED_PARTS];
} scaling;

ALWAYS float half_at(const uint8_t *x) {
  uint16_t bits;
  memcpy(&bits, x, sizeof bits);
#ifdef __F16C__
  return (float)f16_of_bits(bits);
#else
  return f16_to_f32(bits);
#endif
}

#if defined(SCALED_OFFSET) || defined(SCALED_NIBBLES) || defined(SCALED_PAIRS)
enum { HAS_OFFSETS = 1 };
#else
enum { HAS_OFFSETS = 0 };
#endif

/* As many integers as a vector has lanes, times `by`. */
ALWAYS void put_scaled(float *to, whole integers, floats by) {
  const floats made = __builtin_convertvector(integers, floats) * by;
  memcpy(to, &made, sizeof made);
}

/* Four bytes at a time: the lowest four, two or six bits of each. */
#define FOURS(x) ((x) & 0x0f0f0f0fu)
#define TWOS(x) ((x) & 0x03030303u)
#define SIXES(x) ((x) & 0x3f3f3f3fu)
#define EACH_PART(count) _Pragma("GCC unroll 16") for (int i = 0; i < count; i += SIDE_BY_SIDE)

/* Two halves that lie side by side, as floats: where there are eight bytes to read, one instruction takes them. */
ALWAYS void two_halves_at(const uint8_t *x, float *first, float *second) {
#if defined(__F16C__)
  const __m128 both = _mm_cvtph_ps(_mm_loadl_epi64((const void *)x));
  *first = both[0], *second = both[1];
#else
  *first = half_at(x), *second = half_at(x + 2);
#endif
}

ALWAYS scaling scaling_of(const uint8_t *block) {
  scaling s;
#if defined(SCALED_ONE) || defined(SCALED_OFFSET)
  _Static_assert(SCALE + 8 <= BLOCK && (!HAS_OFFSETS || OFFSET == SCALE + 2), "halves that are read together");
  two_halves_at(block + SCALE, s.scale, s.offset);
  return s;
#else
  const float scale = half_at(block + SCALE), offset = HAS_OFFSETS ? half_at(block + OFFSET) : 0;
  const floats by = scale - (floats){0}, off = offset - (floats){0};
  const uint8_t *packed = block + SCALES;
  (void)off;
#if defined(SCALED_NIBBLES)
  EACH_PART(16) {
    const whole both = bytes_at(packed + i);
    put_scaled(s.scale + i, both & 15, by);
    put_scaled(s.offset + i, both >> 4, -off);
  }
#elif defined(SCALED_BYTES)
  EACH_PART(16) put_scaled(s.scale + i, signed_at(packed + i), by);
#else
  uint32_t a, b, c;
  memcpy(&a, packed, 4), memcpy(&b, packed + 4, 4), memcpy(&c, packed + 8, 4);
#if defined(SCALED_SIXES)
  const uint32_t words[] = {FOURS(a) | TWOS(c) << 4, FOURS(b) | TWOS(c >> 2) << 4, FOURS(a >> 4) | TWOS(c >> 4) << 4,
                            FOURS(b >> 4) | TWOS(c >> 6) << 4};
  EACH_PART(16) put_scaled(s.scale + i, bytes_at((const uint8_t *)words + i) - 32, by);
#else
  const uint32_t words[] = {SIXES(a), FOURS(c) | TWOS(a >> 6) << 4, SIXES(b), FOURS(c >> 4) | TWOS(b >> 6) << 4};
  EACH_PART(16) {
    const whole is_scale = i + (whole)COUNT < 8;
    const floats each = (floats)((is_scale & (whole)by) | (~is_scale & (whole)-off));
    put_scaled((float *)&s + i, bytes_at((const uint8_t *)words + i), each);
  }
#endif
#endif
  return s;
#endif
}

/* The numbers of a field from element e on. There is something above their bits unless they are `cut`. */
ALWAYS whole field_at(const uint8_t *field, unsigned e, const unsigned bits, const unsigned run, const int cut) {
  whole found;
  if (run == 1) { /* single bits in order */
    uint32_t word;
    memcpy(&word, field, sizeof word);
    found = ((int32_t)word - (whole){0}) >> ((int)e + (whole)COUNT);
  } else {
    const unsigned lines = run * (8 / bits), shift = e % lines / run * bits;
    const uint8_t *from = field + e / lines * run + e % run;
    if (bits == 8) return signed_at(from);
    found = bytes_at(from) >> (int)shift;
  }
  return cut ? found & ((1 << bits) - 1) : found;
}

ALWAYS whole integers_at(const uint8_t *block, unsigned e, const int cut) {
  const whole low = field_at(block + LOW, e, LOW_BITS, LOW_RUN, cut || HIGH_BITS);
  return HIGH_BITS ? low | field_at(block + HIGH, e, HIGH_BITS, HIGH_RUN, cut) << LOW_BITS : low;
}

/* The integers of a block from element e on, as many as a vector has lanes, as floats without their scale and offset.
   Where a vector or two hold all small integers, they are looked up there: lanes are chosen by the lowest bits. */
ALWAYS floats plain_at(const uint8_t *block, unsigned e) {
#if VECTOR_BYTES == 64 && BITS <= 5
  const whole count = COUNT;
  const floats small = __builtin_convertvector((count & ((1 << BITS) - 1)) - MIDDLE, floats);
#if BITS <= 4
  return __builtin_shuffle(small, integers_at(block, e, 0));
#else
  return __builtin_shuffle(small, __builtin_convertvector(count + 16 - MIDDLE, floats), integers_at(block, e, 0));
#endif
#else
  return __builtin_convertvector(integers_at(block, e, 1) - MIDDLE, floats);
#endif
}

/* The numbers of a block from element e on, as many as a vector has lanes. */
ALWAYS floats numbers_at(const uint8_t *block, const scaling *s, unsigned e) {
  const unsigned part = e / SPAN;
  const floats numbers = plain_at(block, e) * s->scale[part];
  return HAS_OFFSETS ? numbers + s->offset[part] : numbers;
}
#endif
