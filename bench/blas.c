/* Products of large matrices: GPU time between two events, through strata_blas and by bare calls of the cuBLAS that
 * Strata has opened. On a GPU only: the simulated driver computes on the CPU. */
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 32 << 20 };

/* Values and types of cublas_api.h. */
enum { OP_N = 0, COMPUTE_32F = 68, TYPE_32F = 0, TYPE_16BF = 14, DEFAULT_ALGORITHM = -1 };
typedef struct cublas_context *cublas_handle;
typedef struct bare_blas {
    int (*create)(cublas_handle *handle);
    int (*destroy)(cublas_handle handle);
    int (*set_stream)(cublas_handle handle, CUstream stream);
    int (*set_workspace)(cublas_handle handle, void *workspace, size_t bytes);
    int (*gemm)(cublas_handle handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
} bare_blas;

typedef struct blas_scene {
    CUstream stream;
    CUevent events[2];
    int side, type;
    strata_block blocks[4]; /* A, B, C and the bare side's workspace */
    bare_blas bare;
    cublas_handle handle;
    strata_blas *blas;
    strata_blas_gemm_call call;
} blas_scene;

static void blas_check(int status, const char *call)
{
    if (status) {
        fprintf(stderr, "strata_bench: %s returned %d\n", call, status);
        exit(EXIT_FAILURE);
    }
}

static void *pointer_to(const strata_block *block)
{
    return (void *)(uintptr_t)block->address;
}

static void multiply_bare(void *state, size_t operations)
{
    blas_scene *self = state;
    const float one = 1, zero = 0;
    const int n = self->side;
    bare_check(bare.EventRecord(self->events[0], self->stream), "cuEventRecord");
    for (size_t i = 0; i < operations; i++)
        blas_check(self->bare.gemm(self->handle, OP_N, OP_N, n, n, n, &one, pointer_to(&self->blocks[0]), self->type, n,
                                   pointer_to(&self->blocks[1]), self->type, n, &zero, pointer_to(&self->blocks[2]),
                                   self->type, n, COMPUTE_32F, DEFAULT_ALGORITHM),
                   "cublasGemmEx");
    bare_check(bare.EventRecord(self->events[1], self->stream), "cuEventRecord");
}

static void multiply(void *state, size_t operations)
{
    blas_scene *self = state;
    bare_check(bare.EventRecord(self->events[0], self->stream), "cuEventRecord");
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_blas_gemm(self->blas, &self->call, self->stream), "strata_blas_gemm");
    bare_check(bare.EventRecord(self->events[1], self->stream), "cuEventRecord");
}

static double gpu_time(void *state)
{
    const blas_scene *self = state;
    float milliseconds;
    bare_check(bare.StreamSynchronize(self->stream), "cuStreamSynchronize");
    bare_check(bare.EventElapsedTime(&milliseconds, self->events[0], self->events[1]), "cuEventElapsedTime");
    return (double)milliseconds * 1e6;
}

static void find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    blas_check(!symbol, name);
    memcpy(pointer, &symbol, sizeof symbol);
}

static void open_bare(blas_scene *self)
{
    strata_blas_info info;
    scene_check(strata_blas_get_info(self->blas, &info), "strata_blas_get_info");
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    blas_check(!library, info.library);
    find(library, "cublasCreate_v2", &self->bare.create);
    find(library, "cublasDestroy_v2", &self->bare.destroy);
    find(library, "cublasSetStream_v2", &self->bare.set_stream);
    find(library, "cublasSetWorkspace_v2", &self->bare.set_workspace);
    find(library, "cublasGemmEx", &self->bare.gemm);
    blas_check(self->bare.create(&self->handle), "cublasCreate");
    blas_check(self->bare.set_stream(self->handle, self->stream), "cublasSetStream");
    blas_check(self->bare.set_workspace(self->handle, pointer_to(&self->blocks[3]), WORKSPACE), "cublasSetWorkspace");
}

static void make(blas_scene *self, strata_runtime *runtime, strata_element type)
{
    const size_t side = (size_t)self->side, bytes = side * side * strata_element_bytes(type);
    scene_check(strata_runtime_stream_acquire(runtime, &self->stream), "strata_runtime_stream_acquire");
    for (int i = 0; i < 4; i++)
        scene_check(strata_runtime_allocate(runtime, i < 3 ? bytes : WORKSPACE, self->stream, &self->blocks[i]),
                    "strata_runtime_allocate");
    for (int i = 0; i < 3; i++) /* bytes that are small numbers in every type: the clock of the GPU follows its data */
        bare_check(bare.MemsetD8Async(self->blocks[i].address, 0x3c, bytes, self->stream), "cuMemsetD8Async");
    for (int i = 0; i < 2; i++)
        bare_check(bare.EventCreate(&self->events[i], CU_EVENT_DEFAULT), "cuEventCreate");
    scene_check(strata_blas_create(runtime, self->stream, NULL, &self->blas), "strata_blas_create");
    self->call = (strata_blas_gemm_call){.order = STRATA_BLAS_COLUMNS, .m = side, .n = side, .k = side, .alpha = 1};
    self->call.a = strata_blas_of_block(&self->blocks[0], type);
    self->call.b = strata_blas_of_block(&self->blocks[1], type);
    self->call.c = strata_blas_of_block(&self->blocks[2], type);
    open_bare(self);
}

static void end(blas_scene *self, strata_runtime *runtime)
{
    blas_check(self->bare.destroy(self->handle), "cublasDestroy");
    scene_check(strata_blas_destroy(self->blas), "strata_blas_destroy");
    for (int i = 0; i < 2; i++)
        bare_check(bare.EventDestroy(self->events[i]), "cuEventDestroy");
    for (int i = 0; i < 4; i++)
        scene_check(strata_runtime_deallocate(runtime, &self->blocks[i]), "strata_runtime_deallocate");
    scene_check(strata_runtime_stream_release(runtime, self->stream), "strata_runtime_stream_release");
}

static void bench_product(const bench *self, const char *name, int side, strata_element type, int library_type)
{
    blas_scene stage = {.side = side, .type = library_type};
    if (!bench_wants(self, name))
        return;
    make(&stage, self->late, type);
    bench_row(self, name, (bench_plan){.warm = 2, .batch = 10, .batches = 1, .spent = gpu_time},
              (bench_side){multiply_bare, NULL, &stage}, (bench_side){multiply, NULL, &stage},
              (bench_target){REPORT_NO_TARGET, 0});
    end(&stage, self->late);
}

/* Whether there is a cuBLAS: without it there are no rows. */
static bool has_blas(const bench *self)
{
    strata_blas *blas;
    if (self->simulated || strata_blas_create(self->late, NULL, NULL, &blas) != STRATA_SUCCESS)
        return false;
    scene_check(strata_blas_destroy(blas), "strata_blas_destroy");
    return true;
}

void bench_blas(const bench *self)
{
    static const char single[] = "sgemm 4096, GPU time", narrow[] = "bf16 gemm 8192, GPU time";
    if ((!bench_wants(self, single) && !bench_wants(self, narrow)) || !has_blas(self))
        return;
    report_heading(self->report, "Products of matrices, beside bare calls of cuBLAS", false);
    bench_product(self, single, 4096, STRATA_ELEMENT_F32, TYPE_32F);
    bench_product(self, narrow, 8192, STRATA_ELEMENT_BF16, TYPE_16BF);
}
