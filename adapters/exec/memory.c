/* Linear memory: from the stack where it can serve, else from the driver. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "driver/driver.h"
#include "resources/chunks/source.h"

/* ---- serving ---- */

/* Whether the stack serves a cuMemAlloc. While a stream is captured it does not: the driver's rules forbid or allow the
 * request. */
static bool serves(const exec_here *here, CUdeviceptr *out, size_t bytes)
{
    return here->primary && out && bytes && !exec_captures_under_way();
}

/* Makes a request of the stack. DEVICE_RESET: its context has ended, before the request (a pool's hit would not notice)
 * or during it, which may then fail in many ways, or be served by memory that goes with the stack. */
static strata_status request_of(const exec_here *here, const strata_request *request, strata_block *block)
{
    const exec_device *device = here->device;
    strata_runtime *runtime = device->runtime;
    const strata_device *own = strata_runtime_stack(runtime)->device;
    if (device != here->there && !strata_device_has_its_context(own))
        return STRATA_ERROR_DEVICE_RESET;
    const strata_status status = strata_runtime_allocate_request(runtime, request, block);
    const bool served = status == STRATA_SUCCESS, asks = !served || device->memory_outlives;
    if (asks ? strata_device_has_its_context(own) : !strata_device_is_lost(own))
        return status;
    if (served)
        strata_runtime_deallocate_on(runtime, block, CU_STREAM_LEGACY);
    return STRATA_ERROR_DEVICE_RESET;
}

static strata_status request_once(const exec_here *here, const strata_request *request, strata_block *block)
{
    if (!exec_device_enter(here->device))
        return STRATA_ERROR_DEVICE_RESET;
    const strata_status status = request_of(here, request, block);
    exec_device_leave(here->device);
    return status;
}

/* Makes a request, once more if it was refused and frees waited whose memory may serve it. */
static strata_status request(const exec_here *here, size_t bytes, CUstream stream, const void *caller,
                             strata_block *block)
{
    exec_device *device = here->device;
    const strata_request request = {.bytes = bytes, .stream = stream, .tag = exec_caller_tag(caller)};
    strata_status status = exec_set_aside_first(device, true);
    if (status != STRATA_SUCCESS)
        return exec_device_has_its_context(device) ? status : STRATA_ERROR_DEVICE_RESET;
    exec_free_before_growth(device, bytes);
    status = request_once(here, &request, block);
    if ((status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET) && exec_free_waiting(device))
        status = request_once(here, &request, block);
    if (status == STRATA_SUCCESS) {
        exec_count_live(device, block->bytes);
        exec_device_has_block(device, block);
    }
    return status;
}

/* Allocates on the legacy stream and orders all other streams behind it. Errors: STREAM_CAPTURE if a capture has begun
 * meanwhile that forbids that. */
static strata_status serve_any_stream(const exec_here *here, size_t bytes, const void *caller, CUdeviceptr *out)
{
    strata_block block;
    const strata_status status = request(here, bytes, CU_STREAM_LEGACY, caller, &block);
    if (status != STRATA_SUCCESS)
        return status;
    if (!exec_order_publish(here->device)) {
        (void)exec_free_at_once(here->device, &block, CU_STREAM_LEGACY);
        return STRATA_ERROR_STREAM_CAPTURE;
    }
    *out = block.address;
    return STRATA_SUCCESS;
}

static strata_status serve_stream(const exec_here *here, size_t bytes, CUstream stream, const void *caller,
                                  CUdeviceptr *out)
{
    strata_block block;
    const strata_status status = request(here, bytes, stream, caller, &block);
    if (status == STRATA_SUCCESS)
        *out = block.address;
    return status;
}

/* ---- passing on ---- */

