/* sdpa, without a matrix of all scores in memory. A row of the grid is a block of QUERIES queries of a head.

   Queries are the lanes of vectors: a *panel* is SIDE of them, and what is kept for it (queries, scores,
   results) has them innermost. Keys and values are then read where they lie, one number at a time, and no
   step of the softmax goes across lanes. The last few queries are panels of one, for which vectors go along
   keys and values instead.

   Keys are taken KEYS at a time. `peak` and `total` are a query's largest score and sum of exponentials so
   far; what was summed under a smaller peak decays. Keys that `causal` leaves out are not looked at, unless one of
   them is infinite or NaN: hidden as it is, it still makes NaN of what it is multiplied with.

   T, W, LOAD, STORE: see storage.h; QUERIES, KEYS; CAUSAL and CAPPED: 0 or 1; MASK: the type of the mask's
   elements if there is a mask, and BIAS(x): what such an element adds to a score.
   p: q, k, v, the mask if any, result; n: see below, strides last; f: the scale (NaN: by the size), the cap.
   Scratch: KEYS · (QUERIES + sizes of keys and values) + QUERIES · (both sizes + 32) numbers. */
#include "exponential.h"
#include "rows.h"
#pragma GCC optimize("fp-contract=fast")

#ifdef MASK
#define MASKED 1
#else
#define MASKED 0
#define MASK char
#define BIAS(x) 0
#endif
#define ALWAYS static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* so that its loops have all registers */
#define UNROLL _Pragma("GCC unroll 16")

typedef W vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef vec pair[2]; /* a row of a panel */
typedef __typeof__((vec){0} > (vec){0}) lanes;
enum { WIDTH = LANES(W), SIDE = 2 * WIDTH, ROWS = VECTOR_BYTES == 64 ? 12 : 6, FEW = 4 };

typedef struct {
  int64_t batch, head, step;
} strides;

typedef struct {
  int64_t heads, shared, queries, keys, size, out_size; /* `shared` heads of queries share one of keys */
  strides q, k, v, out, mask;
  int64_t mask_key;
} numbers;

/* `count` queries from `first` on; side is 1 or SIDE. */
typedef struct {
  int64_t first, count, side;
  W *q, *out, *peak, *total;
} panel;

/* `count` keys from `first` on with their values. */
typedef struct {
  int64_t first, count, k_step, v_step;
  const W *k, *v;
} block;

/* --- panels */

/* The lower or the upper lanes of a and b by turns. */
ALWAYS vec zip(vec a, vec b, int upper) {
#ifdef __clang__
  vec x;
  for (int i = 0; i < WIDTH; i++) x[i] = (i % 2 ? b : a)[(i + upper * WIDTH) / 2];
  return x;
#else
  lanes from;
  for (int i = 0; i < WIDTH; i++) from[i] = (i + upper * WIDTH) / 2 + i % 2 * WIDTH;
  return __builtin_shuffle(a, b, from);
#endif
}

ALWAYS void transpose(vec *x) {
  UNROLL for (int n = 1; n < WIDTH; n *= 2) {
    vec y[WIDTH];
    UNROLL for (int i = 0; i < WIDTH; i++) y[i] = zip(x[i / 2], x[i / 2 + WIDTH / 2], i % 2);
    UNROLL for (int i = 0; i < WIDTH; i++) x[i] = y[i];
  }
}

/* WIDTH × WIDTH numbers transposed; `rows` rows of `columns` each are there, the others count as zero. */
ALWAYS void tile(const W *from, int64_t step, int64_t rows, int64_t columns, vec *x) {
  if (rows >= WIDTH && columns >= WIDTH) {
    UNROLL for (int i = 0; i < WIDTH; i++) memcpy(x + i, from + i * step, sizeof(vec));
  } else {
    memset(x, 0, WIDTH * sizeof(vec));
    const size_t bytes = MIN(columns, WIDTH) * sizeof(W);
    for (int64_t i = 0; i < MIN(rows, WIDTH); i++) memcpy(x + i, from + i * step, bytes);
  }
  transpose(x);
}

