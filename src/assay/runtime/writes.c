/* What the kernel knows of writes to memory: pages are write-protected, and one that is written loses its protection.

   Nobody is stopped or told: the kernel itself takes the protection away (UFFD_FEATURE_WP_ASYNC, Linux 6.7), and is
   asked for the pages that have lost theirs (PAGEMAP_SCAN). */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USER_MODE_ONLY 1
#define WP_UNPOPULATED (1ULL << 13)
#define WP_ASYNC (1ULL << 15)

struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN _IOWR('f', 16, struct scan)
#define PROTECT_FOUND 1
#define MUST_BE_WATCHED 2
#define WRITTEN 2
#define AHEAD 8

struct range {
    uint64_t start, end;
};

struct found {
    uint64_t start, end, categories;
};

struct copy {
    const void *now, *then;
    uint64_t size;
};

/* A descriptor for `writes_register`; -1 if the kernel does not do this, or not for this process. */
int writes_open(void) {
    int handle = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = WP_ASYNC | WP_UNPOPULATED};
    if (handle >= 0 && ioctl(handle, UFFDIO_API, &api) < 0) {
        close(handle);
        return -1;
    }
    return handle;
}

/* Have the pages watched, or no longer; 0 if that went well. */
int writes_register(int handle, uint64_t start, uint64_t end, int watched) {
    struct uffdio_register on = {.range = {start, end - start}, .mode = UFFDIO_REGISTER_MODE_WP};
    return watched ? ioctl(handle, UFFDIO_REGISTER, &on) : ioctl(handle, UFFDIO_UNREGISTER, &on.range);
}

/* Protect the pages that are not protected, in one step with noting which these are. Gives how many stretches of them
   were noted, -1 if pages are not watched; `*next` is where to go on. */
int writes_protect(int pagemap, uint64_t start, uint64_t end, struct found *found, int room, uint64_t *next) {
    struct scan scan = {
        .size = sizeof scan, .flags = PROTECT_FOUND | MUST_BE_WATCHED, .start = start, .end = end,
        .vec = (uintptr_t)found, .vec_len = room, .category_mask = WRITTEN, .return_mask = WRITTEN,
    };
    int count = ioctl(pagemap, SCAN, &scan);
    *next = scan.walk_end;
    return count;
}

/* Whether a page was written, or is another one than was protected. */
static int is_written(int pagemap, struct range pages) {
    struct found first;
    struct scan scan = {
        .size = sizeof scan, .flags = MUST_BE_WATCHED, .start = pages.start, .end = pages.end,
        .vec = (uintptr_t)&first, .vec_len = 1, .max_pages = 1, .category_mask = WRITTEN, .return_mask = WRITTEN,
    };
    return ioctl(pagemap, SCAN, &scan) != 0;
}

/* Whether any of the pages was written, or memory differs from its copy. */
int writes_seen(int pagemap, const struct range *pages, int64_t ranges, const struct copy *copies, int64_t count) {
    for (int64_t i = 0; i < ranges; i++)
        if (is_written(pagemap, pages[i]))
            return 1;
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            __builtin_prefetch(copies[i + AHEAD].now);
        if (memcmp(copies[i].now, copies[i].then, copies[i].size))
            return 1;
    }
    return 0;
}
