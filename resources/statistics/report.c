/* Values of the layer, and its tables in a report. */
#include "core/base/driver_state.h"
#include "core/base/emitter.h"
#include "core/base/error.h"
#include "resources/statistics/internal.h"

/* ---- values ---- */

enum {
    BYTES_CURRENT,
    BYTES_PEAK,
    BYTES_TOTAL,
    BLOCKS_CURRENT,
    BLOCKS_PEAK,
    BLOCKS_TOTAL,
    REQUESTED_TOTAL,
    RETIRED_BYTES,
    FAILURES,
    FREE_FAILURES,
    SCOPES,
    GRAPH_EVENTS, /* as strata_graph_event_kind */
    GRAPH_FAILURES = GRAPH_EVENTS + STRATA_GRAPH_EVENT_KINDS,
    STACKS,
    RESET_PEAKS,
};
_Static_assert(RESET_PEAKS + 1 == STRATA_STATISTICS_VALUES, "the values that there are");

const strata_value strata_statistics_values[STRATA_STATISTICS_VALUES] = {
    [BYTES_CURRENT] = {"bytes.current", STRATA_VALUE_BYTES, false, "usable bytes in live blocks"},
    [BYTES_PEAK] = {"bytes.peak", STRATA_VALUE_BYTES, false, "most bytes live at a time"},
    [BYTES_TOTAL] = {"bytes.total", STRATA_VALUE_BYTES, false, "ever allocated"},
    [BLOCKS_CURRENT] = {"blocks.current", STRATA_VALUE_COUNT, false, "live blocks"},
    [BLOCKS_PEAK] = {"blocks.peak", STRATA_VALUE_COUNT, false, "most blocks live at a time"},
    [BLOCKS_TOTAL] = {"blocks.total", STRATA_VALUE_COUNT, false, "ever allocated"},
    [REQUESTED_TOTAL] = {"requested.total", STRATA_VALUE_BYTES, false, "bytes requested so far, of allocated blocks"},
    [RETIRED_BYTES] = {"retired.bytes", STRATA_VALUE_BYTES, false, "bytes freed in stream order and not complete"},
    [FAILURES] = {"failures", STRATA_VALUE_COUNT, false, "allocations that failed"},
    [FREE_FAILURES] = {"free_failures", STRATA_VALUE_COUNT, false, "frees that failed"},
    [SCOPES] = {"scopes", STRATA_VALUE_COUNT, false, "open scopes"},
    [GRAPH_EVENTS +
        STRATA_GRAPH_EVENT_CAPTURE] = {"graphs.captures", STRATA_VALUE_COUNT, false, "captures that ended as graphs"},
    [GRAPH_EVENTS + STRATA_GRAPH_EVENT_LAUNCH] = {"graphs.launches", STRATA_VALUE_COUNT, false, "launches of graphs"},
    [GRAPH_EVENTS + STRATA_GRAPH_EVENT_UPLOAD] = {"graphs.uploads", STRATA_VALUE_COUNT, false, "uploads of graphs"},
    [GRAPH_EVENTS +
        STRATA_GRAPH_EVENT_UPDATE] = {"graphs.updates", STRATA_VALUE_COUNT, false, "captures put into a graph"},
    [GRAPH_FAILURES] = {"graphs.failures", STRATA_VALUE_COUNT, false, "of these calls, those that failed"},
    [STACKS] = {"stacks", STRATA_VALUE_SWITCH, true, "record the call stack of each allocation"},
    [RESET_PEAKS] = {"reset_peaks", STRATA_VALUE_SWITCH, true, "set to 1: resets every peak to what is live"},
};

static uint64_t not_negative(int64_t number)
{
    return number > 0 ? (uint64_t)number : 0;
}

static uint64_t counter_value(size_t which, const strata_statistics_counters *counters)
{
    switch (which) {
    case BYTES_CURRENT:
        return not_negative(counters->bytes.current);
    case BYTES_PEAK:
        return not_negative(counters->bytes.peak);
    case BYTES_TOTAL:
        return not_negative(counters->bytes.total);
    case BLOCKS_CURRENT:
        return not_negative(counters->blocks.current);
    case BLOCKS_PEAK:
        return not_negative(counters->blocks.peak);
    case BLOCKS_TOTAL:
        return not_negative(counters->blocks.total);
    default:
        return not_negative(counters->requested);
    }
}

/* The retired bytes. Only here is the owner asked: frees cost nothing. The bytes are valid even if the driver's query
 * failed. */
