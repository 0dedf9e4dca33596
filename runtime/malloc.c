/* Memory for code that has no stream.
 *
 *     strata_malloc   allocates on an idle stream and waits for it on the host: what earlier users of the memory still
 *                     had to do was put in front of that stream, and is complete.
 *     strata_free     waits for the device, so that whichever stream used the memory is done, and frees on an idle one.
 */
#include <strata/malloc.h>

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/stack/calls.h"
#include "core/streams/stream_wait.h"
#include "runtime/any_stream_frees.h"
#include "runtime/idle_streams.h"
#include "runtime/of_address.h"

/* PTDS programs see macros of these names. */
#undef strata_free_on
#undef strata_malloc_on
#undef strata_runtime_allocate_request
#undef strata_runtime_deallocate_on

/* ---- the device ---- */

/* The device that has the context open already; -1: none. */
static int device_of_open(CUcontext context)
{
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        const strata_device *device = strata_device_if_open(ordinal);
        if (device && device->context == context)
            return ordinal;
    }
    return -1;
}

static strata_status refuse_context(void)
{
    return strata_fail(STRATA_ERROR_UNSUPPORTED,
                       "the thread's current context is not the primary context of its device, in which Strata works; "
                       "make that one current (cuDevicePrimaryCtxRetain, cuCtxSetCurrent; cudaSetDevice)");
}

static int device_count(void)
{
    strata_driver_facts driver;
    strata_driver_describe(&driver);
    return driver.device_count;
}

/* The number of devices if the handle is none of theirs. */
static int ordinal_of(CUdevice handle)
{
    CUdevice other;
    int ordinal = 0;
    while (ordinal < device_count() && (strata_cu.DeviceGet(&other, ordinal) != CUDA_SUCCESS || other != handle))
        ordinal++;
    return ordinal;
}

/* Finds the ordinal of the device whose primary context this is: only the ordinal opens a device. */
static strata_status device_of_other(CUcontext context, int *ordinal)
{
    CUdevice handle;
    if (!strata_cu.CtxGetDevice)
        return refuse_context();
    const CUresult result = strata_cu.CtxGetDevice(&handle);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuCtxGetDevice", "finding the device of the current context");
    *ordinal = ordinal_of(handle);
    strata_device *device;
    const strata_status status = strata_device_get(*ordinal, &device);
    return status == STRATA_SUCCESS && device->context != context ? refuse_context() : status;
}

/* A thread without a context gets the one that the CUDA runtime would make current. */
static strata_status adopt_first_device(void)
{
    strata_device *device;
    const strata_status status = strata_device_get(0, &device);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.CtxSetCurrent(device->context);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuCtxSetCurrent", "making the primary context of device 0 current");
}

static strata_status current_device(int *ordinal)
{
    CUcontext context = NULL;
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.CtxGetCurrent(&context);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuCtxGetCurrent", "finding the current device");
    *ordinal = 0;
    if (!context)
        return adopt_first_device();
    *ordinal = device_of_open(context);
    return *ordinal < 0 ? device_of_other(context, ordinal) : STRATA_SUCCESS;
}

static strata_status current_runtime(strata_runtime **out)
{
    int ordinal = 0;
    const strata_status status = current_device(&ordinal);
    return status == STRATA_SUCCESS ? strata_runtime_get(ordinal, out) : status;
}

/* The device of a context that Strata does not know; *ordinal stays if the driver does not say. */
static void ask_for_device(CUcontext context, int *ordinal)
{
    CUcontext before;
    CUdevice handle;
    if (!strata_cu.CtxGetDevice || strata_cu.CtxGetCurrent(&before) != CUDA_SUCCESS ||
        strata_cu.CtxSetCurrent(context) != CUDA_SUCCESS)
        return;
    if (strata_cu.CtxGetDevice(&handle) == CUDA_SUCCESS)
        *ordinal = ordinal_of(handle);
    strata_cu.CtxSetCurrent(before);
}

static bool is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* The runtime of the stream's device, as the driver's memory for a stream is of that one, whichever is current. A
 * handle that the driver refuses is the allocation's to refuse. */
static strata_status runtime_of_stream(CUstream stream, strata_runtime **out)
{
    CUcontext context;
    int ordinal = 0;
    const strata_status status = current_device(&ordinal);
    if (status != STRATA_SUCCESS)
        return status;
    if (!is_default(stream) && device_count() > 1 && strata_cu.StreamGetCtx &&
        strata_cu.StreamGetCtx(stream, &context) == CUDA_SUCCESS) {
        const int open = device_of_open(context);
        if (open >= 0)
            ordinal = open;
        else
            ask_for_device(context, &ordinal);
    }
    return strata_runtime_get(ordinal, out);
}

/* ---- freeing ---- */

static strata_status refuse_unknown(CUdeviceptr address)
{
    const strata_status status =
        strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                    "no live block of this process begins at 0x%llx: it was freed already, or is memory of another "
                    "library, which frees it itself",
                    (unsigned long long)address);
    strata_tell_refused_everywhere(address);
    return status;
}

