/* One pass for a hit below `budget`, `logging` and `statistics`.
 *
 * Each layer costs a call, saved registers, and what it looks up of the thread and the block, at an allocation and at a
 * free: together a quarter of a pair's instructions. Where a stack is a pool with some of these three above it, one of
 * each and in any order, a hit and the free that goes back into the thread's cache are one function each, which does
 * what the layers' fast paths would do. The order matters only where one of them refuses.
 *
 *     1. look        nothing is changed: any layer's or the pool's doubt leads to the layers' own operations
 *     2. take        the pool's extent or the block's life, and the charge: the last steps that can fail; undone
 *     3. record      facts, counts, the log's line
 *
 * So a call is either one pass or all layers', and no layer need know of this. What other threads may see in which
 * order is as in the layers: a charge begins before the block, an allocation is counted and stamped after it was made,
 * a free is counted and stamped before another thread can get the memory, and its charge ends last. The thread is in
 * two slots at once (core/base/busy_flag.h) and waits for nothing there but the leaf lock of statistics' windows, which
 * no thread holds that waits for a slot. */
#include "resources/fused/fused.h"

#include "core/stack/default_operations.h"
#include "core/stack/fuse.h"
#include "resources/budget/thread_quota.h"
#include "resources/logging/lines.h"
#include "resources/pool/hit.h"
#include "resources/pool/operations.h"
#include "resources/statistics/untagged.h"

#include <stddef.h>

enum { BUDGET, LOGGING, STATISTICS, POOL, KINDS };

_Static_assert((int)KINDS == (int)STRATA_FUSED_LAYERS, "a stack has room for its layers");

enum { WITH_BUDGET = 1 << BUDGET, WITH_LOGGING = 1 << LOGGING, WITH_STATISTICS = 1 << STATISTICS };

_Static_assert(offsetof(budget, fused) == offsetof(strata_fused_layer, fused) &&
                   offsetof(logging, fused) == offsetof(strata_fused_layer, fused) &&
                   offsetof(strata_statistics, fused) == offsetof(strata_fused_layer, fused),
               "whichever layer is the outermost");

static inline const strata_fused *fused_of(const strata_resource *top)
{
    return &((const strata_fused_layer *)top)->fused;
}

/* NULL: the stack has none; so with the others but the pool. */
static inline budget *charging(const strata_fused *fused)
{
    return (budget *)fused->layers[BUDGET];
}

static inline logging *recording(const strata_fused *fused)
{
    return (logging *)fused->layers[LOGGING];
}

static inline strata_statistics *counting(const strata_fused *fused)
{
    return (strata_statistics *)fused->layers[STATISTICS];
}

static inline pool *bottom(const strata_fused *fused)
{
    return (pool *)fused->layers[POOL];
}

/* What the thread has in each layer. */
typedef struct thread_parts {
    budget_slot *quota;
    log_ring *ring;
    strata_tag_counters_thread *counts;
    strata_tag_counters_account *account;
    pool_thread_cache *caches;
} thread_parts;

/* Whether the ring has room for a line, and the layer records on its fast path. */
static inline __attribute__((always_inline)) bool records(const strata_fused *fused, const log_ring *ring)
{
    return ring && atomic_load_explicit(&recording(fused)->fast, memory_order_relaxed) && !ring->state &&
           ring->stored != ring->limit;
}

/* False: one is missing. */
static inline __attribute__((always_inline)) bool find_parts(const strata_fused *fused, unsigned with,
                                                             thread_parts *parts)
{
    void *const *slots = strata_thread_slots;
    *parts = (thread_parts){.caches = slots[fused->numbers[POOL]]};
    bool all = parts->caches;
    if (with & WITH_BUDGET)
        all = all && (parts->quota = slots[fused->numbers[BUDGET]]);
    if (with & WITH_STATISTICS) {
        parts->counts = slots[fused->numbers[STATISTICS]];
        all = all && (parts->account = strata_statistics_only_account(parts->counts));
    }
    if (with & WITH_LOGGING) {
        parts->ring = slots[fused->numbers[LOGGING]];
        all = all && records(fused, parts->ring);
    }
    return all;
}

static inline __attribute__((always_inline)) log_line *next_line(log_ring *ring)
{
    return &ring->lines[ring->stored++ & ring->mask];
}

/* ---- allocating ---- */

