/* Former places: a dense array, in which those of a chunk are linked, so that a chunk's latest is found, and any is
 * forgotten, in one step. There can be very many: each move of each chunk leaves one while the device is behind. */
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

bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk, uint32_t extent)
{
    pool_chunk *left = &store->chunks[chunk];
    if (!has_room(store))
        return false;
    const uint32_t number = ++store->former_count, earlier = left->former;
    *pool_former_at(store, number) =
        (pool_former){.address = left->address, .chunk = chunk, .extent = extent, .earlier = earlier};
    if (earlier)
        pool_former_at(store, earlier)->later = number;
    left->former = number & POOL_CHUNK_FORMER;
    left->address = 0;
    left->in_hand = true;
    return true;
}

/* `number`, or 0: none, comes between those beside `former`. */
static void link(pool_chunk_store *store, const pool_former *former, uint32_t earlier, uint32_t later)
{
    if (former->later)
        pool_former_at(store, former->later)->earlier = earlier;
    else
        store->chunks[former->chunk].former = earlier & POOL_CHUNK_FORMER;
    if (former->earlier)
        pool_former_at(store, former->earlier)->later = later;
}

/* The last one gets its number. */
static void forget(pool_chunk_store *store, uint32_t number)
{
    const pool_former gone = *pool_former_at(store, number);
    link(store, &gone, gone.earlier, gone.later);
    const uint32_t last = store->former_count--;
    if (number == last)
        return;
    *pool_former_at(store, number) = *pool_former_at(store, last);
    link(store, pool_former_at(store, number), number, number);
}

uint32_t pool_formers_go_back(pool_chunk_store *store, uint32_t chunk)
{
    const uint32_t number = store->chunks[chunk].former;
    const pool_former latest = *pool_former_at(store, number);
    store->chunks[chunk].address = latest.address;
    store->chunks[chunk].in_hand = false;
    forget(store, number);
    return latest.extent;
}

static uint64_t bytes_of(const pool_chunk_store *store, uint32_t number)
{
    return pool_chunk_bytes(&store->chunks[pool_former_at(store, number)->chunk]);
}

CUresult pool_formers_unmap(pool_chunk_store *store, uint32_t number)
{
    const CUresult result =
        store->source->unmap(store, pool_former_at(store, number)->address, bytes_of(store, number));
    if (result == CUDA_SUCCESS)
        forget(store, number);
    return result;
}

CUresult pool_formers_unmap_run(pool_chunk_store *store, const uint32_t *numbers, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += bytes_of(store, numbers[i]);
    const CUresult result = store->source->unmap(store, pool_former_at(store, numbers[0])->address, bytes);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        pool_former_at(store, numbers[i])->address = 0;
    return result;
}

/* From the last on: one that gets another's number was looked at. */
void pool_formers_forget_unmapped(pool_chunk_store *store)
{
    for (uint32_t number = store->former_count; number; number--)
        if (!pool_former_at(store, number)->address)
            forget(store, number);
}
