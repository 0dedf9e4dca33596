/* fallback: several branches below one layer.
 *
 *     budget, fallback --- branch 0: statistics, pool
 *                      `-- branch 1: managed
 *
 * All branches have the stack's table of blocks, so identities, uses and completions are as in a chain. The layer's
 * bytes of a block say which branch has it. New blocks begin with zeros, the first branch: it costs a new block no
 * write. */
#include <strata/fallback.h>
#include <strata/stack.h>

#include "core/base/emitter.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/blocks/blocks.h"
#include "resources/builtin.h"

#include <stdatomic.h>
#include <stdio.h>

enum { VALUE_FELL_BACK, VALUE_REFUSED };

typedef struct fallback {
    strata_resource resource;
    /* Constant. */
    size_t count;
    strata_branch branches[STRATA_FALLBACK_BRANCHES];
    /* Any thread, relaxed. */
    _Atomic uint64_t fell_back, refused;
    strata_resource *layers[]; /* of all branches; constant */
} fallback;

/* In a block's entry. Atomic: an invalid free may read it while the entry becomes another block's. */
typedef _Atomic uint64_t branch_index;

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static inline strata_resource *top_of(const fallback *self, size_t which)
{
    return self->branches[which].layers[0];
}

static inline branch_index *index_of(const fallback *self, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), id);
    return entry ? (branch_index *)(void *)((char *)entry + self->resource.block_offset) : NULL;
}

/* The branch that has a block. Any branch refuses one that is not of this stack, or stale. */
static inline strata_resource *branch_of(const fallback *self, const strata_block *block)
{
    branch_index *index = index_of(self, block->id);
    const uint64_t which = index ? atomic_load_explicit(index, memory_order_relaxed) : 0;
    return top_of(self, __builtin_expect(which < self->count, 1) ? which : 0);
}

/* ---- allocating ---- */

/* Tries a request in a branch. *why: the failure, which is not reported. */
static strata_status try_branch(const fallback *self, size_t which, const strata_request *request, strata_block *out,
                                strata_error *why)
{
    strata_resource *top = top_of(self, which);
    strata_error_suppress_begin();
    const strata_status status = top->ops->allocate(top, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        *why = *strata_error_suppressed();
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS && why->status != status)
        *why = (strata_error){.status = status, .requested = request->bytes, .tag = request->tag};
    return status;
}

static bool lacks_memory(strata_status status)
{
    return status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* Makes *why the later failure, whose message has the earlier one, cut where the record ends. */
static void join(strata_error *why, const strata_error *later)
{
    strata_error joined = *later;
    const int used = snprintf(joined.message, sizeof joined.message, "%s", later->message);
    if (used >= 0 && (size_t)used < sizeof joined.message)
        snprintf(joined.message + used, sizeof joined.message - (size_t)used, "; the branch before it: %.480s",
                 why->message);
    *why = joined;
}

static __attribute__((noinline)) strata_status allocate_further(fallback *self, const strata_request *request,
                                                                strata_block *out, strata_error *why)
{
    for (size_t which = 1; which < self->count && lacks_memory(why->status); which++) {
        strata_error later;
        const strata_status status = try_branch(self, which, request, out, &later);
        if (status == STRATA_SUCCESS) {
            branch_index *index = index_of(self, out->id);
            if (index)
                atomic_store_explicit(index, which, memory_order_relaxed);
            count(&self->fell_back);
            return STRATA_SUCCESS;
        }
        if (status != STRATA_ERROR_UNSUPPORTED)
            join(why, &later);
    }
    if (lacks_memory(why->status))
        count(&self->refused);
    *out = (strata_block){0};
    return strata_error_raise_again(why);
}

static strata_status fallback_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    fallback *self = (fallback *)resource;
    strata_error why;
    if (__builtin_expect(try_branch(self, 0, request, out, &why) == STRATA_SUCCESS, 1))
        return STRATA_SUCCESS;
    return allocate_further(self, request, out, &why);
}

/* The largest charge of all branches: which one will serve the request is not known. A later branch that cannot serve
 * it is left out. */
static strata_status fallback_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    const fallback *self = (fallback *)resource;
    strata_resource *first = top_of(self, 0);
    strata_status status = first->ops->charge(first, request, bytes);
    strata_error_suppress_begin();
    for (size_t which = 1; which < self->count && status == STRATA_SUCCESS; which++) {
        strata_resource *top = top_of(self, which);
        size_t here;
        if (top->ops->charge(top, request, &here) == STRATA_SUCCESS && here > *bytes)
            *bytes = here;
    }
    strata_error_suppress_end(false);
    return status;
}

