/* statistics: counts allocations and frees by tag, and stores in each block's entry what its free and a leak report
 * need. */
#include "resources/statistics/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/default_operations.h"

/* ---- allocating and freeing ---- */

static __attribute__((cold, noinline)) strata_status count_failure(strata_statistics *self, strata_status status)
{
    unsigned which = (unsigned)status < STRATA_STATISTICS_STATUSES ? (unsigned)status : 0;
    atomic_fetch_add_explicit(&self->failures[which], 1, memory_order_relaxed);
    return status;
}

static __attribute__((cold, noinline)) strata_made count_failed(strata_statistics *self, strata_made made)
{
    count_failure(self, made.status);
    return made;
}

static inline void write_facts(const strata_statistics *self, strata_statistics_facts *facts, const strata_block *block,
                               strata_tag tag, uint32_t call_stack, uint32_t scope)
{
    if (__builtin_expect(self->stores_facts, 0)) {
        atomic_store_explicit(&facts->bytes, block->bytes, memory_order_relaxed);
        atomic_store_explicit(&facts->requested, block->requested, memory_order_relaxed);
        atomic_store_explicit(&facts->address, block->address, memory_order_relaxed);
    }
    atomic_store_explicit(&facts->origin, strata_statistics_origin(tag, call_stack, scope), memory_order_release);
}

/* Allocates for a thread without an account. The tag's record comes first: the free can then be counted. */
static __attribute__((noinline)) strata_made allocate_shared(strata_statistics *self, const strata_request *request,
                                                             uint32_t call_stack, strata_statistics_scope *scope,
                                                             strata_block *out)
{
    strata_resource *resource = &self->resource;
    strata_tag_counters_record *record = strata_tag_counters_record_of(&self->counters, request->tag);
    if (!record) {
        *out = (strata_block){0};
        strata_status status = count_failure(self, strata_fail_host_memory("the counters of a tag"));
        strata_request_refused(resource, request, status);
        return (strata_made){status, NULL};
    }
    const strata_made made = resource->upstream->ops->allocate_own(resource->upstream, request, out);
    if (!made.entry)
        return made.status == STRATA_SUCCESS ? made : count_failed(self, made);
    write_facts(self, strata_statistics_facts_in(resource, made.entry), out, request->tag, call_stack,
                scope ? strata_statistics_scope_count(scope, out->bytes, out->requested) : 0);
    if (call_stack)
        strata_statistics_stack_count(self, call_stack, request->tag, out);
    strata_tag_counters_add_shared(&self->counters, record, out->bytes, out->requested);
    return made;
}

/* Counts an allocation, but not an empty block's. */
static inline __attribute__((always_inline)) void
count_allocation(strata_statistics *self, strata_tag_counters_thread *local, strata_tag_counters_account *account,
                 strata_entry *entry, const strata_block *made, uint32_t call_stack, strata_statistics_scope *scope)
{
    if (__builtin_expect(!entry, 0))
        return;
    write_facts(self, strata_statistics_facts_in(&self->resource, entry), made, account->tag, call_stack,
                scope ? strata_statistics_scope_count(scope, made->bytes, made->requested) : 0);
    if (call_stack)
        strata_statistics_stack_count(self, call_stack, account->tag, made);
    strata_tag_counters_add(&self->counters, local, account, made->bytes, made->requested);
}

/* Allocates with call stacks or scopes, or looks up the account. */
static __attribute__((noinline)) strata_made allocate_slow(strata_statistics *self, const strata_request *request,
                                                           strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    const uint8_t detail = atomic_load_explicit(&self->detail, memory_order_relaxed);
    const uint32_t call_stack =
        detail & STRATA_STATISTICS_STACKS ? strata_statistics_stack_open(self, strata_call_stack_capture(0)) : 0;
    strata_statistics_scope *scope = detail & STRATA_STATISTICS_SCOPES ? strata_statistics_entered(self) : NULL;
    strata_tag_counters_thread *local = strata_tag_counters_self(&self->counters, strata_thread_self());
    strata_tag_counters_account *account = strata_tag_counters_account_of(&self->counters, local, request->tag);
    if (__builtin_expect(!account, 0))
        return allocate_shared(self, request, call_stack, scope, out);
    const strata_made made = upstream->ops->allocate_own(upstream, request, out);
    if (made.status != STRATA_SUCCESS)
        return count_failed(self, made);
    count_allocation(self, local, account, made.entry, out, call_stack, scope);
    return made;
}

