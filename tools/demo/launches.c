/* Copies and kernels with the launch recorder: name the blocks, preflight, submit, commit. The recorder makes the
 * stream wait for other streams' work on these blocks, and for nothing else. */
#include "tools/demo/pipeline.h"

const char demo_ptx[] = {
#include "demo_kernels_ptx.inc"
};

enum { GRID_LIMIT = 65535 };

typedef struct use {
    const strata_block *block;
    strata_access access;
} use;

unsigned demo_grid(size_t numbers)
{
    const size_t grid = (numbers + DEMO_THREADS - 1) / DEMO_THREADS;
    return (unsigned)(grid < GRID_LIMIT ? grid : GRID_LIMIT); /* the kernels loop */
}

/* Begins a launch that uses these blocks. After a failure there is nothing to submit, commit or end. */
static strata_status begin(strata_launch *launch, demo_pipeline *self, CUstream stream, const use *uses, size_t count)
{
    strata_status status = strata_launch_begin(launch, self->runtime, stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = strata_launch_use(launch, uses[i].block, uses[i].access);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(launch);
    if (status != STRATA_SUCCESS)
        strata_launch_end(launch);
    return status;
}

static strata_status finish(strata_launch *launch, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        strata_launch_cancel(launch);
        strata_launch_end(launch);
        return strata_fail_driver(result, call, "%s failed", call);
    }
    const strata_status status = strata_launch_commit(launch), ended = strata_launch_end(launch);
    return status == STRATA_SUCCESS ? ended : status;
}

strata_status demo_copy_in(demo_pipeline *self, const strata_block *to, const void *from, size_t bytes, CUstream stream)
{
    strata_launch launch;
    const strata_status status = begin(&launch, self, stream, &(use){to, STRATA_ACCESS_WRITE}, 1);
    if (status != STRATA_SUCCESS)
        return status;
    return finish(&launch, strata_cu.MemcpyHtoDAsync(to->address, from, bytes, stream), "cuMemcpyHtoDAsync");
}

strata_status demo_copy_out(demo_pipeline *self, void *to, const strata_block *from, CUstream stream)
{
    strata_launch launch;
    const strata_status status = begin(&launch, self, stream, &(use){from, STRATA_ACCESS_READ}, 1);
    if (status != STRATA_SUCCESS)
        return status;
    return finish(&launch, strata_cu.MemcpyDtoHAsync(to, from->address, from->requested, stream), "cuMemcpyDtoHAsync");
}

static CUresult run(CUfunction kernel, size_t numbers, CUstream stream, void **parameters)
{
    return strata_cu.LaunchKernel(kernel, demo_grid(numbers), 1, 1, DEMO_THREADS, 1, 1, 0, stream, parameters, NULL);
}

static strata_status multiply_by_kernel(demo_pipeline *self, const strata_block *a, const strata_block *c,
                                        CUstream stream)
{
    const use uses[] = {{c, STRATA_ACCESS_WRITE}, {a, STRATA_ACCESS_READ}, {&self->weights, STRATA_ACCESS_READ}};
    CUdeviceptr to = c->address, left = a->address, right = self->weights.address;
    unsigned n = self->of->settings.n;
    strata_launch launch;
    const strata_status status = begin(&launch, self, stream, uses, 3);
    if (status != STRATA_SUCCESS)
        return status;
    return finish(&launch, run(self->multiply, (size_t)n * n, stream, (void *[]){&to, &left, &right, &n}),
                  "cuLaunchKernel");
}

/* strata_blas_gemm waits and notes as the recorder does. */
strata_status demo_multiply(demo_pipeline *self, const strata_block *a, const strata_block *c, CUstream stream)
{
    const size_t n = self->of->settings.n;
    if (!self->blas)
        return multiply_by_kernel(self, a, c, stream);
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = n,
                                        .n = n,
                                        .k = n,
                                        .alpha = 1,
                                        .a = strata_blas_of_block(a, STRATA_ELEMENT_F32),
                                        .b = strata_blas_of_block(&self->weights, STRATA_ELEMENT_F32),
                                        .c = strata_blas_of_block(c, STRATA_ELEMENT_F32)};
    return strata_blas_gemm(self->blas, &call, stream);
}

strata_status demo_bias_relu(demo_pipeline *self, const strata_block *c, CUstream stream)
{
    const use uses[] = {{c, STRATA_ACCESS_READ_WRITE}, {&self->bias, STRATA_ACCESS_READ}};
    CUdeviceptr to = c->address, bias = self->bias.address;
    unsigned n = self->of->settings.n;
    strata_launch launch;
    const strata_status status = begin(&launch, self, stream, uses, 2);
    if (status != STRATA_SUCCESS)
        return status;
    return finish(&launch, run(self->bias_relu, (size_t)n * n, stream, (void *[]){&to, &bias, &n, &n}),
                  "cuLaunchKernel");
}
