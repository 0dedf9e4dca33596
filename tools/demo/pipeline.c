#include "tools/demo/pipeline.h"

#include "core/streams/device.h"

#include <stdio.h>
#include <string.h>

/* The workspace of a product that is captured is its graph's: small, since there are several graphs. */
enum { WORKSPACE = 8 << 20 };

/* ---- a batch ---- */

/* A and C live as long as the batch: each is freed in the order of the stream that uses it last. */
strata_status demo_pipeline_submit(demo_pipeline *self, const demo_streams *on, const strata_pinned_view *from,
                                   const strata_pinned_view *to)
{
    const size_t bytes = demo_matrix_bytes(&self->of->matrices);
    strata_block a = {0}, c = {0};
    strata_status status = strata_runtime_allocate(self->runtime, bytes, on->in, &a);
    if (status == STRATA_SUCCESS)
        status = demo_copy_in(self, &a, from->data, bytes, on->in);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_allocate(self->runtime, bytes, on->compute, &c);
    if (status == STRATA_SUCCESS)
        status = demo_multiply(self, &a, &c, on->compute);
    if (status == STRATA_SUCCESS)
        status = demo_bias_relu(self, &c, on->compute);
    if (status == STRATA_SUCCESS)
        status = demo_copy_out(self, to->data, &c, on->out);
    const strata_status freed[] = {strata_runtime_deallocate_on(self->runtime, &a, on->compute),
                                   strata_runtime_deallocate_on(self->runtime, &c, on->out)};
    for (size_t i = 0; i < 2 && status == STRATA_SUCCESS; i++)
        status = freed[i];
    return status;
}

/* ---- making ---- */

static strata_status open_memory(demo_pipeline *self)
{
    const demo_settings *settings = &self->of->settings;
    const strata_runtime_config device = {.device = settings->device, .stack_text = self->of->stack};
    const strata_runtime_config host = {.device = settings->device, .stack_text = "pinned"};
    const strata_pinned_pool_options buffers = {.capacity = demo_matrix_bytes(&self->of->matrices),
                                                .initial = DEMO_LANES,
                                                .most = 2 * DEMO_LANES,
                                                .name = "demo"};
    strata_device *which;
    strata_status status = strata_runtime_create(&device, &self->runtime);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(settings->device, &which);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&self->scope, which, STRATA_CALL_SCOPE_CONTEXT);
    self->in_scope = status == STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = strata_runtime_create(&host, &self->host);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_pool_create(self->host, &buffers, &self->buffers);
    return status;
}

static strata_status open_streams(demo_pipeline *self)
{
    CUstream *const streams[] = {&self->streams.in, &self->streams.compute, &self->streams.out};
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 3 && status == STRATA_SUCCESS; i++)
        status = strata_runtime_stream_acquire(self->runtime, streams[i]);
    return status;
}

