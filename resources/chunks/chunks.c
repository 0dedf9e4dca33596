/* Making, mapping and returning chunks, and the numbers that they have. */
#include "resources/chunks/chunks.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/chunks/formers.h"

#include <string.h>

enum { DESTROY_TRIES = 16 /* without a later opportunity */ };

strata_status pool_chunk_store_open(pool_chunk_store *store, strata_resource *pool, strata_device *device,
                                    const strata_pool_options *given, uint64_t peers)
{
    const pool_chunk_store empty = {.device = device, .pool = pool, .peers = peers, .chunk_count = 1};
    const bool maps = !pool->upstream && device->info.virtual_memory;
    const char *needs = given->export_type != STRATA_EXPORT_NONE        ? "export"
                        : peers || (given->all_peers && pool->upstream) ? "peers"
                        : given->contiguous                             ? "contiguous"
                                                                        : NULL;
    if (needs && !maps)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "pool: %s needs memory that the pool maps itself, but %s; leave out %s%s", needs,
                           pool->upstream ? "this pool takes its memory from the layer below"
                                          : "the device has no virtual memory management",
                           needs, pool->upstream ? ", or that layer" : "");
    *store = empty;
    store->source = pool->upstream ? &pool_chunk_source_upstream
                    : maps         ? &pool_chunk_source_mapped
                                   : &pool_chunk_source_malloc;
    const bool else_plain = maps && !needs;
    strata_error_suppress_begin();
    strata_status status = store->source->open(store, given);
    const bool lacks_addresses = else_plain && status == STRATA_ERROR_OUT_OF_MEMORY;
    strata_error_suppress_end(status != STRATA_SUCCESS && !lacks_addresses);
    if (lacks_addresses) {
        *store = empty;
        store->source = &pool_chunk_source_malloc;
        status = store->source->open(store, given);
    }
    if (status != STRATA_SUCCESS)
        pool_chunk_store_close(store);
    return status;
}

static void destroy_chunk(pool_chunk_store *store, uint32_t chunk)
{
    const pool_chunk *at = &store->chunks[chunk];
    const bool remappable = store->source->remappable && !at->contiguous;
    for (int i = 0; i < DESTROY_TRIES && remappable && at->address; i++)
        pool_chunk_store_unmap(store, &chunk, 1);
    for (int failed = 0; at->former && failed < DESTROY_TRIES;)
        failed += pool_formers_unmap(store, at->former) != CUDA_SUCCESS;
    for (int i = 0; i < DESTROY_TRIES && pool_chunk_bytes(at) && !(remappable && at->address) && !at->former; i++)
        pool_chunk_store_drop(store, chunk);
}

/* A thread may still be in a call of the pool: it then makes no more chunks, and maps none. */
void pool_chunk_store_abandon(pool_chunk_store *store)
{
    bool empty = true;
    if (!store->source->remappable)
        return;
    store->abandoned = true;
    for (uint32_t chunk = 1; chunk < store->chunk_count; chunk++) {
        if (!store->chunks[chunk].in_hand && !store->chunks[chunk].held)
            destroy_chunk(store, chunk);
        empty &= !store->chunks[chunk].units;
    }
    if (empty && store->base && !store->given_up)
        pool_mapped_give_up(store);
}

static void destroy_all(pool_chunk_store *store)
{
    for (uint32_t chunk = 1; chunk < store->chunk_count; chunk++)
        destroy_chunk(store, chunk);
    store->source->close(store);
}

/* Tries to enter the context several times: there is no later opportunity. */
static void destroy_in_scope(pool_chunk_store *store)
{
    strata_call_scope scope;
    strata_status status = STRATA_ERROR_BUSY;
    for (int i = 0; i < DESTROY_TRIES && status != STRATA_SUCCESS; i++)
        status = strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return;
    destroy_all(store);
    strata_call_scope_leave(&scope);
}

/* Frees the host memory of chunks that could not be returned to the layer below. */
static void forget_below(pool_chunk_store *store)
{
    for (uint32_t number = store->chunk_free, next; number; number = next) {
        next = store->chunks[number].next;
        store->chunks[number] = (pool_chunk){0};
    }
    for (uint32_t chunk = 1; chunk < store->chunk_count; chunk++)
        strata_host_free(store->chunks[chunk].below);
}

void pool_chunk_store_close(pool_chunk_store *store)
{
    strata_error_suppress_begin();
    /* mapped memory outlives its context: tests/answers/h200.txt, "primary_reset." */
    if (store->source && strata_driver_is_open() &&
        (store->source->remappable || !strata_device_is_lost(store->device)))
        (store->source->remappable ? destroy_in_scope : destroy_all)(store);
    strata_error_suppress_end(false);
    if (store->source && !store->source->remappable)
        forget_below(store);
    strata_host_free(store->chunks);
    strata_host_free(store->formers);
    *store = (pool_chunk_store){0};
}

