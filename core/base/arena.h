/* A jemalloc arena for Strata's memory alone, in a jemalloc of the library's own. A thread's first allocations take a
 * jemalloc lock; then it gets a cache (docs/host-memory.md has times).
 *
 * Forks: jemalloc registers its fork handlers when the library is loaded, before Strata's, so its locks rank after all
 * of Strata's. It calls nothing of Strata, but for the sources of core/base/extent_arena.h.
 *
 * Thread ends: jemalloc destroys its data of a thread in no order with Strata's; a later allocation creates it again.
 */
#ifndef STRATA_CORE_BASE_ARENA_H
#define STRATA_CORE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef STRATA_HAVE_ARENA

/* Called once, first. False without memory. */
bool strata_arena_make(void);

void *strata_arena_zalloc(size_t alignment, size_t bytes);
void strata_arena_free(void *memory);
void strata_arena_thread_begin(void);
void strata_arena_thread_exit(void);
uint64_t strata_arena_bytes(void);
uint64_t strata_arena_resident(void);

/* "jemalloc 5.3.0" */
const char *strata_arena_version(void);

#else

/* Never called without jemalloc, but an unoptimized build must link them. */
static inline void *strata_arena_zalloc(size_t alignment, size_t bytes)
{
    (void)alignment, (void)bytes;
    return NULL;
}

static inline void strata_arena_free(void *memory)
{
    (void)memory;
}

static inline void strata_arena_thread_begin(void)
{
}

static inline void strata_arena_thread_exit(void)
{
}

static inline uint64_t strata_arena_bytes(void)
{
    return 0;
}

static inline uint64_t strata_arena_resident(void)
{
    return 0;
}

static inline const char *strata_arena_version(void)
{
    return "";
}

#endif

#endif
