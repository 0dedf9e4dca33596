/* An arena of the library's jemalloc over memory that the caller has: jemalloc cuts blocks of any size from extents,
 * and asks the caller for these. Its own data stay in host memory. Any thread.
 *
 * The source's functions are called with locks of jemalloc held: they allocate nothing and take no lock that is held
 * around a call of the arena. */
#ifndef STRATA_CORE_BASE_EXTENT_ARENA_H
#define STRATA_CORE_BASE_EXTENT_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum {
    STRATA_EXTENT_ARENA_FIRST = 2 << 20, /* the size of the first extent: strata_extent_arena_begin */
};

typedef struct strata_extent_source {
    /* Memory at a multiple of `alignment`, a power of two. NULL: no room. */
    void *(*take)(struct strata_extent_source *self, size_t bytes, size_t alignment);
    /* Takes back a part of what it gave, perhaps several neighbouring ones in one call. */
    void (*give)(struct strata_extent_source *self, void *memory, size_t bytes);
    /* Whether neighbouring memory may be taken back in one call. */
    bool (*joins)(struct strata_extent_source *self, void *first, void *second);
} strata_extent_source;

typedef struct strata_extent_arena strata_extent_arena;

/* Whether this build and process have it: where strata_host_allocator_reason is NULL. */
#ifdef STRATA_HAVE_ARENA

/* NULL: no memory, or jemalloc has no further arena. The source outlives the arena. */
strata_extent_arena *strata_extent_arena_create(strata_extent_source *source);

/* Gives all extents back, and with them every block. */
void strata_extent_arena_destroy(strata_extent_arena *arena);

/* To be called once before any block is taken, while the source has room. An arena without extents takes one of
 * STRATA_EXTENT_ARENA_FIRST and never gives back what it did not need of it; after this call, which takes it whole, it
 * takes what it needs. False: there is no room. */
bool strata_extent_arena_begin(strata_extent_arena *arena);

/* At a multiple of 256 if `bytes` is one. NULL: the source has no room. No cache is used. */
void *strata_extent_arena_take(strata_extent_arena *arena, size_t bytes);
void strata_extent_arena_give(void *memory);

/* Gives back all extents that are free. */
void strata_extent_arena_purge(strata_extent_arena *arena);

#else

static inline strata_extent_arena *strata_extent_arena_create(strata_extent_source *source)
{
    (void)source;
    return NULL;
}

static inline void strata_extent_arena_destroy(strata_extent_arena *arena)
{
    (void)arena;
}

static inline bool strata_extent_arena_begin(strata_extent_arena *arena)
{
    (void)arena;
    return false;
}

static inline void *strata_extent_arena_take(strata_extent_arena *arena, size_t bytes)
{
    (void)arena, (void)bytes;
    return NULL;
}

static inline void strata_extent_arena_give(void *memory)
{
    (void)memory;
}

static inline void strata_extent_arena_purge(strata_extent_arena *arena)
{
    (void)arena;
}

#endif

#endif
