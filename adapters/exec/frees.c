/* Frees of blocks that any stream may still use. If there are non-blocking streams, frees wait for a barrier that many
 * of them share (order.c); while a stream is captured, until the capture ends.
 *
 * To the program such a block is free. What waits and what is live are together held to little more than the most that
 * was live so far, so that the stack gets no memory from the device for what could be reused. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/stack.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

enum {
    MOST_AT_ONCE = 1024,     /* frees that wait: a barrier takes some 250 us where PyTorch has made its 128 streams */
    SHARE_BEYOND = 32,       /* live and waiting bytes may exceed the most that was live by 1/32 of it, ... */
    LEAST_BEYOND = 16 << 20, /* ... or by this, if it is more */
};

typedef struct waiting_free {
    exec_device *device;
    strata_block block;
    uint64_t number;   /* of the free, counted over the process */
    UT_hash_handle hh; /* by the address, in the order of the frees */
} waiting_free;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static waiting_free *waiting; /* guarded by the lock */
static uint64_t last_number;  /* guarded by the lock */

bool exec_free_waits(CUdeviceptr address)
{
    waiting_free *entry = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, waiting, &address, sizeof address, entry);
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

exec_device *exec_find_own_block(CUdeviceptr address, strata_block *block)
{
    exec_device *device = exec_find_block(address, block);
    return device && !exec_free_waits(block->address) ? device : NULL;
}

/* Lets the free of a block wait. CUDA_ERROR_INVALID_VALUE: it waits already. CUDA_ERROR_OUT_OF_MEMORY: of the host. */
static CUresult let_wait(exec_device *device, const strata_block *block)
{
    waiting_free *entry = strata_host_zalloc(sizeof *entry), *same = NULL;
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry->device = device;
    entry->block = *block;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, waiting, &block->address, sizeof block->address, same);
    if (!same) {
        entry->number = ++last_number;
        HASH_ADD(hh, waiting, block.address, sizeof entry->block.address, entry);
    }
    const bool added = entry->hh.tbl != NULL;
    if (added) {
        atomic_fetch_add(&device->waiting, block->bytes);
        atomic_fetch_add(&device->waiting_count, 1);
    }
    pthread_mutex_unlock(&lock);
    if (!added)
        strata_host_free(entry);
    return added ? CUDA_SUCCESS : same ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under the lock. */
static void drop(waiting_free *entry)
{
    atomic_fetch_sub(&entry->device->waiting, entry->block.bytes);
    atomic_fetch_sub(&entry->device->waiting_count, 1);
    HASH_DEL(waiting, entry);
    strata_host_free(entry);
}

/* DEVICE_RESET, if another thread has met a reset since the block was found: a guard would report a block of the former
 * stack. */
static strata_status deallocate(const exec_device *device, const strata_block *block, CUstream stream)
{
    strata_runtime *runtime = device->runtime;
    const strata_table *table = strata_resource_table(strata_stack_top(strata_runtime_stack(runtime)));
    return device->is_guarded && block->id.table != strata_table_id(table)
               ? STRATA_ERROR_DEVICE_RESET
               : strata_runtime_deallocate_on(runtime, block, stream);
}

/* Makes the frees up to a number, which came before the barrier. An entry stays until its block is free, so that a
 * second free is found. True: there were some. */
static bool free_up_to(exec_device *device, uint64_t number)
{
    waiting_free *entry, *next;
    bool any = false;
    if (!exec_device_enter(device))
        return false;
    pthread_mutex_lock(&lock);
    HASH_ITER(hh, waiting, entry, next)
    {
        if (entry->number > number)
            break;
        if (entry->device != device)
            continue;
        deallocate(device, &entry->block, CU_STREAM_LEGACY);
        drop(entry);
        any = true;
    }
    pthread_mutex_unlock(&lock);
    exec_device_leave(device);
    return any;
}

static uint64_t newest(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t number = last_number;
    pthread_mutex_unlock(&lock);
    return number;
}

bool exec_free_waiting(exec_device *device)
{
    bool any = false;
    if (!atomic_load(&device->waiting) || exec_captures_under_way())
        return false;
    const uint64_t number = newest();
    strata_error_suppress_begin();
    if (exec_order_barrier(device))
        any = free_up_to(device, number);
    strata_error_suppress_end(false);
    return any;
}

void exec_free_all_waiting(void)
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));)
        exec_free_waiting(device);
}

