/* The frames of a pool, by number, over whichever source there is. */
#include "resources/pool/chunks.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#include <string.h>

enum { TRIES_TO_END = 16 /* what nobody can try later */ };

strata_status pool_chunks_open(pool_chunks *pages, strata_resource *pool, strata_device *device,
                               const pool_sharing *sharing)
{
    *pages = (pool_chunks){.device = device, .pool = pool, .chunk_count = 1};
    const bool maps = !pool->upstream && device->info.virtual_memory;
    const char *asked = sharing->export_type != STRATA_EXPORT_NONE ? "export"
                        : sharing->peers || sharing->all_peers     ? "peers"
                                                                   : NULL;
    if (asked && !maps)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "pool: %s needs memory that the pool maps itself, and %s; leave %s out%s", asked,
                           pool->upstream ? "this one takes its memory from a layer below"
                                          : "the device has no virtual memory management",
                           asked, pool->upstream ? ", or that layer" : "");
    pages->source = pool->upstream ? &pool_source_below : maps ? &pool_source_mapped : &pool_source_direct;
    strata_status status = pages->source->open(pages, sharing);
    if (status != STRATA_SUCCESS)
        pool_chunks_close(pages);
    return status;
}

/* What fails is tried again, a few times: nobody else could do it later. */
static void end_chunk(pool_chunks *pages, uint32_t chunk)
{
    const pool_chunk *at = &pages->chunks[chunk];
    for (int i = 0; i < TRIES_TO_END && pages->source->moves && at->address; i++)
        pool_chunks_unmap(pages, &chunk, 1);
    for (int i = 0; i < TRIES_TO_END && pool_chunk_bytes(at) && !(pages->source->moves && at->address); i++)
        pool_chunks_drop(pages, chunk);
}

static void end_all(pool_chunks *pages)
{
    for (uint32_t chunk = 1; chunk < pages->chunk_count; chunk++)
        end_chunk(pages, chunk);
    pages->source->close(pages);
}

/* The driver is called for frames that move with a context of the device, which nobody could make current later. */
static void end_in_scope(pool_chunks *pages)
{
    strata_scope scope;
    strata_status status = STRATA_ERROR_BUSY;
    for (int i = 0; i < TRIES_TO_END && status != STRATA_SUCCESS; i++)
        status = strata_scope_enter(&scope, pages->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return;
    end_all(pages);
    strata_scope_leave(&scope);
}

/* What the layer below has given of frames that could not be given back. */
static void forget_below(pool_chunks *pages)
{
    for (uint32_t number = pages->chunk_free, next; number; number = next) {
        next = pages->chunks[number].next;
        pages->chunks[number] = (pool_chunk){0};
    }
    for (uint32_t chunk = 1; chunk < pages->chunk_count; chunk++)
        strata_host_free(pages->chunks[chunk].below);
}

void pool_chunks_close(pool_chunks *pages)
{
    strata_error_suppress_begin();
    if (pages->source && strata_driver_state_now() == STRATA_DRIVER_OPEN)
        (pages->source->moves ? end_in_scope : end_all)(pages);
    strata_error_suppress_end(false);
    if (pages->source && !pages->source->moves)
        forget_below(pages);
    strata_host_free(pages->chunks);
    *pages = (pool_chunks){0};
}

uint32_t pool_chunks_number(pool_chunks *pages)
{
    const uint32_t recycled = pages->chunk_free;
    if (recycled) {
        pages->chunk_free = pages->chunks[recycled].next;
        pages->chunks[recycled] = (pool_chunk){0};
        return recycled;
    }
    if (pages->chunk_count >= pages->chunk_capacity) {
        const uint32_t capacity =
            pages->chunk_capacity + (pages->chunk_capacity < 1024 ? 64 : pages->chunk_capacity / 16);
        pool_chunk *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return 0;
        if (pages->chunks)
            memcpy(larger, pages->chunks, pages->chunk_count * sizeof *larger);
        strata_host_free(pages->chunks);
        pages->chunks = larger;
        pages->chunk_capacity = capacity;
    }
    return pages->chunk_count++;
}

void pool_chunks_forget(pool_chunks *pages, uint32_t number)
{
    pages->reserved -= pool_chunk_bytes(&pages->chunks[number]);
    pages->chunks[number] = (pool_chunk){.next = pages->chunk_free};
    pages->chunk_free = number;
}

strata_status pool_chunks_ask(pool_chunks *pages, uint64_t bytes, pool_chunk *out)
{
    *out = (pool_chunk){.units = pool_chunk_units(bytes)};
    return pages->source->make(pages, bytes, out);
}

strata_status pool_chunks_return(pool_chunks *pages, const pool_chunk *chunk)
{
    return pages->source->drop(pages, chunk);
}

/* A source's answer as the driver's. */
static CUresult result_of(strata_status status)
{
    const CUresult said = strata_error_suppressed()->driver_code;
    if (status == STRATA_SUCCESS)
        return CUDA_SUCCESS;
    return said ? said : status == STRATA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

CUresult pool_chunks_make(pool_chunks *pages, uint64_t bytes, uint32_t *chunk, bool *host)
{
    *chunk = pool_chunks_number(pages);
    *host = !*chunk;
    if (!*chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool_chunk made;
    strata_error_suppress_begin();
    const CUresult result = result_of(pool_chunks_ask(pages, bytes, &made));
    strata_error_suppress_end(false);
    if (result != CUDA_SUCCESS) {
        pool_chunks_forget(pages, *chunk);
        *chunk = 0;
        return result;
    }
    made.in_hand = true;
    pages->chunks[*chunk] = made;
    pages->reserved += bytes;
    return CUDA_SUCCESS;
}

CUresult pool_chunks_map(pool_chunks *pages, uint32_t chunk, CUdeviceptr address)
{
    pool_chunk *mapped = &pages->chunks[chunk];
    CUresult result = pages->source->map(pages, mapped, address);
    if (result == CUDA_SUCCESS) {
        mapped->address = address;
        mapped->in_hand = false;
    }
    return result;
}

CUresult pool_chunks_give_access(pool_chunks *pages, CUdeviceptr address, uint64_t bytes)
{
    return pages->source->give_access(pages, address, bytes);
}

CUresult pool_chunks_unmap(pool_chunks *pages, const uint32_t *chunks, size_t count)
{
    const CUdeviceptr address = pages->chunks[chunks[count - 1]].address;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += pool_chunk_bytes(&pages->chunks[chunks[i]]);
    const CUresult result = pages->source->unmap(pages, address, bytes);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        pages->chunks[chunks[i]].address = 0;
        pages->chunks[chunks[i]].in_hand = true;
    }
    return result;
}

CUresult pool_chunks_drop(pool_chunks *pages, uint32_t chunk)
{
    strata_error_suppress_begin();
    const CUresult result = result_of(pool_chunks_return(pages, &pages->chunks[chunk]));
    strata_error_suppress_end(false);
    if (result == CUDA_SUCCESS)
        pool_chunks_forget(pages, chunk);
    else
        pages->chunks[chunk].in_hand = false; /* nobody else has use for it: whoever gives memory back tries again */
    return result;
}

CUresult pool_chunks_export(pool_chunks *pages, uint32_t chunk, void *out)
{
    return pages->source->share(pages, &pages->chunks[chunk], out);
}
