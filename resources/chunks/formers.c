/* Former places, in the order in which they were left. */
#include "resources/chunks/formers.h"

#include "core/base/host_memory.h"

#include <string.h>

static bool has_room(pool_chunk_store *store)
{
    if (store->former_count < store->former_capacity)
        return true;
    const uint32_t capacity = store->former_capacity ? 2 * store->former_capacity : 64;
    pool_former *larger = strata_host_zalloc(capacity * sizeof *larger);
    if (!larger)
        return false;
    if (store->formers)
        memcpy(larger, store->formers, store->former_count * sizeof *larger);
    strata_host_free(store->formers);
    store->formers = larger;
    store->former_capacity = capacity;
    return true;
}

bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk)
{
    pool_chunk *left = &store->chunks[chunk];
    if (!has_room(store))
        return false;
    store->formers[store->former_count++] = (pool_former){left->address, chunk};
    left->formers++;
    left->address = 0;
    left->in_hand = true;
    return true;
}

/* Those in a range. */
static void forget(pool_chunk_store *store, CUdeviceptr from, uint64_t bytes)
{
    uint32_t kept = 0;
    for (uint32_t at = 0; at < store->former_count; at++) {
        if (store->formers[at].address - from < bytes)
            store->chunks[store->formers[at].chunk].formers--;
        else
            store->formers[kept++] = store->formers[at];
    }
    store->former_count = kept;
}

/* former_count: none. */
static uint32_t latest(const pool_chunk_store *store, uint32_t chunk)
{
    for (uint32_t at = store->former_count; store->chunks[chunk].formers && at-- > 0;)
        if (store->formers[at].chunk == chunk)
            return at;
    return store->former_count;
}

void pool_formers_go_back(pool_chunk_store *store, uint32_t chunk)
{
    const uint32_t at = latest(store, chunk);
    store->chunks[chunk].address = store->formers[at].address;
    store->chunks[chunk].in_hand = false;
    forget(store, store->chunks[chunk].address, 1);
}

CUdeviceptr pool_formers_latest(const pool_chunk_store *store, uint32_t chunk)
{
    const uint32_t at = latest(store, chunk);
    return at < store->former_count ? store->formers[at].address : 0;
}

CUresult pool_formers_unmap(pool_chunk_store *store, CUdeviceptr from, uint64_t bytes)
{
    const CUresult result = store->source->unmap(store, from, bytes);
    if (result == CUDA_SUCCESS)
        forget(store, from, bytes);
    return result;
}