static strata_status check_start(CUdeviceptr address, const strata_block *block)
{
    if (block->address != address)
        return strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                           "0x%llx is not the start of a block: it is inside of block 0x%llx (tag \"%s\", %s); free "
                           "that address",
                           (unsigned long long)address, (unsigned long long)block->address, strata_tag_name(block->tag),
                           strata_size_text(block->bytes).text);
    if (strata_any_stream_free_is_due(block))
        return strata_fail(STRATA_ERROR_DOUBLE_FREE,
                           "block 0x%llx (tag \"%s\", %s) was freed already; the free waits for the end of a capture",
                           (unsigned long long)address, strata_tag_name(block->tag),
                           strata_size_text(block->bytes).text);
    return STRATA_SUCCESS;
}

/* Finds the block that begins at the pointer. *over: there is nothing to free. Else, after a success, the caller
 * releases the block. */
static strata_status find_to_free(void *pointer, strata_owned_block *found, bool *over)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    *over = !pointer || strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN;
    if (*over)
        return STRATA_SUCCESS;
    strata_status status = strata_check_driver(); /* in a forked child no lock is taken */
    if (status == STRATA_SUCCESS) {
        strata_any_stream_frees_try();
        status = strata_owned_block_find(address, found);
    }
    if (status == STRATA_ERROR_FOREIGN_POINTER)
        return refuse_unknown(address);
    *over = status == STRATA_ERROR_SHUT_DOWN;
    if (status != STRATA_SUCCESS)
        return *over ? STRATA_SUCCESS : status;
    status = check_start(address, &found->block);
    if (status != STRATA_SUCCESS)
        strata_owned_block_release(found);
    return status;
}

strata_status strata_free(void *address)
{
    strata_owned_block found;
    bool over;
    strata_status status = find_to_free(address, &found, &over);
    if (over || status != STRATA_SUCCESS)
        return status;
    status = strata_any_stream_free(found.runtime, &found.block);
    strata_owned_block_release(&found);
    return status;
}

static strata_status wait_for_default_stream(CUcontext context, CUstream stream)
{
    int ordinal = device_of_open(context);
    strata_device *device;
    if (ordinal < 0)
        ask_for_device(context, &ordinal);
    const strata_status status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    if (device->context == context && strata_device_is_usable_now(device))
        return strata_stream_wait(device, stream);
    /* of a context beside the primary one, or that began anew */
    const CUresult result = strata_cu.StreamSynchronize(stream);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuStreamSynchronize", "waiting for the current context's default stream");
}

/* A default stream is the current context's, and the runtime knows its own device's alone. Another one is waited for:
 * work on it may still use the memory. */
static strata_status await_other_default_stream(const strata_runtime *runtime, CUstream stream)
{
    CUcontext context;
    if (!is_default(stream) || !strata_device_is_usable(runtime->device) ||
        strata_cu.CtxGetCurrent(&context) != CUDA_SUCCESS || !context || context == runtime->device->context)
        return STRATA_SUCCESS;
    return wait_for_default_stream(context, stream);
}

strata_status strata_free_on(void *address, CUstream stream)
{
    strata_owned_block found;
    bool over;
    strata_status status = find_to_free(address, &found, &over);
    if (over || status != STRATA_SUCCESS)
        return status;
    status = await_other_default_stream(found.runtime, stream);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_deallocate_on(found.runtime, &found.block, stream);
    strata_owned_block_release(&found);
    return status;
}

/* ---- allocating ---- */

/* As aligned as cudaMalloc's, for textures of linear memory (cudaDeviceProp::textureAlignment). Owners that align less
 * have memory of the driver, which is so aligned. */
enum { MALLOC_ALIGNMENT = 512 };

/* Whether a branch that aligns less may have been passed over: fallback asks the next one, and answers as that. */
static bool may_serve_unaligned(const strata_runtime *runtime, strata_status status)
{
    const strata_stack *stack = runtime->stack;
    bool branches = false;
    if (status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET)
        for (size_t i = 0; i < stack->count && !branches; i++)
            branches = stack->ops[i].branch != NULL;
    return branches || status == STRATA_ERROR_UNSUPPORTED;
}