static CUresult pass_alloc(const exec_here *here, CUdeviceptr *out, size_t bytes, const void *caller)
{
    exec_charge charge;
    CUresult result = exec_charge_begin(here, EXEC_LINEAR, bytes, caller, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = EXEC_CALL(cuMemAlloc_v2, out, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(here))
        result = EXEC_CALL(cuMemAlloc_v2, out, bytes);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

static CUresult answer(const exec_here *here, size_t bytes, strata_status status, _Atomic uint64_t *served)
{
    exec_count(status == STRATA_SUCCESS ? served : &exec_counts_now.refused);
    if (status != STRATA_SUCCESS)
        exec_refusal_note(here->device, NULL, bytes, status);
    return exec_result_of(status);
}

enum { TRIES = 16 /* of requests that find resets, one after the other */ };

/* Whether to try again, with the device's next stack: a request has found a reset that was not seen. Updates *here. */
static bool tries_again(exec_here *here, strata_status status, unsigned tries, CUstream stream)
{
    if (status != STRATA_ERROR_DEVICE_RESET || tries == TRIES)
        return false;
    exec_device_was_reset(here->device->ordinal);
    *here = exec_device_of_stream(stream);
    return true;
}

EXEC_EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    const void *caller = EXEC_CALLER;
    exec_here here = exec_device_here_now();
    if (here.refused)
        return CUDA_ERROR_NOT_PERMITTED;
    for (unsigned tries = 0; serves(&here, out, bytes); tries++) {
        const strata_status status = serve_any_stream(&here, bytes, caller, out);
        if (status == STRATA_ERROR_STREAM_CAPTURE)
            break;
        if (!tries_again(&here, status, tries, NULL))
            return answer(&here, bytes, status, &exec_counts_now.served);
    }
    return pass_alloc(&here, out, bytes, caller);
}

/* ---- stream-ordered memory ---- */

typedef CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUstream stream);

static CUresult pass_alloc_async(const exec_here *here, alloc_async *real, CUdeviceptr *out, size_t bytes,
                                 CUstream stream, const void *caller)
{
    exec_charge charge;
    CUresult result = exec_charge_begin(here, EXEC_POOLED, bytes, caller, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, bytes, stream) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(here))
        result = real(out, bytes, stream);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

/* Serves a stream-ordered request from the stack. `stream` as the real function takes it; `meant`: with the program's
 * stream 0 spelt out. False: the request is the driver's. */
static bool serve_ordered(exec_here *here, CUdeviceptr *out, size_t bytes, CUstream stream, CUstream meant,
                          const void *caller, CUresult *result)
{
    for (unsigned tries = 0; here->primary && out && bytes && !exec_has_own_pool(here->device->ordinal); tries++) {
        const strata_status status = serve_stream(here, bytes, meant, caller, out);
        if (tries_again(here, status, tries, stream))
            continue;
        *result = answer(here, bytes, status, &exec_counts_now.served_async);
        return true;
    }
    return false;
}

