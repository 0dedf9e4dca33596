/* Stream-ordered memory: pools, allocations and frees. */
#include "memory/memory.h"
#include <stdlib.h>

bool sim_pool_valid(CUmemoryPool pool)
{
    return sim_slab_has(&sim_memory.pools, pool) && !pool->destroyed;
}

CUmemoryPool sim_pool_create(sim_device *device)
{
    CUmemoryPool pool = sim_slab_take(&sim_memory.pools);
    if (pool) {
        sim_space_open(&pool->space, device);
        pool->access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return pool;
}

void sim_pool_destroy(CUmemoryPool pool)
{
    sim_space_close(&pool->space);
    sim_slab_give(&sim_memory.pools, pool);
}

void sim_pool_block_gone(CUmemoryPool pool)
{
    pool->blocks--;
    if (pool->destroyed && pool->blocks == 0)
        sim_pool_destroy(pool);
}

/* ---- allocations ---- */

static void describe(sim_block *block, CUmemoryPool pool, sim_context *context, sim_span *span)
{
    block->kind = SIM_BLOCK_POOLED;
    block->address = span->address;
    block->held = span->bytes;
    block->extent = span->extent;
    block->memory = span->extent->memory + (span->address - span->extent->address);
    block->device = pool->space.device;
    block->context = context;
    block->pool = pool;
    block->span = span;
}

static void submit_allocation(sim_queue *queue, sim_block *block, sim_op *wait_for)
{
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_ALLOCATE, 1);
    sim_op_await(op, wait_for);
    op->work.block = block;
    block->allocation = sim_op_hold(op);
    block->pool->blocks++;
    sim_block_publish(block);
    sim_op_submit(op);
}

