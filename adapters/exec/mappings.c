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

/* Keeps a mapping, which is a holder of its memory. Without host memory, memory counts only until its handle is
 * released. */
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

/* Takes a mapping out of the table, and puts it in front of `list`, which is linked by hh.next. Under the lock. */
static mapping *take_out(mapping *entry, mapping *list)
{
    HASH_DEL(mappings, entry);
    entry->hh.next = list;
    return entry;
}

/* Takes out the mappings that begin in a range. Most calls unmap one mapping, from its begin on. */
static mapping *take_range(CUdeviceptr address, size_t bytes)
{
    mapping *entry = NULL, *next, *taken = NULL;
    if (exec_is_forked())
        return NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, mappings, &address, sizeof address, entry);
    if (entry && entry->bytes >= bytes) {
        taken = take_out(entry, NULL);
    } else {
        HASH_ITER(hh, mappings, entry, next)
        {
            if (entry->address >= address && entry->address - address < bytes)
                taken = take_out(entry, taken);
        }
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* Drops mappings that have ended, or else puts them back. */
static void end_taken(mapping *taken, bool ended)
{
    while (taken) {
        mapping *entry = taken;
        taken = entry->hh.next;
        pthread_mutex_lock(&lock);
        if (!ended)
            HASH_ADD(hh, mappings, address, sizeof entry->address, entry);
        const bool is_back = !ended && entry->hh.tbl; /* from then on another thread may take it out, and free it */
        pthread_mutex_unlock(&lock);
        if (is_back)
            continue;
        exec_passed_drop(EXEC_PHYSICAL, entry->handle);
        strata_host_free(entry);
    }
}

EXEC_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const CUresult result = EXEC_CALL(cuMemMap, address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        add(address, bytes, handle);
    return result;
}

/* Takes the mappings out before the call: as soon as it returns, another thread may map the addresses again. */
EXEC_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    mapping *taken = take_range(address, bytes);
    const CUresult result = EXEC_CALL(cuMemUnmap, taken ? address : exec_address_of_a_mapping(address), bytes);
    end_taken(taken, result == CUDA_SUCCESS);
    return result;
}

/* Whether the program has a mapping that begins there: for most of its calls no other question is needed. */
static bool begins_mapping(CUdeviceptr address)
{
    mapping *entry = NULL;
    if (exec_is_forked())
        return false;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, mappings, &address, sizeof address, entry);
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

/* A stack's mappings stay as they are: other blocks lie in them, too, and blocks to come. */
EXEC_EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                            size_t count)
{
    const CUdeviceptr known = begins_mapping(address) ? address : exec_address_of_a_mapping(address);
    return EXEC_CALL(cuMemSetAccess, known, bytes, access, count);
}
