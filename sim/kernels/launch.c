/* Launching kernels. A running host kernel is held to the ranges that it declared, and to memory that is there.
 * Parameters are copied at the launch, behind the launch's record, which the operation owns. */
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_YZ = 65535, MAX_SHARED = 49152 };

typedef struct touched_range {
    uint64_t address;
    uint64_t bytes;
    sim_access_kind touch;
} touched_range;

typedef struct sim_kernel_launch {
    strata_sim_launch launch; /* what the host kernel sees; first */
    CUfunction function;
    strata_sim_kernel host_kernel;
    const char *name;           /* interned */
    sim_op *op;                 /* while it runs */
    const sim_context *context; /* while it runs */
    bool illegal;
    size_t range_count;
    touched_range ranges[STRATA_SIM_MOST_RANGES];
    const void **parameters;
    size_t *sizes;
    unsigned char *values;
    size_t value_bytes;
} sim_kernel_launch;

static sim_kernel_launch *behind(strata_sim_launch *launch)
{
    return (sim_kernel_launch *)(void *)launch;
}

/* For Valgrind, what a kernel declares as written is written: a host kernel may do no more. What it then stores has the
 * state of its source. */
static void expect_write(const sim_kernel_launch *kernel, uint64_t address, size_t bytes)
{
    char *memory = NULL;
    if (sim_debugger_is_valgrind() && sim_block_present(address, bytes))
        memory = sim_touch(kernel->context, address, bytes, SIM_BY_KERNEL, true);
    if (memory)
        sim_bytes_written(memory, bytes);
}

static bool declare(strata_sim_launch *launch, uint64_t address, size_t bytes, sim_access_kind touch)
{
    sim_kernel_launch *kernel = behind(launch);
    if (kernel->range_count == STRATA_SIM_MOST_RANGES) {
        kernel->illegal = true;
        return false;
    }
    sim_hooks.check->access(kernel->op, address, bytes, touch);
    if (touch == SIM_WRITES)
        expect_write(kernel, address, bytes);
    kernel->ranges[kernel->range_count++] = (touched_range){.address = address, .bytes = bytes, .touch = touch};
    return true;
}

static bool declare_read(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return declare(launch, address, bytes, SIM_READS);
}

static bool declare_write(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return declare(launch, address, bytes, SIM_WRITES);
}

static bool declare_atomic(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return declare(launch, address, bytes, SIM_UPDATES_ATOMICALLY);
}

static bool declared(const sim_kernel_launch *kernel, uint64_t address, size_t bytes, bool write)
{
    for (size_t i = 0; i < kernel->range_count; i++) {
        const touched_range *range = &kernel->ranges[i];
        uint64_t offset = address - range->address;
        bool allows = range->touch == SIM_UPDATES_ATOMICALLY || (range->touch == SIM_WRITES) == write;
        if (allows && offset <= range->bytes && bytes <= range->bytes - offset)
            return true;
    }
    return false;
}

static void *reach(strata_sim_launch *launch, uint64_t address, size_t bytes, bool write)
{
    sim_kernel_launch *kernel = behind(launch);
    char *memory = NULL;
    if (declared(kernel, address, bytes, write))
        memory = sim_touch(kernel->context, address, bytes, SIM_BY_KERNEL, write);
    if (!memory)
        kernel->illegal = true;
    return memory;
}

static const void *reach_to_read(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return reach(launch, address, bytes, false);
}

static void *reach_to_write(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return reach(launch, address, bytes, true);
}

static bool set_conditional(strata_sim_launch *launch, CUgraphConditionalHandle handle, unsigned value)
{
    sim_kernel_launch *kernel = behind(launch);
    const bool set = sim_hooks.graph->condition_set(kernel->op, handle, value);
    kernel->illegal = kernel->illegal || !set;
    return set;
}

/* Resets what an earlier run left: a loop of a graph runs the same launch again. */
bool sim_kernel_run(sim_op *op)
{
    sim_kernel_launch *kernel = op->work.kernel;
    kernel->range_count = 0;
    kernel->op = op;
    kernel->context = op->context;
    kernel->host_kernel(&kernel->launch);
    return !kernel->illegal;
}

const char *sim_kernel_name(const sim_op *op)
{
    return op->work.kernel->name;
}

static void place_parts(sim_kernel_launch *kernel, size_t parameters)
{
    kernel->parameters = (const void **)(void *)(kernel + 1);
    kernel->sizes = (size_t *)(void *)(kernel->parameters + parameters);
    kernel->values = (unsigned char *)(kernel->sizes + parameters);
}

static sim_kernel_launch *make_launch(CUfunction function)
{
    const sim_ptx_entry *entry = function->entry;
    sim_kernel_launch *kernel =
        calloc(1, sizeof *kernel + entry->count * (sizeof(void *) + sizeof(size_t)) + entry->buffer_bytes);
    if (!kernel)
        return NULL;
    kernel->function = function;
    kernel->host_kernel = function->host_kernel;
    kernel->name = function->name;
    kernel->value_bytes = entry->buffer_bytes;
    place_parts(kernel, entry->count);
    for (size_t i = 0; i < entry->count; i++) {
        kernel->parameters[i] = kernel->values + entry->offsets[i];
        kernel->sizes[i] = entry->sizes[i];
    }
    kernel->launch = (strata_sim_launch){
        .size = sizeof kernel->launch,
        .parameter_count = (unsigned)entry->count,
        .parameters = kernel->parameters,
        .parameter_sizes = kernel->sizes,
        .declare_read = declare_read,
        .declare_write = declare_write,
        .read = reach_to_read,
        .write = reach_to_write,
        .declare_atomic = declare_atomic,
        .set_conditional = set_conditional,
    };
    return kernel;
}

