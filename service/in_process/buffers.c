/* Host buffers that are page-locked for the device, and plain memory again after a reset of its context. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/call_scope.h"
#include "core/streams/device.h"
#include "service/in_process/in_process.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct locked_buffer {
    struct locked_buffer *next; /* in `left` */
    strata_device *device;
    void *memory;
    size_t mapped;
} locked_buffer;

/* Ended, but the driver has not unlocked their pages: it would refuse to lock the next memory at these addresses. */
static _Atomic(locked_buffer *) left;

static size_t in_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* ---- the end ---- */

static bool unlock_pages(const locked_buffer *locked)
{
    strata_call_scope scope;
    if (!strata_device_is_usable(locked->device))
        return true; /* they went with the context */
    if (strata_call_scope_enter(&scope, locked->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
        STRATA_SUCCESS)
        return !strata_device_is_usable(locked->device);
    const CUresult result = strata_cu.MemHostUnregister(locked->memory);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static void end_locked(locked_buffer *locked)
{
    if (unlock_pages(locked)) {
        munmap(locked->memory, locked->mapped);
        strata_host_free(locked);
        return;
    }
    locked->next = atomic_load_explicit(&left, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&left, &locked->next, locked, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void free_locked(void *memory, size_t bytes, void *data)
{
    (void)memory;
    (void)bytes;
    strata_error_suppress_begin();
    end_locked(data);
    strata_error_suppress_end(false);
}

void service_buffers_unlock_left(void)
{
    if (!atomic_load_explicit(&left, memory_order_relaxed))
        return;
    strata_error_suppress_begin();
    locked_buffer *locked = atomic_exchange_explicit(&left, NULL, memory_order_acquire);
    while (locked) {
        locked_buffer *next = locked->next;
        end_locked(locked);
        locked = next;
    }
    strata_error_suppress_end(false);
}

/* ---- making ---- */

static strata_status lock_pages(strata_device *device, void *memory, size_t bytes)
{
    strata_call_scope scope;
    if (!strata_cu.MemHostRegister || !strata_cu.MemHostUnregister)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "the driver has no cuMemHostRegister");
    const strata_status status =
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuMemHostRegister", "making a host buffer of %zu bytes", bytes);
}

static strata_status make_locked(strata_device *device, size_t bytes, strata_host_buffer **out)
{
    const size_t mapped = bytes <= SIZE_MAX / 2 ? in_pages(bytes) : 0;
    void *memory = mapped ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    locked_buffer *locked = memory == MAP_FAILED ? NULL : strata_host_zalloc(sizeof *locked);
    if (!locked) {
        if (memory != MAP_FAILED)
            munmap(memory, mapped);
        return strata_fail_host_memory("the bytes of a host buffer");
    }
    *locked = (locked_buffer){.device = device, .memory = memory, .mapped = mapped};
    strata_status status = lock_pages(device, memory, mapped);
    if (status != STRATA_SUCCESS) {
        munmap(memory, mapped);
        strata_host_free(locked);
        return status;
    }
    status = strata_host_buffer_wrap(memory, bytes, free_locked, locked, out);
    if (status != STRATA_SUCCESS)
        free_locked(memory, bytes, locked);
    return status;
}

strata_status service_make_buffer(strata_service *service, size_t bytes, strata_host_buffer **out)
{
    strata_device *device;
    if (service_phase_now(service) != SERVICE_RUNNING)
        return strata_fail(STRATA_ERROR_NOT_READY, "the device service has no context yet; wait until it is ready");
    service_buffers_unlock_left();
    const strata_status status = strata_device_get(service->options.device, &device);
    return status == STRATA_SUCCESS ? make_locked(device, bytes, out) : status;
}
