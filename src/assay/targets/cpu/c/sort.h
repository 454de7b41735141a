/* The first elements of sorted lines and where they came from; stable, NaN the largest.

   T: an unsigned integer as wide as an element; what the bits mean, INFINITE (the bits of ∞, for floats) or
   SIGNED says. DESCENDING: 1 or 0. Grid: a row for each line, one column. Scratch: two items for each element
   of a line.
   p: x, error, sorted, positions (all dense); n: the length of a line, how many elements of it are wanted,
   and how many lie between neighbours. */
#include "positions.h"

enum { FEW = 64, LOOK = 32 };

typedef struct {
  T key;
  int64_t from;
} item;

/* A number that is the larger the later an element comes. */
static inline T key_of(T bits) {
  const T sign = (T)((T)1 << (8 * sizeof(T) - 1));
#if defined(INFINITE)
  const T magnitude = (T)(bits & (T)~sign);
  T key = magnitude > INFINITE ? (T)~(T)0 : magnitude && bits & sign ? (T)~bits : (T)(magnitude | sign);
#elif defined(SIGNED)
  T key = (T)(bits ^ sign);
#else
  T key = bits;
#endif
  return DESCENDING ? (T)~key : key;
}

/* Whether any of LOOK elements comes before `last`. */
static inline int any_before(const T *x, int64_t step, T last) {
  T any = 0;
  for (int64_t i = 0; i < LOOK; i++) any |= key_of(x[i * step]) < last;
  return any;
}

/* The first few: each element is put in its place among those seen before. */
static item *pick_few(item *best, const T *x, int64_t length, int64_t wanted, int64_t step) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < length; begin += LOOK) {
    const int64_t end = MIN(begin + LOOK, length);
    const T *part = x + begin * step;
    if (count == wanted && end - begin == LOOK) {
      const T last = best[count - 1].key;
      if (!(step == 1 ? any_before(part, 1, last) : any_before(part, step, last))) continue;
    }
    for (int64_t i = begin; i < end; i++) {
      const T key = key_of(x[i * step]);
      if (count == wanted && key >= best[count - 1].key) continue;
      int64_t at = count < wanted ? count++ : wanted - 1;
      for (; at > 0 && best[at - 1].key > key; at--) best[at] = best[at - 1];
      best[at] = (item){key, i};
    }
  }
  return best;
}

/* All of them: by one byte of the keys after the other, the lowest first. */
static item *sort_all(item *items, const T *x, int64_t length, int64_t step) {
  item *other = items + length;
  for (int64_t i = 0; i < length; i++) items[i] = (item){key_of(x[i * step]), i};
  for (unsigned shift = 0; shift < 8 * sizeof(T); shift += 8) {
    int64_t place[256] = {0};
    for (int64_t i = 0; i < length; i++) place[items[i].key >> shift & 255]++;
    if (place[items[0].key >> shift & 255] == length) continue;
    for (int64_t byte = 0, next = 0; byte < 256; byte++) {
      int64_t count = place[byte];
      place[byte] = next;
      next += count;
    }
    for (int64_t i = 0; i < length; i++) other[place[items[i].key >> shift & 255]++] = items[i];
    item *sorted = other;
    other = items;
    items = sorted;
  }
  return items;
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  (void)c0, (void)c1;
  const int64_t length = c->n[0], wanted = c->n[1], step = c->n[2];
  if (wanted > length) {
    report(c->p[1]);
    return;
  }
  if (!wanted) return;
  for (int64_t r = r0; r < r1; r++) {
    const T *x = (const T *)c->p[0] + r / step * length * step + r % step;
    const int64_t to = r / step * wanted * step + r % step;
    item *items = (item *)scratch;
    items = wanted <= FEW ? pick_few(items, x, length, wanted, step) : sort_all(items, x, length, step);
    for (int64_t i = 0; i < wanted; i++) {
      ((T *)c->p[2])[to + i * step] = x[items[i].from * step];
      ((int64_t *)c->p[3])[to + i * step] = items[i].from;
    }
  }
}