/* Whether the layers have no wish beyond the plain charge and count. */
static inline __attribute__((always_inline)) bool allocates_plainly(const strata_fused *fused, unsigned with)
{
    return !(with & WITH_BUDGET && budget_special(charging(fused))) &&
           !(with & WITH_STATISTICS && !strata_statistics_counts_plainly(counting(fused)));
}

/* Takes an extent out of the cache and charges its bytes, or does nothing: NULL. */
static inline __attribute__((always_inline)) strata_entry *take(const strata_fused *fused, const thread_parts *parts,
                                                                pool_stream_cache *cache, size_t bytes, unsigned with,
                                                                uint64_t *size, uint32_t *slot)
{
    strata_entry *entry = NULL;
    if (__builtin_expect(!pool_thread_cache_try_enter(bottom(fused), parts->caches), 0))
        return NULL;
    pool_bin *bin = pool_bin_for(cache, bytes);
    *size = bin ? bin->granules * POOL_GRANULE : 0;
    if (bin && (!(with & WITH_BUDGET) || budget_charge_done(&charging(fused)->base, parts->quota, *size)))
        entry = pool_bin_pop(&bottom(fused)->heap, cache, bin, slot);
    pool_thread_cache_leave(parts->caches);
    return entry;
}

/* Does nothing and returns false where the layers' own operations are needed. */
static inline __attribute__((always_inline)) bool allocate(strata_resource *top, size_t bytes, CUstream stream,
                                                           strata_block *out, unsigned with)
{
    const strata_fused *fused = fused_of(top);
    thread_parts parts;
    if (__builtin_expect(!find_parts(fused, with, &parts) || !allocates_plainly(fused, with), 0))
        return false;
    pool_stream_cache *cache = pool_stream_cache_at(parts.caches, stream);
    uint64_t size;
    uint32_t slot;
    strata_entry *entry =
        __builtin_expect(cache != NULL, 1) ? take(fused, &parts, cache, bytes, with, &size, &slot) : NULL;
    if (__builtin_expect(!entry, 0))
        return false;
    /* all bytes of these layers, before the block is one */
    if (with & WITH_BUDGET)
        budget_record_write(charging(fused), entry, &charging(fused)->base, size);
    if (with & WITH_STATISTICS)
        strata_statistics_write_untagged(counting(fused), entry);
    const strata_request request = {.bytes = bytes, .stream = stream}; /* stays in registers */
    pool_make_for_known(bottom(fused), parts.caches, entry, slot, cache, size / POOL_GRANULE, &request, out);
    if (with & WITH_STATISTICS)
        strata_tag_counters_add(&counting(fused)->counters, parts.counts, parts.account, size, bytes);
    if (with & WITH_LOGGING) {
        log_line *line = next_line(parts.ring);
        log_fill_made(line, strata_timestamp_simple(), out, bytes, stream, 0, 0, log_alloc_stream_id(entry));
        log_ring_publish_line(parts.ring, line);
    }
    return true;
}

/* ---- freeing ---- */

/* Whether the block has the plain charge and count. *charge: its bytes. */
static inline __attribute__((always_inline)) bool frees_plainly(const strata_fused *fused, strata_entry *entry,
                                                                unsigned with, uint64_t *charge)
{
    *charge = 0;
    if (with & WITH_BUDGET) {
        const budget_record *record = budget_record_in(charging(fused), entry);
        *charge = budget_record_bytes(record);
        if (budget_special(charging(fused)) & BUDGET_MARKS ||
            atomic_load_explicit(&record->account, memory_order_relaxed) != &charging(fused)->base)
            return false;
    }
    return !(with & WITH_STATISTICS) || strata_statistics_is_untagged(counting(fused), entry);
}

/* The thread left a window of its account. */
static __attribute__((noinline)) void step(const strata_fused *fused, const thread_parts *parts, size_t bytes)
{
    strata_tag_counters_step(&counting(fused)->counters, parts->counts, parts->account, bytes);
}

static inline __attribute__((always_inline)) void log_free(log_ring *ring, uint64_t stamp, const strata_block *block,
                                                           const strata_entry *entry)
{
    log_line *line = next_line(ring);
    const strata_tag tag = atomic_load_explicit(&entry->tag, memory_order_relaxed);
    log_fill_free(line, stamp, block, block->stream, log_where(tag, block->id.slot, STRATA_ACCESS_NONE, 0),
                  log_alloc_stream_id(entry));
    line->what = log_what(STRATA_LOG_DEALLOCATE, STRATA_SUCCESS, STRATA_LOG_FLAG_COMPLETE, block->id.generation);
    log_ring_publish_line(ring, line);
}