static inline __attribute__((always_inline)) strata_made allocate(strata_statistics *self,
                                                                  const strata_request *request, strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account =
        strata_tag_counters_account_if_present(&self->counters, request->tag, &local);
    if (__builtin_expect(!account || atomic_load_explicit(&self->detail, memory_order_relaxed), 0))
        return allocate_slow(self, request, out);
    const strata_made made = upstream->ops->allocate_own(upstream, request, out);
    if (__builtin_expect(made.status != STRATA_SUCCESS, 0))
        return count_failed(self, made);
    count_allocation(self, local, account, made.entry, out, 0, NULL);
    return (strata_made){STRATA_SUCCESS, made.entry};
}

static strata_status statistics_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((strata_statistics *)resource, request, out).status;
}

static strata_made statistics_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((strata_statistics *)resource, request, out);
}

static strata_made statistics_allocate_plain(strata_resource *resource, size_t bytes, CUstream stream,
                                             strata_block *out)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_resource *upstream = resource->upstream;
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = strata_tag_counters_untagged_if_present(&self->counters, &local);
    if (__builtin_expect(!account || atomic_load_explicit(&self->detail, memory_order_relaxed), 0))
        return strata_allocate_by_request(resource, bytes, stream, out);
    const strata_made made = upstream->ops->allocate_plain(upstream, bytes, stream, out);
    if (__builtin_expect(!made.entry, 0))
        return made.status == STRATA_SUCCESS ? made : count_failed(self, made);
    write_facts(self, strata_statistics_facts_in(resource, made.entry), out, 0, 0, 0);
    strata_tag_counters_add(&self->counters, local, account, out->bytes, out->requested);
    return (strata_made){STRATA_SUCCESS, made.entry};
}

/* A tag's record; tag 0's if a free names a tag without allocations. */
static strata_tag_counters_record *record_of(strata_statistics *self, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(&self->counters, tag);
    return record ? record : strata_tag_counters_find(&self->counters, 0);
}

static strata_tag_counters_account *account_of(strata_statistics *self, strata_tag tag,
                                               strata_tag_counters_thread **local)
{
    *local = strata_tag_counters_self(&self->counters, strata_thread_self());
    return strata_tag_counters_account_of(&self->counters, *local, tag);
}

static __attribute__((noinline)) void count_free_slow(strata_statistics *self, strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = account_of(self, tag, &local);
    if (account)
        strata_tag_counters_sub(&self->counters, local, account, bytes);
    else
        strata_tag_counters_sub_shared(&self->counters, record_of(self, tag), bytes);
}

static inline __attribute__((always_inline)) void count_free(strata_statistics *self, strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = strata_tag_counters_account_if_present(&self->counters, tag, &local);
    if (__builtin_expect(!account, 0))
        count_free_slow(self, tag, bytes);
    else
        strata_tag_counters_sub(&self->counters, local, account, bytes);
}

static __attribute__((cold, noinline)) strata_status count_free_failure(strata_statistics *self, strata_status status)
{
    atomic_fetch_add_explicit(&self->free_failures, 1, memory_order_relaxed);
    return status;
}

/* Counts a failed free: its block was counted as freed, and is live. */
static __attribute__((cold, noinline)) strata_status take_back_free(strata_statistics *self, strata_tag tag,
                                                                    size_t bytes, strata_status status)
{
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = account_of(self, tag, &local);
    if (account)
        strata_tag_counters_live(&self->counters, local, account, bytes);
    else
        strata_tag_counters_live_shared(&self->counters, record_of(self, tag), bytes);
    return count_free_failure(self, status);
}

/* Frees a block that is not live here: unknown, or freed by address before its allocation returned here. */
static __attribute__((noinline)) strata_status deallocate_unknown(strata_statistics *self, const strata_block *block,
                                                                  CUstream stream)
{
    strata_resource *upstream = self->resource.upstream;
    const strata_tag tag = block->tag;
    const size_t bytes = block->bytes; /* if wrong, the free fails */
    strata_status status = upstream->ops->deallocate(upstream, block, stream);
    if (status != STRATA_SUCCESS)
        return count_free_failure(self, status);
    count_free(self, tag, bytes);
    return status;
}

/* Takes a live block's scope out of its origin: one of several frees does. */
static bool take_scope(strata_entry *entry, strata_statistics_facts *facts, uint64_t generation, uint64_t origin)
{
    if (!strata_entry_lock(entry, generation))
        return false;
    const bool has = atomic_load_explicit(&facts->origin, memory_order_relaxed) == origin;
    if (has)
        atomic_store_explicit(&facts->origin, strata_statistics_without_scope(origin), memory_order_release);
    strata_entry_unlock(entry);
    return has;
}