/* ---- blocks ---- */

static strata_status fallback_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    strata_resource *top = branch_of((fallback *)resource, block);
    return top->ops->deallocate(top, block, stream);
}

static strata_status fallback_prepare_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                          strata_access access)
{
    strata_resource *top = branch_of((fallback *)resource, block);
    return top->ops->prepare_use(top, block, stream, access);
}

static strata_status fallback_finish_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                         strata_access access)
{
    strata_resource *top = branch_of((fallback *)resource, block);
    return top->ops->finish_use(top, block, stream, access);
}

static strata_status fallback_record_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                         strata_access access)
{
    strata_resource *top = branch_of((fallback *)resource, block);
    return top->ops->record_use(top, block, stream, access);
}

/* Searches all branches. One that cannot search has its error raised if no other one has the address. */
static strata_status fallback_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    const fallback *self = (fallback *)resource;
    strata_status status = STRATA_ERROR_FOREIGN_POINTER;
    strata_error why = {.status = status};
    strata_error_suppress_begin();
    for (size_t which = 0; which < self->count && status != STRATA_SUCCESS; which++) {
        strata_resource *top = top_of(self, which);
        status = top->ops->find(top, address, out);
        if (status != STRATA_SUCCESS && (which == 0 || why.status == STRATA_ERROR_FOREIGN_POINTER))
            why = *strata_error_suppressed();
    }
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS)
        return status;
    *out = (strata_block){0};
    return strata_error_raise_again(&why);
}

/* ---- all branches ---- */

static strata_status fallback_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    const fallback *self = (fallback *)resource;
    strata_status status = STRATA_SUCCESS;
    *bytes = 0;
    for (size_t which = 0; which < self->count; which++) {
        strata_resource *top = top_of(self, which);
        size_t here = 0;
        const strata_status reaped = top->ops->reap(top, mode, &here);
        status = status == STRATA_SUCCESS ? reaped : status;
        *bytes += here;
    }
    return status;
}

/* Bytes that all branches but one reserve; 0 for one that cannot be queried: `except` then keeps more. */
static size_t reserved_elsewhere(const fallback *self, size_t except)
{
    size_t bytes = 0;
    strata_error_suppress_begin();
    for (size_t which = 0; which < self->count; which++) {
        strata_usage usage = {0};
        strata_resource *top = top_of(self, which);
        if (which != except && top->ops->usage(top, &usage) == STRATA_SUCCESS)
            bytes += usage.reserved_bytes;
    }
    strata_error_suppress_end(false);
    return bytes;
}

/* Trims from the last branch on: the first one's memory is preferred. */
static strata_status fallback_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    const fallback *self = (fallback *)resource;
    strata_status status = STRATA_SUCCESS;
    *bytes = 0;
    for (size_t which = self->count; which-- > 0;) {
        strata_resource *top = top_of(self, which);
        const size_t elsewhere = keep_bytes ? reserved_elsewhere(self, which) : 0;
        size_t here = 0;
        const strata_status trimmed = top->ops->trim(top, keep_bytes > elsewhere ? keep_bytes - elsewhere : 0, &here);
        status = status == STRATA_SUCCESS ? trimmed : status;
        *bytes += here;
    }
    return status;
}

static size_t saturating_sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Adds a branch's usage. Each branch's high watermark is of another moment: their sum would be none. */
static void add_usage(strata_usage *sum, const strata_usage *more, bool first)
{
    const bool both_reserved =
        (sum->reserved_bytes || sum->reserved_peak) && (more->reserved_bytes || more->reserved_peak);
    sum->reserved_peak = both_reserved ? 0 : sum->reserved_peak + more->reserved_peak;
    sum->live_bytes += more->live_bytes;
    sum->retired_bytes += more->retired_bytes;
    sum->bytes_outstanding += more->bytes_outstanding;
    sum->live_blocks += more->live_blocks;
    sum->reserved_bytes += more->reserved_bytes;
    sum->reserved_free += more->reserved_free;
    if (more->largest_free > sum->largest_free)
        sum->largest_free = more->largest_free;
    sum->limit = more->limit && (first || sum->limit) ? saturating_sum(sum->limit, more->limit) : 0;
}

