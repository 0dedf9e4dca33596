/* Node parameters, checked and turned into operations. Captured calls are checked by their rooms, but for the targets
 * of fills: exec.c checks them at instantiation. */
#include "graph/graph.h"

/* Finds the context that parameters name; NULL names the current one. */
static CUresult context_of(CUcontext given, sim_context **context)
{
    if (!given)
        return sim_context_current(context);
    if (!sim_context_valid(given))
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = given;
    return sim_context_check(given);
}

/* ---- fills ---- */

static bool fill_good(const CUDA_MEMSET_NODE_PARAMS *params, const sim_context *context)
{
    bool element = params->elementSize == 1 || params->elementSize == 2 || params->elementSize == 4;
    if (!element || params->width == 0 || params->height == 0)
        return false;
    if (params->width > SIM_MOST_MEMORY || params->height > SIM_MOST_MEMORY)
        return false;
    uint64_t row = (uint64_t)params->width * params->elementSize;
    uint64_t extent = row;
    if (params->height > 1) {
        if (params->pitch < row || params->pitch > SIM_MOST_MEMORY / params->height ||
            params->pitch % params->elementSize != 0)
            return false;
        extent += (uint64_t)params->pitch * (params->height - 1);
    }
    bool there = sim_may_touch(context, params->dst, extent, SIM_BY_FILL, true);
    return params->dst % params->elementSize == 0 && (there || sim_graph_memory_around(params->dst, extent));
}

CUresult sim_fill_describe(sim_op *what, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext given)
{
    sim_context *context;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_of(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!fill_good(params, context))
        return CUDA_ERROR_INVALID_VALUE;
    *what = (sim_op){.kind = SIM_OP_FILL, .context = context};
    what->work.fill.address = params->dst;
    what->work.fill.width = params->elementSize;
    what->work.fill.count = params->width;
    what->work.fill.pitch = params->pitch;
    what->work.fill.rows = params->height;
    what->work.fill.value = params->value;
    return CUDA_SUCCESS;
}

/* ---- copies ---- */

/* Returns a copy of one row as a plain copy, others as they are. */
static sim_op simplest(const sim_op *what)
{
    if (what->work.rows.rows > 1 || what->work.rows.planes > 1)
        return *what;
    sim_op made = {.kind = SIM_OP_COPY, .context = what->context};
    made.work.copy.to = what->work.rows.to.place;
    made.work.copy.from = what->work.rows.from.place;
    made.work.copy.bytes = what->work.rows.width;
    return made;
}

CUresult sim_copy_describe(sim_op *what, CUDA_MEMCPY3D *kept, const CUDA_MEMCPY3D *params, CUcontext given)
{
    sim_context *context;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_of(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op made;
    result = sim_rows_describe(context, params, &made);
    if (result != CUDA_SUCCESS)
        return result;
    *what = simplest(&made);
    *kept = *params;
    return CUDA_SUCCESS;
}

/* ---- kernels and host functions ---- */

CUDA_KERNEL_NODE_PARAMS sim_kernel_newer(const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = params->func,
        .gridDimX = params->gridDimX,
        .gridDimY = params->gridDimY,
        .gridDimZ = params->gridDimZ,
        .blockDimX = params->blockDimX,
        .blockDimY = params->blockDimY,
        .blockDimZ = params->blockDimZ,
        .sharedMemBytes = params->sharedMemBytes,
        .kernelParams = params->kernelParams,
        .extra = params->extra,
    };
}

CUresult sim_kernel_set(sim_op *what, const CUDA_KERNEL_NODE_PARAMS *params)
{
    sim_op made = {.kind = SIM_OP_KERNEL};
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_kernel_make(params, &made.work.kernel);
    if (result != CUDA_SUCCESS)
        return result;
    made.context = params->func->module->context;
    sim_work_free(what);
    *what = made;
    return CUDA_SUCCESS;
}

CUresult sim_host_describe(sim_op *what, const CUDA_HOST_NODE_PARAMS *params)
{
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_host_thread_start();
    if (result != CUDA_SUCCESS)
        return result;
    *what = (sim_op){.kind = SIM_OP_HOST, .context = what->context};
    what->work.host.function = params->fn;
    what->work.host.data = params->userData;
    return CUDA_SUCCESS;
}
