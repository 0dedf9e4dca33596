/* Pools of the process by device: one that is refused memory by the device takes what others have free. */
#include "resources/pool/neighbours.h"

#include "core/base/error.h"
#include "core/base/size_text.h"

#include <stdio.h>

static strata_lock pools_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_POOLS);
static pool *pools; /* youngest first; guarded by pools_lock, as all here */
static uint64_t last_serial;

static void leave(pool *self)
{
    pool **link = &pools;
    while (*link && *link != self)
        link = &(*link)->next_pool;
    if (*link)
        *link = self->next_pool;
}

/* Again, if a stack could not be built around it. */
void pool_neighbours_join(pool *self)
{
    strata_lock_take(&pools_lock);
    leave(self);
    self->serial = ++last_serial;
    self->next_pool = pools;
    pools = self;
    strata_lock_release(&pools_lock);
}

/* Waits for threads that make it return memory. */
void pool_neighbours_leave(pool *self)
{
    unsigned spins = 0;
    strata_lock_take(&pools_lock);
    leave(self);
    while (self->pins) {
        strata_lock_release(&pools_lock);
        strata_backoff(&spins);
        strata_lock_take(&pools_lock);
    }
    strata_lock_release(&pools_lock);
}

/* A pool over another layer returns memory to that; a deterministic one knows no other. */
static bool is_neighbour(const pool *self, const pool *other)
{
    return !other->resource.upstream && other != self && other->device == self->device && !other->deterministic &&
           atomic_load_explicit(&other->started, memory_order_acquire);
}

/* The next one older than `serial`, pinned. NULL: none. */
static pool *pin_next(const pool *self, uint64_t serial)
{
    strata_lock_take(&pools_lock);
    pool *other = pools;
    while (other && (other->serial >= serial || !is_neighbour(self, other)))
        other = other->next_pool;
    if (other)
        other->pins++;
    strata_lock_release(&pools_lock);
    return other;
}

/* Returns its serial number. */
static uint64_t unpin(pool *other)
{
    strata_lock_take(&pools_lock);
    const uint64_t serial = other->serial;
    other->pins--;
    strata_lock_release(&pools_lock);
    return serial;
}

uint64_t pool_neighbours_reclaim(const pool *self, uint64_t bytes, bool may_wait)
{
    uint64_t given = 0, serial = UINT64_MAX;
    strata_error_suppress_begin();
    for (pool *other; given < bytes && (other = pin_next(self, serial)); serial = unpin(other))
        given += pool_give_to_neighbour(other, bytes - given, may_wait);
    strata_error_suppress_end(false);
    return given;
}

void pool_neighbours_describe(const pool *self, char text[POOL_NEIGHBOURS_TEXT])
{
    uint64_t held = 0, live = 0;
    strata_lock_take(&pools_lock);
    for (const pool *other = pools; other; other = other->next_pool)
        if (is_neighbour(self, other)) {
            held += atomic_load_explicit(&other->reserved, memory_order_relaxed);
            live += pool_live_bytes(other);
        }
    strata_lock_release(&pools_lock);
    *text = '\0';
    if (held)
        snprintf(text, POOL_NEIGHBOURS_TEXT, ", of which pools of other stacks hold %s, %s of it live",
                 strata_size_text(held).text, strata_size_text(live).text);
}
