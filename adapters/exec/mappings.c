/* The program's mappings of physical memory: memory lives while a handle or a mapping holds it. */
#include "adapters/exec/exec.h"

#include "core/base/host_memory.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    UT_hash_handle hh;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* outside passed.c's */
static mapping *mappings;                                /* guarded by the lock */

/* Without host memory the memory counts until its handle is released. */
static void add(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    mapping *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return;
    *entry = (mapping){.address = address, .bytes = bytes, .handle = handle};
    pthread_mutex_lock(&lock);
    HASH_ADD(hh, mappings, address, sizeof entry->address, entry);
    if (entry->hh.tbl)
        exec_passed_hold(handle);
    else
        strata_host_free(entry);
    pthread_mutex_unlock(&lock);
    exec_passed_grow(EXEC_IMPORTED_PHYSICAL, handle, bytes);
}

static void drop(mapping *entry)
{
    exec_passed_drop(EXEC_PHYSICAL, entry->handle);
    HASH_DEL(mappings, entry);
    strata_host_free(entry);
}

/* Most calls take back one mapping, of which they name the beginning. */
static void drop_range(CUdeviceptr address, size_t bytes)
{
    mapping *entry = NULL, *next;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, mappings, &address, sizeof address, entry);
    if (entry && entry->bytes >= bytes)
        drop(entry);
    else
        HASH_ITER(hh, mappings, entry, next)
    if (entry->address >= address && entry->address - address < bytes)
        drop(entry);
    pthread_mutex_unlock(&lock);
}

EXEC_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const CUresult result = EXEC_CALL(cuMemMap, address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        add(address, bytes, handle);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    const CUresult result = EXEC_CALL(cuMemUnmap, address, bytes);
    if (result == CUDA_SUCCESS)
        drop_range(address, bytes);
    return result;
}
