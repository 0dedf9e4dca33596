/* The floor: host memory of the same sizes, without streams, devices and identities. The memory is not touched. The
 * allocator is the first of these that exists:
 *
 * - jemalloc of the process, with its defaults (LD_PRELOAD=libjemalloc.so.2);
 * - jemalloc of this build, with a thread cache, which that build does not have by default;
 * - the C library's. */
#include "loops.h"

#if defined(STRATA_PEERS_JEMALLOC)
#include <jemalloc/jemalloc.h>
#endif

extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void dallocx(void *memory, int flags) __attribute__((weak));

#if defined(STRATA_PEERS_JEMALLOC)
/* 0: the thread has no cache yet. */
static _Thread_local int cache_flag;

static __attribute__((noinline)) int make_cache(void)
{
    unsigned cache;
    size_t size = sizeof cache;
    cache_flag =
        strata_je_mallctl("tcache.create", &cache, &size, NULL, 0) == 0 ? MALLOCX_TCACHE(cache) : MALLOCX_TCACHE_NONE;
    return cache_flag;
}

static inline int cache(void)
{
    return __builtin_expect(cache_flag != 0, 1) ? cache_flag : make_cache();
}

LOOP_INLINE void *take(size_t bytes)
{
    return mallocx ? mallocx(bytes, 0) : strata_je_mallocx(bytes, cache());
}

LOOP_INLINE void give(void *memory)
{
    if (mallocx)
        dallocx(memory, 0);
    else
        strata_je_dallocx(memory, cache());
}

static const char own_label[] = "jemalloc";
static const char own_about[] =
    "host memory: mallocx and dallocx of the jemalloc in this build, a cache for each thread";
#else
LOOP_INLINE void *take(size_t bytes)
{
    return mallocx ? mallocx(bytes, 0) : malloc(bytes);
}

LOOP_INLINE void give(void *memory)
{
    if (mallocx)
        dallocx(memory, 0);
    else
        free(memory);
}

static const char own_label[] = "malloc";
static const char own_about[] = "host memory: the C library's malloc and free; there is no jemalloc in this build";
#endif

const char *peer_floor_label(void)
{
    return mallocx ? "jemalloc" : own_label;
}

const char *peer_floor_about(void)
{
    return mallocx ? "host memory: mallocx and dallocx of the jemalloc that the process was given" : own_about;
}

typedef struct floor_slot {
    void *memory;
} floor_slot;

LOOP_INLINE bool floor_allocate(peer *self, CUstream stream, size_t bytes, void *slot)
{
    (void)self;
    (void)stream;
    void *memory = take(bytes);
    __asm__ volatile("" : : "r"(memory) : "memory"); /* keeps the compiler from removing the allocation */
    ((floor_slot *)slot)->memory = memory;
    return memory != NULL;
}

LOOP_INLINE void floor_release(peer *self, CUstream stream, void *slot)
{
    (void)self;
    (void)stream;
    give(((floor_slot *)slot)->memory);
}

#define floor_release_elsewhere floor_release
#define floor_release_unknown   floor_release

PEER_LOOPS(floor, floor_slot);

static bool open_floor(peer *self, uint64_t most)
{
    (void)self;
    return most == 0;
}

static void close_floor(peer *self)
{
    (void)self;
}

static CUdeviceptr address_of(const void *slot)
{
    return (CUdeviceptr)(uintptr_t)((const floor_slot *)slot)->memory;
}

static uint64_t reserved_peak(peer *self)
{
    (void)self;
    return 0;
}

const peer_kind peer_floor = {
    .name = "host",
    .slot_bytes = sizeof(floor_slot),
    .open = open_floor,
    .close = close_floor,
    .address = address_of,
    .reserved_peak = reserved_peak,
    .trim = close_floor,
    PEER_LOOPS_OF(floor),
};
