/* What the ways note of themselves, and what follows from it. */
#include "tools/demo/demo.h"

#include <strata/budget.h>
#include <strata/runtime.h>

#include <stdio.h>

strata_status demo_note(demo_way *way, strata_status status)
{
    if (status != STRATA_SUCCESS && way->status == STRATA_SUCCESS) {
        way->status = status;
        snprintf(way->problem, sizeof way->problem, "%s", strata_last_error()->message);
    }
    return status;
}

void demo_note_budget(demo_way *way, strata_runtime *runtime)
{
    strata_budget_usage usage;
    strata_resource *layer = runtime ? strata_stack_layer(strata_runtime_stack(runtime), "budget", 0) : NULL;
    if (!layer || strata_budget_account_usage(strata_budget_base(layer), &usage) != STRATA_SUCCESS)
        return;
    way->budget_known = true;
    way->limit = usage.limit;
    way->peak = usage.peak;
    way->waits = usage.waited;
}

void demo_compare(demo *self, demo_way *way, uint32_t batch, const float *c)
{
    demo_matrices_compare(&self->matrices, batch, c, &way->difference);
    way->batches++;
    progress_show(&self->bar, ++self->done, (uint64_t)self->settings.batches * DEMO_WAYS, way->name);
}

double demo_operations(const demo *self)
{
    const double n = self->settings.n;
    return (2 * n * n * n + 2 * n * n) * self->settings.batches;
}

uint64_t demo_bytes_each_way(const demo *self)
{
    return (uint64_t)demo_matrix_bytes(&self->matrices) * self->settings.batches;
}

bool demo_is_right(const demo *self)
{
    bool right = true;
    for (size_t i = 0; i < DEMO_WAYS; i++) {
        const demo_way *way = &self->ways[i];
        right &= way->status == STRATA_SUCCESS && way->difference.wrong == 0 && way->batches == self->settings.batches;
    }
    return right;
}