uint32_t pool_chunk_store_number(pool_chunk_store *store)
{
    const uint32_t recycled = store->chunk_free;
    if (recycled) {
        store->chunk_free = store->chunks[recycled].next;
        store->chunks[recycled] = (pool_chunk){0};
        return recycled;
    }
    if (store->chunk_count >= store->chunk_capacity) {
        const uint32_t capacity =
            store->chunk_capacity + (store->chunk_capacity < 1024 ? 64 : store->chunk_capacity / 16);
        pool_chunk *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return 0;
        if (store->chunks)
            memcpy(larger, store->chunks, store->chunk_count * sizeof *larger);
        strata_host_free(store->chunks);
        store->chunks = larger;
        store->chunk_capacity = capacity;
    }
    return store->chunk_count++;
}

uint64_t pool_chunk_store_begin_return(pool_chunk_store *store, uint32_t chunk)
{
    const uint64_t bytes = pool_chunk_bytes(&store->chunks[chunk]);
    store->leaving += bytes;
    return bytes;
}

void pool_chunk_store_set_leaving(pool_chunk_store *store, uint32_t number, bool leaving)
{
    const uint64_t bytes = pool_chunk_bytes(&store->chunks[number]);
    store->leaving += leaving ? bytes : -bytes;
    store->chunks[number].leaving = leaving;
}

void pool_chunk_store_forget(pool_chunk_store *store, uint32_t number)
{
    if (store->chunks[number].leaving)
        pool_chunk_store_set_leaving(store, number, false);
    store->reserved -= pool_chunk_bytes(&store->chunks[number]);
    store->chunks[number] = (pool_chunk){.next = store->chunk_free};
    store->chunk_free = number;
}

static const pool_chunk_source *source_of(const pool_chunk_store *store, const pool_chunk *chunk)
{
    return chunk->contiguous ? &pool_chunk_source_contiguous : store->source;
}

strata_status pool_chunk_store_return(pool_chunk_store *store, pool_chunk *chunk)
{
    return source_of(store, chunk)->drop(store, chunk);
}

static CUresult result_of(strata_status status)
{
    const CUresult error = strata_error_suppressed()->driver_code;
    if (status == STRATA_SUCCESS)
        return CUDA_SUCCESS;
    return error ? error : status == STRATA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

/* Makes the memory of `made` and gives it a number. */
static CUresult make(pool_chunk_store *store, pool_chunk *made, uint32_t *chunk, bool *no_host_memory,
                     const char **call)
{
    *no_host_memory = false;
    if (store->abandoned) {
        *chunk = 0;
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *chunk = pool_chunk_store_number(store);
    *no_host_memory = !*chunk;
    if (!*chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    strata_error_suppress_begin();
    const CUresult result = result_of(source_of(store, made)->make(store, pool_chunk_bytes(made), made));
    if (result != CUDA_SUCCESS)
        *call = strata_error_suppressed()->driver_call;
    strata_error_suppress_end(false);
    if (result != CUDA_SUCCESS) {
        pool_chunk_store_forget(store, *chunk);
        *chunk = 0;
        return result;
    }
    store->chunks[*chunk] = *made;
    store->reserved += pool_chunk_bytes(made);
    return CUDA_SUCCESS;
}

CUresult pool_chunk_store_make(pool_chunk_store *store, uint64_t bytes, uint32_t *chunk, bool *no_host_memory)
{
    pool_chunk made = {.units = pool_chunk_units(bytes), .in_hand = true};
    const char *call;
    return make(store, &made, chunk, no_host_memory, &call);
}

CUresult pool_chunk_store_make_contiguous(pool_chunk_store *store, uint64_t bytes, uint64_t alignment, uint32_t *chunk,
                                          bool *no_host_memory, const char **call)
{
    store->contiguous_alignment = alignment > store->granule ? alignment : store->granule;
    pool_chunk made = {.units = pool_chunk_units(bytes), .contiguous = true, .useless = true};
    return make(store, &made, chunk, no_host_memory, call);
}

CUresult pool_chunk_store_map(pool_chunk_store *store, uint32_t chunk, CUdeviceptr address)
{
    pool_chunk *mapped = &store->chunks[chunk];
    CUresult result = store->abandoned ? CUDA_ERROR_CONTEXT_IS_DESTROYED : store->source->map(store, mapped, address);
    if (result == CUDA_SUCCESS) {
        mapped->address = address;
        mapped->in_hand = false;
    }
    return result;
}

CUresult pool_chunk_store_unmap(pool_chunk_store *store, const uint32_t *chunks, size_t count)
{
    const CUdeviceptr address = store->chunks[chunks[count - 1]].address;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += pool_chunk_bytes(&store->chunks[chunks[i]]);
    const CUresult result = store->source->unmap(store, address, bytes);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        store->chunks[chunks[i]].address = 0;
        store->chunks[chunks[i]].in_hand = true;
    }
    return result;
}

CUresult pool_chunk_store_drop(pool_chunk_store *store, uint32_t chunk)
{
    strata_error_suppress_begin();
    const CUresult result = result_of(pool_chunk_store_return(store, &store->chunks[chunk]));
    strata_error_suppress_end(false);
    if (result == CUDA_SUCCESS)
        pool_chunk_store_forget(store, chunk);
    else
        store->chunks[chunk].in_hand = false; /* any thread returning memory tries again */
    return result;
}

CUresult pool_chunk_store_export(pool_chunk_store *store, uint32_t chunk, void *out)
{
    const pool_chunk *shared = &store->chunks[chunk];
    return source_of(store, shared)->share(store, shared, out);
}
