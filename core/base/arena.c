/* The arena, and the caches of threads that allocate often. */
#include "core/base/arena.h"

#include <jemalloc/jemalloc.h>
#include <stdio.h>

enum {
    QUANTUM = 16,     /* alignment that every size gets */
    CACHE_AFTER = 17, /* the call of a thread that makes its cache */
    NAME_SIZE = 64,
};

static unsigned arena; /* written by strata_arena_make, constant then */

bool strata_arena_make(void)
{
    size_t size = sizeof arena;
    return strata_je_mallctl("arenas.create", &arena, &size, NULL, 0) == 0;
}

const char *strata_arena_version(void)
{
    return "jemalloc " STRATA_JEMALLOC_VERSION;
}

/* ---- caches of threads ---- */

static _Thread_local struct {
    uint32_t calls_left; /* until it is made; 0: it was, or never is */
    uint32_t number;     /* of the thread's cache, plus one; 0: none */
} own __attribute__((tls_model("initial-exec")));

/* Without a cache the thread goes on using the arena. */
static __attribute__((cold, noinline)) void make_cache(void)
{
    unsigned cache;
    size_t size = sizeof cache;
    if (strata_je_mallctl("tcache.create", &cache, &size, NULL, 0) == 0)
        own.number = cache + 1;
}

static inline int cache_flags(void)
{
    if (own.calls_left && !--own.calls_left)
        make_cache();
    return own.number ? MALLOCX_TCACHE(own.number - 1) : MALLOCX_TCACHE_NONE;
}

void strata_arena_thread_begin(void)
{
    own.calls_left = CACHE_AFTER;
}

void strata_arena_thread_exit(void)
{
    unsigned cache = own.number - 1;
    if (own.number)
        strata_je_mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache);
    own.calls_left = own.number = 0;
}

/* ---- memory ---- */

void *strata_arena_zalloc(size_t alignment, size_t bytes)
{
    int flags = MALLOCX_ARENA(arena) | MALLOCX_ZERO | cache_flags();
    if (alignment > QUANTUM)
        flags |= MALLOCX_ALIGN(alignment);
    return strata_je_mallocx(bytes < QUANTUM ? QUANTUM : bytes, flags);
}

void strata_arena_free(void *memory)
{
    strata_je_dallocx(memory, cache_flags());
}

/* ---- how much ---- */

static uint64_t statistic(const char *name)
{
    size_t value = 0, size = sizeof value;
    if (strata_je_mallctl(name, &value, &size, NULL, 0) != 0)
        return 0;
    return value;
}

/* jemalloc updates its statistics when a new epoch begins. */
static void begin_epoch(void)
{
    uint64_t epoch = 1;
    size_t size = sizeof epoch;
    strata_je_mallctl("epoch", &epoch, &size, &epoch, sizeof epoch);
}

uint64_t strata_arena_bytes(void)
{
    char small[NAME_SIZE], large[NAME_SIZE], cached[NAME_SIZE];
    snprintf(small, sizeof small, "stats.arenas.%u.small.allocated", arena);
    snprintf(large, sizeof large, "stats.arenas.%u.large.allocated", arena);
    snprintf(cached, sizeof cached, "stats.arenas.%u.tcache_bytes", (unsigned)MALLCTL_ARENAS_ALL);
    begin_epoch();
    uint64_t out = statistic(small) + statistic(large),
             kept = statistic(cached); /* cached memory counts as allocated */
    return out > kept ? out - kept : 0;
}

uint64_t strata_arena_resident(void)
{
    begin_epoch();
    return statistic("stats.resident");
}
