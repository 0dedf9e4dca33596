/* An arena of host memory in a jemalloc that only this library has.
 *
 * All of Strata's memory comes from one arena of that jemalloc, and nothing else does: what jemalloc needs for itself
 * is in another. A thread that asks now and then goes to the arena, under a lock of jemalloc's; one that asks often
 * gets a cache of small pieces, which it gives back when it ends. An allocation and its free cost 95 to 241 ns
 * in the first case, 25 to 30 in the second (docs/host-memory.md).
 *
 * Forks. jemalloc takes its own locks around a fork, by handlers that it registers when it starts, which is when the
 * library is loaded: before the library's own, so its locks rank after all of the library's, and whoever holds one of
 * those may allocate. It calls nothing of the library.
 *
 * Ends of threads. jemalloc's data of a thread go when the thread ends, in no order with Strata's. What comes after
 * them makes them again, and they go once more. */
#ifndef STRATA_CORE_BASE_ARENA_H
#define STRATA_CORE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strata_thread;

#ifdef STRATA_HAVE_ARENA

/* Before all others, once. False without memory. */
bool strata_arena_make(void);

/* As in core/base/host_memory.h. */
void *strata_arena_zalloc(size_t alignment, size_t bytes);
void strata_arena_free(void *memory);
void strata_arena_thread_exit(struct strata_thread *thread);
uint64_t strata_arena_bytes(void);
uint64_t strata_arena_resident(void);

/* "jemalloc 5.3.0" */
const char *strata_arena_version(void);

#else

/* A build without jemalloc has no arena. host_memory.c calls none of these then, but without optimization the compiler
 * keeps the calls, and they must link. */
static inline void *strata_arena_zalloc(size_t alignment, size_t bytes)
{
    (void)alignment, (void)bytes;
    return NULL;
}

static inline void strata_arena_free(void *memory)
{
    (void)memory;
}

static inline void strata_arena_thread_exit(struct strata_thread *thread)
{
    (void)thread;
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
