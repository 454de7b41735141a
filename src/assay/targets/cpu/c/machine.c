/* The machine: runs a tape of kernel calls.

   A tape is made once, for all sizes. A frame is what one run needs of its own: the values of the sizes, the arena,
   the calls with their addresses. A frame that is used again with the same sizes keeps its layout. */
#include <stdlib.h>
#include <sys/mman.h>
#include "pool.h"

#define LARGE_PAGE ((size_t)2 << 20)

enum { CONSTANT, ADD, MUL, FLOOR_DIV, MOD, LEAST, GREATEST };

/* One size out of others; for a constant, `a` counts in the table of constants. */
typedef struct { int32_t op, a, b; } size_op;

/* Memory from its first use to its last, in steps; `from` of one that the caller provides is -1. The first one
   is where kernels report errors. */
typedef struct { int32_t bytes, from, to; } buffer;

typedef struct { int32_t buffer, offset, width; } operand;

/* All but the kernel are places in the tape's tables, or of sizes. `then` is the step that goes on with this
   one's parts, itself marked `attached` and not run by itself; of a step with a `control` it is where that leads. */
typedef struct {
  kernel_function *run;
  int32_t operands, numbers, floats, then, attached, rows, cols, row_grain, col_grain, work, scratch, control;
} step;

/* LOOP begins a loop and leads to its NEXT if there is no round at all; NEXT leads back to it while there are
   more. IF leads to its ELSE if the condition does not hold, ELSE to the END behind it.
   LOOP, NEXT: p: the round, whether another one is wanted, where an error is reported, how many rounds there are at
   most if that is given, and whether the first one is wanted if that is (LOOP); n: whether the number of rounds is
   given, whether the last one is (LOOP), how many rounds are an error (NEXT).
   IF: p: the condition.
   CHECK ends the run with an error unless a size is as large as it must be: p: where the error is reported; n: the
   size, the least that it may be. */
enum { RUN, LOOP, NEXT, IF, ELSE, END, CHECK };

typedef struct {
  int32_t symbols, size_ops, buffers, steps, operands, numbers, errors, unused;
  int64_t limit; /* bytes that a buffer may have */
  const size_op *size_op;
  const int64_t *constant;
  const buffer *buffer;
  const operand *operand;
  const int32_t *number;
  const double *real;
  const step *step;
} tape;

typedef struct {
  int64_t *size;
  int64_t *place; /* of each buffer in the arena */
  char **base;    /* of each buffer in memory */
  char **p;
  int64_t *n;
  call *calls;
  int64_t *errors;
  char *arena;
  int64_t arena_bytes, peak, scratch;
  int ready;
} frame;

static int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* Sums and products that no longer fit are as large as can be, so that a check of sizes catches them. */
static int64_t sum(int64_t a, int64_t b) {
  int64_t result;
  return __builtin_add_overflow(a, b, &result) ? (a < 0 ? INT64_MIN : INT64_MAX) : result;
}

static int64_t times(int64_t a, int64_t b) {
  int64_t result;
  return __builtin_mul_overflow(a, b, &result) ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX) : result;
}

static void evaluate_sizes(const tape *t, int64_t *size) {
  for (int i = 0; i < t->size_ops; i++) {
    size_op o = t->size_op[i];
    int64_t a = o.op == CONSTANT ? t->constant[o.a] : size[o.a], b = o.op == CONSTANT ? 0 : size[o.b];
    int64_t *result = size + t->symbols + i;
    switch (o.op) {
      case CONSTANT: *result = a; break;
      case ADD: *result = sum(a, b); break;
      case MUL: *result = times(a, b); break;
      case FLOOR_DIV: *result = floor_div(a, b); break;
      case MOD: *result = a - floor_div(a, b) * b; break;
      case LEAST: *result = MIN(a, b); break;
      default: *result = MAX(a, b);
    }
  }
}

/* Whether all buffers have a size, and one within the limit. */
static bool sizes_fit(const tape *t, const int64_t *size) {
  for (int b = 0; b < t->buffers; b++)
    if (size[t->buffer[b].bytes] < 0 || size[t->buffer[b].bytes] > t->limit) return false;
  return true;
}

/* The lowest place where `bytes` fit between the buffers that are alive, which are sorted by place. */
static int find_gap(const frame *f, const tape *t, const int *alive, int count, int64_t bytes, int64_t *place) {
  *place = 0;
  for (int i = 0; i < count; i++) {
    if (f->place[alive[i]] - *place >= bytes) return i;
    int64_t end = f->place[alive[i]] + CEIL_DIV(f->size[t->buffer[alive[i]].bytes], 64) * 64;
    *place = MAX(*place, end);
  }
  return count;
}

