/* Touches blocks: the linker replaces the library's functions by the ones here (--wrap). */
#define _GNU_SOURCE
#include "support/touch.h"

#include "core/base/error.h"
#include "core/streams/device.h"
#include "core/streams/known_streams.h"
#include "runtime/runtime.h"

#include "support/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* These names are macros in programs whose stream 0 is the thread's own. */
#undef strata_runtime_allocate
#undef strata_runtime_allocate_request
#undef strata_runtime_deallocate_on
#undef strata_runtime_prepare_block_use
#undef strata_runtime_prepare_first_use

static const char image[] = ".version 6.0\n"
                            ".target sm_52\n"
                            ".address_size 64\n"
                            ".visible .entry strata_test_touch(\n"
                            "    .param .u64 address,\n"
                            "    .param .u64 bytes,\n"
                            "    .param .u32 access\n"
                            ")\n"
                            "{\n"
                            "    ret;\n"
                            "}\n";

static test_touch touched;                      /* written before the test starts threads, like what follows */
static PFN_cuLaunchKernel_v4000 launch_kernel;  /* the driver's own, without call counts */
static CUfunction kernels[STRATA_DEVICE_LIMIT]; /* of each device's primary context */

static void host_kernel(strata_sim_launch *launch)
{
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t access;
    memcpy(&address, launch->parameters[0], sizeof address);
    memcpy(&bytes, launch->parameters[1], sizeof bytes);
    memcpy(&access, launch->parameters[2], sizeof access);
    if (access & STRATA_ACCESS_READ)
        launch->declare_read(launch, address, bytes);
    if (access & STRATA_ACCESS_WRITE)
        launch->declare_write(launch, address, bytes);
}

static bool load(int ordinal)
{
    CUdevice device;
    CUcontext context, popped;
    CUmodule module;
    bool loaded = test_cu()->DeviceGet(&device, ordinal) == CUDA_SUCCESS &&
                  test_cu()->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
                  test_cu()->CtxPushCurrent(context) == CUDA_SUCCESS;
    loaded = loaded && test_cu()->ModuleLoadData(&module, image) == CUDA_SUCCESS &&
             test_cu()->ModuleGetFunction(&kernels[ordinal], module, "strata_test_touch") == CUDA_SUCCESS;
    return loaded && test_cu()->CtxPopCurrent(&popped) == CUDA_SUCCESS;
}

void test_touch_begin(test_touch what)
{
    strata_driver_info info;
    PFN_strata_sim_register_kernel register_kernel;
    if (strata_driver_get_info(&info) != STRATA_SUCCESS)
        abort();
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "strata_sim_register_kernel") : NULL;
    if (!symbol)
        abort();
    memcpy(&register_kernel, &symbol, sizeof symbol);
    symbol = dlsym(library, "cuLaunchKernel");
    memcpy(&launch_kernel, &symbol, sizeof symbol);
    if (!symbol || register_kernel("strata_test_touch", host_kernel) != CUDA_SUCCESS)
        abort();
    for (int ordinal = 0; ordinal < info.device_count; ordinal++)
        if (!load(ordinal))
            abort();
    touched = what;
}

/* Submits nothing on a stream that cannot be used now. The stream accepts the kernel of one device only. */
static void submit(CUdeviceptr address, uint64_t bytes, CUstream stream, strata_access access)
{
    uint32_t how = (uint32_t)access;
    void *parameters[] = {&address, &bytes, &how};
    for (int i = 0; i < STRATA_DEVICE_LIMIT && kernels[i]; i++)
        if (launch_kernel(kernels[i], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL) == CUDA_SUCCESS)
            return;
}

static bool is_guarded(const strata_runtime *runtime)
{
    for (size_t i = 0; i < runtime->stack->count; i++)
        if (strcmp(runtime->stack->layers[i]->ops->name, "guard") == 0)
            return true;
    return false;
}

static bool touches_past(const strata_runtime *runtime)
{
    return (touched == TEST_TOUCH_USES_PAST || touched == TEST_TOUCH_ALL_PAST) && is_guarded(runtime);
}

