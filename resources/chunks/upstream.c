/* Chunks are blocks of the layer below, where other layers count them.
 *
 * They are allocated and freed on an internal stream that never waits for work, since a program's stream may be gone
 * when a chunk is freed. A chunk's first use follows its allocation. The blocks are in quarantine: no layer above sees
 * them. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"
#include "core/streams/timeline.h"
#include "resources/chunks/chunks.h"
#include "resources/extents/extents.h"

enum {
    LEAST_CHUNK = 2 << 20,
    DESTROY_TRIES = 16, /* without a later opportunity */
};

static strata_resource *below(const pool_chunk_store *store)
{
    return store->pool->upstream;
}

static strata_status upstream_open(pool_chunk_store *store, const strata_pool_options *given)
{
    (void)given;
    store->granule = LEAST_CHUNK;
    store->bytes = UINT64_C(1) << 62; /* bounded by the layer below */
    strata_status status = strata_tag_intern("pool", &store->tag);
    if (status == STRATA_SUCCESS)
        status =
            strata_internal_stream_create(store->device, false, "a stream for the chunks of a pool", &store->stream);
    if (status == STRATA_SUCCESS)
        store->timeline = strata_known_timeline(store->device, store->stream);
    return status;
}

/* Waits for the internal stream and reaps: returned chunks are then free, and their completions reported below. */
static strata_status wait_for_own_stream(pool_chunk_store *store, strata_reap_mode mode)
{
    size_t bytes;
    strata_status status = strata_point_synchronize(strata_timeline_now(store->timeline));
    return status == STRATA_SUCCESS ? strata_reap_internally(below(store), mode, &bytes) : status;
}

static strata_status upstream_drain(pool_chunk_store *store)
{
    return wait_for_own_stream(store, STRATA_REAP_FINISHED);
}

/* A full wait makes layers release freed blocks. */
static void upstream_close(pool_chunk_store *store)
{
    bool gone = !store->stream;
    strata_status status = gone || !store->pool->stack ? STRATA_SUCCESS : STRATA_ERROR_BUSY;
    for (int i = 0; i < DESTROY_TRIES && status != STRATA_SUCCESS; i++)
        status = wait_for_own_stream(store, STRATA_REAP_WAIT);
    for (int i = 0; i < DESTROY_TRIES && !gone; i++)
        strata_internal_stream_destroy(store->device, store->stream, &gone);
}

static void set_range(pool_chunk *chunk)
{
    const strata_block *block = &chunk->below->block;
    const CUdeviceptr mask = POOL_GRANULE - 1, end = (block->address + block->bytes) & ~mask;
    chunk->address = (block->address + mask) & ~mask;
    chunk->units = end > chunk->address ? pool_chunk_units(end - chunk->address) : 0;
}

/* Hides a block from the layers above, under a new identity. Its entry is marked before, for pool_owns_internally. */
static strata_status hold(pool_chunk_store *store, strata_block *block)
{
    pool_extent *extent = strata_block_layer_bytes(store->pool, block->id);
    strata_block_id held;
    if (!extent)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s returned a block of another stack", below(store)->ops->name);
    extent->state = POOL_CHUNK;
    strata_status status = strata_block_quarantine(store->pool, block, block, &held);
    if (status == STRATA_SUCCESS)
        block->id = held;
    return status == STRATA_ERROR_UNSUPPORTED ? STRATA_SUCCESS : status; /* no generation left: it stays */
}

static strata_status give(pool_chunk_store *store, const strata_block *block)
{
    return below(store)->ops->deallocate(below(store), block, store->stream);
}

static void give_unused(pool_chunk_store *store, const strata_block *block)
{
    strata_status status = STRATA_ERROR_BUSY;
    strata_error_suppress_begin();
    for (int i = 0; i < DESTROY_TRIES && status != STRATA_SUCCESS; i++)
        status = give(store, block);
    strata_error_suppress_end(false);
}

/* Takes a block of the layer below as a chunk. *fits: it is large enough. */
static strata_status take(pool_chunk_store *store, uint64_t bytes, bool *fits, pool_chunk *out)
{
    const uint64_t more = atomic_load_explicit(&store->unaligned, memory_order_relaxed) ? POOL_GRANULE : 0;
    const strata_request request = {.bytes = (size_t)(bytes + more), .stream = store->stream, .tag = store->tag};
    *fits = true;
    strata_block *block = &out->below->block;
    strata_status status = below(store)->ops->allocate(below(store), &request, block);
    if (status == STRATA_SUCCESS && (status = hold(store, block)) != STRATA_SUCCESS)
        give_unused(store, block);
    if (status != STRATA_SUCCESS)
        return status;
    out->below->ready = strata_timeline_now(store->timeline);
    set_range(out);
    *fits = pool_chunk_bytes(out) >= bytes;
    return STRATA_SUCCESS;
}

/* Takes a block that is large enough. An unaligned one lacks less than a granule: a second try asks for one more. */
static strata_status take_large_enough(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    bool fits;
    strata_status status = take(store, bytes, &fits, out);
    for (int i = 0; status == STRATA_SUCCESS && !fits; i++) {
        give_unused(store, &out->below->block);
        if (i)
            return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "%s returned %s for a request of %s",
                               below(store)->ops->name, strata_size_text(out->below->block.bytes).text,
                               strata_size_text(bytes).text);
        atomic_store_explicit(&store->unaligned, true, memory_order_relaxed);
        status = take(store, bytes, &fits, out);
    }
    return status;
}

static strata_status upstream_make(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    out->below = strata_host_zalloc(sizeof *out->below);
    if (!out->below)
        return strata_fail_host_memory("a chunk of a pool");
    const strata_status status = take_large_enough(store, bytes, out);
    if (status == STRATA_SUCCESS)
        return status;
    strata_host_free(out->below);
    out->below = NULL;
    return status;
}

static strata_status upstream_drop(pool_chunk_store *store, pool_chunk *chunk)
{
    const strata_status status = give(store, &chunk->below->block);
    if (status == STRATA_SUCCESS)
        strata_host_free(chunk->below);
    return status;
}

const pool_chunk_source pool_chunk_source_upstream = {
    .open = upstream_open,
    .close = upstream_close,
    .make = upstream_make,
    .drop = upstream_drop,
    .drain = upstream_drain,
};