static void drop_dead(const tape *t, int *alive, int *count, int at) {
  int kept = 0;
  for (int i = 0; i < *count; i++)
    if (t->buffer[alive[i]].to >= at) alive[kept++] = alive[i];
  *count = kept;
}

/* Lay the buffers out in the arena: first fit, in the order of their first use (in which they are listed). */
static int64_t lay_out(const tape *t, frame *f, int *alive) {
  int count = 0;
  int64_t top = 0;
  for (int b = 0; b < t->buffers; b++) {
    if (t->buffer[b].from < 0) continue;
    drop_dead(t, alive, &count, t->buffer[b].from);
    int64_t bytes = CEIL_DIV(f->size[t->buffer[b].bytes], 64) * 64, place;
    int at = find_gap(f, t, alive, count, bytes, &place);
    memmove(alive + at + 1, alive + at, (size_t)(count - at) * sizeof *alive);
    alive[at] = b;
    count++;
    f->place[b] = place;
    top = MAX(top, place + bytes);
  }
  return top;
}

static void bind_numbers(const tape *t, frame *f) {
  for (int i = 0; i < t->numbers; i++) f->n[i] = f->size[t->number[i]];
  f->scratch = 64;
  for (int i = 0; i < t->steps; i++) {
    const step *s = t->step + i;
    f->calls[i] = (call){f->p + s->operands, f->n + s->numbers, t->real + s->floats,
                         s->then < 0 || s->control ? NULL : f->calls + s->then, s->run};
    f->scratch = MAX(f->scratch, f->size[s->scratch]);
  }
}

/* Memory for an arena, in large pages if it fills some: it takes fewer of the processor's notes on where pages lie. */
static char *take_arena(size_t bytes) {
  size_t unit = bytes < LARGE_PAGE ? 64 : LARGE_PAGE, whole = CEIL_DIV(MAX(bytes, 1), unit) * unit;
  char *arena = aligned_alloc(unit, whole);
  if (arena && unit == LARGE_PAGE) madvise(arena, whole, MADV_HUGEPAGE);
  return arena;
}

frame *frame_new(const tape *t) {
  frame *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->size = calloc((size_t)(t->symbols + t->size_ops + 1), sizeof *f->size);
  f->place = calloc((size_t)(t->buffers + 1), sizeof *f->place);
  f->base = calloc((size_t)(t->buffers + 1), sizeof *f->base);
  f->p = calloc((size_t)(t->operands + 1), sizeof *f->p);
  f->n = calloc((size_t)(t->numbers + 1), sizeof *f->n);
  f->calls = calloc((size_t)(t->steps + 1), sizeof *f->calls);
  f->errors = calloc((size_t)(t->errors + 1), sizeof *f->errors);
  return f;
}

