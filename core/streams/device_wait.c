/* Waiting for a device.
 *
 * Streams of other libraries have handles that Strata does not know, so no event covers them all. cuCtxSynchronize and
 * cuCtxRecordEvent invalidate every capture of the context, in any capture mode (tests/answers/h200.txt,
 * "capture_calls.*.ctx_synchronize"; the CUDA driver API's manual of the second). Freeing memory waits for all work of
 * the context, on non-blocking streams and on destroyed ones too ("memory_waits.free.", "memory_waits.host_free."), not
 * of other contexts of the device (H200, driver 580: 0.000 s behind 0.5 s of work), and with the thread's mode relaxed
 * every capture survives it ("capture_calls.*_relaxed.mem_free" and ".mem_free_host").
 *
 * Device memory is asked for first: cuMemAlloc and cuMemFree take 54 us where the calls for pinned memory take some 600
 * (docs/measurements.md, Interfaces). Pinned memory serves where the device is full. */
#include "core/streams/device_wait.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/timeline.h"

enum { WAIT_BYTES = 4096 };

/* What one wait frees. What it could not free a later one frees. */
typedef struct strata_wait_memory {
    struct strata_wait_memory *next;
    CUdeviceptr device; /* 0: none */
    void *host;         /* NULL: none */
} wait_memory;

/* NULL without host memory. */
static wait_memory *take_memory(strata_device *device)
{
    strata_lock_take(&device->events_lock);
    wait_memory *memory = device->wait_memory;
    if (memory)
        device->wait_memory = memory->next;
    strata_lock_release(&device->events_lock);
    return memory ? memory : strata_host_zalloc(sizeof *memory);
}

static void give_memory(strata_device *device, wait_memory *memory)
{
    strata_lock_take(&device->events_lock);
    memory->next = device->wait_memory;
    device->wait_memory = memory;
    strata_lock_release(&device->events_lock);
}

static CUresult fill_memory(wait_memory *memory, const char **call)
{
    if (memory->device || memory->host)
        return CUDA_SUCCESS;
    *call = "cuMemAlloc";
    CUresult result = strata_cu.MemAlloc(&memory->device, WAIT_BYTES);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        *call = "cuMemHostAlloc";
        result = strata_cu.MemHostAlloc(&memory->host, WAIT_BYTES, 0);
    }
    return result;
}

/* Frees the memory, which waits for all work of the context. */
static CUresult free_memory(wait_memory *memory, const char **call)
{
    *call = memory->device ? "cuMemFree" : "cuMemFreeHost";
    const CUresult result = memory->device ? strata_cu.MemFree(memory->device) : strata_cu.MemFreeHost(memory->host);
    if (result == CUDA_SUCCESS) {
        memory->device = 0;
        memory->host = NULL;
    }
    return result;
}

strata_status strata_device_wait(strata_device *device)
{
    strata_call_scope scope;
    strata_status status = strata_check_device_now(device);
    wait_memory *memory = status == STRATA_SUCCESS ? take_memory(device) : NULL;
    if (status == STRATA_SUCCESS && !memory)
        status = strata_fail_host_memory("a wait for the device");
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS) {
        if (memory)
            give_memory(device, memory);
        return status;
    }
    const char *call = NULL;
    const uint64_t failures = strata_timelines_failures();
    CUresult result = fill_memory(memory, &call);
    if (result == CUDA_SUCCESS)
        result = free_memory(memory, &call);
    strata_call_scope_leave(&scope);
    give_memory(device, memory);
    if (result == CUDA_SUCCESS)
        strata_timelines_note_device_wait(device, failures);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "waiting for all work of device %d", device->ordinal);
}

void strata_devices_wait_if_uncovered(strata_error *error)
{
    *error = (strata_error){.status = STRATA_SUCCESS};
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT && strata_timelines_any_uncovered(); ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        if (!device || !strata_timelines_need_device_wait(device))
            continue;
        strata_error_suppress_begin();
        const strata_status status = strata_device_wait(device);
        if (status != STRATA_SUCCESS && !strata_device_is_lost(device) && strata_timelines_need_device_wait(device))
            *error = *strata_error_in_force();
        strata_error_suppress_end(false);
    }
}

strata_status strata_device_wait_with_uncovered(strata_device *device)
{
    strata_error unwaited;
    const strata_status status = strata_device_wait(device);
    if (status == STRATA_SUCCESS)
        strata_devices_wait_if_uncovered(&unwaited); /* the call that needs that work says so */
    return status;
}
