/* Sums freed memory by the timelines that it waits for. */
#include "core/stack/stream_frees.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/stack.h"

struct strata_stream_sums {
    struct {
        uint64_t frees, bytes;
    } of[STRATA_TIMELINE_LIMIT]; /* by the timeline's number; pages without a number in use are never touched */
};

void strata_stream_sums_add(strata_stream_sums *sums, strata_point point, uint64_t bytes)
{
    if (!point || strata_point_known_complete(point))
        return;
    const uint16_t number = strata_point_timeline(point);
    sums->of[number].frees++;
    sums->of[number].bytes += bytes;
}

strata_status strata_stream_sums_visit(strata_point point, void *data)
{
    const strata_summed_free *freed = data;
    strata_stream_sums_add(freed->sums, point, freed->bytes);
    return STRATA_SUCCESS;
}

static strata_stream_frees describe(const strata_stream_sums *sums, uint16_t number)
{
    strata_stream_frees frees = {.frees = sums->of[number].frees, .bytes = sums->of[number].bytes};
    const strata_timeline *timeline = strata_timeline_numbered(number);
    const CUstream handle = timeline ? atomic_load_explicit(&timeline->known_as, memory_order_acquire) : NULL;
    frees.known = timeline && handle != STRATA_NO_STREAM;
    frees.stream = frees.known ? handle : NULL;
    frees.stream_id =
        timeline ? atomic_load_explicit(&timeline->incarnation, memory_order_relaxed) << 16 | number : number;
    return frees;
}

strata_status strata_stack_visit_frees(strata_stack *stack, void (*visit)(const strata_stream_frees *frees, void *data),
                                       void *data)
{
    if (!stack || !visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_visit_frees: stack or visit is NULL");
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_sums *sums = strata_host_zalloc(sizeof *sums);
    if (!sums)
        return strata_fail_host_memory("freed memory by stream");
    for (size_t i = 0; i < stack->count; i++)
        if (stack->layers[i]->ops->sum_frees)
            stack->layers[i]->ops->sum_frees(stack->layers[i], sums);
    for (unsigned number = 0; number < STRATA_TIMELINE_LIMIT; number++) {
        if (!sums->of[number].frees)
            continue;
        const strata_stream_frees frees = describe(sums, (uint16_t)number);
        visit(&frees, data);
    }
    strata_host_free(sums);
    return STRATA_SUCCESS;
}