/* to[j][i] = from[i][j] · factor for i < rows, j < columns; zero for the rows up to SIDE. */
static void pack(const W *from, int64_t step, int64_t rows, int64_t columns, W factor, W *to) {
  for (int64_t i = 0; i < SIDE; i += WIDTH)
    for (int64_t j = 0; j < columns; j += WIDTH) {
      vec x[WIDTH];
      tile(from + i * step + j, step, rows - i, columns - j, x);
      for (int64_t m = 0; m < MIN(WIDTH, columns - j); m++) *(vec *)(to + (j + m) * SIDE + i) = x[m] * factor;
    }
}

ALWAYS void store_row(const W *x, int64_t count, T *to) {
  if (sizeof(T) == sizeof(W) && count == WIDTH) memcpy(to, x, sizeof(vec));
  else for (int64_t i = 0; i < count; i++) to[i] = STORE(x[i]);
}

/* to[i][j] = from[j][i] · factor[i] for i < rows, j < columns. */
static void unpack(const W *from, const W *factor, int64_t rows, int64_t columns, T *to, int64_t step) {
  for (int64_t i = 0; i < rows; i += WIDTH)
    for (int64_t j = 0; j < columns; j += WIDTH) {
      const int64_t n = MIN(WIDTH, columns - j);
      vec x[WIDTH] = {0};
      for (int64_t m = 0; m < n; m++) x[m] = *(vec *)(from + (j + m) * SIDE + i) * *(vec *)(factor + i);
      transpose(x);
      for (int64_t l = 0; l < MIN(WIDTH, rows - i); l++) store_row((W *)(x + l), n, to + (i + l) * step + j);
    }
}

/* sums[r] = sum over i of a[r · row + i · step] · b[i], for as many r as registers hold. */
ALWAYS void products(int rows, const W *a, int64_t row, int64_t step, const pair *b, int64_t n, pair *sums) {
  UNROLL for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (vec){0};
  for (int64_t i = 0; i < n; i++)
    UNROLL for (int r = 0; r < rows; r++) {
      const W x = a[r * row + i * step];
      sums[r][0] += x * b[i][0];
      sums[r][1] += x * b[i][1];
    }
}

ALWAYS void score_rows(int rows, const W *k, int64_t step, const W *q, int64_t size, W *scores) {
  pair sums[ROWS];
  products(rows, k, step, 1, (const pair *)q, size, sums);
  UNROLL for (int r = 0; r < rows; r++) memcpy(scores + r * SIDE, sums[r], sizeof sums[r]);
}

APART void score(const block *b, const W *q, int64_t size, W *scores) {
  const int64_t step = b->k_step;
  int64_t i = 0;
  for (; i + ROWS <= b->count; i += ROWS) score_rows(ROWS, b->k + i * step, step, q, size, scores + i * SIDE);
  for (; i + 2 <= b->count; i += 2) score_rows(2, b->k + i * step, step, q, size, scores + i * SIDE);
  for (; i < b->count; i++) score_rows(1, b->k + i * step, step, q, size, scores + i * SIDE);
}

/* Scores become exponentials. */
APART void grow(W *scores, int64_t keys, W *peak, W *total, W *decay) {
  W top[SIDE], sum[SIDE];
  for (int j = 0; j < SIDE; j++) top[j] = peak[j], sum[j] = 0;
  for (int64_t i = 0; i < keys; i++)
#pragma omp simd
    for (int j = 0; j < SIDE; j++) top[j] = scores[i * SIDE + j] > top[j] ? scores[i * SIDE + j] : top[j];
#pragma omp simd
  for (int j = 0; j < SIDE; j++) {
    const W base = top[j] == -INFINITY ? 0 : top[j];
    decay[j] = EXP_FALLING(peak[j] - base);
    peak[j] = top[j];
    top[j] = base;
  }
  for (int64_t i = 0; i < keys; i++)
#pragma omp simd
    for (int j = 0; j < SIDE; j++) {
      scores[i * SIDE + j] = EXP_FALLING(scores[i * SIDE + j] - top[j]);
      sum[j] += scores[i * SIDE + j];
    }
  for (int j = 0; j < SIDE; j++) total[j] = total[j] * decay[j] + sum[j];
}

