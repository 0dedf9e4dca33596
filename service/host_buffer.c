/* Host buffers: counted memory. */
#include <strata/host_buffer.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/service.h"

#include <stdatomic.h>

enum { ALIGNMENT = 64 };

struct strata_host_buffer {
    void *memory; /* these are constant */
    size_t bytes;
    strata_host_buffer_end end;
    void *data;
    _Atomic size_t handles;
};

static void free_memory(void *memory, size_t bytes, void *data)
{
    (void)bytes;
    (void)data;
    strata_host_free(memory);
}

strata_status strata_host_buffer_wrap(void *memory, size_t bytes, strata_host_buffer_end end, void *data,
                                      strata_host_buffer **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_host_buffer_wrap: out is NULL");
    *out = NULL;
    if (!memory || !bytes)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_host_buffer_wrap: there is no memory, or it has no bytes");
    strata_host_buffer *buffer = strata_host_zalloc(sizeof *buffer);
    if (!buffer)
        return strata_fail_host_memory("a host buffer");
    *buffer = (strata_host_buffer){.memory = memory, .bytes = bytes, .end = end, .data = data};
    atomic_init(&buffer->handles, 1);
    *out = buffer;
    return STRATA_SUCCESS;
}

strata_status strata_host_buffer_create(size_t bytes, strata_host_buffer **out)
{
    if (!out || !bytes) {
        if (out)
            *out = NULL;
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_host_buffer_create: out is NULL, or bytes is 0");
    }
    *out = NULL;
    void *memory = strata_host_zalloc_aligned(ALIGNMENT, bytes);
    if (!memory)
        return strata_fail_host_memory("the bytes of a host buffer");
    const strata_status status = strata_host_buffer_wrap(memory, bytes, free_memory, NULL, out);
    if (status != STRATA_SUCCESS)
        strata_host_free(memory);
    return status;
}

strata_host_buffer *strata_host_buffer_clone(strata_host_buffer *buffer)
{
    if (buffer)
        atomic_fetch_add_explicit(&buffer->handles, 1, memory_order_relaxed);
    return buffer;
}

void strata_host_buffer_release(strata_host_buffer *buffer)
{
    if (!buffer || atomic_fetch_sub_explicit(&buffer->handles, 1, memory_order_acq_rel) != 1)
        return;
    if (buffer->end)
        buffer->end(buffer->memory, buffer->bytes, buffer->data);
    strata_host_free(buffer);
}

void *strata_host_buffer_memory(const strata_host_buffer *buffer)
{
    return buffer ? buffer->memory : NULL;
}

size_t strata_host_buffer_bytes(const strata_host_buffer *buffer)
{
    return buffer ? buffer->bytes : 0;
}

/* Acquire: a program that sees the last other handle gone may read what its holder wrote. */
size_t strata_host_buffer_handles(const strata_host_buffer *buffer)
{
    return buffer ? atomic_load_explicit(&buffer->handles, memory_order_acquire) : 0;
}

/* ---- for the service ---- */

void *service_buffer_data(const strata_host_buffer *buffer, strata_host_buffer_end end)
{
    return buffer->end == end ? buffer->data : NULL;
}

strata_status service_check_unshared(const strata_host_buffer *buffer)
{
    const size_t handles = strata_host_buffer_handles(buffer);
    return handles <= 2 ? STRATA_SUCCESS
                        : strata_fail(STRATA_ERROR_SHARED,
                                      "the host buffer has %zu handle%s beside the caller's and the request's: its "
                                      "bytes may be read while they are written; release them first, or copy to a "
                                      "buffer of its own",
                                      handles - 2, handles == 3 ? "" : "s");
}
