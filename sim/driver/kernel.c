/* Entry points: modules and kernels. */
#include "driver/enter.h"
#include <string.h>

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    sim_launch_shape shape = {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
    return sim_leave(sim_kernel_submit(f, &shape, hStream, kernelParams, extra));
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_slab_has(&sim_kernels.functions, hfunc))
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!pi || (unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pi = sim_function_attribute(attrib);
    return sim_leave(CUDA_SUCCESS);
}

/* Waits for the context's work, as cuModuleUnload, but captures allow it. */
CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule made = NULL;
    result = sim_module_load(context, module ? &made : NULL, image);
    if (result == CUDA_SUCCESS) {
        result = sim_context_wait(context);
        const bool there = sim_slab_has(&sim_kernels.modules, made); /* the context may have ended during the wait */
        if (result == CUDA_SUCCESS && there)
            *module = made;
        else if (there)
            sim_module_free(made);
        else if (result == CUDA_SUCCESS)
            result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return sim_leave(result);
}

/* No compiler: options are ignored, logs empty. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                            void **optionValues)
{
    if (numOptions > 0 && (!options || !optionValues))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numOptions; i++)
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            optionValues[i] = NULL;
    sim_called_as(__func__);
    return cuModuleLoadData(module, image);
}

/* Waits for all work of the module's context. */
CUresult cuModuleUnload(CUmodule hmod)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_slab_has(&sim_kernels.modules, hmod))
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    result = sim_context_wait(hmod->context);
    if (result == CUDA_SUCCESS && sim_slab_has(&sim_kernels.modules, hmod))
        sim_module_free(hmod);
    return sim_leave(result);
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!hfunc || !name || name[0] == '\0')
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_slab_has(&sim_kernels.modules, hmod))
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    result = sim_context_check(hmod->context);
    return sim_leave(result == CUDA_SUCCESS ? sim_module_get_function(hmod, name, hfunc) : result);
}

/* As documented; no answer of a GPU is recorded. */
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_slab_has(&sim_kernels.functions, func))
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!paramOffset || paramIndex >= func->entry->count)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *paramOffset = func->entry->offsets[paramIndex];
    if (paramSize)
        *paramSize = func->entry->sizes[paramIndex];
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!name)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_slab_has(&sim_kernels.modules, hmod))
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    const sim_ptx_global *global = hmod->globals;
    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    if (!global)
        return sim_leave(CUDA_ERROR_NOT_FOUND);
    if (dptr)
        *dptr = global->block->address;
    if (bytes)
        *bytes = global->bytes;
    return sim_leave(CUDA_SUCCESS);
}
