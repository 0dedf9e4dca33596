/* Reading counters, opening scopes, resetting peaks. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "resources/statistics/internal.h"

const char strata_statistics_name[] = "statistics";

static strata_statistics *layer_of(strata_resource *resource)
{
    if (resource && resource->ops && resource->ops->name == strata_statistics_name)
        return (strata_statistics *)resource;
    strata_fail(STRATA_ERROR_INVALID_VALUE,
                "%s is not a statistics layer; use strata_stack_layer(stack, \"statistics\", 0)",
                !resource        ? "NULL"
                : !resource->ops ? "a resource without ops"
                                 : resource->ops->name);
    return NULL;
}

strata_status strata_statistics_enter(strata_resource *resource, strata_statistics **self)
{
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    *self = layer_of(resource);
    return *self ? STRATA_SUCCESS : STRATA_ERROR_INVALID_VALUE;
}

static strata_statistics_counters public_counters(const strata_tag_counters_numbers *from)
{
    return (strata_statistics_counters){
        .bytes = {from->current[STRATA_TAG_COUNTERS_BYTES], from->peak[STRATA_TAG_COUNTERS_BYTES], from->total_bytes},
        .blocks = {from->current[STRATA_TAG_COUNTERS_BLOCKS], from->peak[STRATA_TAG_COUNTERS_BLOCKS],
                   from->total_blocks},
        .requested = from->total_requested,
    };
}

bool strata_statistics_counters_of(strata_statistics *self, strata_tag_counters_record *record, uint32_t scope,
                                   strata_statistics_counters *out)
{
    strata_tag_counters_numbers numbers;
    bool open = strata_tag_counters_read(&self->counters, record, scope, &numbers);
    *out = public_counters(&numbers);
    return open;
}

static strata_status read_counters(strata_resource *resource, uint32_t scope, const strata_tag *tag,
                                   strata_statistics_counters *out)
{
    strata_statistics *self;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: the place for the counters is NULL");
    *out = (strata_statistics_counters){0};
    strata_status status = strata_statistics_enter(resource, &self);
    if (status != STRATA_SUCCESS)
        return status;
    strata_tag_counters_record *record = tag ? strata_tag_counters_find(&self->counters, *tag) : self->counters.all;
    strata_tag_counters_numbers numbers;
    if (!strata_tag_counters_read(&self->counters, record, scope, &numbers))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: scope %u is not open; %u are open", scope,
                           strata_tag_counters_scopes(&self->counters));
    *out = public_counters(&numbers);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_read(strata_resource *statistics, uint32_t scope, strata_statistics_counters *out)
{
    return read_counters(statistics, scope, NULL, out);
}

strata_status strata_statistics_read_tag(strata_resource *statistics, uint32_t scope, strata_tag tag,
                                         strata_statistics_counters *out)
{
    return read_counters(statistics, scope, &tag, out);
}

strata_status strata_statistics_push(strata_resource *statistics)
{
    strata_statistics *self;
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    return strata_tag_counters_push(&self->counters) ? STRATA_SUCCESS
                                                     : strata_fail_host_memory("a scope of statistics");
}

strata_status strata_statistics_pop(strata_resource *statistics, strata_statistics_counters *out)
{
    strata_statistics *self;
    strata_tag_counters_numbers numbers;
    if (out)
        *out = (strata_statistics_counters){0};
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_tag_counters_pop(&self->counters, &numbers))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: pop of a scope without a push");
    if (out)
        *out = public_counters(&numbers);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_reset_peaks(strata_resource *statistics)
{
    strata_statistics *self;
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    strata_tag_counters_reset_peaks(&self->counters);
    strata_statistics_reset_stack_peaks(self);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_sizes(strata_resource *statistics, uint64_t counts[STRATA_STATISTICS_SIZES])
{
    strata_statistics *self;
    if (!counts)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_statistics_sizes: counts is NULL");
    for (size_t i = 0; i < STRATA_STATISTICS_SIZES; i++)
        counts[i] = 0;
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status == STRATA_SUCCESS)
        strata_tag_counters_sum_sizes(&self->counters, counts);
    return status;
}

uint64_t strata_statistics_failed(const strata_statistics *self)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < STRATA_STATISTICS_STATUSES; i++)
        sum += atomic_load_explicit(&self->failures[i], memory_order_relaxed);
    return sum;
}

uint64_t strata_statistics_failures(strata_resource *statistics, strata_status status)
{
    strata_statistics *self;
    if (strata_statistics_enter(statistics, &self) != STRATA_SUCCESS || (unsigned)status >= STRATA_STATISTICS_STATUSES)
        return 0;
    if (status == STRATA_SUCCESS)
        return strata_statistics_failed(self);
    return atomic_load_explicit(&self->failures[status], memory_order_relaxed);
}
