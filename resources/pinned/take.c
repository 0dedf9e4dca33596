/* What a request tries when the caches have nothing for it:
 *
 *     memory that is free -> complete frees -> another slab -> as the driver refuses: all that is free goes back to it,
 *     then, after a wait for the pending frees, that too */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "resources/pinned/internal.h"

/* What is done before another try once the driver has refused. */
enum { REFUSED_TRIM, REFUSED_WAIT, REFUSED_ROUNDS };

static const size_t MOST_BYTES = (size_t)1 << 62; /* cannot overflow when rounded */

strata_status pinned_trim_memory(pinned *self, size_t keep, size_t *freed)
{
    if (atomic_load_explicit(&self->slabs.bytes, memory_order_relaxed) <= keep)
        return STRATA_SUCCESS;
    pinned_lanes_flush(self);
    if (self->arena)
        strata_extent_arena_purge(self->arena);
    return pinned_slabs_release(&self->slabs, keep, false, freed);
}

/* Gives all that is free back to the driver. Errors are ignored: the next try shows whether it helped. */
static void give_all_back(pinned *self, int round)
{
    size_t bytes = 0;
    strata_error_suppress_begin();
    if (round == REFUSED_WAIT)
        pinned_lanes_reap(self, STRATA_REAP_WAIT, &bytes);
    pinned_trim_memory(self, 0, &bytes);
    strata_error_suppress_end(false);
}

static strata_status take_slow(pinned *self, const strata_request *request, pinned_need *of)
{
    size_t bytes;
    CUresult result;
    strata_error_suppress_begin();
    pinned_lanes_reap(self, STRATA_REAP_FINISHED, &bytes);
    strata_error_suppress_end(false);
    strata_status status = pinned_memory_grow(self, of, &result);
    for (int round = 0; round < REFUSED_ROUNDS && status == STRATA_SUCCESS && result == CUDA_ERROR_OUT_OF_MEMORY;
         round++) {
        give_all_back(self, round);
        status = pinned_memory_grow(self, of, &result);
    }
    if (status != STRATA_SUCCESS || of->memory)
        return status;
    return pinned_refuse(&self->resource, request, result);
}

strata_status pinned_take(pinned *self, const strata_request *request, unsigned class, uint32_t *slot)
{
    if (request->bytes > MOST_BYTES)
        return pinned_refuse(&self->resource, request, CUDA_ERROR_OUT_OF_MEMORY);
    pinned_need of = {.room = pinned_room(request->bytes, class), .alignment = request->alignment};
    const strata_status status = pinned_memory_try(self, &of) ? STRATA_SUCCESS : take_slow(self, request, &of);
    return status == STRATA_SUCCESS ? pinned_memory_enter(self, request, &of, class, slot) : status;
}