void frame_free(frame *f) {
  void *parts[] = {f->size, f->place, f->base, f->p, f->n, f->calls, f->errors, f->arena, f};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Make a frame fit these symbols and give the sizes that `wanted` asks for. 0, or -1 without enough memory, -2 if a
   buffer would exceed the limit. */
int frame_fit(const tape *t, frame *f, const int64_t *symbols, const int32_t *wanted, int count, int64_t *sizes) {
  size_t known = (size_t)t->symbols * sizeof *symbols;
  if (!f->ready || memcmp(f->size, symbols, known)) {
    f->ready = 0;
    memcpy(f->size, symbols, known);
    evaluate_sizes(t, f->size);
    if (!sizes_fit(t, f->size)) return -2;
    int *alive = malloc((size_t)(t->buffers + 1) * sizeof *alive);
    if (!alive) return -1;
    f->peak = lay_out(t, f, alive);
    free(alive);
    if (f->peak > f->arena_bytes || f->peak < f->arena_bytes / 4) {
      free(f->arena);
      f->arena = take_arena((size_t)f->peak);
      f->arena_bytes = f->arena ? MAX(f->peak, 64) : 0;
      if (!f->arena) return -1;
    }
    bind_numbers(t, f);
    f->ready = 1;
  }
  for (int i = 0; i < count; i++) sizes[i] = f->size[wanted[i]];
  return 0;
}

/* Units of a grid that one thread takes at a time: enough of them to be worth it, and few enough for `parts` parts. */
static int64_t units_at_once(int64_t units, int64_t parts, int64_t least) {
  return MAX(MAX(units / parts, least), 1);
}

/* How a grid is cut: into rows if there are enough of them, else into both. */
static job cut(const frame *f, const step *s, const call *c, int threads) {
  job j = {.c = c, .rows = f->size[s->rows], .cols = f->size[s->cols], .threads = threads};
  if (j.rows <= 0 || j.cols <= 0) return j;
  int64_t row_grain = MAX(f->size[s->row_grain], 1), col_grain = MAX(f->size[s->col_grain], 1);
  int64_t cells = CHUNK_WORK / MAX(f->size[s->work], 1), parts = PARTS_OF_THREAD * (int64_t)threads;
  int64_t row_units = CEIL_DIV(j.rows, row_grain), col_units = CEIL_DIV(j.cols, col_grain);
  j.row_chunk = row_grain * units_at_once(row_units, parts, CEIL_DIV(cells / j.cols, row_grain));
  int64_t down = CEIL_DIV(j.rows, j.row_chunk), least = CEIL_DIV(cells / MIN(j.row_chunk, j.rows), col_grain);
  j.col_chunk = col_grain * units_at_once(col_units, CEIL_DIV(parts, down), least);
  j.across = CEIL_DIV(j.cols, j.col_chunk);
  j.chunks = down * j.across;
  return j;
}

static void run_step(const frame *f, const step *s, const call *c, bool shared, char *scratch) {
  job j = cut(f, s, c, shared ? pool.threads : 1);
  if (j.rows <= 0 || j.cols <= 0) return;
  if (j.threads > 1 && j.chunks > 1) share(&j);
  else c->run(c, scratch, 0, j.rows, 0, j.cols);
}

/* Whether the run goes on behind the step that a control step leads to. */
static bool leads_on(const step *s, const call *c) {
  char *const *p = c->p;
  if (s->control == IF) return !*(const bool *)p[0];
  if (s->control == ELSE || s->control == END) return s->control == ELSE;
  int64_t *round = (int64_t *)p[0];
  bool *running = (bool *)p[1];
  if (s->control == LOOP) {
    *round = 0;
    *running = c->n[1] ? *(const bool *)p[3 + c->n[0]] : true;
    return !*running || (c->n[0] && *(const int64_t *)p[3] <= 0);
  }
  ++*round;
  if (!*running || (c->n[0] && *round >= *(const int64_t *)p[3])) return false;
  if (*round >= c->n[1]) *(int64_t *)p[2] = 1;
  return *round < c->n[1];
}

/* When to stop: after a time (in nanoseconds of the monotonic clock, 0: never), or when somebody sets the flag. */
typedef struct {
  int64_t deadline;
  const volatile int32_t *flag;
} stop;

static bool is_over(const stop *s) {
  if (*s->flag) return true;
  if (!s->deadline) return false;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec > s->deadline;
}

/* Run the steps. `given` are the addresses of the caller's buffers, in the order of the tape. The number of the
   first error that a kernel reported, 0 if none did, -1 without enough memory, -2 - i if it was stopped before step i.
   `times`, if any, gets the seconds that each step took; `until`, if any, is looked at before each step. */
int64_t frame_run(const tape *t, frame *f, char *const *given, int threads, double *times, const stop *until) {
  for (int b = 0, g = 0; b < t->buffers; b++)
    f->base[b] = t->buffer[b].from >= 0 ? f->arena + f->place[b] : b == 0 ? (char *)f->errors : given[g++];
  for (int i = 0; i < t->operands; i++) {
    operand o = t->operand[i];
    f->p[i] = f->base[o.buffer] + f->size[o.offset] * o.width;
  }
  memset(f->errors, 0, (size_t)t->errors * sizeof *f->errors);
  bool shared = pool_take(threads, (size_t)f->scratch);
  char *scratch = shared ? pool.scratch[0] : aligned_alloc(64, (size_t)CEIL_DIV(f->scratch, 64) * 64);
  if (!scratch) return -1;
  int64_t stopped = 0;
  for (int i = 0; i < t->steps; i++) {
    if (t->step[i].attached) continue;
    if (until && is_over(until)) {
      stopped = -2 - i;
      break;
    }
    if (t->step[i].control == CHECK) {
      const call *c = f->calls + i;
      if (c->n[0] >= c->n[1]) continue;
      *(int64_t *)c->p[0] = 1;
      break;
    }
    if (t->step[i].control) {
      if (leads_on(t->step + i, f->calls + i)) i = t->step[i].then;
      continue;
    }
    double start = times ? seconds() : 0;
    run_step(f, t->step + i, f->calls + i, shared, scratch);
    if (times) times[i] += seconds() - start;
  }
  if (shared) pool_release();
  else free(scratch);
  if (stopped) return stopped;
  for (int i = 0; i < t->errors; i++)
    if (f->errors[i]) return i + 1;
  return 0;
}

int64_t frame_peak(const frame *f) { return f->peak; }
