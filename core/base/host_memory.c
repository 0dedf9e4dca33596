/* The arena or the C library. */
#include "core/base/host_memory.h"

#include "core/base/arena.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(STRATA_HAVE_ARENA) && defined(STRATA_HAVE_VALGRIND)
#include <valgrind/valgrind.h>
#endif

/* ---- the C library ---- */

static _Atomic uint64_t libc_bytes; /* any thread, relaxed: statistics */

static void *count_in(void *memory)
{
    if (memory)
        atomic_fetch_add_explicit(&libc_bytes, malloc_usable_size(memory), memory_order_relaxed);
    return memory;
}

static void *libc_zalloc(size_t bytes)
{
    return count_in(calloc(1, bytes ? bytes : 1));
}

static void *libc_zalloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded;
    if (__builtin_add_overflow(bytes, alignment - 1, &rounded))
        return NULL;
    rounded &= ~(alignment - 1);
    void *memory = count_in(aligned_alloc(alignment, rounded));
    if (memory)
        memset(memory, 0, rounded);
    return memory;
}

static void libc_free(void *memory)
{
    if (memory)
        atomic_fetch_sub_explicit(&libc_bytes, malloc_usable_size(memory), memory_order_relaxed);
    free(memory);
}

/* ---- the choice ---- */

#ifdef STRATA_HAVE_ARENA

typedef enum source { UNDECIDED, ARENA, LIBC } source;

static _Atomic int decided; /* a source; written once under decide_once, read by any thread */
static pthread_once_t decide_once = PTHREAD_ONCE_INIT;
static const char *reason; /* written before `decided`, constant then */

/* Defined under a leak sanitizer; under the thread sanitizer. */
extern void __lsan_do_leak_check(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

static const char *why_not_the_arena(void)
{
    const char *wanted = secure_getenv("STRATA_HOST_MEMORY");
    if (wanted && strcmp(wanted, "libc") == 0)
        return "chosen by STRATA_HOST_MEMORY";
#ifdef STRATA_HAVE_VALGRIND
    if (RUNNING_ON_VALGRIND)
        return "under Valgrind";
#endif
    if (__lsan_do_leak_check && !(wanted && strcmp(wanted, "arena") == 0))
        return "under a leak sanitizer";
    if (__tsan_init)
        return "under the thread sanitizer";
    return strata_arena_make() ? NULL : "the arena could not be allocated";
}

static void decide(void)
{
    reason = why_not_the_arena();
    atomic_store_explicit(&decided, reason ? LIBC : ARENA, memory_order_release);
}

static inline bool in_arena(void)
{
    int now = atomic_load_explicit(&decided, memory_order_acquire);
    if (__builtin_expect(now == UNDECIDED, 0)) {
        pthread_once(&decide_once, decide);
        now = atomic_load_explicit(&decided, memory_order_acquire);
    }
    return now == ARENA;
}

#else

static const char reason[] = "built without jemalloc";

static inline bool in_arena(void)
{
    return false;
}

#endif

/* ---- both ---- */

void *strata_host_zalloc(size_t bytes)
{
    return in_arena() ? strata_arena_zalloc(16, bytes) : libc_zalloc(bytes);
}

void *strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return in_arena() ? strata_arena_zalloc(alignment, bytes) : libc_zalloc_aligned(alignment, bytes);
}

void strata_host_free(void *memory)
{
    if (!in_arena())
        libc_free(memory);
    else if (memory)
        strata_arena_free(memory);
}

void strata_host_thread_begin(void)
{
    if (in_arena())
        strata_arena_thread_begin();
}

void strata_host_thread_exit(void)
{
    if (in_arena())
        strata_arena_thread_exit();
}

uint64_t strata_host_bytes(void)
{
    return in_arena() ? strata_arena_bytes() : atomic_load_explicit(&libc_bytes, memory_order_relaxed);
}

bool strata_host_resident(uint64_t *bytes)
{
    *bytes = in_arena() ? strata_arena_resident() : 0;
    return in_arena();
}

const char *strata_host_allocator_name(void)
{
    return in_arena() ? strata_arena_version() : "libc";
}

const char *strata_host_allocator_reason(void)
{
    return in_arena() ? NULL : reason;
}
