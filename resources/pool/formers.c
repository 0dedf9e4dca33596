/* Giving former places up: chunks that moved in stream order are mapped there until the work there is over. */
#include "resources/chunks/formers.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "resources/pool/internal.h"

#include <stdlib.h>

uint32_t pool_former_extent(pool *self, CUdeviceptr address)
{
    strata_spin_take(&self->lock);
    const uint32_t slot = pool_heap_around(&self->heap, address);
    strata_spin_release(&self->lock);
    return slot;
}

/* Not one that another thread waits for. */
static bool is_over(pool *self, uint32_t slot)
{
    return pool_extent_at(&self->heap, slot)->state == POOL_AWAY && pool_is_complete(pool_entry(&self->heap, slot));
}

/* Adjacent ones. */
static void unmap(pool *self, CUdeviceptr from, uint64_t bytes)
{
    if (pool_formers_unmap(&self->store, from, bytes) != CUDA_SUCCESS)
        return;
    for (CUdeviceptr end = from + bytes; end > from;) {
        const uint32_t slot = pool_former_extent(self, end - 1);
        end = pool_address_of(pool_entry(&self->heap, slot));
        pool_give_range(self, slot, POOL_HOLE);
    }
}

static void set_state(pool *self, uint32_t slot, pool_state state)
{
    strata_spin_take(&self->lock);
    pool_extent_at(&self->heap, slot)->state = (uint8_t)state;
    strata_spin_release(&self->lock);
}

/* Drops map_lock meanwhile. */
static strata_status wait_for(pool *self, CUdeviceptr address, uint32_t slot)
{
    set_state(self, slot, POOL_AWAITED);
    strata_lock_release(&self->map_lock);
    const strata_status status = strata_uses_visit(pool_entry(&self->heap, slot), strata_point_wait, NULL);
    strata_lock_take(&self->map_lock);
    set_state(self, slot, POOL_AWAY);
    if (is_over(self, slot))
        unmap(self, address, pool_bytes_of(pool_entry(&self->heap, slot)));
    return status;
}

static bool enter(pool *self, strata_call_scope *scope)
{
    strata_error_suppress_begin();
    const strata_status status =
        strata_call_scope_enter(scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

static int by_address(const void *a, const void *b)
{
    const CUdeviceptr first = *(const CUdeviceptr *)a, second = *(const CUdeviceptr *)b;
    return first < second ? -1 : first > second;
}

/* In order, in memory that the caller frees; NULL: none, or no host memory. */
static CUdeviceptr *list_those_over(pool *self, size_t *count)
{
    const pool_former *formers = self->store.formers;
    CUdeviceptr *addresses = strata_host_zalloc(self->store.former_count * sizeof *addresses);
    *count = 0;
    for (uint32_t at = 0; addresses && at < self->store.former_count; at++)
        if (is_over(self, pool_former_extent(self, formers[at].address)))
            addresses[(*count)++] = formers[at].address;
    if (addresses)
        qsort(addresses, *count, sizeof *addresses, by_address);
    return addresses;
}

/* Adjacent ones by one call. */
static void unmap_those_over(pool *self)
{
    size_t count;
    CUdeviceptr *addresses = list_those_over(self, &count);
    for (size_t i = 0, next; i < count; i = next) {
        CUdeviceptr end = addresses[i];
        for (next = i; next < count && addresses[next] == end; next++)
            end += pool_bytes_of(pool_entry(&self->heap, pool_former_extent(self, end)));
        unmap(self, addresses[i], end - addresses[i]);
    }
    strata_host_free(addresses);
}

void pool_unmap_formers(pool *self)
{
    strata_call_scope scope;
    if (!self->store.former_count || !enter(self, &scope))
        return;
    unmap_those_over(self);
    strata_call_scope_leave(&scope);
}

strata_status pool_wait_for_formers(pool *self, uint32_t number)
{
    strata_status status = STRATA_SUCCESS;
    CUdeviceptr address;
    while (status == STRATA_SUCCESS && (address = pool_formers_latest(&self->store, number)) != 0) {
        const uint32_t slot = pool_former_extent(self, address), before = self->store.chunks[number].formers;
        if (pool_extent_at(&self->heap, slot)->state != POOL_AWAY)
            break;
        status = wait_for(self, address, slot);
        if (self->store.chunks[number].formers >= before) /* it could not be unmapped */
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