static strata_status get_retired(const strata_resource *resource, uint64_t *value)
{
    strata_resource *upstream = resource->upstream;
    strata_usage usage = {0};
    *value = 0;
    strata_status status = upstream ? strata_check_driver() : STRATA_SUCCESS;
    if (!upstream || status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    upstream->ops->usage(upstream, &usage);
    strata_error_suppress_end(false);
    *value = usage.retired_bytes;
    return STRATA_SUCCESS;
}

strata_status strata_statistics_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_statistics_counters counters;
    switch (which) {
    case RETIRED_BYTES:
        return get_retired(resource, value);
    case FAILURES:
        *value = strata_statistics_failed(self);
        break;
    case FREE_FAILURES:
        *value = atomic_load_explicit(&self->free_failures, memory_order_relaxed);
        break;
    case GRAPH_EVENTS + STRATA_GRAPH_EVENT_CAPTURE:
    case GRAPH_EVENTS + STRATA_GRAPH_EVENT_LAUNCH:
    case GRAPH_EVENTS + STRATA_GRAPH_EVENT_UPLOAD:
    case GRAPH_EVENTS + STRATA_GRAPH_EVENT_UPDATE:
        *value = atomic_load_explicit(&self->graph_events[which - GRAPH_EVENTS], memory_order_relaxed);
        break;
    case GRAPH_FAILURES:
        *value = atomic_load_explicit(&self->graph_failures, memory_order_relaxed);
        break;
    case SCOPES:
        *value = strata_tag_counters_scopes(&self->counters);
        break;
    case STACKS:
        *value = (atomic_load_explicit(&self->detail, memory_order_relaxed) & STRATA_STATISTICS_STACKS) != 0;
        break;
    case RESET_PEAKS:
        *value = 0;
        break;
    default:
        strata_statistics_counters_of(self, self->counters.all, 0, &counters);
        *value = counter_value(which, &counters);
    }
    return STRATA_SUCCESS;
}

strata_status strata_statistics_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    strata_statistics *self = (strata_statistics *)resource;
    if (which == STACKS && value)
        atomic_fetch_or_explicit(&self->detail, STRATA_STATISTICS_STACKS, memory_order_relaxed);
    else if (which == STACKS)
        atomic_fetch_and_explicit(&self->detail, (uint8_t)~STRATA_STATISTICS_STACKS, memory_order_relaxed);
    else if (value)
        return strata_statistics_reset_peaks(resource);
    return STRATA_SUCCESS;
}

/* ---- describe ---- */

static void emit_counter(strata_emitter *to, const char *name, const strata_statistics_counter *counter)
{
    strata_emit_object_begin(to, name);
    strata_emit_signed(to, "current", counter->current);
    strata_emit_signed(to, "peak", counter->peak);
    strata_emit_signed(to, "total", counter->total);
    strata_emit_object_end(to);
}

static void emit_counters(strata_emitter *to, const strata_statistics_counters *counters)
{
    emit_counter(to, "bytes", &counters->bytes);
    emit_counter(to, "blocks", &counters->blocks);
    strata_emit_signed(to, "requested", counters->requested);
}

static void describe_tags(strata_statistics *self, strata_emitter *to)
{
    strata_statistics_counters counters;
    strata_emit_list_begin(to, "tags");
    for (strata_tag_counters_record *record = NULL; (record = strata_tag_counters_next(&self->counters, record));) {
        strata_statistics_counters_of(self, record, 0, &counters);
        if (!counters.blocks.total)
            continue;
        strata_emit_object_begin(to, NULL);
        strata_emit_text(to, "tag", strata_statistics_tag_text(record->tag));
        emit_counters(to, &counters);
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}

static void describe_sizes(strata_statistics *self, strata_emitter *to)
{
    uint64_t counts[STRATA_TAG_COUNTERS_SIZES];
    strata_tag_counters_sum_sizes(&self->counters, counts);
    strata_emit_list_begin(to, "sizes");
    for (unsigned i = 0; i < STRATA_TAG_COUNTERS_SIZES; i++) {
        if (!counts[i])
            continue;
        strata_emit_object_begin(to, NULL);
        strata_emit_bytes(to, "up_to", strata_tag_counters_most_of(i));
        strata_emit_count(to, "allocations", counts[i]);
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}

static void describe_failures(const strata_statistics *self, strata_emitter *to)
{
    if (!strata_statistics_failed(self))
        return;
    strata_emit_object_begin(to, "failed_allocations");
    for (unsigned i = 0; i < STRATA_STATISTICS_STATUSES; i++) {
        uint64_t count = atomic_load_explicit(&self->failures[i], memory_order_relaxed);
        if (count)
            strata_emit_count(to, strata_status_name((strata_status)i), count);
    }
    strata_emit_object_end(to);
}

static void describe_scopes(strata_statistics *self, strata_emitter *to)
{
    strata_statistics_counters counters;
    uint32_t scopes = strata_tag_counters_scopes(&self->counters);
    if (!scopes)
        return;
    strata_emit_list_begin(to, "open_scopes");
    for (uint32_t scope = 1; scope <= scopes; scope++) {
        if (!strata_statistics_counters_of(self, self->counters.all, scope, &counters))
            break; /* popped meanwhile */
        strata_emit_object_begin(to, NULL);
        emit_counters(to, &counters);
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}

static void describe_thread_scopes(strata_statistics *self, strata_emitter *to)
{
    strata_statistics_scope_facts scope;
    uint32_t slot = 0;
    bool any = strata_statistics_next_scope(self, &slot, &scope);
    if (!any)
        return;
    strata_emit_list_begin(to, "scopes_by_thread");
    for (; any; any = strata_statistics_next_scope(self, &slot, &scope)) {
        strata_emit_object_begin(to, NULL);
        strata_emit_text(to, "name", scope.name);
        emit_counters(to, &scope.counters);
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}

void strata_statistics_describe(strata_resource *resource, strata_emitter *to)
{
    strata_statistics *self = (strata_statistics *)resource;
    describe_tags(self, to);
    describe_sizes(self, to);
    describe_failures(self, to);
    describe_scopes(self, to);
    describe_thread_scopes(self, to);
}
