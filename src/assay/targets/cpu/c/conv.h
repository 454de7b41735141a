/* Convolutions as matrix products: windows of x times kernel positions.

   The rows of x that a run of output pixels needs are copied to scratch memory, padded, the channels of a
   pixel next to each other. There every row of a window is one stretch of memory, and windows overlap as
   they do in x. Operands: x, weights, result. With PACKED, the weights were laid out as panels beforehand (of each
   group: kernel positions · channels, row by row); else they lie as they come and become panels on the way.
   Numbers: a `shape`. The grid is (images · output pixels) × output channels; the result lies in that
   order. Elements: see lanes.h. Scratch: a `workspace`, ROW_BLOCK pointers for each segment of a window
   (its rows; its pixels if these lie apart), the copied rows: ROW_BUDGET elements, or what ROWS windows
   side by side take if that is more; and unless the panels are read as they are, PANELS of these. */
#include "panels.h"
#include "tile.h"

enum { ROW_BLOCK = 384, COLUMN_BLOCK = 128, DEPTH = 768 };
#ifdef PACKED
enum { ROW_BUDGET = 65536 };
#else
enum { ROW_BUDGET = 131072 }; /* weights become panels anew for each copy: larger copies, fewer panels */
#endif

typedef struct {
#ifdef IN_PLACE
  char nothing[64];
#else
  ACC sums[ROW_BLOCK * COLUMN_BLOCK];
#endif
} workspace;

typedef struct {
  int64_t groups, in, out; /* channels of one group */
  int64_t size[3], made[3], kernel[3], stride[3], dilation[3], before[3]; /* x, the result; pads before x */
  int64_t x_image, x_channel, x_step[3];
  int64_t w_out, w_in, w_place; /* unless PACKED: steps from channel to channel, and between kernel positions */
} shape;

/* A piece of an output plane, as what the copied rows hold for it. */
typedef struct {
  int64_t image, plane, first, pixels;
  int64_t top, left, rows, columns; /* the first output row and column, input rows and columns */
} piece;

ALWAYS int64_t reach(const shape *g, int axis) { return (g->kernel[axis] - 1) * g->dilation[axis] + 1; }

/* How far apart the windows of neighbours are in the copy: what lies between windows is left out. */
ALWAYS int64_t pitch(const shape *g, int axis) { return MIN(g->stride[axis], reach(g, axis)); }

static int64_t place_piece(const shape *g, piece *at) {
  const int64_t width = g->made[2], last = at->first + at->pixels - 1;
  const int64_t one_row = at->first / width == last / width;
  at->top = at->first / width;
  at->left = one_row ? at->first % width : 0;
  at->rows = (last / width - at->top) * pitch(g, 1) + reach(g, 1);
  at->columns = ((one_row ? last % width : width - 1) - at->left) * pitch(g, 2) + reach(g, 2);
  return g->kernel[0] * at->rows * at->columns * g->in;
}

/* The next piece, up to `pixels` pixels: whole output rows as far as their input fits, else a part of one. */
static piece next_piece(const shape *g, int64_t row, int64_t pixels) {
  const int64_t width = g->made[2], area = g->made[1] * width;
  piece at = {.image = row / (area * g->made[0]), .plane = row / area % g->made[0], .first = row % area};
  at.pixels = MIN(MIN(pixels, ROW_BLOCK), area - at.first);
  const int64_t rest = width - at.first % width;
  while (place_piece(g, &at) > ROW_BUDGET && at.pixels > rest) at.pixels = MAX(at.pixels - width, rest);
  if (place_piece(g, &at) > ROW_BUDGET) {
    const int64_t columns = ROW_BUDGET / (g->kernel[0] * at.rows * g->in);
    at.pixels = MIN(at.pixels, MAX((columns - reach(g, 2)) / pitch(g, 2) + 1, ROWS));
    place_piece(g, &at);
  }
  return at;
}

/* `count` pixels of a row of x from column `first` on, zeros where there are none. */
static void copy_pixels(const shape *g, ACC *to, const T *row, int64_t first, int64_t count) {
  const int64_t in = g->in, step = g->x_step[2];
  const int64_t before = MIN(MAX(-first, 0), count);
  const int64_t after = MIN(MAX(first + count - g->size[2], 0), count - before);
  const int64_t inside = count - before - after;
  memset(to, 0, before * in * sizeof(ACC));
  memset(to + (count - after) * in, 0, after * in * sizeof(ACC));
  to += before * in;
  row += (first + before) * step;
  if (inside == 0) return;
  if (step == in && (g->x_channel == 1 || in == 1)) copy_block(to, 0, row, 0, 1, 1, inside * in);
  else copy_block(to, in, row, step, g->x_channel, inside, in);
}

