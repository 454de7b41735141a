/* A pool of threads that share the grid of one kernel at a time.

   Threads wait for work by looking for a millisecond, and then sleep: runs that follow each other find them awake,
   also when Python has something to do in between. The grid is cut into some chunks for each thread; no result
   depends on how. A thread begins with chunks of its own, which lie next to each other and at the same place of every
   grid, so that it finds in its cache what it made before; then it takes those of others. Nobody waits for a thread
   that has taken none. A caller that finds the pool taken by another run works alone. */
#ifndef ASSAY_POOL_H
#define ASSAY_POOL_H
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include "assay.h"

#define MOST_THREADS 256
#define AWAKE 1e-3 /* seconds for which a thread looks for work before it sleeps */
#define LOOKS_AT_ONCE 64 /* between two looks at the clock */
#define LOOKS 4000 /* after which a caller that waits for others gives its core away */
#define CHUNK_WORK 32768 /* flops, about, below which a chunk is not worth handing over */
#define PARTS_OF_THREAD 8 /* chunks for each thread, about, so that those which are held up do less */

typedef struct {
  const call *c;
  int64_t rows, cols, row_chunk, col_chunk, chunks, across;
  int threads;
} job;

/* How far the chunks of one thread are taken. */
typedef struct {
  _Alignas(64) atomic_long next;
} share_of_thread;

static struct {
  pthread_mutex_t busy, lock;
  pthread_cond_t wake;
  int started;
  int threads; /* of the run that has the pool, the caller included */
  atomic_uint generation;
  atomic_int inside, sleeping; /* threads that may be looking at `now`; threads asleep */
  atomic_bool open; /* `now` has chunks to take */
  job now;
  share_of_thread shares[MOST_THREADS];
  char *scratch[MOST_THREADS];
  size_t scratch_size[MOST_THREADS];
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

static int64_t first_chunk(const job *j, int thread) { return j->chunks * thread / j->threads; }

static void run_chunk(const job *j, char *scratch, int64_t chunk) {
  int64_t r = chunk / j->across * j->row_chunk, c = chunk % j->across * j->col_chunk;
  j->c->run(j->c, scratch, r, MIN(r + j->row_chunk, j->rows), c, MIN(c + j->col_chunk, j->cols));
}

static void work_through(const job *j, char *scratch, int index) {
  for (int i = 0; i < j->threads; i++) {
    int owner = (index + i) % j->threads;
    int64_t end = first_chunk(j, owner + 1), chunk;
    while ((chunk = atomic_fetch_add_explicit(&pool.shares[owner].next, 1, memory_order_relaxed)) < end)
      run_chunk(j, scratch, chunk);
  }
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static unsigned next_generation(unsigned seen) {
  double until = seconds() + AWAKE;
  do {
    for (int looks = 0; looks < LOOKS_AT_ONCE; looks++) {
      unsigned now = atomic_load_explicit(&pool.generation, memory_order_acquire);
      if (now != seen) return now;
      pause_briefly();
    }
  } while (seconds() < until);
  pthread_mutex_lock(&pool.lock);
  atomic_fetch_add(&pool.sleeping, 1);
  while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
  atomic_fetch_sub(&pool.sleeping, 1);
  pthread_mutex_unlock(&pool.lock);
  return atomic_load(&pool.generation);
}

/* `argument` holds the thread's index and the generation that was the latest when it was made. */
static void *worker(void *argument) {
  int index = (int)((uint64_t)argument & 0xffff);
  unsigned seen = (unsigned)((uint64_t)argument >> 32);
  for (;;) {
    seen = next_generation(seen);
    atomic_fetch_add(&pool.inside, 1);
    if (atomic_load(&pool.open) && index < pool.now.threads)
      work_through(&pool.now, pool.scratch[index], index);
    atomic_fetch_sub_explicit(&pool.inside, 1, memory_order_release);
  }
  return NULL;
}

/* The child of a fork has none of its parent's threads. */
static void forget_threads(void) {
  pthread_mutex_init(&pool.busy, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.wake, NULL);
  pool.started = 0;
  atomic_store(&pool.generation, 0);
  atomic_store(&pool.inside, 0);
  atomic_store(&pool.sleeping, 0);
  atomic_store(&pool.open, false);
}

static void start_threads(int wanted) {
  static atomic_bool watched;
  if (!atomic_exchange(&watched, true)) pthread_atfork(NULL, NULL, forget_threads);
  while (pool.started < wanted - 1) {
    pthread_t thread;
    uint64_t argument = (uint64_t)atomic_load(&pool.generation) << 32 | (uint64_t)(pool.started + 1);
    if (pthread_create(&thread, NULL, worker, (void *)argument)) return;
    pthread_detach(thread);
    pool.started++;
  }
}

static bool scratch_ready(int index, size_t size) {
  if (pool.scratch_size[index] >= size) return true;
  free(pool.scratch[index]);
  pool.scratch[index] = aligned_alloc(64, CEIL_DIV(size, 64) * 64);
  pool.scratch_size[index] = pool.scratch[index] ? size : 0;
  return pool.scratch[index] != NULL;
}

/* Take the pool for a run with this many threads and this much scratch memory each; false: work alone. */
static bool pool_take(int threads, size_t scratch) {
  threads = MIN(threads, MOST_THREADS);
  if (threads < 1 || pthread_mutex_trylock(&pool.busy)) return false;
  start_threads(threads);
  bool ready = true;
  for (int i = 0; i < threads; i++) ready = ready && scratch_ready(i, scratch);
  if (!ready) {
    pthread_mutex_unlock(&pool.busy);
    return false;
  }
  pool.threads = threads;
  return true;
}

static void pool_release(void) { pthread_mutex_unlock(&pool.busy); }

static void share(const job *j) {
  pool.now = *j;
  for (int i = 0; i < j->threads; i++)
    atomic_store_explicit(&pool.shares[i].next, first_chunk(j, i), memory_order_relaxed);
  atomic_store(&pool.open, true);
  pthread_mutex_lock(&pool.lock);
  atomic_fetch_add_explicit(&pool.generation, 1, memory_order_release);
  if (atomic_load(&pool.sleeping)) pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
  work_through(j, pool.scratch[0], 0);
  atomic_store(&pool.open, false);
  for (int looks = 0; atomic_load(&pool.inside); looks++)
    if (looks < LOOKS) pause_briefly();
    else sched_yield();
}
#endif