ALWAYS void weigh_rows(int rows, const block *b, int64_t at, const W *weights, const vec *decay, W *to) {
  pair sums[ROWS], *out = (pair *)(to + at * SIDE);
  products(rows, b->v + at, 1, b->v_step, (const pair *)weights, b->count, sums);
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int j = 0; j < 2; j++) out[r][j] = out[r][j] * decay[j] + sums[r][j];
}

APART void weigh(const block *b, const W *weights, const W *decay, int64_t size, W *out) {
  int64_t i = 0;
  for (; i + ROWS <= size; i += ROWS) weigh_rows(ROWS, b, i, weights, (const vec *)decay, out);
  for (; i + 4 <= size; i += 4) weigh_rows(4, b, i, weights, (const vec *)decay, out);
  for (; i < size; i++) weigh_rows(1, b, i, weights, (const vec *)decay, out);
}

/* --- panels of one query */

static void score_one(const block *b, const W *q, int64_t size, W *scores) {
  const int64_t step = b->k_step;
  int64_t i = 0;
  for (; i + 4 <= b->count; i += 4) {
    const W *k0 = b->k + i * step, *k1 = k0 + step, *k2 = k1 + step, *k3 = k2 + step;
    W s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t j = 0; j < size; j++)
      s0 += q[j] * k0[j], s1 += q[j] * k1[j], s2 += q[j] * k2[j], s3 += q[j] * k3[j];
    scores[i] = s0, scores[i + 1] = s1, scores[i + 2] = s2, scores[i + 3] = s3;
  }
  for (; i < b->count; i++) {
    W sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < size; j++) sum += q[j] * b->k[i * step + j];
    scores[i] = sum;
  }
}

static void grow_one(W *scores, int64_t keys, W *peak, W *total, W *decay) {
  W top = *peak, sum = 0;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < keys; i++) top = scores[i] > top ? scores[i] : top;
  const W base = top == -INFINITY ? 0 : top;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < keys; i++) {
    scores[i] = EXP_FALLING(scores[i] - base);
    sum += scores[i];
  }
  *decay = EXP_FALLING(*peak - base);
  *peak = top;
  *total = *total * *decay + sum;
}

static void weigh_one(const block *b, const W *weights, W decay, int64_t size, W *out) {
  const int64_t step = b->v_step;
  for (int64_t j = 0; j < size; j++) out[j] *= decay;
  int64_t i = 0;
  for (; i + 4 <= b->count; i += 4) {
    const W *v0 = b->v + i * step, *v1 = v0 + step, *v2 = v1 + step, *v3 = v2 + step;
    const W w0 = weights[i], w1 = weights[i + 1], w2 = weights[i + 2], w3 = weights[i + 3];
#pragma omp simd
    for (int64_t j = 0; j < size; j++) out[j] += w0 * v0[j] + w1 * v1[j] + (w2 * v2[j] + w3 * v3[j]);
  }
  for (; i < b->count; i++)
#pragma omp simd
    for (int64_t j = 0; j < size; j++) out[j] += weights[i] * b->v[i * step + j];
}

/* --- both */

static void cap(W *scores, int64_t count, W most) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) scores[i] = TANH(scores[i] / most) * most;
}