static void copy_rows(const shape *g, const piece *at, ACC *to, const T *x) {
  const int64_t high = pitch(g, 1), wide = pitch(g, 2), run = wide == g->stride[2] ? at->columns : wide;
  for (int64_t d = 0; d < g->kernel[0]; d++)
    for (int64_t r = 0; r < at->rows; r++, to += at->columns * g->in) {
      const int64_t z = at->plane * g->stride[0] + d * g->dilation[0] - g->before[0];
      const int64_t y = (at->top + r / high) * g->stride[1] + r % high - g->before[1];
      if (z < 0 || z >= g->size[0] || y < 0 || y >= g->size[1]) {
        memset(to, 0, at->columns * g->in * sizeof(ACC));
        continue;
      }
      const T *row = x + z * g->x_step[0] + y * g->x_step[1];
      for (int64_t o = 0; o * run < at->columns; o++)
        copy_pixels(g, to + o * run * g->in, row, (at->left + o) * g->stride[2] - g->before[2], run);
    }
}

/* Where the segments of each pixel's window begin: all lie as those of the first pixel do. */
static void point_at_windows(const shape *g, const piece *at, const ACC **row, const ACC *copy) {
  const int64_t width = g->made[2], steps = g->dilation[2] == 1 ? 1 : g->kernel[2], pixels = at->pixels;
  const int64_t down = pitch(g, 1) * at->columns * g->in, across = pitch(g, 2) * g->in;
  const ACC *line = copy;
  for (int64_t i = 0, x = at->first % width - at->left; i < pixels; i++) {
    row[i] = line + x * across;
    if (++x + at->left == width) x = 0, line += down;
  }
  const ACC *const *first = row;
  for (int64_t d = 0; d < g->kernel[0]; d++)
    for (int64_t h = 0; h < g->kernel[1]; h++)
      for (int64_t w = 0; w < steps; w++, row += pixels) {
        const int64_t r = d * at->rows + h * g->dilation[1];
        const int64_t offset = (r * at->columns + w * g->dilation[2]) * g->in;
        if (offset == 0) continue;
#pragma GCC ivdep
        for (int64_t i = 0; i < pixels; i++) row[i] = first[i] + offset;
      }
}

ALWAYS int64_t segments_of(const shape *g) {
  return g->kernel[0] * g->kernel[1] * (g->dilation[2] == 1 ? 1 : g->kernel[2]);
}

#ifndef PACKED
/* The weights of up to PANEL output channels as a panel: rows in the order of kernel positions, then channels. */
static void pack_panel(const shape *g, ACC *to, const T *w, int64_t columns) {
  const int64_t places = g->kernel[0] * g->kernel[1] * g->kernel[2], depth = places * g->in;
  int64_t e = 0;
  if (columns < PANEL) memset(to, 0, depth * PANEL * sizeof(ACC));
  if (g->w_in == 1 || places == 1) {
    for (int64_t t = 0; t < places; t++)
      copy_block(to + t * g->in * PANEL, PANEL, w + t * g->w_place, g->w_in, g->w_out, g->in, columns);
    return;
  }
  if (TURNS && columns == PANEL && g->w_place == 1 && g->w_in == places)
    for (int64_t t = 0, c = 0; e + DEEP <= depth; e += DEEP)
      for (int v = 0; v < PARTS; v++) {
        vec turned[DEEP];
        int64_t place = t, channel = c;
        turn(w + e + v * WIDTH * g->w_out, g->w_out, turned);
#pragma GCC unroll 16
        for (int m = 0; m < DEEP; m++) {
          *(loose *)(to + (place * g->in + channel) * PANEL + v * WIDTH) = turned[m];
          if (++place == places) place = 0, channel++;
        }
        if (v == PARTS - 1) t = place, c = channel;
      }
  for (; e < depth; e++)
    for (int64_t j = 0; j < columns; j++) {
      const int64_t place = e % places, channel = e / places;
      to[(place * g->in + channel) * PANEL + j] = WIDEN(w[j * g->w_out + channel * g->w_in + place * g->w_place]);
    }
}
#endif

/* The panels of `columns` columns, the first of which is channel o, at `next` from each other: where they are, or put
   into `room`. */
static const ACC *place_right(const shape *g, const T *w, ACC *room, int64_t o, int64_t columns, int64_t next) {
#if !defined(PACKED)
  for (int64_t i = 0; i * PANEL < columns; i++)
    pack_panel(g, room + i * next, w + (o + i * PANEL) * g->w_out, MIN(PANEL, columns - i * PANEL));
  return room;
#else
  const int64_t panel = o / g->out * CEIL_DIV(g->out, PANEL) + o % g->out / PANEL;
  const T *panels = w + panel * next;
#ifdef IN_PLACE
  return panels;
#else
  for (int64_t i = 0; i < CEIL_DIV(columns, PANEL) * next; i++) room[i] = WIDEN(panels[i]);
  return room;
#endif
#endif
}