/* Retires the block, if its memory waits for its own stream alone: only once no use can begin is that certain. False:
 * the block is as before. */
static inline __attribute__((always_inline)) bool retire(const pool *self, strata_entry *entry, uint64_t *word,
                                                         strata_point now)
{
    if (__builtin_expect(!strata_entry_try_retire(entry, word), 0))
        return false;
    if (__builtin_expect(pool_is_own_free(self, entry, now), 1))
        return true;
    strata_entry_revive(entry);
    return false;
}

/* Retires the block, counts and logs its free, and puts its memory into the cache. False: nothing is done. */
static inline __attribute__((always_inline)) bool end_block(const strata_fused *fused, const thread_parts *parts,
                                                            pool_stream_cache *cache, strata_entry *entry,
                                                            const strata_block *block, strata_point now, uint64_t stamp,
                                                            unsigned with)
{
    pool *self = bottom(fused);
    const size_t bytes = block->bytes;
    const uint32_t slot = block->id.slot;
    if (__builtin_expect(!pool_thread_cache_try_enter(self, parts->caches), 0))
        return false;
    uint64_t word;
    const bool may = strata_entry_may_retire(fused->table, entry, block, 0, &word);
    pool_bin *bin = may ? pool_bin_with_room(self, cache, bytes / POOL_GRANULE) : NULL; /* its size is true */
    const bool ended = bin && retire(self, entry, &word, now);
    if (__builtin_expect(ended, 1)) {
        if (with & WITH_STATISTICS &&
            __builtin_expect(strata_tag_counters_shrink_one(parts->account, (int64_t)bytes) < 0, 0))
            step(fused, parts, bytes);
        if (with & WITH_LOGGING)
            log_free(parts->ring, stamp, block, entry);
        pool_end_used_block(parts->caches, entry, block, now);
        pool_bin_push(&self->heap, cache, bin, entry, slot, bytes / POOL_GRANULE);
    }
    pool_thread_cache_leave(parts->caches);
    return ended;
}

/* As allocate. */
static inline __attribute__((always_inline)) bool deallocate(strata_resource *top, const strata_block *block,
                                                             unsigned with)
{
    const strata_fused *fused = fused_of(top);
    thread_parts parts;
    if (__builtin_expect(!find_parts(fused, with, &parts) || strata_driver_state_now() != STRATA_DRIVER_OPEN, 0))
        return false;
    strata_entry *entry = strata_table_lookup(fused->table, block->id);
    strata_point now;
    pool_stream_cache *cache =
        __builtin_expect(entry != NULL, 1) ? pool_own_cache(parts.caches, entry, block->stream, &now) : NULL;
    uint64_t charge;
    if (__builtin_expect(!cache || !frees_plainly(fused, entry, with, &charge), 0))
        return false;
    /* not behind the block's locked instruction, which it would wait for */
    const uint64_t stamp = with & WITH_LOGGING ? strata_timestamp_simple() : 0;
    if (__builtin_expect(!end_block(fused, &parts, cache, entry, block, now, stamp, with), 0))
        return false;
    if (with & WITH_BUDGET && __builtin_expect(!budget_release_in(&charging(fused)->base, parts.quota, charge), 0))
        budget_release(&charging(fused)->base, charge);
    return true;
}

/* ---- choosing ---- */

/* By the layers' own operations; not by those that regions.c has put before them, as it has before this one. */
static __attribute__((noinline)) strata_status allocate_apart(strata_resource *top, size_t bytes, CUstream stream,
                                                              strata_block *out)
{
    return top->stack->unannounced.allocate_plain(top, bytes, stream, out).status;
}

#define FUSED(name, with)                                                                                              \
    static strata_status allocate_##name(strata_resource *top, size_t bytes, CUstream stream, strata_block *out)       \
    {                                                                                                                  \
        return __builtin_expect(allocate(top, bytes, stream, out, with), 1) ? STRATA_SUCCESS                           \
                                                                            : allocate_apart(top, bytes, stream, out); \
    }                                                                                                                  \
    static strata_status deallocate_##name(strata_resource *top, const strata_block *block)                            \
    {                                                                                                                  \
        return __builtin_expect(deallocate(top, block, with), 1) ? STRATA_SUCCESS                                      \
                                                                 : strata_top_deallocate_own(top, block);              \
    }