static CUresult allocate(sim_queue *queue, CUmemoryPool pool, size_t bytes, CUdeviceptr *address)
{
    *address = 0;
    if (bytes > SIM_MOST_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (queue->capture)
        return sim_hooks.graph->capture_allocate(queue, pool->space.device, bytes, address);
    sim_block *block = calloc(1, sizeof *block);
    if (!block || !sim_op_reserve(queue, 1)) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_span *span;
    sim_op *wait_for;
    CUresult result = sim_space_take(&pool->space, queue, bytes, &span, &wait_for);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    describe(block, pool, queue->context, span);
    block->bytes = bytes;
    *address = block->address;
    submit_allocation(queue, block, wait_for);
    sim_op_drop(wait_for);
    return CUDA_SUCCESS;
}

/* Finds the queue for a call. A capture of its stream records the call; one of another stream may be invalidated. */
static CUresult queue_of(CUstream stream, sim_queue **queue)
{
    CUresult result = sim_queue_for_work(stream, queue);
    return result == CUDA_SUCCESS && !(*queue)->capture ? sim_capture_guard() : result;
}

CUresult sim_pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    sim_queue *queue;
    CUresult result = queue_of(stream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool)
        pool = queue->context->device->memory->current_pool;
    if (!sim_pool_valid(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
        *address = 0;
        return CUDA_SUCCESS;
    }
    return allocate(queue, pool, bytes, address);
}

/* Plain memory may be freed in stream order, too; it is free when the operation has run. */
CUresult sim_pool_free(CUdeviceptr address, CUstream stream)
{
    sim_queue *queue;
    CUresult result = queue_of(stream, &queue);
    if (result != CUDA_SUCCESS || address == 0)
        return result;
    if (queue->capture)
        return sim_hooks.graph->capture_free(queue, address);
    sim_block *block = sim_block_at(address);
    if (!block || block->address != address || block->of_module)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind != SIM_BLOCK_DEVICE && block->kind != SIM_BLOCK_POOLED)
        return block->kind == SIM_BLOCK_MANAGED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (!sim_op_reserve(queue, 1) || (block->pool && !sim_space_expect(&block->pool->space, queue)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_FREE, 1);
    if (block->graph) {
        sim_hooks.graph->memory_freed(block->graph, op);
        sim_op_submit(op);
        return CUDA_SUCCESS;
    }
    sim_op_await(op, block->allocation);
    op->work.block = block;
    sim_block_retire(block);
    if (block->pool) {
        sim_space_give(block->span, op);
        block->span = NULL;
    }
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

/* ---- pools ---- */

bool sim_pool_properties_good(const CUmemPoolProps *properties)
{
    unsigned handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32SecurityAttributes)
        return false;
    for (size_t i = 0; i < sizeof properties->reserved; i++)
        if (properties->reserved[i] != 0)
            return false;
    return ((unsigned)properties->handleTypes & ~handles) == 0 &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* ---- attributes ---- */

static bool *reuse_policy(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->space.follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->space.opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->space.internal_dependencies;
    default:
        return NULL;
    }
}

static CUresult reset_high(uint64_t *high, uint64_t current, uint64_t value)
{
    if (value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *high = current;
    return CUDA_SUCCESS;
}

CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    bool *policy = reuse_policy(pool, attribute);
    if (policy) {
        *policy = *(const int *)value != 0;
        if (pool->space.opportunistic)
            sim_space_settle(&pool->space);
        return CUDA_SUCCESS;
    }
    const cuuint64_t *number = value; /* of an attribute that is only read, it may be less */
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->space.keep = *number;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return reset_high(&pool->space.reserved_high, pool->space.reserved, *number);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return reset_high(&pool->space.used_high, pool->space.used, *number);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Attributes that are newer than CUDA 13.0, by their numbers in cuda.h 13.5 and with its words; not compared with a
 * device. They are read alone. */
static CUresult get_newer_attribute(CUmemoryPool pool, unsigned attribute, void *value)
{
    enum {
        ALLOCATION_TYPE = 9,
        EXPORT_HANDLE_TYPES,
        LOCATION_ID,
        LOCATION_TYPE,
        MAX_POOL_SIZE,
        HW_DECOMPRESS,
        DOMAIN_ID
    };
    enum { POOL_ATTRIBUTES = 13020, LOCALITY_DOMAINS = 13040 };
    if (sim.settings.version < POOL_ATTRIBUTES || (attribute == DOMAIN_ID && sim.settings.version < LOCALITY_DOMAINS))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case ALLOCATION_TYPE:
        *(CUmemAllocationType *)value = CU_MEM_ALLOCATION_TYPE_PINNED;
        return CUDA_SUCCESS;
    case EXPORT_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value = pool->handle_types;
        return CUDA_SUCCESS;
    case LOCATION_ID:
        *(int *)value = pool->space.device->ordinal;
        return CUDA_SUCCESS;
    case LOCATION_TYPE:
        *(CUmemLocationType *)value = CU_MEM_LOCATION_TYPE_DEVICE;
        return CUDA_SUCCESS;
    case MAX_POOL_SIZE:
        *(cuuint64_t *)value = pool->space.limit; /* 0: none */
        return CUDA_SUCCESS;
    case HW_DECOMPRESS:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    case DOMAIN_ID:
        *(int *)value = -1; /* of no domain */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const bool *policy = reuse_policy(pool, attribute);
    if (policy) {
        *(int *)value = *policy;
        return CUDA_SUCCESS;
    }
    cuuint64_t *number = value;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *number = pool->space.keep;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *number = pool->space.reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *number = pool->space.reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *number = pool->space.used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *number = pool->space.used_high;
        return CUDA_SUCCESS;
    default:
        return get_newer_attribute(pool, (unsigned)attribute, value);
    }
}

/* ---- access ---- */

CUresult sim_pool_check_access(CUmemoryPool pool, const CUmemAccessDesc *map)
{
    const sim_device *device = sim_device_of(map->location.id);
    if (map->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (map->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        return CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
        return device == pool->space.device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
