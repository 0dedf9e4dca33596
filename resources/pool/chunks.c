/* The frames of a pool, by number, over whichever source there is. */
#include "resources/pool/chunks.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#include <string.h>

enum { TRIES_TO_END = 16 /* what nobody can try later */ };

strata_status pool_pages_open(pool_pages *pages, strata_resource *pool, strata_device *device,
                              const pool_sharing *sharing)
{
    *pages = (pool_pages){.device = device, .pool = pool, .frame_count = 1};
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
        pool_pages_close(pages);
    return status;
}

/* What fails is tried again, a few times: nobody else could do it later. */
static void end_frame(pool_pages *pages, uint32_t frame)
{
    const pool_frame *at = &pages->frames[frame];
    for (int i = 0; i < TRIES_TO_END && pages->source->moves && at->address; i++)
        pool_pages_unmap(pages, &frame, 1);
    for (int i = 0; i < TRIES_TO_END && pool_frame_bytes(at) && !(pages->source->moves && at->address); i++)
        pool_pages_drop(pages, frame);
}

static void end_all(pool_pages *pages)
{
    for (uint32_t frame = 1; frame < pages->frame_count; frame++)
        end_frame(pages, frame);
    pages->source->close(pages);
}

/* The driver is called for frames that move with a context of the device, which nobody could make current later. */
static void end_in_scope(pool_pages *pages)
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
static void forget_below(pool_pages *pages)
{
    for (uint32_t number = pages->frame_free, next; number; number = next) {
        next = pages->frames[number].next;
        pages->frames[number] = (pool_frame){0};
    }
    for (uint32_t frame = 1; frame < pages->frame_count; frame++)
        strata_host_free(pages->frames[frame].below);
}

void pool_pages_close(pool_pages *pages)
{
    strata_error_suppress_begin();
    if (pages->source && strata_driver_state_now() == STRATA_DRIVER_OPEN)
        (pages->source->moves ? end_in_scope : end_all)(pages);
    strata_error_suppress_end(false);
    if (pages->source && !pages->source->moves)
        forget_below(pages);
    strata_host_free(pages->frames);
    *pages = (pool_pages){0};
}

uint32_t pool_pages_number(pool_pages *pages)
{
    const uint32_t recycled = pages->frame_free;
    if (recycled) {
        pages->frame_free = pages->frames[recycled].next;
        pages->frames[recycled] = (pool_frame){0};
        return recycled;
    }
    if (pages->frame_count >= pages->frame_capacity) {
        const uint32_t capacity =
            pages->frame_capacity + (pages->frame_capacity < 1024 ? 64 : pages->frame_capacity / 16);
        pool_frame *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return 0;
        if (pages->frames)
            memcpy(larger, pages->frames, pages->frame_count * sizeof *larger);
        strata_host_free(pages->frames);
        pages->frames = larger;
        pages->frame_capacity = capacity;
    }
    return pages->frame_count++;
}

void pool_pages_forget(pool_pages *pages, uint32_t number)
{
    pages->reserved -= pool_frame_bytes(&pages->frames[number]);
    pages->frames[number] = (pool_frame){.next = pages->frame_free};
    pages->frame_free = number;
}

strata_status pool_pages_ask(pool_pages *pages, uint64_t bytes, pool_frame *out)
{
    *out = (pool_frame){.units = pool_frame_units(bytes)};
    return pages->source->make(pages, bytes, out);
}

strata_status pool_pages_return(pool_pages *pages, const pool_frame *frame)
{
    return pages->source->drop(pages, frame);
}

/* A source's answer as the driver's. */
static CUresult result_of(strata_status status)
{
    const CUresult said = strata_error_suppressed()->driver_code;
    if (status == STRATA_SUCCESS)
        return CUDA_SUCCESS;
    return said ? said : status == STRATA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

CUresult pool_pages_make(pool_pages *pages, uint64_t bytes, uint32_t *frame, bool *host)
{
    *frame = pool_pages_number(pages);
    *host = !*frame;
    if (!*frame)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool_frame made;
    strata_error_suppress_begin();
    const CUresult result = result_of(pool_pages_ask(pages, bytes, &made));
    strata_error_suppress_end(false);
    if (result != CUDA_SUCCESS) {
        pool_pages_forget(pages, *frame);
        *frame = 0;
        return result;
    }
    made.in_hand = true;
    pages->frames[*frame] = made;
    pages->reserved += bytes;
    return CUDA_SUCCESS;
}

CUresult pool_pages_map(pool_pages *pages, uint32_t frame, CUdeviceptr address)
{
    pool_frame *mapped = &pages->frames[frame];
    CUresult result = pages->source->map(pages, mapped, address);
    if (result == CUDA_SUCCESS) {
        mapped->address = address;
        mapped->in_hand = false;
    }
    return result;
}

CUresult pool_pages_give_access(pool_pages *pages, CUdeviceptr address, uint64_t bytes)
{
    return pages->source->give_access(pages, address, bytes);
}

CUresult pool_pages_unmap(pool_pages *pages, const uint32_t *frames, size_t count)
{
    const CUdeviceptr address = pages->frames[frames[count - 1]].address;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += pool_frame_bytes(&pages->frames[frames[i]]);
    const CUresult result = pages->source->unmap(pages, address, bytes);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        pages->frames[frames[i]].address = 0;
        pages->frames[frames[i]].in_hand = true;
    }
    return result;
}

CUresult pool_pages_drop(pool_pages *pages, uint32_t frame)
{
    strata_error_suppress_begin();
    const CUresult result = result_of(pool_pages_return(pages, &pages->frames[frame]));
    strata_error_suppress_end(false);
    if (result == CUDA_SUCCESS)
        pool_pages_forget(pages, frame);
    else
        pages->frames[frame].in_hand = false; /* nobody else has use for it: whoever gives memory back tries again */
    return result;
}

CUresult pool_pages_export(pool_pages *pages, uint32_t frame, void *out)
{
    return pages->source->share(pages, &pages->frames[frame], out);
}