/* After a refused free: counts the block in its scope again, then gives it back, since another free may take the scope
 * from then on, and end it. False: another free has ended the block, and the entry may have a later one's origin. */
static bool give_scope_back(strata_entry *entry, strata_statistics_facts *facts, uint64_t generation, uint64_t origin,
                            strata_statistics_scope *scope, size_t bytes)
{
    if (!strata_entry_lock(entry, generation))
        return false;
    strata_statistics_scope_freed(scope, bytes, false);
    atomic_store_explicit(&facts->origin, origin, memory_order_release);
    strata_entry_unlock(entry);
    return true;
}

/* Frees a block with a scope or a call stack. */
static __attribute__((noinline)) strata_status deallocate_slow(strata_statistics *self, const strata_block *block,
                                                               CUstream stream, uint64_t origin, size_t bytes)
{
    strata_resource *upstream = self->resource.upstream;
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    strata_statistics_facts *facts = strata_statistics_facts_in(&self->resource, entry);
    const strata_tag tag = strata_statistics_origin_tag(origin);
    const uint32_t call_stack = strata_statistics_origin_stack(origin);
    const uint64_t generation = block->id.generation;
    strata_statistics_scope *scope = NULL;
    /* One of several frees takes the block's scope. If another one succeeds, the block ends, and so does its scope. */
    if (strata_statistics_origin_scope(origin) && take_scope(entry, facts, generation, origin))
        scope = strata_statistics_scope_uncount(self, strata_statistics_origin_scope(origin), bytes);
    if (call_stack)
        strata_statistics_stack_uncount(self, call_stack, bytes);
    count_free(self, tag, bytes);
    strata_status status = upstream->ops->deallocate(upstream, block, stream);
    if (scope && (status == STRATA_SUCCESS || !give_scope_back(entry, facts, generation, origin, scope, bytes)))
        strata_statistics_scope_freed(scope, bytes, true);
    if (status == STRATA_SUCCESS)
        return status;
    if (call_stack)
        strata_statistics_stack_live(self, call_stack, bytes);
    return take_back_free(self, tag, bytes, status);
}

/* Counts the free before it: another thread may get the memory before the free returns, and the peak must not have
 * both. Calls in place of the common path are tail calls: few registers are saved. */
static strata_status statistics_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_entry *entry = strata_table_lookup(strata_resource_table(resource), block->id);
    const strata_statistics_facts *facts = entry ? strata_statistics_facts_in(resource, entry) : NULL;
    const uint64_t origin = facts ? atomic_load_explicit(&facts->origin, memory_order_acquire) : 0;
    if (__builtin_expect(!origin, 0))
        return deallocate_unknown(self, block, stream);
    const strata_tag tag = strata_statistics_origin_tag(origin);
    const size_t bytes = (size_t)atomic_load_explicit(
        __builtin_expect(self->stores_facts, 0) ? &facts->bytes : &entry->bytes, memory_order_relaxed);
    if (__builtin_expect(strata_statistics_origin_has_detail(origin), 0))
        return deallocate_slow(self, block, stream, origin, bytes);
    count_free(self, tag, bytes);
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    return __builtin_expect(status == STRATA_SUCCESS, 1) ? status : take_back_free(self, tag, bytes, status);
}

/* Frees a counted block. */
static inline __attribute__((always_inline)) strata_status free_below(strata_statistics *self,
                                                                      const strata_block *block, strata_entry *entry,
                                                                      strata_timeline *timeline, strata_tag tag,
                                                                      size_t bytes)
{
    strata_resource *upstream = self->resource.upstream;
    const strata_status status = upstream->ops->deallocate_own(upstream, block, entry, timeline);
    if (__builtin_expect(status == STRATA_FREE_COMPLETE || status == STRATA_SUCCESS, 1))
        return status;
    return take_back_free(self, tag, bytes, status);
}

/* Frees a counted block with which the thread left a window. */
static __attribute__((noinline)) strata_status step_and_free(strata_statistics *self, const strata_block *block,
                                                             strata_entry *entry, strata_timeline *timeline,
                                                             strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = account_of(self, tag, &local); /* it has one */
    strata_tag_counters_step(&self->counters, local, account, bytes);
    return free_below(self, block, entry, timeline, tag, bytes);
}

