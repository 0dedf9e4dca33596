/* The arena's hooks. Nothing is purged or decommitted: extents are given back whole, or kept. */
#include "core/base/extent_arena.h"

#include "core/base/host_memory.h"

#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

enum { NAME_SIZE = 64 };

struct strata_extent_arena {
    extent_hooks_t hooks; /* first: jemalloc passes its address; constant, as the rest */
    strata_extent_source *source;
    unsigned number;
};

/* jemalloc 5.3.0's arena_config_t, which its public header lacks; jemalloc checks the size. */
typedef struct config {
    extent_hooks_t *hooks;
    bool own_data_too;
} config;

static strata_extent_source *source_of(extent_hooks_t *hooks)
{
    return ((strata_extent_arena *)(void *)hooks)->source;
}

/* ---- hooks ---- */

static void *take_extent(extent_hooks_t *hooks, void *wanted, size_t bytes, size_t alignment, bool *zero, bool *commit,
                         unsigned number)
{
    (void)number;
    void *memory = wanted ? NULL : source_of(hooks)->take(source_of(hooks), bytes, alignment);
    if (memory && *zero)
        memset(memory, 0, bytes);
    *commit = true;
    return memory;
}

static bool give_extent(extent_hooks_t *hooks, void *memory, size_t bytes, bool committed, unsigned number)
{
    (void)committed, (void)number;
    source_of(hooks)->give(source_of(hooks), memory, bytes);
    return false;
}

static void drop_extent(extent_hooks_t *hooks, void *memory, size_t bytes, bool committed, unsigned number)
{
    give_extent(hooks, memory, bytes, committed, number);
}

static bool split_extent(extent_hooks_t *hooks, void *memory, size_t bytes, size_t first, size_t second, bool committed,
                         unsigned number)
{
    (void)hooks, (void)memory, (void)bytes, (void)first, (void)second, (void)committed, (void)number;
    return false;
}

static bool merge_extents(extent_hooks_t *hooks, void *first, size_t first_bytes, void *second, size_t second_bytes,
                          bool committed, unsigned number)
{
    (void)first_bytes, (void)second_bytes, (void)committed, (void)number;
    return !source_of(hooks)->joins(source_of(hooks), first, second);
}

static const extent_hooks_t hooks = {
    .alloc = take_extent,
    .dalloc = give_extent,
    .destroy = drop_extent,
    .split = split_extent,
    .merge = merge_extents,
};

/* ---- the arena ---- */

static bool set(const strata_extent_arena *arena, const char *what, void *value, size_t bytes)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "arena.%u.%s", arena->number, what);
    return strata_je_mallctl(name, NULL, NULL, value, bytes) == 0;
}

/* Free extents stay until a purge, and the arena never takes more than it needs. */
static bool configure(const strata_extent_arena *arena)
{
    ssize_t never = -1, at_once = 0;
    size_t least = 0, size = sizeof least;
    return strata_je_mallctl("arenas.page", &least, &size, NULL, 0) == 0 &&
           set(arena, "dirty_decay_ms", &never, sizeof never) &&
           set(arena, "muzzy_decay_ms", &at_once, sizeof at_once) &&
           set(arena, "retain_grow_limit", &least, sizeof least);
}

strata_extent_arena *strata_extent_arena_create(strata_extent_source *source)
{
    strata_extent_arena *arena = strata_host_zalloc(sizeof *arena);
    if (!arena)
        return NULL;
    arena->hooks = hooks;
    arena->source = source;
    config with = {.hooks = &arena->hooks};
    size_t size = sizeof arena->number;
    if (strata_je_mallctl("experimental.arenas_create_ext", &arena->number, &size, &with, sizeof with) != 0) {
        strata_host_free(arena);
        return NULL;
    }
    if (configure(arena))
        return arena;
    strata_extent_arena_destroy(arena);
    return NULL;
}

void strata_extent_arena_destroy(strata_extent_arena *arena)
{
    if (!arena)
        return;
    set(arena, "destroy", NULL, 0);
    strata_host_free(arena);
}

void *strata_extent_arena_take(strata_extent_arena *arena, size_t bytes)
{
    return strata_je_mallocx(bytes, MALLOCX_ARENA(arena->number) | MALLOCX_TCACHE_NONE);
}

void strata_extent_arena_give(void *memory)
{
    strata_je_dallocx(memory, MALLOCX_TCACHE_NONE);
}

bool strata_extent_arena_begin(strata_extent_arena *arena)
{
    void *first = strata_extent_arena_take(arena, STRATA_EXTENT_ARENA_FIRST);
    if (first)
        strata_extent_arena_give(first);
    return first != NULL;
}

void strata_extent_arena_purge(strata_extent_arena *arena)
{
    set(arena, "purge", NULL, 0);
}