void exec_visit_waiting(const exec_device *device, void (*visit)(const strata_block *block, void *data), void *data)
{
    pthread_mutex_lock(&lock);
    for (const waiting_free *entry = waiting; entry; entry = entry->hh.next)
        if (entry->device == device)
            visit(&entry->block, data);
    pthread_mutex_unlock(&lock);
}

void exec_forget_waiting(exec_device *device)
{
    waiting_free *entry, *next;
    pthread_mutex_lock(&lock);
    HASH_ITER(hh, waiting, entry, next)
    if (entry->device == device)
        drop(entry);
    pthread_mutex_unlock(&lock);
}

/* ---- how much may wait ---- */

/* Whether live and waiting bytes would exceed the most that was live by more than is allowed. */
static bool is_too_much(const exec_device *device, size_t more)
{
    const uint64_t most = atomic_load(&device->most_live);
    const uint64_t beyond = most / SHARE_BEYOND > LEAST_BEYOND ? most / SHARE_BEYOND : LEAST_BEYOND;
    return atomic_load(&device->live) + atomic_load(&device->waiting) + more > most + beyond;
}

void exec_free_before_growth(exec_device *device, size_t bytes)
{
    if (atomic_load(&device->waiting) && is_too_much(device, bytes))
        exec_free_waiting(device);
}

static void raise_to(_Atomic uint64_t *highest, uint64_t amount)
{
    uint64_t most = atomic_load(highest);
    while (amount > most && !atomic_compare_exchange_weak(highest, &most, amount)) {
    }
}

void exec_count_live(exec_device *device, size_t bytes)
{
    const uint64_t live = atomic_fetch_add(&device->live, bytes) + bytes;
    raise_to(&device->most_live, live);
    raise_to(&device->used_high, live);
}

/* Stops at zero: after a reset by another thread nothing is live. */
static void discount_live(exec_device *device, size_t bytes)
{
    uint64_t live = atomic_load(&device->live);
    while (!atomic_compare_exchange_weak(&device->live, &live, live > bytes ? live - bytes : 0)) {
    }
}

/* ---- frees ---- */

CUresult exec_free_at_once(exec_device *device, const strata_block *block, CUstream stream)
{
    if (!exec_device_enter(device))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const strata_status status = deallocate(device, block, stream);
    if (status == STRATA_SUCCESS)
        discount_live(device, block->bytes);
    exec_device_leave(device);
    return exec_result_of(status);
}

static CUresult free_behind_others(exec_device *device, const strata_block *block)
{
    const CUresult result = let_wait(device, block);
    if (result != CUDA_SUCCESS)
        return result;
    discount_live(device, block->bytes);
    if (atomic_load(&device->waiting_count) >= MOST_AT_ONCE || is_too_much(device, 0))
        exec_free_waiting(device);
    return CUDA_SUCCESS;
}

/* Sets *other to the current context if `stream` is a default stream and that context is not the device's; else to
 * NULL. Without a current context there is no default stream. */
static CUresult find_other_context(const exec_device *device, CUstream stream, CUcontext *other)
{
    CUcontext context = NULL;
    *other = NULL;
    const CUresult result = exec_is_default(stream) ? strata_cu.CtxGetCurrent(&context) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || !exec_is_default(stream))
        return result;
    if (context != device->context)
        *other = context;
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult exec_free_on(exec_device *device, const strata_block *block, CUstream stream)
{
    CUcontext other;
    const CUresult result = find_other_context(device, stream, &other);
    if (result != CUDA_SUCCESS)
        return result;
    if (!other) {
        exec_order_count_free(device);
        return exec_free_at_once(device, block, stream);
    }
    if (!exec_context_uses(other, device->ordinal) && !exec_is_captured(stream)) { /* no barrier takes it in */
        exec_count(&exec_counts_now.late_waits);
        strata_cu.StreamSynchronize(stream);
    }
    return exec_free_block(device, block);
}

CUresult exec_free_block(exec_device *device, const strata_block *block)
{
    const bool captured = exec_captures_under_way();
    if (!captured && !exec_streams_any()) {
        exec_order_count_free(device);
        return exec_free_at_once(device, block, CU_STREAM_LEGACY);
    }
    if (!captured && device->frees_at_once && exec_order_barrier(device))
        return exec_free_at_once(device, block, CU_STREAM_LEGACY);
    return free_behind_others(device, block);
}