/* The parameter buffer of `extra`; false: malformed. */
static bool parse_extra(void **extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2)
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
            *bytes = *(const size_t *)extra[i + 1];
        else
            return false;
    return true;
}

static bool copy_parameters(sim_kernel_launch *kernel, const sim_ptx_entry *entry, void **parameters, void **extra)
{
    if (parameters && extra)
        return false;
    if (entry->count == 0)
        return true;
    if (extra) {
        const void *buffer;
        size_t bytes;
        /* A shorter buffer is taken; the rest is zero. */
        if (!parse_extra(extra, &buffer, &bytes) || !buffer || bytes > entry->buffer_bytes)
            return false;
        memcpy(kernel->values, buffer, bytes);
        return true;
    }
    for (size_t i = 0; i < entry->count; i++) {
        if (!parameters || !parameters[i])
            return false;
        memcpy(kernel->values + entry->offsets[i], parameters[i], entry->sizes[i]);
    }
    return true;
}

static bool shape_good(const unsigned grid[3], const unsigned block[3], unsigned shared)
{
    for (int i = 0; i < 3; i++)
        if (grid[i] == 0 || block[i] == 0 || block[i] > MAX_THREADS)
            return false;
    bool block_good = block[2] <= MAX_BLOCK_Z && (uint64_t)block[0] * block[1] * block[2] <= MAX_THREADS;
    return block_good && grid[0] <= INT32_MAX && grid[1] <= MAX_GRID_YZ && grid[2] <= MAX_GRID_YZ &&
           shared <= MAX_SHARED;
}

static CUresult make(CUfunction function, const sim_launch_shape *shape, void **parameters, void **extra,
                     sim_kernel_launch **made)
{
    if (!shape_good(shape->grid, shape->block, shape->shared))
        return CUDA_ERROR_INVALID_VALUE;
    sim_kernel_launch *kernel = make_launch(function);
    if (!kernel)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!copy_parameters(kernel, function->entry, parameters, extra)) {
        free(kernel);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(kernel->launch.grid, shape->grid, sizeof shape->grid);
    memcpy(kernel->launch.block, shape->block, sizeof shape->block);
    kernel->launch.shared_bytes = shape->shared;
    *made = kernel;
    return CUDA_SUCCESS;
}

sim_kernel_launch *sim_kernel_copy(const sim_kernel_launch *kernel)
{
    size_t parameters = kernel->launch.parameter_count;
    size_t bytes = sizeof *kernel + parameters * (sizeof(void *) + sizeof(size_t)) + kernel->value_bytes;
    sim_kernel_launch *copy = malloc(bytes);
    if (!copy)
        return NULL;
    memcpy(copy, kernel, bytes);
    place_parts(copy, parameters);
    for (size_t i = 0; i < parameters; i++)
        copy->parameters[i] = copy->values + ((const unsigned char *)kernel->parameters[i] - kernel->values);
    copy->launch.parameters = copy->parameters;
    copy->launch.parameter_sizes = copy->sizes;
    return copy;
}

CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *params, sim_kernel_launch **kernel)
{
    sim_launch_shape shape = {{params->gridDimX, params->gridDimY, params->gridDimZ},
                              {params->blockDimX, params->blockDimY, params->blockDimZ},
                              params->sharedMemBytes};
    if (!sim_slab_has(&sim_kernels.functions, params->func))
        return CUDA_ERROR_INVALID_HANDLE;
    return make(params->func, &shape, params->kernelParams, params->extra, kernel);
}

bool sim_kernel_same(const sim_kernel_launch *one, const sim_kernel_launch *other)
{
    const strata_sim_launch *a = &one->launch;
    const strata_sim_launch *b = &other->launch;
    return one->function == other->function && one->value_bytes == other->value_bytes &&
           memcmp(a->grid, b->grid, sizeof a->grid) == 0 && memcmp(a->block, b->block, sizeof a->block) == 0 &&
           a->shared_bytes == b->shared_bytes && memcmp(one->values, other->values, one->value_bytes) == 0;
}

void sim_kernel_describe(const sim_kernel_launch *kernel, CUDA_KERNEL_NODE_PARAMS *params)
{
    const strata_sim_launch *launch = &kernel->launch;
    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = kernel->function,
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0],
        .blockDimY = launch->block[1],
        .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared_bytes,
        .kernelParams = (void **)(uintptr_t)kernel->parameters,
    };
}

CUresult sim_kernel_submit(CUfunction function, const sim_launch_shape *shape, CUstream stream, void **parameters,
                           void **extra)
{
    sim_queue *queue;
    if (!sim_slab_has(&sim_kernels.functions, function))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (function->module->context != queue->context)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_kernel_launch *kernel;
    result = make(function, shape, parameters, extra, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_KERNEL, 0);
    if (!op) {
        free(kernel);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->work.kernel = kernel;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

static const int function_attributes[CU_FUNC_ATTRIBUTE_MAX] = {
    [CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = MAX_THREADS,
    [CU_FUNC_ATTRIBUTE_NUM_REGS] = 32,
    [CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = MAX_SHARED,
    [CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1,
};

int sim_function_attribute(CUfunction_attribute attribute)
{
    return function_attributes[attribute];
}
