/* Handles: each loads the stand-in's kernels into the context that is current, and launches them on its stream. */
#include "blas.h"
#include "kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef sim_blas_handle *cublasHandle_t;

const strata_sim_kernel sim_blas_kernels[SIM_BLAS_KINDS] = {
    [SIM_BLAS_GEMM] = sim_blas_gemm, [SIM_BLAS_GEMM_BATCHED] = sim_blas_gemm_batched,
    [SIM_BLAS_AXPY] = sim_blas_axpy, [SIM_BLAS_SCAL] = sim_blas_scal,
    [SIM_BLAS_DOT] = sim_blas_dot,   [SIM_BLAS_NRM2] = sim_blas_nrm2,
    [SIM_BLAS_GEMV] = sim_blas_gemv, [SIM_BLAS_GER] = sim_blas_ger,
    [SIM_BLAS_TRSM] = sim_blas_trsm,
};

const char *const sim_blas_kernel_names[SIM_BLAS_KINDS] = {
    [SIM_BLAS_GEMM] = "strata_sim_blas_gemm", [SIM_BLAS_GEMM_BATCHED] = "strata_sim_blas_gemm_batched",
    [SIM_BLAS_AXPY] = "strata_sim_blas_axpy", [SIM_BLAS_SCAL] = "strata_sim_blas_scal",
    [SIM_BLAS_DOT] = "strata_sim_blas_dot",   [SIM_BLAS_NRM2] = "strata_sim_blas_nrm2",
    [SIM_BLAS_GEMV] = "strata_sim_blas_gemv", [SIM_BLAS_GER] = "strata_sim_blas_ger",
    [SIM_BLAS_TRSM] = "strata_sim_blas_trsm",
};

int sim_blas_status_of(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return CUBLAS_SUCCESS;
    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_CONTEXT)
        return CUBLAS_NOT_INITIALIZED;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUBLAS_ALLOC_FAILED : CUBLAS_EXECUTION_FAILED;
}

/* ---- kernels ---- */

const sim_blas_call *sim_blas_begin(strata_sim_launch *launch)
{
    const sim_blas_call *call = launch->parameters[0];
    if (call->workspace_bytes)
        launch->declare_write(launch, call->workspace, (size_t)call->workspace_bytes);
    return call;
}

void sim_blas_give_up(strata_sim_launch *launch)
{
    launch->read(launch, 0, 1);
}

size_t sim_blas_span(int64_t rows, int64_t columns, int64_t leading)
{
    return rows && columns ? (size_t)((columns - 1) * leading + rows) : 0;
}

/* Registered once for the process; guarded by the lock. */
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static bool registered;

static CUresult register_kernels(void)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&registering);
    for (int i = 0; i < SIM_BLAS_KINDS && !registered && result == CUDA_SUCCESS; i++)
        result = strata_sim_register_kernel(sim_blas_kernel_names[i], sim_blas_kernels[i]);
    registered = registered || result == CUDA_SUCCESS;
    pthread_mutex_unlock(&registering);
    return result;
}

/* Writes the PTX of the kernels, each of which has one parameter, the call. */
static void write_ptx(char *text, size_t room)
{
    int length = snprintf(text, room, ".version 6.0\n.target sm_52\n.address_size 64\n");
    for (int i = 0; i < SIM_BLAS_KINDS && length > 0 && (size_t)length < room; i++)
        length += snprintf(text + length, room - (size_t)length,
                           ".visible .entry %s(.param .align 8 .b8 call[%zu])\n{\n\tret;\n}\n",
                           sim_blas_kernel_names[i], sizeof(sim_blas_call));
}

static CUresult load_kernels(sim_blas_handle *handle)
{
    char text[2048];
    write_ptx(text, sizeof text);
    CUresult result = register_kernels();
    if (result == CUDA_SUCCESS)
        result = cuModuleLoadData(&handle->module, text);
    for (int i = 0; i < SIM_BLAS_KINDS && result == CUDA_SUCCESS; i++)
        result = cuModuleGetFunction(&handle->functions[i], handle->module, sim_blas_kernel_names[i]);
    if (result != CUDA_SUCCESS && handle->module)
        cuModuleUnload(handle->module);
    return result;
}

int sim_blas_submit(const sim_blas_handle *handle, sim_blas_kind kind, sim_blas_call *call)
{
    call->workspace = handle->workspace;
    call->workspace_bytes = handle->workspace_bytes;
    void *parameters[] = {call};
    return sim_blas_status_of(
        cuLaunchKernel(handle->functions[kind], 1, 1, 1, 1, 1, 1, 0, handle->stream, parameters, NULL));
}

/* ---- entry points ---- */

/* NOT_INITIALIZED without a BLAS of the CPU; the text of the status says what to install. */
SIM_BLAS_EXPORT int cublasCreate_v2(cublasHandle_t *handle)
{
    if (!handle)
        return CUBLAS_INVALID_VALUE;
    *handle = NULL;
    if (!sim_blas_cpu_open())
        return CUBLAS_NOT_INITIALIZED;
    sim_blas_handle *made = calloc(1, sizeof *made);
    if (!made)
        return CUBLAS_ALLOC_FAILED;
    const int status = sim_blas_status_of(load_kernels(made));
    if (status == CUBLAS_SUCCESS)
        *handle = made;
    else
        free(made);
    return status;
}

SIM_BLAS_EXPORT int cublasDestroy_v2(cublasHandle_t handle)
{
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    const int status = sim_blas_status_of(cuModuleUnload(handle->module));
    free(handle);
    return status;
}

/* Takes the workspace away, as cuBLAS does. */
SIM_BLAS_EXPORT int cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    handle->stream = stream;
    handle->workspace = handle->workspace_bytes = 0;
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    if ((uintptr_t)workspace % 256)
        return CUBLAS_INVALID_VALUE;
    handle->workspace = (uintptr_t)workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasSetPointerMode_v2(cublasHandle_t handle, int mode)
{
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    if (mode != POINTER_HOST && mode != POINTER_DEVICE)
        return CUBLAS_INVALID_VALUE;
    handle->pointer_mode = mode;
    return CUBLAS_SUCCESS;
}

/* Major and minor version and patch level: those of the interface that the stand-in has. */
SIM_BLAS_EXPORT int cublasGetProperty(int which, int *value)
{
    if (!value || which < 0 || which > 2)
        return CUBLAS_INVALID_VALUE;
    *value = which == 0 ? 13 : 0;
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT const char *cublasGetStatusName(int status)
{
    switch (status) {
    case CUBLAS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "<unknown>";
    }
}

SIM_BLAS_EXPORT const char *cublasGetStatusString(int status)
{
    switch (status) {
    case CUBLAS_SUCCESS:
        return "success";
    case CUBLAS_NOT_INITIALIZED:
        return sim_blas_cpu_open() ? "the handle is NULL, or no context is current" : sim_blas_cpu_missing();
    case CUBLAS_ALLOC_FAILED:
        return "no memory was left";
    case CUBLAS_INVALID_VALUE:
        return "a parameter is invalid";
    case CUBLAS_EXECUTION_FAILED:
        return "a kernel could not be launched";
    case CUBLAS_NOT_SUPPORTED:
        return "the simulated driver's cuBLAS does not do this";
    default:
        return "no such status";
    }
}