/* The byte `past` bytes after the requested ones. */
static void touch_past(const strata_runtime *runtime, const strata_block *block, CUstream stream, unsigned past)
{
    if (touches_past(runtime))
        submit(block->address + block->requested + past, 1, stream, STRATA_ACCESS_WRITE);
}

static void touch_use(const strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access)
{
    enum { MOST = 256 };
    if (touched == TEST_TOUCH_NOTHING || !block || !block->address || access == STRATA_ACCESS_NONE)
        return;
    submit(block->address, block->bytes < MOST ? block->bytes : MOST, stream, access);
    if (access & STRATA_ACCESS_WRITE)
        touch_past(runtime, block, stream, 0);
}

/* Wrong frees touch nothing. */
static void touch_free(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    strata_block found;
    if (!runtime || !block || stream == STRATA_STREAM_GONE || !touches_past(runtime))
        return;
    strata_error_suppress_begin();
    bool lives = strata_runtime_find(runtime, block->address, &found) == STRATA_SUCCESS &&
                 memcmp(&found.id, &block->id, sizeof found.id) == 0;
    strata_error_suppress_end(false);
    if (lives)
        touch_past(runtime, &found, stream, 1);
}

strata_status __real_strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access);
strata_status __wrap_strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access);
strata_status __real_strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access);
strata_status __wrap_strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access);
strata_status __real_strata_launch_preflight(strata_launch *launch);
strata_status __wrap_strata_launch_preflight(strata_launch *launch);

strata_status __wrap_strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access)
{
    strata_status status = __real_strata_runtime_prepare_block_use(runtime, block, stream, access);
    if (status == STRATA_SUCCESS)
        touch_use(runtime, block, stream, access);
    return status;
}

strata_status __wrap_strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream, strata_access access)
{
    strata_status status = __real_strata_runtime_prepare_first_use(runtime, block, stream, access);
    if (status == STRATA_SUCCESS)
        touch_use(runtime, block, stream, access);
    return status;
}

strata_status __wrap_strata_launch_preflight(strata_launch *launch)
{
    strata_status status = __real_strata_launch_preflight(launch);
    const strata_launch_entry *entries = launch && launch->entries ? launch->entries : launch ? launch->storage : NULL;
    for (size_t i = 0; status == STRATA_SUCCESS && i < launch->count; i++)
        touch_use(launch->runtime, &entries[i].block, launch->stream, entries[i].access);
    return status;
}

strata_status __real_strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                             strata_block *block);
strata_status __wrap_strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                             strata_block *block);

strata_status __wrap_strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                             strata_block *block)
{
    strata_status status = __real_strata_runtime_allocate(runtime, bytes, stream, block);
    if (status == STRATA_SUCCESS && touched >= TEST_TOUCH_ALL)
        touch_use(runtime, block, stream, STRATA_ACCESS_WRITE);
    return status;
}

strata_status __real_strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                     strata_block *block);
strata_status __wrap_strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                     strata_block *block);

strata_status __wrap_strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                     strata_block *block)
{
    strata_status status = __real_strata_runtime_allocate_request(runtime, request, block);
    if (status == STRATA_SUCCESS && touched >= TEST_TOUCH_ALL)
        touch_use(runtime, block, request->stream, STRATA_ACCESS_WRITE);
    return status;
}

strata_status __real_strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block);
strata_status __wrap_strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block);
strata_status __real_strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block, CUstream stream);
strata_status __wrap_strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block, CUstream stream);

/* On the stream that the block was allocated on, which may be destroyed. */
strata_status __wrap_strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block)
{
    if (block && strata_stream_is_known(block->stream))
        touch_free(runtime, block, block->stream);
    return __real_strata_runtime_deallocate(runtime, block);
}

strata_status __wrap_strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    touch_free(runtime, block, stream);
    return __real_strata_runtime_deallocate_on(runtime, block, stream);
}