static strata_status fallback_usage(strata_resource *resource, strata_usage *usage)
{
    const fallback *self = (fallback *)resource;
    strata_status status = STRATA_SUCCESS;
    *usage = (strata_usage){0};
    for (size_t which = 0; which < self->count; which++) {
        strata_resource *top = top_of(self, which);
        strata_usage here = {0};
        const strata_status read = top->ops->usage(top, &here);
        status = status == STRATA_SUCCESS ? read : status;
        add_usage(usage, &here, which == 0);
    }
    return status;
}

/* The sum of the branches' budgets: a request is refused where every branch is at its limit; with one that has none
 * there is no limit. */
static strata_status fallback_budget(strata_resource *resource, strata_budget_snapshot *snapshot)
{
    const fallback *self = (fallback *)resource;
    bool unlimited = false;
    *snapshot = (strata_budget_snapshot){0};
    for (size_t which = 0; which < self->count; which++) {
        strata_resource *top = top_of(self, which);
        strata_budget_snapshot here;
        const strata_status status = top->ops->budget(top, &here);
        if (status != STRATA_SUCCESS) {
            *snapshot = (strata_budget_snapshot){0};
            return status;
        }
        unlimited |= here.limit == 0;
        snapshot->limit = saturating_sum(snapshot->limit, here.limit);
        snapshot->in_use += here.in_use;
        snapshot->remaining = saturating_sum(snapshot->remaining, here.remaining);
    }
    if (unlimited)
        snapshot->limit = 0;
    return STRATA_SUCCESS;
}

/* What all branches can do, but stream order: a request that a branch refuses may first have waited for the device, and
 * is then served by the next one. */
static uint32_t fallback_capabilities(strata_resource *resource)
{
    const fallback *self = (fallback *)resource;
    uint32_t all = ~STRATA_CAPABILITY_STREAM_ORDERED;
    for (size_t which = 0; which < self->count; which++)
        all &= top_of(self, which)->ops->capabilities(top_of(self, which));
    return all;
}

/* Synchronizes through all branches, whose layers may observe it; after the first wait there is nothing to wait for. */
static strata_status fallback_synchronize(strata_resource *resource, CUstream stream)
{
    const fallback *self = (fallback *)resource;
    strata_status status = STRATA_SUCCESS;
    for (size_t which = 0; which < self->count && status == STRATA_SUCCESS; which++)
        status = top_of(self, which)->ops->synchronize(top_of(self, which), stream);
    return status;
}

/* ---- reports ---- */

static strata_status fallback_get(strata_resource *resource, size_t which, uint64_t *value)
{
    fallback *self = (fallback *)resource;
    *value = atomic_load_explicit(which == VALUE_FELL_BACK ? &self->fell_back : &self->refused, memory_order_relaxed);
    return STRATA_SUCCESS;
}

static void fallback_describe(strata_resource *resource, strata_emitter *to)
{
    const fallback *self = (fallback *)resource;
    strata_emit_list_begin(to, "branches");
    for (size_t which = 0; which < self->count; which++) {
        strata_resource *top = top_of(self, which);
        strata_usage usage = {0};
        strata_error_suppress_begin();
        top->ops->usage(top, &usage);
        strata_error_suppress_end(false);
        strata_emit_object_begin(to, to->format == STRATA_FORMAT_TEXT ? top->ops->name : NULL);
        if (to->format == STRATA_FORMAT_JSON)
            strata_emit_text(to, "layer", top->ops->name);
        strata_emit_bytes(to, "live_bytes", usage.live_bytes);
        strata_emit_count(to, "live_blocks", usage.live_blocks);
        strata_emit_bytes(to, "retired_bytes", usage.retired_bytes);
        strata_emit_bytes(to, "reserved_bytes", usage.reserved_bytes);
        strata_emit_bytes(to, "reserved_peak", usage.reserved_peak);
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}

static strata_resource *const *fallback_branch(strata_resource *resource, size_t which, size_t *layer_count)
{
    const fallback *self = (fallback *)resource;
    if (which >= self->count)
        return NULL;
    *layer_count = self->branches[which].count;
    return self->branches[which].layers;
}

/* A stack destroys the branches itself. */
static void fallback_destroy(strata_resource *resource)
{
    fallback *self = (fallback *)resource;
    for (size_t which = 0; which < self->count && !resource->stack; which++)
        for (size_t i = 0; i < self->branches[which].count; i++)
            strata_resource_destroy(self->branches[which].layers[i]);
    strata_host_free(self);
}

static const strata_value fallback_values[] = {
    [VALUE_FELL_BACK] = {"fell_back", STRATA_VALUE_COUNT, false, "requests served by a later branch than the first"},
    [VALUE_REFUSED] = {"refused", STRATA_VALUE_COUNT, false, "requests that every branch refused"},
};

static const strata_resource_ops fallback_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(branch_index),
    .transparent = true,
    .name = "fallback",
    .allocate = fallback_allocate,
    .deallocate = fallback_deallocate,
    .prepare_use = fallback_prepare_use,
    .finish_use = fallback_finish_use,
    .record_use = fallback_record_use,
    .reap = fallback_reap,
    .trim = fallback_trim,
    .usage = fallback_usage,
    .charge = fallback_charge,
    .budget = fallback_budget,
    .capabilities = fallback_capabilities,
    .find = fallback_find,
    .destroy = fallback_destroy,
    .synchronize = fallback_synchronize,
    .branch = fallback_branch,
    .values = fallback_values,
    .value_count = sizeof fallback_values / sizeof fallback_values[0],
    .get_value = fallback_get,
    .describe = fallback_describe,
};

