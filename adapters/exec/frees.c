/* Frees of blocks that any stream may still use. While a stream is captured they are kept back: what it did before
 * cannot be asked for then (order.c). */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

/* Frees during captures. The address is free for the program: another free of it is one too many. */
typedef struct kept_back {
    exec_device *device;
    strata_block block;
    struct kept_back *next;
} kept_back;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static kept_back *kept; /* guarded by `keeping` */

bool exec_is_kept_back(CUdeviceptr address)
{
    pthread_mutex_lock(&keeping);
    const kept_back *entry = kept;
    while (entry && entry->block.address != address)
        entry = entry->next;
    pthread_mutex_unlock(&keeping);
    return entry != NULL;
}

static CUresult free_now(exec_device *device, const strata_block *block)
{
    exec_order_free(device, block);
    exec_order_count_free(device);
    return exec_result_of(strata_runtime_deallocate_on(device->runtime, block, CU_STREAM_LEGACY));
}

/* False without host memory. */
static bool keep_back(exec_device *device, const strata_block *block)
{
    kept_back *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return false;
    *entry = (kept_back){.device = device, .block = *block};
    pthread_mutex_lock(&keeping);
    entry->next = kept;
    kept = entry;
    pthread_mutex_unlock(&keeping);
    return true;
}

void exec_free_kept_back(void)
{
    pthread_mutex_lock(&keeping);
    kept_back *entry = kept;
    kept = NULL;
    pthread_mutex_unlock(&keeping);
    while (entry) {
        kept_back *next = entry->next;
        strata_error_suppress_begin();
        free_now(entry->device, &entry->block); /* of a device that was reset there is nothing to free */
        strata_error_suppress_end(false);
        strata_host_free(entry);
        entry = next;
    }
}

CUresult exec_free_block(exec_device *device, const strata_block *block)
{
    return exec_captures_under_way() && keep_back(device, block) ? CUDA_SUCCESS : free_now(device, block);
}
