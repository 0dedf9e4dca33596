/* Modules, and launches of their kernels with typed arguments. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "runtime/runtime.h"
#include "service/image.h"
#include "service/in_process/in_process.h"

enum { MOST_PARAMETERS = 1024, MOST_PARAMETER_BYTES = 32764 /* of a kernel: CUDA C++ Programming Guide */ };

/* ---- modules ---- */

static strata_status load(const strata_service *service, const strata_future *request, CUmodule *out)
{
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, service->context->runtime->device,
                                                         STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.ModuleLoadData(out, request->image);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    char text[SERVICE_IMAGE_TEXT];
    strata_driver_facts driver;
    strata_driver_describe(&driver);
    service_image_describe(request->image, request->image_bytes, text);
    return strata_fail_driver(result, "cuModuleLoadData", "loading a module of %zu bytes, %s, on a device of sm_%u%u%s",
                              request->image_bytes, text,
                              atomic_load_explicit(&service->compute_major, memory_order_relaxed),
                              atomic_load_explicit(&service->compute_minor, memory_order_relaxed),
                              driver.simulated ? ", which is simulated and takes PTX alone, uncompressed" : "");
}

strata_status service_load_module(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    service_context *context = service->context;
    service_module *module = strata_host_zalloc(sizeof *module);
    (void)lane;
    *waits = false;
    if (!module)
        return strata_fail_host_memory("a module");
    const strata_status status = load(service, request, &module->handle);
    if (status != STRATA_SUCCESS) {
        strata_host_free(module);
        return status;
    }
    module->number = ++context->last_module;
    module->next = context->modules;
    context->modules = module;
    request->result.module = module->number;
    return STRATA_SUCCESS;
}

/* Unloads a module; SUCCESS also if it has gone with the context. */
static strata_status unload(strata_device *device, CUmodule module)
{
    strata_call_scope scope;
    if (!strata_device_is_usable(device))
        return STRATA_SUCCESS;
    const strata_status status =
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.ModuleUnload(module);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuModuleUnload", "unloading a module of a request");
}

strata_status service_modules_close(service_context *context, bool leave)
{
    for (service_module *module; (module = context->modules);) {
        const strata_status status = unload(context->runtime->device, module->handle);
        if (status != STRATA_SUCCESS && !leave)
            return status;
        context->modules = module->next;
        strata_host_free(module);
    }
    return STRATA_SUCCESS;
}

/* ---- launches ---- */

static strata_status find_function(const service_context *context, const service_launch *launch, CUfunction *out)
{
    const service_module *module = context->modules;
    while (module && module->number != launch->module)
        module = module->next;
    if (!module)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the service has no module %llu: it was loaded before the context was rebuilt, or never",
                           (unsigned long long)launch->module);
    const CUresult result = strata_cu.ModuleGetFunction(out, module->handle, launch->entry);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuModuleGetFunction",
                                    "module %llu has no kernel \"%s\" (its name in the PTX; one of C++ "
                                    "that is not extern \"C\" is mangled)",
                                    (unsigned long long)launch->module, launch->entry);
}

static strata_access access_of(strata_argument_kind kind)
{
    return kind == STRATA_ARGUMENT_READ    ? STRATA_ACCESS_READ
           : kind == STRATA_ARGUMENT_WRITE ? STRATA_ACCESS_WRITE
                                           : STRATA_ACCESS_READ_WRITE;
}

static strata_status use_arguments(strata_launch *recorder, const service_launch *launch)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < launch->count && status == STRATA_SUCCESS; i++)
        if (launch->arguments[i].kind != STRATA_ARGUMENT_VALUE)
            status = strata_launch_use_ref(recorder, launch->arguments[i].ref, access_of(launch->arguments[i].kind));
    return status;
}

/* ---- arguments against the kernel's parameters ---- */

static size_t bytes_of(const strata_argument *argument)
{
    return argument->kind == STRATA_ARGUMENT_VALUE ? argument->bytes : sizeof(CUdeviceptr);
}

/* Checks the number and sizes of the arguments. Drivers before CUDA 12.4 do not tell. INVALID_VALUE is the end of the
 * parameters. */
static strata_status check_arguments(const service_launch *launch, CUfunction function)
{
    size_t offset, bytes, count = 0;
    CUresult result;
    if (!strata_cu.FuncGetParamInfo)
        return STRATA_SUCCESS;
    for (; (result = strata_cu.FuncGetParamInfo(function, count, &offset, &bytes)) == CUDA_SUCCESS; count++)
        if (count < launch->count && bytes_of(&launch->arguments[count]) != bytes)
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "kernel \"%s\": argument %zu has %zu bytes, and the kernel's parameter %zu",
                               launch->entry, count, bytes_of(&launch->arguments[count]), bytes);
    if (result != CUDA_ERROR_INVALID_VALUE)
        return strata_fail_driver(result, "cuFuncGetParamInfo", "asking for parameters of kernel \"%s\"",
                                  launch->entry);
    return count == launch->count ? STRATA_SUCCESS
                                  : strata_fail(STRATA_ERROR_INVALID_VALUE,
                                                "kernel \"%s\" has %zu parameters, and %zu arguments were given",
                                                launch->entry, count, launch->count);
}

/* For a driver that does not tell, and reads an argument for each parameter: those that are missing are zero. */
static void fill_up(void **parameters, size_t count)
{
    static const unsigned char zeros[MOST_PARAMETER_BYTES];
    for (; count < MOST_PARAMETERS; count++)
        parameters[count] = (void *)(uintptr_t)zeros;
}

static strata_status submit(const service_launch *launch, CUfunction function, CUstream stream)
{
    void *parameters[MOST_PARAMETERS];
    CUdeviceptr addresses[STRATA_ARGUMENT_LIMIT];
    if (!strata_cu.FuncGetParamInfo)
        fill_up(parameters, launch->count);
    for (size_t i = 0; i < launch->count; i++) {
        strata_argument *argument = &launch->arguments[i];
        addresses[i] = argument->ref ? argument->ref->address : 0;
        parameters[i] = argument->kind == STRATA_ARGUMENT_VALUE ? (void *)argument->value : (void *)&addresses[i];
    }
    const CUresult result =
        strata_cu.LaunchKernel(function, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                               launch->block[1], launch->block[2], launch->shared_bytes, stream, parameters, NULL);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuLaunchKernel", "launching kernel \"%s\"", launch->entry);
}

static strata_status launch_in_context(const strata_service *service, const service_lane *lane,
                                       const service_launch *launch)
{
    CUfunction function;
    strata_launch recorder;
    strata_status status = find_function(service->context, launch, &function);
    if (status == STRATA_SUCCESS)
        status = check_arguments(launch, function);
    if (status == STRATA_SUCCESS)
        status = strata_launch_begin(&recorder, service->context->runtime, lane->stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    status = use_arguments(&recorder, launch);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&recorder);
    const bool prepared = status == STRATA_SUCCESS;
    if (prepared)
        status = submit(launch, function, lane->stream);
    return service_end_recorder(&recorder, status, prepared);
}

strata_status service_launch_kernel(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, service->context->runtime->device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    status = launch_in_context(service, lane, &request->launch);
    strata_call_scope_leave(&scope);
    *waits = status == STRATA_SUCCESS;
    return status;
}