/* `stream` as the real function takes it; `meant`: with the program's stream 0 spelt out. */
static CUresult allocate_async(alloc_async *real, CUdeviceptr *out, size_t bytes, CUstream stream, CUstream meant,
                               const void *caller)
{
    exec_here here = exec_device_of_stream(stream);
    if (here.refused)
        return CUDA_ERROR_NOT_PERMITTED;
    if (exec_is_captured(meant)) /* a graph's memory */
        return exec_graph_memory_captured(real ? real(out, bytes, stream) : CUDA_ERROR_NOT_FOUND, caller);
    CUresult result;
    if (serve_ordered(&here, out, bytes, stream, meant, caller, &result))
        return result;
    return pass_alloc_async(&here, real, out, bytes, stream, caller);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    return allocate_async(EXEC_REAL(cuMemAllocAsync), out, bytes, stream, stream, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    return allocate_async(EXEC_REAL(cuMemAllocAsync_ptsz), out, bytes, stream, exec_own_default(stream), EXEC_CALLER);
}

/* ---- memory of a pool by name ---- */

typedef CUresult alloc_from_pool(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);

/* `stream` as the real function takes it; `meant`: with the program's stream 0 spelt out. In a capture the memory is a
 * graph's. */
static CUresult allocate_from_pool(alloc_from_pool *real, CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                   CUstream stream, CUstream meant, const void *caller)
{
    exec_here here = exec_pool_owner(pool, stream);
    const bool captured = exec_is_captured(meant);
    exec_charge charge;
    CUresult result;
    if (!captured && here.primary && here.device && exec_pool_is_default(here.device->ordinal, pool) &&
        serve_ordered(&here, out, bytes, stream, meant, caller, &result))
        return result;
    result = exec_charge_begin(&here, EXEC_POOLED, captured ? 0 : bytes, caller, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, bytes, pool, stream) : CUDA_ERROR_NOT_FOUND;
    if (captured)
        return exec_graph_memory_captured(result, caller);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, bytes, pool, stream);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return allocate_from_pool(EXEC_REAL(cuMemAllocFromPoolAsync), out, bytes, pool, stream, stream, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                                          CUstream stream)
{
    return allocate_from_pool(EXEC_REAL(cuMemAllocFromPoolAsync_ptsz), out, bytes, pool, stream,
                              exec_own_default(stream), EXEC_CALLER);
}

/* ---- frees ---- */

/* Asks the driver for the physical memory behind the address: a stack's, unless the program has made it. In a free of
 * such an address the driver would take the stack's mapping apart. */
static bool is_mapped_by_a_stack(CUdeviceptr address)
{
    CUmemGenericAllocationHandle handle;
    __typeof__(&cuMemRetainAllocationHandle) retain = EXEC_REAL(cuMemRetainAllocationHandle);
    __typeof__(&cuMemRelease) release = EXEC_REAL(cuMemRelease);
    if (!retain || !release ||
        retain(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS) /* NOLINT: an address of the device */
        return false;
    release(handle);
    return !exec_passed_has(EXEC_PHYSICAL, handle);
}

bool exec_is_held(CUdeviceptr address)
{
    return strata_driver_is_open() &&
           (exec_device_hides(address) || pool_malloc_holds(address) || is_mapped_by_a_stack(address));
}

static CUresult refuse(exec_wrong_free kind, CUdeviceptr address)
{
    exec_wrong_free_note(kind, address);
    return CUDA_ERROR_INVALID_VALUE;
}

/* The address is of a stack's memory, and not the begin of a block that the program has. */
static bool is_wrong(CUdeviceptr address, const strata_block *block)
{
    return block->address != address || exec_free_waits(address);
}

static CUresult refuse_of_stack(CUdeviceptr address, const strata_block *block)
{
    return refuse(block->address != address ? EXEC_FREE_INSIDE : EXEC_FREE_DEAD, address);
}

/* Of no block. False: it is of a stack's memory all the same, and not for the driver to free. */
static bool passes_on(exec_kind kind, CUdeviceptr address, exec_release *release)
{
    exec_release_begin(kind, address, release);
    return release->facts.holders || !address || !exec_is_held(address);
}

static CUresult passed_on(const exec_release *release, CUdeviceptr address, CUresult result)
{
    exec_release_end(release, result);
    return result == CUDA_ERROR_INVALID_VALUE ? refuse(EXEC_FREE_FOREIGN, address) : result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address)
{
    strata_block block;
    exec_release release;
    exec_device *owner = address ? exec_find_block(address, &block) : NULL;
    if (!owner)
        return passes_on(EXEC_LINEAR, address, &release)
                   ? passed_on(&release, address, EXEC_CALL(cuMemFree_v2, address))
                   : refuse(EXEC_FREE_DEAD, address);
    if (is_wrong(address, &block))
        return refuse_of_stack(address, &block);
    exec_offer *offer = exec_ipc_take_offer(address);
    const CUresult result = exec_free_block(owner, &block);
    exec_ipc_freed(offer, result == CUDA_SUCCESS);
    return result;
}

typedef CUresult free_async(CUdeviceptr address, CUstream stream);

static CUresult free_on(free_async *real, CUdeviceptr address, CUstream stream, CUstream meant)
{
    strata_block block;
    exec_release release;
    exec_device *owner = address ? exec_find_block(address, &block) : NULL;
    if (!owner)
        return passes_on(EXEC_POOLED, address, &release)
                   ? passed_on(&release, address, real ? real(address, stream) : CUDA_ERROR_NOT_FOUND)
                   : refuse(EXEC_FREE_DEAD, address);
    CUresult result = exec_capture_answers_free(meant);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_wrong(address, &block))
        return refuse_of_stack(address, &block);
    exec_offer *offer = exec_ipc_take_offer(address);
    result = exec_free_on(owner, &block, meant);
    exec_ipc_freed(offer, result == CUDA_SUCCESS);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return free_on(EXEC_REAL(cuMemFreeAsync), address, stream, stream);
}

EXEC_EXPORT CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return free_on(EXEC_REAL(cuMemFreeAsync_ptsz), address, stream, exec_own_default(stream));
}
