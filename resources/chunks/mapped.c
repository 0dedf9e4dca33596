/* Chunks mapped into one address range. */
#include "core/base/error.h"
#include "core/base/lock.h"
#include "core/base/size_text.h"
#include "resources/chunks/chunks.h"
#include "resources/chunks/peers.h"

enum {
    MOST_TIMES = 8,    /* as many addresses as memory that may be reserved */
    LEAST_TIMES = 2,   /* at least, where addresses are few */
    DESTROY_TRIES = 3, /* as in resources/owners/async.c */
};

static bool can(const strata_device *device, CUdevice_attribute what)
{
    int can = 0;
    return strata_cu.DeviceGetAttribute(&can, what, device->handle) == CUDA_SUCCESS && can != 0;
}

/* How chunks are made. gpuDirectRDMACapable: a network card needs memory that was made for it. */
static CUmemAllocationProp properties_of(const strata_device *device, strata_export_type export_type)
{
    static const CUmemAllocationHandleType types[] = {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                      CU_MEM_HANDLE_TYPE_FABRIC};
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = types[export_type],
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .allocFlags = {.gpuDirectRDMACapable =
                           can(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)},
    };
}

static CUmemAllocationHandleType all_handle_types(const strata_device *device)
{
    unsigned types = CU_MEM_HANDLE_TYPE_NONE;
    types |= device->info.mapped_fd_handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
    types |= device->info.mapped_fabric_handles ? CU_MEM_HANDLE_TYPE_FABRIC : 0;
    return (CUmemAllocationHandleType)types;
}

static strata_status check_export(const strata_device *device, strata_export_type type)
{
    const bool fabric = type == STRATA_EXPORT_FABRIC;
    if (type == STRATA_EXPORT_NONE || (fabric ? device->info.mapped_fabric_handles : device->info.mapped_fd_handles))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "pool: device %d cannot export memory as %s", device->ordinal,
                       fabric ? "fabric handles" : "file descriptors");
}

/* Reserves addresses, fewer if they are refused: some machines have few, and a process may have many pools. */
static CUresult reserve(pool_chunk_store *store, uint64_t limit)
{
    const uint64_t device = store->device->info.total_bytes, most = limit && limit < device ? limit : device;
    const uint64_t memory = (most + store->granule - 1) & ~(store->granule - 1);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t times = MOST_TIMES; result != CUDA_SUCCESS && times >= LEAST_TIMES; times /= 2) {
        store->bytes = times * memory;
        result = strata_cu.MemAddressReserve(&store->base, (size_t)store->bytes, (size_t)store->granule, 0, 0);
    }
    return result;
}

static strata_status mapped_open(pool_chunk_store *store, const strata_pool_options *given)
{
    strata_status status = check_export(store->device, given->export_type);
    if (status == STRATA_SUCCESS)
        status = pool_peers_resolve(store->device, given->all_peers, &store->peers);
    if (status != STRATA_SUCCESS)
        return status;
    store->all_peers = given->all_peers;
    store->properties = store->contiguous = properties_of(store->device, given->export_type);
    store->contiguous.requestedHandleTypes = all_handle_types(store->device);
    strata_call_scope scope;
    status = strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    size_t granule = 0;
    const char *call = "cuMemGetAllocationGranularity";
    CUresult result =
        strata_cu.MemGetAllocationGranularity(&granule, &store->properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    store->granule = granule;
    if (result == CUDA_SUCCESS) {
        call = "cuMemAddressReserve";
        result = reserve(store, given->max_size);
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(
                     result, call,
                     "reserving %s of addresses for a pool on device %d (a limit on the "
                     "process's addresses, as ulimit -v, may be in the way; \"pool, direct\" needs none)",
                     strata_size_text(store->bytes).text, store->device->ordinal);
}

static void free_addresses(CUdeviceptr base, uint64_t bytes)
{
    CUresult result = base ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
    for (int i = 0; i < DESTROY_TRIES && result != CUDA_SUCCESS; i++)
        result = strata_cu.MemAddressFree(base, (size_t)bytes);
}

static void mapped_close(pool_chunk_store *store)
{
    if (!store->given_up)
        free_addresses(store->base, store->bytes);
}

/* Each device keeps the latest given up addresses reserved, and frees the ones before: a program that frees a dead
 * address behind a reset then hits no block of the pool that follows. */
void pool_mapped_give_up(pool_chunk_store *store)
{
    static strata_spin lock = {.rank = STRATA_RANK_LEAF};
    static struct {
        CUdeviceptr base;
        uint64_t bytes;
    } latest[STRATA_DEVICE_LIMIT]; /* guarded by the lock */
    const int ordinal = store->device->ordinal;
    strata_spin_take(&lock);
    const CUdeviceptr base = latest[ordinal].base;
    const uint64_t bytes = latest[ordinal].bytes;
    latest[ordinal].base = store->base;
    latest[ordinal].bytes = store->bytes;
    strata_spin_release(&lock);
    store->given_up = true;
    free_addresses(base, bytes);
}

static strata_status mapped_make(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    CUresult result = strata_cu.MemCreate(&out->handle, (size_t)bytes, &store->properties, 0);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuMemCreate", "making %s of memory", strata_size_text(bytes).text);
}

static strata_status mapped_drop(pool_chunk_store *store, pool_chunk *chunk)
{
    (void)store;
    CUresult result = strata_cu.MemRelease(chunk->handle);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemRelease", "giving memory of a pool back");
}

static CUresult mapped_map(pool_chunk_store *store, const pool_chunk *chunk, CUdeviceptr address)
{
    (void)store;
    return strata_cu.MemMap(address, (size_t)pool_chunk_bytes(chunk), 0, chunk->handle, 0);
}

static CUresult mapped_give_access(pool_chunk_store *store, CUdeviceptr address, uint64_t bytes)
{
    CUmemAccessDesc access[STRATA_DEVICE_LIMIT];
    size_t count = pool_peers_access(store->device, store->peers, access);
    CUresult result = strata_cu.MemSetAccess(address, (size_t)bytes, access, count);
    if (result != CUDA_SUCCESS && store->all_peers && count > 1) { /* such as more peers than a device can have */
        count = pool_peers_access(store->device, 0, access);
        result = strata_cu.MemSetAccess(address, (size_t)bytes, access, count);
    }
    return result;
}

static CUresult mapped_unmap(pool_chunk_store *store, CUdeviceptr address, uint64_t bytes)
{
    (void)store;
    return strata_cu.MemUnmap(address, (size_t)bytes);
}

static CUresult mapped_share(pool_chunk_store *store, const pool_chunk *chunk, void *out)
{
    return strata_cu.MemExportToShareableHandle(out, chunk->handle, store->properties.requestedHandleTypes, 0);
}

uint64_t pool_mapped_limit(const pool_chunk_store *store)
{
    return store->bytes / LEAST_TIMES;
}

const pool_chunk_source pool_chunk_source_mapped = {
    .remappable = true,
    .make_call = "cuMemCreate",
    .open = mapped_open,
    .close = mapped_close,
    .make = mapped_make,
    .drop = mapped_drop,
    .map = mapped_map,
    .give_access = mapped_give_access,
    .unmap = mapped_unmap,
    .share = mapped_share,
};
