/* Chunks of one block each, for libraries that register memory whole: one handle, that other processes can import, at
 * addresses of its own. NCCL makes its memory in the same way (NCCL 2.30, src/allocator.cc, ncclMemAlloc). */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "resources/chunks/chunks.h"

enum { TRIES = 3 /* of a call that undoes another, without a later opportunity */ };

static bool without_fabric(const pool_chunk_store *store, CUresult result)
{
    const unsigned types = (unsigned)store->contiguous.requestedHandleTypes;
    return (types & CU_MEM_HANDLE_TYPE_FABRIC) && store->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_FABRIC &&
           (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED);
}

/* Tries without fabric handles if they are refused: a device can say that it has them although the machine, without an
 * IMEX channel, makes none. */
static CUresult create(pool_chunk_store *store, pool_chunk *out)
{
    const size_t bytes = (size_t)pool_chunk_bytes(out);
    CUresult result = strata_cu.MemCreate(&out->handle, bytes, &store->contiguous, 0);
    if (!without_fabric(store, result))
        return result;
    const unsigned types = (unsigned)store->contiguous.requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_FABRIC;
    store->contiguous.requestedHandleTypes = (CUmemAllocationHandleType)types;
    return strata_cu.MemCreate(&out->handle, bytes, &store->contiguous, 0);
}

/* Undoes what has succeeded, last first; a repeated call goes on where the one before has failed. */
static CUresult undo(pool_chunk *chunk, const char **call)
{
    CUresult result = CUDA_SUCCESS;
    *call = "cuMemUnmap";
    if (!chunk->unmapped)
        result = strata_cu.MemUnmap(chunk->address, (size_t)pool_chunk_bytes(chunk));
    chunk->unmapped |= result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && chunk->handle) {
        *call = "cuMemRelease";
        result = strata_cu.MemRelease(chunk->handle);
        chunk->handle = result == CUDA_SUCCESS ? 0 : chunk->handle;
    }
    if (result == CUDA_SUCCESS && chunk->address) {
        *call = "cuMemAddressFree";
        result = strata_cu.MemAddressFree(chunk->address, (size_t)pool_chunk_bytes(chunk));
        chunk->address = result == CUDA_SUCCESS ? 0 : chunk->address;
    }
    return result;
}

static CUresult place(pool_chunk_store *store, pool_chunk *out, const char **call)
{
    const size_t bytes = (size_t)pool_chunk_bytes(out);
    *call = "cuMemAddressReserve";
    CUresult result = strata_cu.MemAddressReserve(&out->address, bytes, (size_t)store->contiguous_alignment, 0, 0);
    if (result != CUDA_SUCCESS) {
        out->address = 0;
        return result;
    }
    *call = "cuMemMap";
    result = strata_cu.MemMap(out->address, bytes, 0, out->handle, 0);
    out->unmapped = result != CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        *call = "cuMemSetAccess";
        result = store->source->give_access(store, out->address, bytes); /* the mapped source's */
    }
    return result;
}

static strata_status contiguous_make(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    const char *call = "cuMemCreate", *undone;
    CUresult result = create(store, out);
    if (result == CUDA_SUCCESS) {
        out->unmapped = true; /* as far as undo is concerned */
        result = place(store, out, &call);
        for (int i = 0; result != CUDA_SUCCESS && i < TRIES && undo(out, &undone) != CUDA_SUCCESS; i++)
            continue;
    }
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "making %s of contiguous memory", strata_size_text(bytes).text);
}

static strata_status contiguous_drop(pool_chunk_store *store, pool_chunk *chunk)
{
    (void)store;
    const char *call;
    const CUresult result = undo(chunk, &call);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "giving contiguous memory of a pool back");
}

static CUresult contiguous_share(pool_chunk_store *store, const pool_chunk *chunk, void *out)
{
    return strata_cu.MemExportToShareableHandle(out, chunk->handle, store->properties.requestedHandleTypes, 0);
}

const pool_chunk_source pool_chunk_source_contiguous = {
    .make = contiguous_make,
    .drop = contiguous_drop,
    .share = contiguous_share,
};