/* What the mask adds to scores: rows of W, `step` apart, in `room` unless the mask itself is that. */
static const W *bias_rows(const MASK *mask, const panel *p, const block *b, const numbers *n, W *room,
                          int64_t *step) {
  mask += p->first * n->mask.step + b->first * n->mask_key;
  *step = n->mask.step;
  if (sizeof(MASK) == sizeof(W) && n->mask_key == 1) return (const W *)mask;
  for (int64_t i = 0; i < p->count; i++, mask += n->mask.step)
    for (int64_t j = 0; j < b->count; j++) room[i * KEYS + j] = BIAS(mask[j * n->mask_key]);
  *step = KEYS;
  return room;
}

static void add_mask(const panel *p, const block *b, const MASK *mask, const numbers *n, W *scores) {
  int64_t step;
  const W *bias = bias_rows(mask, p, b, n, scores + KEYS * SIDE, &step);
  if (p->side == 1)
    for (int64_t j = 0; j < b->count; j++) scores[j] += bias[j];
  else
    for (int64_t i = 0; i < SIDE; i += WIDTH)
      for (int64_t j = 0; j < b->count; j += WIDTH) {
        vec x[WIDTH];
        tile(bias + i * step + j, step, p->count - i, b->count - j, x);
        for (int64_t m = 0; m < MIN(WIDTH, b->count - j); m++) *(vec *)(scores + (j + m) * SIDE + i) += x[m];
      }
}

/* Leave out the keys behind each query's own place. */
static void hide_future(const panel *p, const block *b, W *scores) {
  for (int64_t i = MAX(p->first - b->first, 0); i < b->count; i++)
    for (int64_t j = 0; j < MIN(b->first + i - p->first, p->side); j++) scores[i * p->side + j] += -INFINITY;
}

static int is_finite(const T *x, int64_t size) {
  W sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; i++) {
    const W y = LOAD(x[i]);
    sum += y - y;
  }
  return sum == 0;
}

/* How many keys the queries q0 … q1 have to look at: up to their own places, or to the last that is not finite. */
static int64_t keys_in_sight(const T *q, const T *k, const T *v, const numbers *n, int64_t q0, int64_t q1) {
  for (int64_t i = q0; i < q1; i++)
    if (!is_finite(q + i * n->q.step, n->size)) return n->keys;
  int64_t count = n->keys;
  while (count > q0 + 1 && is_finite(k + (count - 1) * n->k.step, n->size) &&
         is_finite(v + (count - 1) * n->v.step, n->out_size))
    count--;
  return count;
}

/* Let a panel see some more keys; those from `sight` on are finite. */
static void attend(const call *c, const panel *p, const block *all, const MASK *mask, int64_t sight, W *scores) {
  const numbers *n = (const numbers *)c->n;
  const int one = p->side == 1;
  block seen = *all, *b = &seen;
  if (CAUSAL) b->count = MIN(b->count, MAX(p->first + p->count, sight) - b->first);
  if (b->count <= 0) return;
  W decay[SIDE] __attribute__((aligned(VECTOR_BYTES)));
  if (one) score_one(b, p->q, n->size, scores);
  else score(b, p->q, n->size, scores);
  if (CAPPED) cap(scores, b->count * p->side, (W)c->f[1]);
  if (MASKED) add_mask(p, b, mask, n, scores);
  if (CAUSAL) hide_future(p, b, scores);
  if (one) {
    grow_one(scores, b->count, p->peak, p->total, decay);
    weigh_one(b, scores, *decay, n->out_size, p->out);
  } else {
    grow(scores, b->count, p->peak, p->total, decay);
    weigh(b, scores, decay, n->out_size, p->out);
  }
}

/* The panels of the queries first … end, with their memory. */
static int panels_of(int64_t first, int64_t end, const numbers *n, W *memory, panel *panels) {
  int count = 0;
  for (; first < end; count++) {
    const int64_t side = end - first > FEW ? SIDE : 1;
    W *out = memory + n->size * side, *peak = out + n->out_size * side;
    panels[count] = (panel){first, MIN(side, end - first), side, memory, out, peak, peak + side};
    memory += CEIL_DIV((n->size + n->out_size + 2) * side, 16) * 16;
    first += side;
  }
  return count;
}

