/* The pool's policy. */
#include "resources/pool/policy.h"

#include "core/base/error.h"
#include "resources/pool/internal.h"

#include <string.h>

enum { MIB = 1 << 20 };

static double thousandths(uint64_t share)
{
    return (double)share / 1000;
}

void pool_policy_begin(pool *self)
{
    pool_policy *policy = &self->policy;
    const bool remappable = self->store.source->remappable, small = self->given.prefer == STRATA_POOL_PREFER_MEMORY;
    const bool fast = self->given.prefer == STRATA_POOL_PREFER_SPEED;
    const uint64_t usual = fast ? POOL_SHARE_MOST : remappable || small ? POOL_SHARE : POOL_SHARE_FIXED;
    policy->share = thousandths(self->given.overhead ? self->given.overhead : usual);
    if (remappable && !small && !self->given.overhead)
        policy->buys = thousandths(POOL_BUY);
    const uint64_t largest = remappable ? (small ? POOL_CHUNK_MEMORY : POOL_CHUNK_LARGEST) : POOL_CHUNK_FIXED;
    self->chunk_bytes = pool_in_granules(self, self->given.chunk ? self->given.chunk : largest * MIB);
}

/* ---- limits ---- */

/* A deterministic pool does not look at what other programs leave. UINT64_MAX: memory of another kind. */
static uint64_t device_limit(const pool *self)
{
    strata_resource *below = self->resource.upstream;
    const uint64_t total = self->device->info.total_bytes;
    size_t left;
    if (below && !(below->ops->capabilities(below) & STRATA_CAPABILITY_DEVICE_MEMORY))
        return UINT64_MAX;
    if (self->deterministic)
        return total;
    strata_error_suppress_begin();
    const bool known = strata_device_read_free_bytes(self->device, &left);
    strata_error_suppress_end(false);
    const uint64_t most = self->store.reserved + left;
    return known && most < total ? most : total;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What `layer` allows, of which `used` bytes are counted there; UINT64_MAX: no limit. */
static uint64_t limit_by(const pool *self, strata_resource *layer, uint64_t used)
{
    strata_budget_snapshot budget = {0};
    if (layer->ops->budget(layer, &budget) != STRATA_SUCCESS || !budget.limit)
        return UINT64_MAX;
    if (self->deterministic)
        return budget.limit;
    return budget.remaining < UINT64_MAX - used ? used + budget.remaining : UINT64_MAX;
}

/* Above, a budget counts what is live and the request, below what is reserved. */
uint64_t pool_limit_by_budgets(const pool *self, const pool_need *need)
{
    const strata_resource *own = &self->resource;
    const strata_stack *stack = own->stack;
    const uint64_t live = pool_live_bytes(self) + need->bytes;
    uint64_t limit = UINT64_MAX;
    strata_error_suppress_begin();
    for (uint32_t i = 0; i < own->position; i++)
        if (own->position < stack->ends[i] && strcmp(stack->layers[i]->ops->name, "budget") == 0)
            limit = least(limit, limit_by(self, stack->layers[i], live));
    if (own->upstream)
        limit =
            least(limit, limit_by(self, own->upstream, atomic_load_explicit(&self->reserved, memory_order_relaxed)));
    strata_error_suppress_end(false);
    return limit;
}

/* Bytes that threads may keep of streams, so that they find them there again. */
static uint64_t kept_by_threads(const pool *self)
{
    const uint64_t kept =
        atomic_load_explicit(&self->keeping_threads, memory_order_relaxed) * self->cache_granules * POOL_GRANULE;
    return self->policy.buys > 0 ? least(kept, POOL_KEPT_MOST * MIB) : 0;
}

void pool_policy_record_moves(pool *self, uint64_t chunks)
{
    atomic_fetch_add_explicit(&self->policy.moved, least(chunks, POOL_BUY_MOST), memory_order_relaxed);
}

uint64_t pool_policy_moves(const pool *self)
{
    const uint64_t moved = atomic_load_explicit(&self->policy.moved, memory_order_relaxed);
    return moved > POOL_MOVES_FREE ? moved - POOL_MOVES_FREE : 0;
}

double pool_policy_bought(const pool *self)
{
    const pool_policy *policy = &self->policy;
    const uint64_t polling = policy->buys > 0 ? policy->polling_share : 0;
    const double chunks = policy->buys * (double)pool_policy_moves(self), most = thousandths(POOL_BUY_CONTIGUOUS);
    return (self->given.contiguous && chunks > most ? most : chunks) + thousandths(polling);
}

bool pool_lacks_small(pool *self, uint64_t part)
{
    strata_spin_take(&self->lock);
    const uint64_t bytes = self->heap.halves[POOL_SMALL].free_bytes;
    strata_spin_release(&self->lock);
    return self->policy.polling_share && !self->given.overhead && !pool_spares_granules(self) &&
           bytes <= self->store.reserved / part;
}

/* Small blocks get a granule more than is held, before they have nothing left, within POOL_SMALL_MOST. */
static uint64_t beyond_peak(pool *self, const pool_need *need, uint64_t peak)
{
    const double share = (double)peak * (self->policy.share + pool_policy_bought(self));
    const uint64_t wanted = share < 0x1p62 ? (uint64_t)share : UINT64_C(1) << 62, kept = kept_by_threads(self);
    const uint64_t usual = wanted > kept ? wanted : kept, most = peak / 1000 * POOL_SMALL_MOST;
    const uint64_t now = self->store.reserved > peak ? least(self->store.reserved - peak, most) : 0;
    return need->side == POOL_SMALL && now > usual && pool_lacks_small(self, 2 * POOL_SMALL_SPARE) ? now : usual;
}

bool pool_lets_threads_keep(const pool *self)
{
    const uint64_t kept = kept_by_threads(self), reserved = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    return kept && reserved + self->store.granule <= pool_live_bytes(self) + kept &&
           reserved + 2 * kept <= pool_most_reserved(self);
}

bool pool_may_grow_ahead(pool *self, const pool_need *need)
{
    const uint64_t peak = pool_peak_with(self, need);
    return self->store.reserved <= peak + least(beyond_peak(self, need, peak), peak / 1000 * POOL_AHEAD_MOST);
}

uint64_t pool_allowed(pool *self, const pool_need *need)
{
    const uint64_t peak = pool_peak_with(self, need);
    const uint64_t limit = least(least(pool_most_reserved(self), device_limit(self)), need->budget_limit);
    const uint64_t left = limit > peak ? (limit - peak) / POOL_LEFT_SHARE : 0;
    const uint64_t beyond = least(beyond_peak(self, need, peak), left);
    const uint64_t initial = pool_initial_size(self) + (need->side == POOL_SMALL ? self->store.granule : 0);
    uint64_t allowed = pool_in_granules(self, peak + beyond) + self->store.granule;
    allowed = allowed > initial ? allowed : initial;
    atomic_store_explicit(&self->policy.limit_seen, limit, memory_order_relaxed);
    atomic_store_explicit(&self->policy.allowed, allowed, memory_order_relaxed);
    return allowed;
}

static uint64_t small_share(pool *self)
{
    strata_spin_take(&self->lock);
    const uint64_t bytes = pool_mapped_bytes(&self->heap, POOL_SMALL);
    strata_spin_release(&self->lock);
    return bytes / POOL_SMALL_SHARE;
}

/* Small chunks are free as a whole more often, and can be moved; what is made in large steps is made of few. */
static uint64_t largest_chunk(const pool *self, uint64_t bytes)
{
    if (self->given.chunk)
        return self->chunk_bytes;
    if (self->given.prefer == STRATA_POOL_PREFER_MEMORY)
        return least(self->chunk_bytes, (self->store.reserved + bytes) / POOL_CHUNK_OF_MEMORY);
    return self->chunk_bytes > bytes / POOL_CHUNK_PARTS ? self->chunk_bytes : bytes / POOL_CHUNK_PARTS;
}

uint64_t pool_chunk_size(pool *self, const pool_need *need, uint64_t bytes)
{
    const uint64_t limit = atomic_load_explicit(&self->policy.limit_seen, memory_order_relaxed);
    const uint64_t reserved = self->store.reserved;
    const uint64_t parts = pool_spares_granules(self) ? POOL_LIMITED_SHARE : POOL_CHUNK_SHARE;
    uint64_t share = (limit > reserved ? limit - reserved : 0) / parts;
    if (need->side == POOL_SMALL && small_share(self) < share)
        share = small_share(self);
    uint64_t size = self->store.granule;
    const uint64_t most = largest_chunk(self, bytes);
    while (2 * size <= share && 2 * size <= most)
        size *= 2;
    return size;
}

uint64_t pool_least_made(pool *self, const pool_need *need)
{
    const uint64_t share = self->store.reserved / POOL_GROW_SHARE;
    return pool_in_granules(self, need->side == POOL_SMALL ? small_share(self) : share);
}

/* ---- the peak ---- */

uint64_t pool_peak_with(const pool *self, const pool_need *need)
{
    const pool_policy *policy = &self->policy;
    const uint64_t live = pool_live_bytes(self) + need->bytes;
    const uint64_t before = policy->peak > policy->last_peak ? policy->peak : policy->last_peak;
    return live > before ? live : before;
}

void pool_record_peak(pool *self, const pool_need *need)
{
    const uint64_t live = pool_live_bytes(self) + need->bytes;
    if (live > self->policy.peak)
        self->policy.peak = live;
}

/* Without any memory the pool begins anew: programs that return all between jobs would hold more in each. */
void pool_lower_peak(pool *self)
{
    pool_policy *policy = &self->policy;
    const uint64_t reserved = self->store.reserved;
    policy->peak = policy->peak < reserved ? policy->peak : reserved;
    policy->last_peak = policy->last_peak < reserved ? policy->last_peak : reserved;
    if (!reserved)
        atomic_store_explicit(&policy->moved, 0, memory_order_relaxed);
    policy->polling_share = reserved ? policy->polling_share : 0;
}

void pool_policy_end_window(pool *self)
{
    self->policy.last_peak = self->policy.peak;
    self->policy.peak = pool_live_bytes(self);
}