/* All depth of some columns of C, whose panels are at p->b: a few segments, or a part of one, at a time. Meanwhile the
   weights at `soon` are prefetched, those of the `coming_columns` columns that become panels next. */
static void add_up(const shape *g, product *p, const ACC *const *row, int64_t columns, const T *soon,
                   int64_t coming_columns) {
  const int64_t length = g->in * (g->dilation[2] == 1 ? g->kernel[2] : 1), segments = segments_of(g);
  const int64_t at_once = MAX(DEPTH / MAX(length, 1), 1);
  const ACC *panels = p->b;
  ACC *first = p->c;
  for (int64_t s = 0; s < segments; s += p->segments)
    for (p->begin = 0; p->begin == 0 || p->begin < length; p->begin += DEPTH) {
      p->segments = MIN(at_once, segments - s);
      p->length = MIN(DEPTH, length - p->begin);
      p->row = row + s * p->rows;
      p->add = s + p->begin > 0;
#ifndef PACKED
      const int64_t size = sizeof(T), lines = CEIL_DIV(p->segments * p->length * size, 64);
      p->next = (coming){(const char *)(soon + s * length + p->begin), coming_columns, lines, g->w_out * size};
#endif
      for (int64_t j = 0, n; j < columns; j += n, p->next.pieces = 0) {
        n = next_columns(p->rows, columns - j);
        p->b = panels + j / PANEL * p->next_panel + (s * length + p->begin) * PANEL;
        p->c = first + j;
        strip(p, n);
      }
    }
}

/* Some columns of C, from channel o on, all within one group. */
static void block(const shape *g, product *p, const ACC *const *row, const T *w, ACC *room, int64_t o,
                  int64_t columns) {
#if defined(PACKED) && defined(IN_PLACE)
  const int64_t most = columns;
#else
  const int64_t most = PANELS * PANEL;
#endif
  ACC *first = p->c;
  p->b_step = PANEL;
  p->next_panel = g->kernel[0] * g->kernel[1] * g->kernel[2] * g->in * PANEL;
  for (int64_t j = 0, n; j < columns; j += n) {
    n = MIN(most, columns - j);
    p->b = place_right(g, w, room, o + j, n, p->next_panel);
    p->c = first + j;
#ifdef PACKED
    add_up(g, p, row, n, w, 0);
#else
    add_up(g, p, row, n, w + (o + j + n) * g->w_out, MIN(most, columns - j - n));
#endif
  }
}

/* The pixels of one piece, from grid row r on, in the channels c0 to c1 of one group. */
static void channels(const call *c, workspace *w, const piece *at, int64_t r, const ACC *const *row, ACC *room,
                     int64_t c0, int64_t c1) {
  const shape *g = (const shape *)c->n;
  const int64_t all = g->groups * g->out;
  const T *weights = (const T *)c->p[1];
  T *out = (T *)c->p[2] + r * all + c0;
#ifdef IN_PLACE
  product p = {.rows = at->pixels, .c = out, .c_step = all};
  block(g, &p, row, weights, room, c0, c1 - c0);
#else
  product p = {.rows = at->pixels, .c = w->sums, .c_step = COLUMN_BLOCK};
  block(g, &p, row, weights, room, c0, c1 - c0);
  for (int64_t i = 0; i < at->pixels; i++)
    for (int64_t j = 0; j < c1 - c0; j++) out[i * all + j] = NARROW(w->sums[i * COLUMN_BLOCK + j]);
#endif
}

void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  const shape *g = (const shape *)c->n;
  workspace *w = (workspace *)scratch;
  const ACC **row = (const ACC **)(w + 1);
  ACC *room = (ACC *)(row + ROW_BLOCK * segments_of(g));
#if defined(PACKED) && defined(IN_PLACE)
  ACC *copy = room;
#else
  ACC *copy = room + PANELS * PANEL * g->kernel[0] * g->kernel[1] * g->kernel[2] * g->in;
#endif
  for (int64_t r = r0; r < r1;) {
    const piece at = next_piece(g, r, r1 - r);
    for (int64_t j = c0, end; j < c1; j = end) {
      const int64_t group = j / g->out;
      end = MIN(MIN(c1, (group + 1) * g->out), j + COLUMN_BLOCK);
      if (j == c0 || j % g->out == 0) {
        copy_rows(g, &at, copy, (const T *)c->p[0] + at.image * g->x_image + group * g->in * g->x_channel);
        point_at_windows(g, &at, row, copy);
      }
      channels(c, w, &at, r, row, room, j, end);
      finish(c, scratch, r, r + at.pixels, j, end);
    }
    r += at.pixels;
  }
}