/* Rows of x as W, `step` apart. */
static const W *wide_rows(const T *x, int64_t rows, int64_t size, int64_t *step, W *room) {
  if (sizeof(T) == sizeof(W)) return (const W *)x;
  for (int64_t i = 0; i < rows; i++) wide_row(x + i * *step, size, room + i * size);
  *step = size;
  return room;
}

static void begin(const panel *p, const T *q, const numbers *n, W scale, W *room) {
  int64_t step = n->q.step;
  const W *rows = wide_rows(q + p->first * step, p->count, n->size, &step, room);
  if (p->side == SIDE) pack(rows, step, p->count, n->size, scale, p->q);
  else for (int64_t i = 0; i < n->size; i++) p->q[i] = rows[i] * scale;
  memset(p->out, 0, n->out_size * p->side * sizeof(W));
  for (int64_t j = 0; j < p->side; j++) p->peak[j] = -INFINITY, p->total[j] = 0;
}

static void end(const panel *p, T *out, const numbers *n) {
  out += p->first * n->out.step;
  W factor[SIDE] __attribute__((aligned(VECTOR_BYTES)));
  const int none = MASKED || CAUSAL || n->keys == 0; /* a query may attend to none */
  for (int64_t j = 0; j < p->side; j++) factor[j] = none && p->total[j] == 0 ? 0 : 1 / p->total[j];
  if (p->side == SIDE) unpack(p->out, factor, p->count, n->out_size, out, n->out.step);
  else for (int64_t i = 0; i < n->out_size; i++) out[i] = STORE(p->out[i] * *factor);
}

static inline int64_t at(strides s, int64_t batch, int64_t head) { return batch * s.batch + head * s.head; }

static void attend_block(const call *c, W *memory, int64_t batch, int64_t head, int64_t q0, int64_t q1) {
  const numbers *n = (const numbers *)c->n;
  const T *k = (const T *)c->p[1] + at(n->k, batch, head / n->shared);
  const T *v = (const T *)c->p[2] + at(n->v, batch, head / n->shared);
  const MASK *mask = (const MASK *)c->p[3] + (MASKED ? at(n->mask, batch, head) : 0);
  W *k_room = memory + KEYS * QUERIES, *v_room = k_room + KEYS * n->size;
  panel panels[QUERIES / SIDE + FEW];
  const int count = panels_of(q0, q1, n, v_room + KEYS * n->out_size, panels);
  const double scale = isnan(c->f[0]) ? 1 / sqrt((double)MAX(n->size, 1)) : c->f[0];
  const T *q = (const T *)c->p[0] + at(n->q, batch, head);
  for (int i = 0; i < count; i++) begin(panels + i, q, n, (W)scale, k_room);
  const int64_t sight = CAUSAL ? keys_in_sight(q, k, v, n, q0, q1) : n->keys;
  const int64_t keys = MIN(n->keys, MAX(q1, sight));
  for (int64_t first = 0; first < keys; first += KEYS) {
    block b = {.first = first, .count = MIN(KEYS, keys - first), .k_step = n->k.step, .v_step = n->v.step};
    b.k = wide_rows(k + first * b.k_step, b.count, n->size, &b.k_step, k_room);
    b.v = wide_rows(v + first * b.v_step, b.count, n->out_size, &b.v_step, v_room);
    for (int i = 0; i < count; i++) attend(c, panels + i, &b, mask, sight, memory);
  }
  for (int i = 0; i < count; i++) end(panels + i, (T *)c->p[3 + MASKED] + at(n->out, batch, head), n);
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const numbers *n = (const numbers *)c->n;
  const int64_t blocks = CEIL_DIV(n->queries, QUERIES);
  for (int64_t r = r0; r < r1; r++) {
    const int64_t q0 = r % blocks * QUERIES, h = r / blocks;
    attend_block(c, (W *)scratch, h / n->heads, h % n->heads, q0, MIN(q0 + QUERIES, n->queries));
  }
}
