/* Holds: the parts of a block in its chunks, and their handles. */
#include "resources/chunks/holds.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"

#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUmemFabricHandle) == sizeof((strata_pool_part *)NULL)->fabric, "a fabric handle has its place");

struct strata_pool_hold {
    pool_chunk_store *store;
    strata_pool_hold *previous, *next; /* guarded by map_lock */
    size_t count;
    strata_pool_part *parts; /* same allocation; constant */
    uint32_t *chunks;
};

/* ---- the parts of a block ---- */

/* Whether a part of a block is in a chunk. Not in a leaving one, whose addresses may have a new chunk. */
static bool part_in(const pool_chunk *chunk, const strata_block *block, strata_pool_part *part)
{
    const CUdeviceptr end = pool_behind_chunk(chunk), block_end = block->address + block->bytes;
    if (!pool_chunk_bytes(chunk) || !chunk->address || chunk->leaving || end <= block->address ||
        chunk->address >= block_end)
        return false;
    const CUdeviceptr from = chunk->address > block->address ? chunk->address : block->address;
    *part = (strata_pool_part){
        .address = from,
        .bytes = (size_t)((end < block_end ? end : block_end) - from),
        .offset = (size_t)(from - chunk->address),
        .handle_bytes = (size_t)pool_chunk_bytes(chunk),
        .fd = -1,
    };
    return true;
}

static size_t count_parts(const pool_chunk_store *store, const strata_block *block)
{
    strata_pool_part part;
    size_t count = 0;
    for (uint32_t number = 1; number < store->chunk_count; number++)
        count += part_in(&store->chunks[number], block, &part);
    return count;
}

static void insert_part(strata_pool_hold *hold, const strata_pool_part *part, uint32_t chunk)
{
    size_t at = hold->count++;
    for (; at && hold->parts[at - 1].address > part->address; at--) {
        hold->parts[at] = hold->parts[at - 1];
        hold->chunks[at] = hold->chunks[at - 1];
    }
    hold->parts[at] = *part;
    hold->chunks[at] = chunk;
}

/* ---- holds ---- */

static strata_pool_hold *allocate_hold(pool_chunk_store *store, size_t count)
{
    strata_pool_hold *hold = strata_host_zalloc(sizeof *hold + count * (sizeof *hold->parts + sizeof *hold->chunks));
    if (!hold)
        return NULL;
    hold->store = store;
    hold->parts = (strata_pool_part *)(void *)(hold + 1);
    hold->chunks = (uint32_t *)(void *)(hold->parts + count);
    return hold;
}

static void count_chunk(pool_chunk_store *store, uint32_t number, int by)
{
    pool_chunk *chunk = &store->chunks[number];
    const bool was = chunk->held != 0;
    chunk->held = (chunk->held + (uint32_t)by) & POOL_CHUNK_HOLDS;
    const bool is = chunk->held != 0;
    const uint64_t held = atomic_load_explicit(&store->held_bytes, memory_order_relaxed);
    atomic_store_explicit(&store->held_bytes,
                          held + (is ? pool_chunk_bytes(chunk) : 0) - (was ? pool_chunk_bytes(chunk) : 0),
                          memory_order_relaxed);
}

strata_pool_hold *pool_hold_make(pool_chunk_store *store, const strata_block *block)
{
    strata_pool_hold *hold = allocate_hold(store, count_parts(store, block));
    if (!hold)
        return NULL;
    strata_pool_part part;
    for (uint32_t number = 1; number < store->chunk_count; number++) {
        if (!part_in(&store->chunks[number], block, &part))
            continue;
        insert_part(hold, &part, number);
        count_chunk(store, number, 1);
    }
    hold->next = store->holds;
    if (store->holds)
        store->holds->previous = hold;
    store->holds = hold;
    return hold;
}

void pool_hold_drop(strata_pool_hold *hold)
{
    pool_chunk_store *store = hold->store;
    for (size_t i = 0; i < hold->count; i++)
        count_chunk(store, hold->chunks[i], -1);
    if (hold->previous)
        hold->previous->next = hold->next;
    else
        store->holds = hold->next;
    if (hold->next)
        hold->next->previous = hold->previous;
    strata_host_free(hold);
}

void pool_holds_drop(pool_chunk_store *store)
{
    while (store->holds)
        pool_hold_drop(store->holds);
}

pool_chunk_store *pool_hold_store(const strata_pool_hold *hold)
{
    return hold->store;
}

const strata_pool_part *strata_pool_hold_parts(const strata_pool_hold *hold, size_t *count)
{
    if (count)
        *count = hold ? hold->count : 0;
    return hold ? hold->parts : NULL;
}

/* ---- handles ---- */

static void close_files(const strata_pool_hold *hold)
{
    for (size_t i = 0; i < hold->count; i++)
        if (hold->parts[i].fd >= 0)
            close(hold->parts[i].fd);
}

static strata_status export_part(pool_chunk_store *store, strata_pool_part *part, uint32_t chunk)
{
    const bool file = store->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUresult result = pool_chunk_store_export(store, chunk, file ? (void *)&part->fd : (void *)part->fabric);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    part->fd = -1;
    return strata_fail_driver(result, "cuMemExportToShareableHandle", "exporting %s of a pool",
                              strata_size_text(part->handle_bytes).text);
}

strata_status pool_hold_export(strata_pool_hold *hold)
{
    pool_chunk_store *store = hold->store;
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < hold->count && status == STRATA_SUCCESS; i++)
        status = export_part(store, &hold->parts[i], hold->chunks[i]);
    strata_call_scope_leave(&scope);
    if (status != STRATA_SUCCESS)
        close_files(hold);
    return status;
}