/* Frees for a thread with several tags: in a function of its own, whose registers the other path need not save. */
static __attribute__((noinline)) strata_status free_of_both(strata_statistics *self, const strata_block *block,
                                                            strata_entry *entry, strata_timeline *timeline,
                                                            strata_tag_counters_account *account, size_t bytes)
{
    strata_tag_counters_thread *local = strata_per_thread_if_present(&self->counters.threads);
    const strata_tag tag = account->tag;
    if (__builtin_expect(strata_tag_counters_shrink_both(account, local->all, (int64_t)bytes) < 0, 0))
        return step_and_free(self, block, entry, timeline, tag, bytes);
    return free_below(self, block, entry, timeline, tag, bytes);
}

/* Frees any block. */
static __attribute__((noinline)) strata_status free_general(strata_resource *resource, const strata_block *block,
                                                            strata_entry *entry, strata_timeline *timeline)
{
    strata_statistics *self = (strata_statistics *)resource;
    const strata_statistics_facts *facts = strata_statistics_facts_in(resource, entry);
    const uint64_t origin = atomic_load_explicit(&facts->origin, memory_order_acquire);
    const strata_tag tag = strata_statistics_origin_tag(origin);
    const size_t bytes = (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = strata_tag_counters_account_if_present(&self->counters, tag, &local);
    if (__builtin_expect(strata_statistics_origin_has_detail(origin) || !account || self->stores_facts, 0))
        return strata_deallocate_plainly(resource, block, entry, timeline);
    if (__builtin_expect(local->all != NULL, 0))
        return free_of_both(self, block, entry, timeline, account, bytes);
    if (__builtin_expect(strata_tag_counters_shrink_one(account, (int64_t)bytes) < 0, 0))
        return step_and_free(self, block, entry, timeline, tag, bytes);
    return free_below(self, block, entry, timeline, tag, bytes);
}

static strata_status statistics_deallocate_own(strata_resource *resource, const strata_block *block,
                                               strata_entry *entry, strata_timeline *timeline)
{
    strata_statistics *self = (strata_statistics *)resource;
    const strata_statistics_facts *facts = strata_statistics_facts_in(resource, entry);
    const uint64_t origin = atomic_load_explicit(&facts->origin, memory_order_acquire);
    const size_t bytes = (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = strata_tag_counters_untagged_if_present(&self->counters, &local);
    const bool plain = origin == strata_statistics_origin(0, 0, 0) && account && !self->stores_facts;
    if (__builtin_expect(!plain, 0))
        return free_general(resource, block, entry, timeline);
    if (__builtin_expect(local->all != NULL, 0))
        return free_of_both(self, block, entry, timeline, account, bytes);
    if (__builtin_expect(strata_tag_counters_shrink_one(account, (int64_t)bytes) < 0, 0))
        return step_and_free(self, block, entry, timeline, 0, bytes);
    return free_below(self, block, entry, timeline, 0, bytes);
}

static void statistics_request_refused(strata_resource *resource, const strata_request *request, strata_status status)
{
    (void)request;
    count_failure((strata_statistics *)resource, status);
}

static void statistics_graph_event(strata_resource *resource, const strata_graph_event *event)
{
    strata_statistics *self = (strata_statistics *)resource;
    _Atomic uint64_t *counter =
        event->status == STRATA_SUCCESS ? &self->graph_events[event->kind] : &self->graph_failures;
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- making and ending ---- */

static strata_status statistics_begin(strata_resource *resource)
{
    ((strata_statistics *)resource)->stores_facts = !strata_resource_sees_table(resource);
    return STRATA_SUCCESS;
}

static void statistics_destroy(strata_resource *resource)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_statistics_end_reports(self);
    strata_tag_counters_destroy(&self->counters);
    strata_statistics_end_scopes(self);
    strata_statistics_end_stacks(self);
    strata_host_free(self);
}

const strata_resource_ops strata_statistics_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .block_bytes = sizeof(strata_statistics_facts),
    .optional_block_bytes = STRATA_STATISTICS_OPTIONAL_BYTES,
    .begin = statistics_begin,
    .name = strata_statistics_name,
    .allocate = statistics_allocate,
    .allocate_own = statistics_allocate_own,
    .allocate_plain = statistics_allocate_plain,
    .deallocate = statistics_deallocate,
    .deallocate_own = statistics_deallocate_own,
    .destroy = statistics_destroy,
    .values = strata_statistics_values,
    .value_count = STRATA_STATISTICS_VALUES,
    .get_value = strata_statistics_get_value,
    .set_value = strata_statistics_set_value,
    .describe = strata_statistics_describe,
    .end_refused = strata_statistics_end_refused,
    .request_refused = statistics_request_refused,
    .graph_event = statistics_graph_event,
};
