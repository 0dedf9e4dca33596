/* statistics: counts allocations and frees by tag (tag_counters.h), and stores in each block's entry what its free and
 * a leak report need. */
#include "resources/statistics/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"

static inline strata_statistics_facts *facts_of(const strata_resource *resource, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(resource), id);
    return entry ? strata_statistics_facts_in(resource, entry) : NULL;
}

/* ---- allocating and freeing ---- */

static __attribute__((cold, noinline)) strata_status count_failure(strata_statistics *self, strata_status status)
{
    unsigned which = (unsigned)status < STRATA_STATISTICS_STATUSES ? (unsigned)status : 0;
    atomic_fetch_add_explicit(&self->failures[which], 1, memory_order_relaxed);
    return status;
}

static inline void write_facts(const strata_statistics *self, strata_statistics_facts *facts, const strata_block *block,
                               strata_tag tag, uint32_t call_stack)
{
    if (__builtin_expect(self->stores_facts, 0)) {
        atomic_store_explicit(&facts->bytes, block->bytes, memory_order_relaxed);
        atomic_store_explicit(&facts->requested, block->requested, memory_order_relaxed);
        atomic_store_explicit(&facts->address, block->address, memory_order_relaxed);
    }
    atomic_store_explicit(&facts->origin, strata_statistics_origin(tag, call_stack), memory_order_release);
}

/* Without an account. The tag's record comes first, so that the free can be counted. */
static __attribute__((noinline)) strata_status allocate_shared(strata_statistics *self, const strata_request *request,
                                                               uint32_t call_stack, strata_block *out)
{
    strata_resource *resource = &self->resource;
    strata_tag_counters_record *record = strata_tag_counters_record_of(&self->counters, request->tag);
    if (!record) {
        *out = (strata_block){0};
        return count_failure(self, strata_fail_host_memory("the counters of a tag"));
    }
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    strata_statistics_facts *facts = status == STRATA_SUCCESS ? facts_of(resource, out->id) : NULL;
    if (!facts)
        return status == STRATA_SUCCESS ? status : count_failure(self, status);
    write_facts(self, facts, out, request->tag, call_stack);
    strata_tag_counters_add_shared(&self->counters, record, out->bytes, out->requested);
    return STRATA_SUCCESS;
}

/* An empty block is not counted. */
static inline __attribute__((always_inline)) void count_allocation(strata_statistics *self,
                                                                   strata_tag_counters_thread *local,
                                                                   strata_tag_counters_account *account,
                                                                   const strata_block *made, uint32_t call_stack)
{
    if (__builtin_expect(!made->id.generation, 0))
        return;
    const strata_table *table = strata_resource_table(&self->resource);
    write_facts(self, strata_statistics_facts_in(&self->resource, strata_table_entry(table, made->id.slot)), made,
                account->tag, call_stack);
    strata_tag_counters_add(&self->counters, local, account, made->bytes, made->requested);
}

/* With call stacks, or to look up the account. */
static __attribute__((noinline)) strata_status allocate_slow(strata_statistics *self, const strata_request *request,
                                                             strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    uint32_t call_stack = 0;
    if (atomic_load_explicit(&self->stacks, memory_order_relaxed))
        call_stack = strata_call_stack_capture(0);
    strata_tag_counters_thread *local = strata_tag_counters_self(&self->counters, strata_thread_self());
    strata_tag_counters_account *account = strata_tag_counters_account_of(&self->counters, local, request->tag);
    if (__builtin_expect(!account, 0))
        return allocate_shared(self, request, call_stack, out);
    strata_status status = upstream->ops->allocate(upstream, request, out);
    if (status != STRATA_SUCCESS)
        return count_failure(self, status);
    count_allocation(self, local, account, out, call_stack);
    return STRATA_SUCCESS;
}

static strata_status statistics_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account =
        strata_tag_counters_account_if_present(&self->counters, request->tag, &local);
    if (__builtin_expect(!account || atomic_load_explicit(&self->stacks, memory_order_relaxed), 0))
        return allocate_slow(self, request, out);
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return count_failure(self, status);
    count_allocation(self, local, account, out, 0);
    return STRATA_SUCCESS;
}

/* Tag 0 if a free names a tag without allocations. */
static strata_tag_counters_record *record_of(strata_statistics *self, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(&self->counters, tag);
    return record ? record : strata_tag_counters_find(&self->counters, 0);
}

static __attribute__((noinline)) strata_status count_free_slow(strata_statistics *self, strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *local = strata_tag_counters_self(&self->counters, strata_thread_self());
    strata_tag_counters_account *account = strata_tag_counters_account_of(&self->counters, local, tag);
    if (account)
        strata_tag_counters_sub(&self->counters, local, account, bytes);
    else
        strata_tag_counters_sub_shared(&self->counters, record_of(self, tag), bytes);
    return STRATA_SUCCESS;
}

static inline strata_status count_free(strata_statistics *self, strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *local;
    strata_tag_counters_account *account = strata_tag_counters_account_if_present(&self->counters, tag, &local);
    if (__builtin_expect(!account, 0))
        return count_free_slow(self, tag, bytes);
    strata_tag_counters_sub(&self->counters, local, account, bytes);
    return STRATA_SUCCESS;
}

static __attribute__((cold, noinline)) strata_status count_free_failure(strata_statistics *self, strata_status status)
{
    atomic_fetch_add_explicit(&self->free_failures, 1, memory_order_relaxed);
    return status;
}

static strata_status statistics_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    strata_statistics *self = (strata_statistics *)resource;
    const strata_statistics_facts *facts = facts_of(resource, block->id);
    const uint64_t origin = facts ? atomic_load_explicit(&facts->origin, memory_order_acquire) : 0;
    strata_tag tag = block->tag;
    size_t bytes = block->bytes;            /* the free fails if these are wrong */
    if (__builtin_expect(origin != 0, 1)) { /* 0: freed by address before its allocation returned here */
        tag = strata_statistics_origin_tag(origin);
        if (__builtin_expect(self->stores_facts, 0))
            bytes = (size_t)atomic_load_explicit(&facts->bytes, memory_order_relaxed);
    }
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    return __builtin_expect(status == STRATA_SUCCESS, 1) ? count_free(self, tag, bytes)
                                                         : count_free_failure(self, status);
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
    .deallocate = statistics_deallocate,
    .destroy = statistics_destroy,
    .values = strata_statistics_values,
    .value_count = STRATA_STATISTICS_VALUES,
    .get_value = strata_statistics_get_value,
    .set_value = strata_statistics_set_value,
    .describe = strata_statistics_describe,
    .end_refused = strata_statistics_end_refused,
};