static strata_status load_kernels(demo_pipeline *self)
{
    CUresult result = strata_cu.ModuleLoadData(&self->module, demo_ptx);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuModuleLoadData", "the demonstration's kernels were not loaded");
    result = strata_cu.ModuleGetFunction(&self->bias_relu, self->module, DEMO_BIAS_RELU);
    if (result == CUDA_SUCCESS)
        result = strata_cu.ModuleGetFunction(&self->multiply, self->module, DEMO_MULTIPLY);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuModuleGetFunction", "the demonstration's kernels were not found");
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Without cuBLAS the demonstration goes on, and says so. */
static strata_status open_blas(demo_pipeline *self)
{
    demo *of = self->of;
    strata_blas_info info;
    const strata_blas_options options = {.workspace_bytes = WORKSPACE};
    const strata_status status = strata_blas_create(self->runtime, self->streams.compute, &options, &self->blas);
    if (status == STRATA_SUCCESS && strata_blas_get_info(self->blas, &info) == STRATA_SUCCESS)
        snprintf(of->product, sizeof of->product, "%s, version %s", file_name(info.library), info.version);
    if (status != STRATA_ERROR_UNSUPPORTED)
        return status;
    of->own_product = true;
    snprintf(of->product, sizeof of->product, "a kernel of the demonstration");
    snprintf(of->without_blas, sizeof of->without_blas, "%s", strata_last_error()->message);
    return STRATA_SUCCESS;
}

static strata_status upload(demo_pipeline *self, const float *numbers, size_t bytes, strata_block *to)
{
    strata_pinned_buffer *buffer = NULL;
    strata_pinned_view view;
    strata_status status = strata_runtime_allocate(self->runtime, bytes, self->streams.in, to);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_pool_acquire(self->buffers, bytes, STRATA_NEVER, &buffer);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_pinned_buffer_view(buffer, STRATA_ELEMENT_F32, &view);
    if (status == STRATA_SUCCESS) {
        memcpy(view.data, numbers, bytes);
        status = demo_copy_in(self, to, view.data, bytes, self->streams.in);
    }
    const strata_status released = strata_pinned_buffer_release_after(buffer, self->streams.in);
    return status == STRATA_SUCCESS ? released : status;
}

static strata_status run_first(demo_pipeline *self)
{
    const size_t bytes = demo_matrix_bytes(&self->of->matrices);
    strata_pinned_buffer *buffer;
    strata_pinned_view view;
    strata_status status = strata_pinned_pool_acquire(self->buffers, bytes, STRATA_NEVER, &buffer);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_pinned_buffer_view(buffer, STRATA_ELEMENT_F32, &view);
    if (status == STRATA_SUCCESS) {
        demo_matrices_fill(&self->of->matrices, 0, view.data);
        status = demo_pipeline_submit(self, &self->streams, &view, &view);
    }
    const strata_status finished = strata_runtime_stream_synchronize(self->runtime, self->streams.out);
    const strata_status released = strata_pinned_buffer_release(buffer);
    status = status == STRATA_SUCCESS ? finished : status;
    return status == STRATA_SUCCESS ? released : status;
}

strata_status demo_pipeline_open(demo_pipeline *self, demo *of)
{
    const demo_matrices *matrices = &of->matrices;
    *self = (demo_pipeline){.of = of};
    strata_status status = open_memory(self);
    if (status == STRATA_SUCCESS)
        status = open_streams(self);
    if (status == STRATA_SUCCESS)
        status = load_kernels(self);
    if (status == STRATA_SUCCESS)
        status = open_blas(self);
    if (status == STRATA_SUCCESS)
        status = upload(self, matrices->b, demo_matrix_bytes(matrices), &self->weights);
    if (status == STRATA_SUCCESS)
        status = upload(self, matrices->bias, matrices->n * sizeof(float), &self->bias);
    return status == STRATA_SUCCESS ? run_first(self) : status;
}

/* ---- ending ---- */

static strata_status first_of(strata_status status, strata_status next)
{
    return status == STRATA_SUCCESS ? next : status;
}

static strata_status close_streams(demo_pipeline *self)
{
    CUstream const streams[] = {self->streams.in, self->streams.compute, self->streams.out};
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 3; i++)
        if (streams[i])
            status = first_of(status, strata_runtime_stream_release(self->runtime, streams[i]));
    return status;
}

strata_status demo_pipeline_close(demo_pipeline *self)
{
    strata_status status = STRATA_SUCCESS;
    if (self->runtime) {
        status = first_of(status, strata_runtime_deallocate(self->runtime, &self->weights));
        status = first_of(status, strata_runtime_deallocate(self->runtime, &self->bias));
        status = first_of(status, strata_blas_destroy(self->blas));
        status = first_of(status, strata_runtime_reap_pending(self->runtime)); /* then no kernel runs */
    }
    status = first_of(status, strata_pinned_pool_destroy(self->buffers));
    status = first_of(status, strata_runtime_destroy(self->host));
    if (self->module)
        strata_cu.ModuleUnload(self->module);
    if (self->runtime)
        status = first_of(status, close_streams(self));
    status = first_of(status, strata_runtime_destroy(self->runtime));
    if (self->in_scope)
        strata_call_scope_leave(&self->scope);
    return status;
}
