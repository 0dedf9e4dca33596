/* Launching kernels, and what a kernel's twin is held to while it runs: the ranges that it declared, and memory that is
 * there.
 *
 * The parameters are copied at the launch, laid out behind the launch's own record, which the operation owns. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_RANGES = 64, MAX_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_YZ = 65535, MAX_SHARED = 49152 };

struct range {
    uint64_t address;
    uint64_t bytes;
    bool write;
};

struct sim_kernel_launch {
    strata_sim_launch launch; /* what the twin sees; first, so that it leads back here */
    strata_sim_kernel twin;
    bool illegal;
    size_t range_count;
    struct range ranges[MAX_RANGES];
    const void **parameters;
    size_t *sizes;
    unsigned char *values;
};

static struct sim_kernel_launch *behind(strata_sim_launch *launch)
{
    return (struct sim_kernel_launch *)(void *)launch;
}

static bool declare(strata_sim_launch *launch, uint64_t address, size_t bytes, bool write)
{
    struct sim_kernel_launch *kernel = behind(launch);
    if (kernel->range_count == MAX_RANGES) {
        kernel->illegal = true;
        return false;
    }
    kernel->ranges[kernel->range_count++] = (struct range){.address = address, .bytes = bytes, .write = write};
    return true;
}

static bool declare_read(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return declare(launch, address, bytes, false);
}

static bool declare_write(strata_sim_launch *launch, CUdeviceptr address, size_t bytes)
{
    return declare(launch, address, bytes, true);
}

static bool declared(const struct sim_kernel_launch *kernel, uint64_t address, size_t bytes, bool write)
{
    for (size_t i = 0; i < kernel->range_count; i++) {
        const struct range *range = &kernel->ranges[i];
        uint64_t offset = address - range->address;
        if (range->write == write && offset <= range->bytes && bytes <= range->bytes - offset) {
            return true;
        }
    }
    return false;
}

static void *reach(strata_sim_launch *launch, uint64_t address, size_t bytes, bool write)
{
    struct sim_kernel_launch *kernel = behind(launch);
    char *memory = declared(kernel, address, bytes, write) ? sim_memory_at(address, bytes) : NULL;
    if (!memory) {
        kernel->illegal = true;
    }
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

bool sim_kernel_run(struct sim_op *op)
{
    struct sim_kernel_launch *kernel = op->work.kernel;
    kernel->twin(&kernel->launch);
    return !kernel->illegal;
}

/* A launch with room for the values of the function's parameters. */
static struct sim_kernel_launch *make_launch(const struct CUfunc_st *function)
{
    const struct sim_entry *entry = function->entry;
    struct sim_kernel_launch *kernel =
        calloc(1, sizeof *kernel + entry->count * (sizeof(void *) + sizeof(size_t)) + entry->buffer_bytes);
    if (!kernel) {
        return NULL;
    }
    kernel->twin = function->twin;
    kernel->parameters = (const void **)(void *)(kernel + 1);
    kernel->sizes = (size_t *)(void *)(kernel->parameters + entry->count);
    kernel->values = (unsigned char *)(kernel->sizes + entry->count);
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
    };
    return kernel;
}

/* The parameter buffer that `extra` describes, if it is one of the right size. */
static bool parse_extra(void **extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            *buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1]) {
            *bytes = *(const size_t *)extra[i + 1];
        } else {
            return false;
        }
    }
    return true;
}

static bool copy_parameters(struct sim_kernel_launch *kernel, const struct sim_entry *entry, void **parameters,
                            void **extra)
{
    if (parameters && extra) {
        return false;
    }
    if (entry->count == 0) {
        return true;
    }
    if (extra) {
        const void *buffer;
        size_t bytes;
        if (!parse_extra(extra, &buffer, &bytes) || !buffer || bytes < entry->buffer_bytes) {
            return false;
        }
        memcpy(kernel->values, buffer, entry->buffer_bytes);
        return true;
    }
    for (size_t i = 0; i < entry->count; i++) {
        if (!parameters || !parameters[i]) {
            return false;
        }
        memcpy(kernel->values + entry->offsets[i], parameters[i], entry->sizes[i]);
    }
    return true;
}

static bool shape_good(const unsigned grid[3], const unsigned block[3], unsigned shared)
{
    for (int i = 0; i < 3; i++) {
        if (grid[i] == 0 || block[i] == 0 || block[i] > MAX_THREADS) {
            return false;
        }
    }
    bool block_good = block[2] <= MAX_BLOCK_Z && (uint64_t)block[0] * block[1] * block[2] <= MAX_THREADS;
    return block_good && grid[0] <= INT32_MAX && grid[1] <= MAX_GRID_YZ && grid[2] <= MAX_GRID_YZ &&
           shared <= MAX_SHARED;
}

struct shape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
};

static CUresult launch(CUfunction function, const struct shape *shape, CUstream stream, void **parameters, void **extra)
{
    struct sim_queue *queue;
    if (!sim_slab_has(&sim.functions, function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = sim_queue_of(stream, &queue);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (function->module->context != queue->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!shape_good(shape->grid, shape->block, shape->shared)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_kernel_launch *kernel = make_launch(function);
    if (!kernel) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!copy_parameters(kernel, function->entry, parameters, extra)) {
        free(kernel);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(kernel->launch.grid, shape->grid, sizeof shape->grid);
    memcpy(kernel->launch.block, shape->block, sizeof shape->block);
    kernel->launch.shared_bytes = shape->shared;
    struct sim_op *op = sim_op_create(queue->context, queue, SIM_OP_KERNEL, 0);
    if (!op) {
        free(kernel);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->work.kernel = kernel;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct shape shape = {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
    return sim_leave(launch(f, &shape, hStream, kernelParams, extra));
}

static const int function_attributes[CU_FUNC_ATTRIBUTE_MAX] = {
    [CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = MAX_THREADS,
    [CU_FUNC_ATTRIBUTE_NUM_REGS] = 32,
    [CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = MAX_SHARED,
    [CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1,
};

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!sim_slab_has(&sim.functions, hfunc)) {
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!pi || (unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX) {
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pi = function_attributes[attrib];
    return sim_leave(CUDA_SUCCESS);
}
