/* Attributes of addresses. */
#include "memory/memory.h"

static void zero(void *data, CUpointer_attribute attribute);

/* The device's mapping that the block begins in. */
typedef struct pointer_mapping {
    uint64_t address;
    uint64_t bytes;
} pointer_mapping;

static pointer_mapping pages_of(const sim_block *block, uint64_t page)
{
    uint64_t first = block->address / page * page;
    return (pointer_mapping){first, sim_round_up(block->address + block->bytes, page) - first};
}

static pointer_mapping mapping_of(const sim_block *block)
{
    enum { HOST_PAGE = 4096 };
    const sim_extent *extent = block->extent;
    switch (block->kind) {
    case SIM_BLOCK_PINNED:
        return (pointer_mapping){block->address, sim_round_up(block->bytes, SIM_PAGE)};
    case SIM_BLOCK_REGISTERED:
        return pages_of(block, HOST_PAGE);
    case SIM_BLOCK_MANAGED:
    case SIM_BLOCK_MAPPED:
        return (pointer_mapping){block->address, block->held};
    case SIM_BLOCK_DEVICE:
        return (pointer_mapping){extent->address, extent->bytes};
    case SIM_BLOCK_POOLED:
        break;
    }
    uint64_t offset = block->address - extent->address;
    return (pointer_mapping){block->address - offset % SIM_CHUNK, SIM_CHUNK};
}

/* The range that a block is part of: of a map, the whole reservation. */
static pointer_mapping range_of(sim_block *block)
{
    if (block->kind == SIM_BLOCK_MAPPED) {
        const sim_range *range = sim_map_of(block)->range;
        return (pointer_mapping){range->address, range->bytes};
    }
    return (pointer_mapping){block->address, block->bytes};
}

static unsigned access_of(sim_block *block)
{
    sim_context *context;
    if (block->kind != SIM_BLOCK_MAPPED)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    bool current = sim_context_current(&context) == CUDA_SUCCESS;
    return current ? sim_map_of(block)->access[context->device->ordinal] : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

static bool good_on_device(uint64_t address)
{
    sim_context *context;
    if (sim_context_current(&context) != CUDA_SUCCESS)
        return true;
    return sim_may_touch(context, address, 1, SIM_BY_KERNEL, false);
}

static unsigned long long handle_types_of(sim_block *block)
{
    if (block->kind == SIM_BLOCK_MAPPED)
        return (unsigned long long)sim_map_of(block)->physical->properties.requestedHandleTypes;
    return block->pool ? (unsigned long long)block->pool->handle_types : 0;
}

/* Writes an attribute. CUDA_ERROR_INVALID_VALUE: unknown, or the block has none. */
static CUresult describe(sim_block *block, uint64_t address, CUpointer_attribute attribute, void *data)
{
    bool host = sim_block_is_host(block);
    bool of_host = host || !block->device;
    bool contextless = block->kind == SIM_BLOCK_POOLED || block->kind == SIM_BLOCK_MAPPED;
    pointer_mapping mapping = mapping_of(block);
    pointer_mapping range = range_of(block);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = contextless ? NULL : block->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (!good_on_device(address))
            return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)data = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && block->kind != SIM_BLOCK_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = block->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = block->id;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = block->device ? block->device->ordinal : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = block->kind == SIM_BLOCK_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range.address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range.bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = handle_types_of(block);
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = (int)access_of(block);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = block->pool;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = mapping.bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = mapping.address;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(bool *)data = block->kind == SIM_BLOCK_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        zero(data, attribute);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Writes what cuPointerGetAttributes gives where an attribute has no answer. */
static void zero(void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(bool *)data = false;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = CU_DEVICE_INVALID;
        break;
    default:
        *(unsigned long long *)data = 0;
        break;
    }
}

CUresult sim_pointer_get(CUdeviceptr address, CUpointer_attribute attribute, void *data)
{
    sim_block *block = sim_block_at(address);
    return block ? describe(block, address, attribute, data) : CUDA_ERROR_INVALID_VALUE;
}

static bool attribute_known(CUpointer_attribute attribute)
{
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE &&
           attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS;
}

/* Unlike for a single attribute, a foreign address is no error. */
CUresult sim_pointer_get_all(unsigned count, const CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    for (unsigned i = 0; i < count; i++)
        if (!data[i] || !attribute_known(attributes[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (sim_pointer_get(address, attributes[i], data[i]) != CUDA_SUCCESS)
            zero(data[i], attributes[i]);
    return CUDA_SUCCESS;
}
