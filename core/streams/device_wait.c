/* Waiting for a device.
 *
 * Streams of other libraries have handles that Strata does not know, so no event covers them all. cuCtxSynchronize and
 * cuCtxRecordEvent invalidate every capture of the context, in any capture mode (tests/answers/h200.txt,
 * "capture_calls.*.ctx_synchronize"; the CUDA driver API's manual of the second). Freeing pinned memory waits for all
 * work of the context, on non-blocking streams too ("memory_waits.host_free."), needs no device memory, and with the
 * thread's mode relaxed every capture survives it ("capture_calls.*_relaxed.mem_free_host"). */
#include "core/streams/device_wait.h"

#include "core/base/error.h"

enum { WAIT_BYTES = 4096 };

/* Memory that could not be freed before, or NULL. */
static void *take_kept(strata_device *device)
{
    strata_lock_take(&device->events_lock);
    void **kept = device->wait_memory;
    if (kept)
        device->wait_memory = *kept;
    strata_lock_release(&device->events_lock);
    return kept;
}

static void keep(strata_device *device, void *memory)
{
    strata_lock_take(&device->events_lock);
    *(void **)memory = device->wait_memory;
    device->wait_memory = memory;
    strata_lock_release(&device->events_lock);
}

strata_status strata_device_wait(strata_device *device)
{
    strata_call_scope scope;
    strata_status status = strata_check_device_now(device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuMemHostAlloc";
    void *memory = take_kept(device);
    CUresult result = memory ? CUDA_SUCCESS : strata_cu.MemHostAlloc(&memory, WAIT_BYTES, 0);
    if (result == CUDA_SUCCESS) {
        call = "cuMemFreeHost";
        result = strata_cu.MemFreeHost(memory);
        if (result != CUDA_SUCCESS)
            keep(device, memory);
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "waiting for all work of device %d", device->ordinal);
}
