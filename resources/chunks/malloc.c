/* Chunks by cuMemAlloc. They are in no table of blocks: a list of the process has them, for those who are to pass no
 * address of a chunk on to the driver, which would free all of it. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/size_text.h"
#include "resources/chunks/chunks.h"

enum { LEAST_CHUNK = 2 << 20 };

typedef struct taken {
    struct taken *next;
    const strata_device *device;
    CUdeviceptr address;
    uint64_t bytes;
} taken;

static strata_lock lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_CHUNKS);
static taken *list; /* guarded by the lock; also of devices that were reset since the last entry */

/* The lock is held. */
static void drop_lost(void)
{
    for (taken **link = &list; *link;) {
        taken *entry = *link;
        if (!strata_device_is_lost(entry->device)) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        strata_host_free(entry);
    }
}

static void enter(taken *entry)
{
    strata_lock_take(&lock);
    drop_lost();
    entry->next = list;
    list = entry;
    strata_lock_release(&lock);
}

/* Before the driver may give the memory out anew. NULL: it is not in the list. */
static taken *take_out(const strata_device *device, CUdeviceptr address)
{
    strata_lock_take(&lock);
    taken **link = &list;
    while (*link && ((*link)->device != device || (*link)->address != address))
        link = &(*link)->next;
    taken *entry = *link;
    if (entry)
        *link = entry->next;
    strata_lock_release(&lock);
    return entry;
}

bool pool_malloc_holds(CUdeviceptr address)
{
    strata_lock_take(&lock);
    const taken *entry = list;
    while (entry && (address - entry->address >= entry->bytes || strata_device_is_lost(entry->device)))
        entry = entry->next;
    strata_lock_release(&lock);
    return entry != NULL;
}

static strata_status malloc_open(pool_chunk_store *store, const strata_pool_options *given)
{
    (void)given;
    store->granule = LEAST_CHUNK;
    store->bytes = store->device->info.total_bytes;
    return STRATA_SUCCESS;
}

static void malloc_close(pool_chunk_store *store)
{
    (void)store;
}

static strata_status malloc_make(pool_chunk_store *store, uint64_t bytes, pool_chunk *out)
{
    strata_call_scope scope;
    taken *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return strata_fail_host_memory("a chunk of a pool");
    strata_status status =
        strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS) {
        strata_host_free(entry);
        return status;
    }
    CUresult result = strata_cu.MemAlloc(&out->address, (size_t)bytes);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS) {
        strata_host_free(entry);
        return strata_fail_driver(result, "cuMemAlloc", "taking %s of memory", strata_size_text(bytes).text);
    }
    *entry = (taken){.device = store->device, .address = out->address, .bytes = bytes};
    enter(entry);
    return STRATA_SUCCESS;
}

static strata_status malloc_drop(pool_chunk_store *store, pool_chunk *chunk)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, store->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    taken *entry = take_out(store->device, chunk->address);
    CUresult result = strata_cu.MemFree(chunk->address);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS) {
        if (entry)
            enter(entry);
        return strata_fail_driver(result, "cuMemFree", "giving memory of a pool back");
    }
    strata_host_free(entry);
    return STRATA_SUCCESS;
}

const pool_chunk_source pool_chunk_source_malloc = {
    .make_call = "cuMemAlloc",
    .open = malloc_open,
    .close = malloc_close,
    .make = malloc_make,
    .drop = malloc_drop,
};
