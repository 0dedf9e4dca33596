/* Scopes that threads enter: each counts what was allocated in it, for a phase or task among others that run at the
 * same time.
 *
 * A block belongs to the scope that its thread was in, and counts there and in the scopes around it until it is freed,
 * on any thread. Its origin has the scope's slot. A scope's threads share its counters, so its peak is exact. Only
 * threads in a scope, and frees of its blocks, pay for it. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/statistics/internal.h"

#include <string.h>

enum { NAME = 64 };

typedef struct gauge {
    _Atomic int64_t current, peak, total; /* any thread */
} gauge;

struct strata_statistics_scope {
    strata_statistics *layer;        /* constant, like the next three */
    strata_statistics_scope *around; /* enclosing scope, which this one references; NULL: none */
    uint32_t slot;
    char name[NAME];
    gauge bytes, blocks;
    _Atomic int64_t requested;
    _Atomic uint64_t references; /* being open, live blocks, scopes inside; freed with the last */
    uint32_t inside;             /* open scopes; guarded by the layer's scopes_lock */
    bool open;                   /* guarded by the layer's scopes_lock */
};

/* ---- counting ---- */

static void raise(gauge *of, int64_t by)
{
    const int64_t now = atomic_fetch_add_explicit(&of->current, by, memory_order_relaxed) + by;
    int64_t peak = atomic_load_explicit(&of->peak, memory_order_relaxed);
    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&of->peak, &peak, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void count(gauge *of, int64_t by)
{
    atomic_fetch_add_explicit(&of->total, by, memory_order_relaxed);
    raise(of, by);
}

uint32_t strata_statistics_scope_count(strata_statistics_scope *scope, size_t bytes, size_t requested)
{
    atomic_fetch_add_explicit(&scope->references, 1, memory_order_relaxed);
    for (strata_statistics_scope *at = scope; at; at = at->around) {
        count(&at->bytes, (int64_t)bytes);
        count(&at->blocks, 1);
        atomic_fetch_add_explicit(&at->requested, (int64_t)requested, memory_order_relaxed);
    }
    return scope->slot;
}

/* Drops a reference of a scope; the last one frees it. */
static void let_go(strata_statistics_scope *scope)
{
    while (scope && atomic_fetch_sub_explicit(&scope->references, 1, memory_order_acq_rel) == 1) {
        strata_statistics_scope *around = scope->around;
        strata_lock_take(&scope->layer->scopes_lock); /* a report may read it */
        atomic_store_explicit(&scope->layer->scopes[scope->slot], NULL, memory_order_release);
        strata_lock_release(&scope->layer->scopes_lock);
        strata_host_free(scope);
        scope = around;
    }
}

strata_statistics_scope *strata_statistics_scope_uncount(strata_statistics *self, uint32_t slot, size_t bytes)
{
    strata_statistics_scope *scope = atomic_load_explicit(&self->scopes[slot], memory_order_acquire);
    for (strata_statistics_scope *at = scope; at; at = at->around) {
        atomic_fetch_sub_explicit(&at->bytes.current, (int64_t)bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&at->blocks.current, 1, memory_order_relaxed);
    }
    return scope;
}

void strata_statistics_scope_freed(strata_statistics_scope *scope, size_t bytes, bool freed)
{
    if (freed) {
        let_go(scope);
        return;
    }
    for (; scope; scope = scope->around) {
        raise(&scope->bytes, (int64_t)bytes);
        raise(&scope->blocks, 1);
    }
}

/* ---- entering ---- */

typedef struct entered_scope {
    strata_statistics_scope *scope;
    uint64_t serial; /* of the thread; slots go to later threads */
} entered_scope;

size_t strata_statistics_entered_bytes(void)
{
    return sizeof(entered_scope);
}

strata_statistics_scope *strata_statistics_entered(strata_statistics *self)
{
    strata_thread *thread = strata_thread_self();
    const entered_scope *own = strata_per_thread_self(&self->entered, thread);
    return own && own->serial == thread->serial ? own->scope : NULL;
}

strata_status strata_statistics_scope_enter(strata_resource *statistics, strata_statistics_scope *scope,
                                            strata_statistics_scope **previous)
{
    strata_statistics *self;
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if (scope && scope->layer != self)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: the scope \"%s\" is of another layer", scope->name);
    strata_thread *thread = strata_thread_self();
    entered_scope *own = strata_per_thread_self(&self->entered, thread);
    if (!own)
        return strata_fail_host_memory("a thread's place in a scope");
    if (previous)
        *previous = own->serial == thread->serial ? own->scope : NULL;
    *own = (entered_scope){scope, thread->serial};
    if (scope)
        atomic_fetch_or_explicit(&self->detail, STRATA_STATISTICS_SCOPES, memory_order_relaxed);
    return STRATA_SUCCESS;
}