/* ---- creating ---- */

static strata_status check_branch(const strata_branch *branch, size_t which)
{
    if (!branch->layers || !branch->count)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "fallback: branch %zu has no layers", which + 1);
    for (size_t i = 0; i < branch->count; i++)
        if (!branch->layers[i] || branch->layers[i]->stack)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "fallback: layer %zu of branch %zu is %s", i + 1, which + 1,
                               branch->layers[i] ? "in a stack" : "NULL");
    return STRATA_SUCCESS;
}

/* Whether a layer stands in the branches before `which`, or at an earlier place of that one: it would be destroyed
 * twice. */
static bool stands_before(const strata_fallback_options *options, size_t which, size_t position)
{
    const strata_resource *layer = options->branches[which].layers[position];
    for (size_t before = 0; before <= which; before++) {
        const strata_branch *branch = &options->branches[before];
        for (size_t i = 0; i < (before == which ? position : branch->count); i++)
            if (branch->layers[i] == layer)
                return true;
    }
    return false;
}

static strata_status check_single(const strata_fallback_options *options, size_t which)
{
    for (size_t i = 0; i < options->branches[which].count; i++)
        if (stands_before(options, which, i))
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "fallback: layer %zu of branch %zu appears twice", i + 1,
                               which + 1);
    return STRATA_SUCCESS;
}

static strata_status check_options(const strata_fallback_options *options, size_t *layer_count)
{
    *layer_count = 0;
    if (!options->branches || options->branch_count < 2 || options->branch_count > STRATA_FALLBACK_BRANCHES)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "fallback: %u branches; expected 2 to %d", options->branch_count,
                           STRATA_FALLBACK_BRANCHES);
    strata_status status = STRATA_SUCCESS;
    for (size_t which = 0; which < options->branch_count && status == STRATA_SUCCESS; which++) {
        status = check_branch(&options->branches[which], which);
        if (status == STRATA_SUCCESS)
            status = check_single(options, which);
        *layer_count += options->branches[which].count;
    }
    return status;
}

strata_status strata_fallback_create(const strata_fallback_options *options, strata_resource **out)
{
    strata_fallback_options read;
    size_t layer_count;
    strata_status status = strata_options_begin("fallback", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = check_options(&read, &layer_count);
    if (status != STRATA_SUCCESS)
        return status;
    fallback *self = strata_host_zalloc(sizeof *self + layer_count * sizeof(strata_resource *));
    if (!self)
        return strata_fail_host_memory("a fallback layer");
    self->resource.ops = &fallback_ops;
    strata_resource **next = self->layers;
    for (; self->count < read.branch_count; self->count++) {
        const strata_branch *given = &read.branches[self->count];
        self->branches[self->count] = (strata_branch){next, given->count};
        for (size_t i = 0; i < given->count; i++)
            *next++ = given->layers[i];
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_fallback(int device, const strata_branch *branches, size_t count, strata_resource **out)
{
    (void)device;
    const strata_fallback_options options = {.branch_count = (uint32_t)count, .branches = branches};
    return strata_fallback_create(&options, out);
}

const strata_layer strata_fallback_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "fallback",
    .help = "memory from the first of several stacks that has some left",
    .branches = STRATA_FALLBACK_BRANCHES,
    .create_over = make_fallback,
};
