/* Giving former places up: chunks that moved in stream order are mapped there until the work there is over. */
#include "resources/chunks/formers.h"

#include "core/base/error.h"
#include "core/blocks/uses.h"
#include "resources/pool/internal.h"

static bool enter(pool *self, strata_call_scope *scope)
{
    strata_error_suppress_begin();
    const strata_status status =
        strata_call_scope_enter(scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* ---- those that are over ---- */

static strata_point next_point(void *self, uint32_t extent)
{
    return pool_points_pending(pool_entry(&((pool *)self)->heap, extent));
}

static CUdeviceptr end_of(const pool *self, uint32_t number)
{
    const pool_former *former = pool_former_at(&self->store, number);
    return former->address + pool_chunk_bytes(&self->store.chunks[former->chunk]);
}

/* Unmaps a former place and those adjacent to it that are over, by one call: their addresses become a hole. Returns
 * where they end. */
static CUdeviceptr unmap_run(pool *self, uint32_t first)
{
    pool_chunk_store *store = &self->store;
    const CUdeviceptr from = pool_former_at(store, first)->address;
    CUdeviceptr to = from;
    for (uint32_t number = first; number && pool_former_at(store, number)->address == to;
         number = pool_formers_over(store, to))
        to = end_of(self, number);
    if (store->source->unmap(store, from, to - from) == CUDA_SUCCESS)
        for (CUdeviceptr at = from; at < to;) {
            const uint32_t number = pool_formers_over(store, at), extent = pool_former_at(store, number)->extent;
            at = end_of(self, number);
            pool_formers_forget(store, number);
            pool_give_range(self, extent, POOL_HOLE);
        }
    return to;
}

void pool_unmap_formers(pool *self)
{
    strata_call_scope scope;
    pool_formers_look(&self->store, strata_point_known_complete, next_point, self);
    uint32_t number = pool_formers_over(&self->store, 0);
    if (!number || !enter(self, &scope))
        return;
    while (number)
        number = pool_formers_over(&self->store, unmap_run(self, number));
    strata_call_scope_leave(&scope);
}

/* ---- waiting ---- */

/* Waits for a point of the chunk's latest former place. Drops map_lock meanwhile: no other thread unmaps that place or
 * makes it the chunk's address again, but it may drop points there, so each wait is for one. After a reset of the
 * device, the chunk may be gone. */
static strata_status wait_at_latest(pool *self, uint32_t chunk, strata_point point)
{
    self->store.chunks[chunk].awaited = true;
    strata_lock_release(&self->map_lock);
    const strata_status status = strata_point_wait(point, self->device);
    strata_lock_take(&self->map_lock);
    self->store.chunks[chunk].awaited = false;
    return status;
}

strata_status pool_wait_for_formers(pool *self, uint32_t chunk)
{
    pool_chunk_store *store = &self->store;
    strata_status status = STRATA_SUCCESS;
    strata_point point, before = 0;
    for (uint32_t number; status == STRATA_SUCCESS && (number = store->chunks[chunk].former) != 0; before = point) {
        const uint32_t extent = pool_former_at(store, number)->extent;
        point = next_point(self, extent);
        if (point && point != before)
            status = wait_at_latest(self, chunk, point);
        else if (!point && pool_formers_unmap(store, number) == CUDA_SUCCESS)
            pool_give_range(self, extent, POOL_HOLE);
        else /* the wait did not show completion, or the place stays mapped */
            break;
    }
    return status;
}

bool pool_wait_for_all_formers(pool *self)
{
    strata_call_scope scope;
    const uint32_t before = self->store.former_count;
    if (!before || !enter(self, &scope))
        return false;
    strata_error_suppress_begin();
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        if (self->store.chunks[number].units)
            pool_wait_for_formers(self, number);
    strata_error_suppress_end(false);
    strata_call_scope_leave(&scope);
    return self->store.former_count < before;
}