/* ---- opening and closing ---- */

static uint32_t take_slot(strata_statistics *self, strata_statistics_scope *scope)
{
    for (uint32_t slot = 1; slot < STRATA_STATISTICS_SCOPE_SLOTS; slot++) {
        if (atomic_load_explicit(&self->scopes[slot], memory_order_relaxed))
            continue;
        scope->slot = slot;
        atomic_store_explicit(&self->scopes[slot], scope, memory_order_release);
        return slot;
    }
    return 0;
}

strata_status strata_statistics_scope_open(strata_resource *statistics, strata_statistics_scope *around,
                                           const char *name, strata_statistics_scope **out)
{
    strata_statistics *self;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_statistics_scope_open: out is NULL");
    *out = NULL;
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if ((around && around->layer != self) || (name && strlen(name) >= NAME))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "statistics: a scope inside one of another layer, or with a name of more than %d bytes",
                           NAME - 1);
    strata_statistics_scope *scope = strata_host_zalloc_aligned(64, sizeof *scope);
    if (!scope)
        return strata_fail_host_memory("a scope of statistics");
    scope->layer = self;
    scope->around = around;
    scope->open = true;
    strcpy(scope->name, name ? name : "scope");
    atomic_init(&scope->references, 1);
    strata_lock_take(&self->scopes_lock);
    const uint32_t slot = take_slot(self, scope);
    if (slot && around) {
        around->inside++;
        atomic_fetch_add_explicit(&around->references, 1, memory_order_relaxed);
    }
    strata_lock_release(&self->scopes_lock);
    if (!slot) {
        strata_host_free(scope);
        return strata_fail(STRATA_ERROR_BUSY, "statistics: %d scopes are open or have live blocks",
                           STRATA_STATISTICS_SCOPE_SLOTS - 1);
    }
    *out = scope;
    return STRATA_SUCCESS;
}

static strata_statistics_counter counter_of(const gauge *from)
{
    return (strata_statistics_counter){
        .current = atomic_load_explicit(&from->current, memory_order_relaxed),
        .peak = atomic_load_explicit(&from->peak, memory_order_relaxed),
        .total = atomic_load_explicit(&from->total, memory_order_relaxed),
    };
}

static strata_statistics_counters counters_of(const strata_statistics_scope *scope)
{
    return (strata_statistics_counters){
        .bytes = counter_of(&scope->bytes),
        .blocks = counter_of(&scope->blocks),
        .requested = atomic_load_explicit(&scope->requested, memory_order_relaxed),
    };
}

strata_status strata_statistics_scope_read(const strata_statistics_scope *scope, strata_statistics_counters *out)
{
    if (!scope || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_statistics_scope_read: scope or out is NULL");
    *out = counters_of(scope);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_scope_close(strata_statistics_scope *scope, strata_statistics_counters *out)
{
    if (out)
        *out = (strata_statistics_counters){0};
    if (!scope)
        return STRATA_SUCCESS;
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_statistics *self = scope->layer;
    strata_lock_take(&self->scopes_lock);
    const uint32_t inside = scope->inside;
    if (!inside) {
        scope->open = false;
        if (scope->around)
            scope->around->inside--;
    }
    strata_lock_release(&self->scopes_lock);
    if (inside)
        return strata_fail(STRATA_ERROR_BUSY, "statistics: %u scopes inside of \"%s\" are open", inside, scope->name);
    if (out)
        *out = counters_of(scope);
    let_go(scope);
    return STRATA_SUCCESS;
}

/* ---- the layer ---- */

/* The counters are copied under the lock: a closed scope goes with its last block. */
bool strata_statistics_next_scope(strata_statistics *self, uint32_t *slot, strata_statistics_scope_facts *facts)
{
    bool found = false;
    strata_lock_take(&self->scopes_lock);
    while (!found && ++*slot < STRATA_STATISTICS_SCOPE_SLOTS) {
        const strata_statistics_scope *scope = atomic_load_explicit(&self->scopes[*slot], memory_order_acquire);
        found = scope && scope->open;
        if (!found)
            continue;
        memcpy(facts->name, scope->name, NAME);
        facts->counters = counters_of(scope);
    }
    strata_lock_release(&self->scopes_lock);
    return found;
}

void strata_statistics_end_scopes(strata_statistics *self)
{
    for (uint32_t slot = 1; slot < STRATA_STATISTICS_SCOPE_SLOTS; slot++)
        strata_host_free(atomic_load_explicit(&self->scopes[slot], memory_order_relaxed));
    strata_per_thread_destroy(&self->entered);
    strata_lock_destroy(&self->scopes_lock);
}