static strata_status allocate_aligned(strata_runtime *runtime, size_t bytes, CUstream stream, strata_block *block)
{
    strata_request request = {
        .bytes = bytes, .alignment = MALLOC_ALIGNMENT, .stream = stream, .tag = strata_tag_current()};
    strata_error_suppress_begin();
    strata_status status = strata_runtime_allocate_request(runtime, &request, block);
    if (may_serve_unaligned(runtime, status)) {
        request.alignment = 0;
        status = strata_runtime_allocate_request(runtime, &request, block);
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static strata_status allocate_on(strata_runtime *runtime, const strata_idle_stream *stream, size_t bytes,
                                 strata_block *block)
{
    strata_status status = allocate_aligned(runtime, bytes, strata_idle_stream_handle(stream), block);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_idle_stream_wait(stream);
    if (status != STRATA_SUCCESS) {
        strata_error_suppress_begin();
        if (strata_runtime_deallocate(runtime, block) != STRATA_SUCCESS)
            strata_any_stream_free_later(block);
        strata_error_suppress_end(false);
    }
    return status;
}

static strata_status check_search(const strata_runtime *runtime)
{
    return runtime->top->ops->capabilities(runtime->top) & STRATA_CAPABILITY_FIND
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_UNSUPPORTED,
                             "the stack \"%s\" cannot find a block by its address, which strata_free needs",
                             strata_stack_text(runtime->stack));
}

static strata_status allocate(size_t bytes, strata_block *block)
{
    strata_runtime *runtime;
    strata_idle_stream *stream;
    strata_status status = current_runtime(&runtime);
    if (status == STRATA_SUCCESS)
        status = check_search(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_idle_stream_take(runtime->device, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    status = allocate_on(runtime, stream, bytes, block);
    strata_idle_stream_give(stream);
    return status;
}

/* Tries twice: if the first try notices a reset, the second has a new runtime. */
static strata_status allocate_after_reset(size_t bytes, strata_block *block)
{
    strata_error_suppress_begin();
    strata_status status = allocate(bytes, block);
    if (status == STRATA_ERROR_DEVICE_RESET)
        status = allocate(bytes, block);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_malloc(void **out, size_t bytes)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_malloc: out is NULL");
    *out = NULL;
    strata_block block;
    strata_status status = strata_check_driver();
    if (!bytes || status != STRATA_SUCCESS)
        return status;
    strata_any_stream_frees_try();
    status = allocate_after_reset(bytes, &block);
    if (status == STRATA_SUCCESS)
        *out = (void *)(uintptr_t)block.address;
    return status;
}

static strata_status allocate_on_named(void **out, size_t bytes, CUstream stream)
{
    const strata_request request = {.bytes = bytes, .stream = stream, .tag = strata_tag_current()};
    strata_runtime *runtime;
    strata_block block;
    strata_status status = runtime_of_stream(stream, &runtime);
    if (status == STRATA_SUCCESS)
        status = check_search(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_allocate_request(runtime, &request, &block);
    if (status == STRATA_SUCCESS)
        *out = (void *)(uintptr_t)block.address;
    return status;
}

strata_status strata_malloc_on(void **out, size_t bytes, CUstream stream)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_malloc_on: out is NULL");
    *out = NULL;
    const strata_status status = strata_check_driver();
    if (!bytes || status != STRATA_SUCCESS)
        return status;
    strata_any_stream_frees_try();
    return allocate_on_named(out, bytes, stream);
}

bool strata_holds(const void *address)
{
    strata_owned_block found;
    const CUdeviceptr number = (CUdeviceptr)(uintptr_t)address;
    if (!address)
        return false;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        return true;
    if (!strata_driver_is_open())
        return false;
    const strata_status status = strata_owned_block_find(number, &found);
    if (status == STRATA_SUCCESS)
        strata_owned_block_release(&found);
    return status == STRATA_SUCCESS ||
           (status == STRATA_ERROR_FOREIGN_POINTER && (strata_is_freed_in_capture(number) || strata_is_cut_up(number)));
}

/* ---- how much there is ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Counts frees that are complete, as those of strata_free, which has waited for them. */
static void count_finished_frees(strata_runtime *runtime)
{
    size_t bytes;
    strata_error_suppress_begin();
    strata_reap_internally(runtime->top, STRATA_REAP_FINISHED, &bytes);
    strata_error_suppress_end(false);
}

/* Free bytes of the device's memory in the stack, whose usage has also those of the host's. */
static size_t free_in_stack(const strata_runtime *runtime, const strata_usage *all)
{
    const strata_stack *stack = runtime->stack;
    size_t bytes = 0;
    if (runtime->top->ops->capabilities(runtime->top) & STRATA_CAPABILITY_DEVICE_MEMORY)
        return all->reserved_free;
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *layer = stack->layers[i];
        strata_usage usage = {0};
        if (!layer->upstream && layer->ops->capabilities(layer) & STRATA_CAPABILITY_DEVICE_MEMORY &&
            layer->ops->usage(layer, &usage) == STRATA_SUCCESS)
            bytes += usage.reserved_free;
    }
    return bytes;
}

strata_status strata_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    strata_runtime *runtime;
    strata_runtime_budget budget = {0};
    strata_usage usage = {0};
    strata_status status = current_runtime(&runtime);
    if (status == STRATA_SUCCESS) {
        strata_any_stream_frees_try();
        count_finished_frees(runtime);
        status = strata_runtime_budget_snapshot(runtime, &budget);
    }
    if (status == STRATA_SUCCESS)
        status = strata_runtime_usage(runtime, &usage);
    const bool known = status == STRATA_SUCCESS;
    const size_t total = known ? runtime->device->info.total_bytes : 0;
    if (total_bytes)
        *total_bytes = known && budget.limit ? least(budget.limit, total) : total;
    if (free_bytes)
        *free_bytes = known ? least(budget.remaining, budget.device_free + free_in_stack(runtime, &usage)) : 0;
    return status;
}
