/* Chunks by cuMemAlloc. */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "resources/chunks/chunks.h"

enum { LEAST_CHUNK = 2 << 20 };

static strata_status malloc_open(pool_chunk_store *store, const strata_pool_options *given)
{
    (void)given;
    store->granule = LEAST_CHUNK;
    store->bytes = store->device->info.total_bytes;
    return STRATA_SUCCESS;
}

static void malloc_close(pool_chunk_store *store)
{
    (void)store;
}

static strata_status malloc_make(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemAlloc(&out->address, (size_t)bytes);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuMemAlloc", "taking %s of memory", strata_size_text(bytes).text);
}

static strata_status malloc_drop(pool_chunk_store *store, pool_chunk *chunk)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemFree(chunk->address);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemFree", "giving memory of a pool back");
}

const pool_chunk_source pool_chunk_source_malloc = {
    .make_call = "cuMemAlloc",
    .open = malloc_open,
    .close = malloc_close,
    .make = malloc_make,
    .drop = malloc_drop,
};