FUSED(budget, WITH_BUDGET)
FUSED(logging, WITH_LOGGING)
FUSED(budget_logging, WITH_BUDGET | WITH_LOGGING)
FUSED(statistics, WITH_STATISTICS)
FUSED(budget_statistics, WITH_BUDGET | WITH_STATISTICS)
FUSED(logging_statistics, WITH_LOGGING | WITH_STATISTICS)
FUSED(all, WITH_BUDGET | WITH_LOGGING | WITH_STATISTICS)

static const struct {
    strata_status (*allocate)(strata_resource *top, size_t bytes, CUstream stream, strata_block *out);
    strata_status (*deallocate)(strata_resource *top, const strata_block *block);
} operations[] = {
    [WITH_BUDGET] = {allocate_budget, deallocate_budget},
    [WITH_LOGGING] = {allocate_logging, deallocate_logging},
    [WITH_BUDGET | WITH_LOGGING] = {allocate_budget_logging, deallocate_budget_logging},
    [WITH_STATISTICS] = {allocate_statistics, deallocate_statistics},
    [WITH_BUDGET | WITH_STATISTICS] = {allocate_budget_statistics, deallocate_budget_statistics},
    [WITH_LOGGING | WITH_STATISTICS] = {allocate_logging_statistics, deallocate_logging_statistics},
    [WITH_BUDGET | WITH_LOGGING | WITH_STATISTICS] = {allocate_all, deallocate_all},
};

static const strata_resource_ops *const kinds[][2] = {
    [BUDGET] = {&budget_ops, &budget_ops},
    [LOGGING] = {&logging_ops_with_uses, &logging_ops_without_uses},
    [STATISTICS] = {&strata_statistics_ops, &strata_statistics_ops},
    [POOL] = {&pool_ops, &pool_ops},
};

/* A stack copies a layer's table of operations, but not their code; a shared budget's or one that finds deadlocks
 * differs in one of these. */
static bool has_operations(const strata_resource *layer, const strata_resource_ops *ops)
{
    return layer->ops->destroy == ops->destroy && layer->ops->allocate_plain == ops->allocate_plain &&
           layer->ops->give_back == ops->give_back;
}

static size_t kind_of(const strata_resource *layer)
{
    for (size_t kind = 0; kind < KINDS; kind++)
        if (has_operations(layer, kinds[kind][0]) || has_operations(layer, kinds[kind][1]))
            return kind;
    return KINDS;
}

/* Notes each layer under its kind. False: another kind of layer, or two of one. */
static bool note_layers(strata_resource *layer, strata_fused *fused)
{
    for (; layer; layer = layer->upstream) {
        const size_t kind = kind_of(layer);
        if (kind == KINDS || fused->layers[kind])
            return false;
        fused->layers[kind] = layer;
    }
    return fused->layers[POOL];
}

static void note_numbers(strata_fused *fused)
{
    if (fused->layers[BUDGET])
        fused->numbers[BUDGET] = charging(fused)->base.slots.number;
    if (fused->layers[LOGGING])
        fused->numbers[LOGGING] = recording(fused)->writer.rings.found.number;
    if (fused->layers[STATISTICS])
        fused->numbers[STATISTICS] = counting(fused)->counters.threads.number;
    fused->numbers[POOL] = bottom(fused)->thread_caches.number;
}

static void fuse(strata_resource *top, strata_resource_ops *ops)
{
    strata_fused fused = {.table = strata_resource_table(top)};
    unsigned with = 0;
    if (!note_layers(top, &fused))
        return;
    for (size_t kind = 0; kind < POOL; kind++)
        with |= fused.layers[kind] ? 1u << kind : 0;
    if (!with)
        return;
    note_numbers(&fused);
    ((strata_fused_layer *)top)->fused = fused;
    ops->top_allocate = operations[with].allocate;
    ops->top_deallocate = operations[with].deallocate;
}

__attribute__((constructor)) void strata_fused_offer(void)
{
    atomic_store_explicit(&strata_fuse_operations, fuse, memory_order_release);
}
