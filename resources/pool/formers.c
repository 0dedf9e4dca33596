/* Giving former places up: chunks that moved in stream order are mapped there until the work there is over. */
#include "resources/chunks/formers.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "resources/pool/internal.h"

#include <stdlib.h>

/* Not of a chunk for whose former places another thread waits. */
static bool is_over(const pool *self, uint32_t number)
{
    const pool_former *former = pool_former_at(&self->store, number);
    return !self->store.chunks[former->chunk].awaited && pool_is_complete(pool_entry(&self->heap, former->extent));
}

static bool enter(pool *self, strata_call_scope *scope)
{
    strata_error_suppress_begin();
    const strata_status status =
        strata_call_scope_enter(scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* ---- those that are over ---- */

typedef struct pool_place {
    CUdeviceptr address;
    uint32_t number;
} pool_place;

static int by_address(const void *a, const void *b)
{
    const CUdeviceptr first = ((const pool_place *)a)->address, second = ((const pool_place *)b)->address;
    return first < second ? -1 : first > second;
}

static size_t count_those_over(const pool *self)
{
    size_t count = 0;
    for (uint32_t number = 1; number <= self->store.former_count; number++)
        count += is_over(self, number);
    return count;
}

/* At most `most`: others may be over meanwhile. In `numbers`, of the same length, by address. Returns how many. */
static size_t list_those_over(pool *self, size_t most, pool_place *places, uint32_t *numbers)
{
    size_t count = 0;
    for (uint32_t number = 1; number <= self->store.former_count && count < most; number++)
        if (is_over(self, number))
            places[count++] = (pool_place){pool_former_at(&self->store, number)->address, number};
    qsort(places, count, sizeof *places, by_address);
    for (size_t i = 0; i < count; i++)
        numbers[i] = places[i].number;
    return count;
}

static size_t run_length(const pool *self, const uint32_t *numbers, size_t count)
{
    size_t length = 0;
    CUdeviceptr end = pool_former_at(&self->store, numbers[0])->address;
    for (; length < count && pool_former_at(&self->store, numbers[length])->address == end; length++)
        end += pool_bytes_of(pool_entry(&self->heap, pool_former_at(&self->store, numbers[length])->extent));
    return length;
}

static void unmap_runs(pool *self, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0, length; i < count; i += length) {
        length = run_length(self, numbers + i, count - i);
        if (pool_formers_unmap_run(&self->store, numbers + i, length) != CUDA_SUCCESS)
            continue;
        for (size_t at = i + length; at-- > i;)
            pool_give_range(self, pool_former_at(&self->store, numbers[at])->extent, POOL_HOLE);
    }
    pool_formers_forget_unmapped(&self->store);
}

void pool_unmap_formers(pool *self)
{
    strata_call_scope scope;
    const size_t most = count_those_over(self);
    pool_place *places = most ? strata_host_zalloc(most * (sizeof *places + sizeof(uint32_t))) : NULL;
    if (places && enter(self, &scope)) {
        uint32_t *numbers = (uint32_t *)(void *)(places + most);
        unmap_runs(self, numbers, list_those_over(self, most, places, numbers));
        strata_call_scope_leave(&scope);
    }
    strata_host_free(places);
}

/* ---- waiting ---- */

/* Drops map_lock while it waits for the chunk's latest one, which no other thread unmaps or makes the chunk's address
 * again meanwhile. After a reset of the device, the chunk may be gone. */
static strata_status wait_for_latest(pool *self, uint32_t chunk)
{
    const strata_entry *entry =
        pool_entry(&self->heap, pool_former_at(&self->store, self->store.chunks[chunk].former)->extent);
    self->store.chunks[chunk].awaited = true;
    strata_lock_release(&self->map_lock);
    const strata_status status = strata_uses_visit(entry, strata_point_wait, NULL);
    strata_lock_take(&self->map_lock);
    self->store.chunks[chunk].awaited = false;
    const uint32_t number = self->store.chunks[chunk].former;
    if (!number || !is_over(self, number))
        return status;
    const uint32_t extent = pool_former_at(&self->store, number)->extent;
    if (pool_formers_unmap(&self->store, number) == CUDA_SUCCESS)
        pool_give_range(self, extent, POOL_HOLE);
    return status;
}

static CUdeviceptr latest_of(const pool *self, uint32_t chunk)
{
    const uint32_t number = self->store.chunks[chunk].former;
    return number ? pool_former_at(&self->store, number)->address : 0;
}

strata_status pool_wait_for_formers(pool *self, uint32_t chunk)
{
    strata_status status = STRATA_SUCCESS;
    CUdeviceptr latest;
    while (status == STRATA_SUCCESS && (latest = latest_of(self, chunk)) != 0) {
        status = wait_for_latest(self, chunk);
        if (latest_of(self, chunk) == latest) /* it could not be unmapped */
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
