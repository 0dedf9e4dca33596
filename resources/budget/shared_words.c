/* The words of a process's records, as its device's streams write them. */
#include "core/streams/call_scope.h"
#include "resources/budget/shared_internal.h"
#include "resources/budget/shared_retired.h"

static void *own_words(const budget_shared *shared)
{
    return &shared->file->retired[shared_slot_of(shared) - shared->file->slots];
}

/* The device's address of the own page, locked in memory and mapped for all contexts. 0: the driver does not map such
 * memory, or has no such calls. */
static uint64_t map_words(const budget_shared *shared, strata_device *device)
{
    CUdeviceptr words = 0;
    strata_call_scope scope;
    if (!strata_cu.StreamWriteValue64 || !strata_cu.MemHostRegister || !strata_cu.MemHostUnregister ||
        !strata_cu.MemHostGetDevicePointer ||
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
            STRATA_SUCCESS)
        return 0;
    bool mapped = strata_cu.MemHostRegister(own_words(shared), sizeof(shared_retired_page),
                                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS;
    if (mapped && strata_cu.MemHostGetDevicePointer(&words, own_words(shared), 0) != CUDA_SUCCESS) {
        strata_cu.MemHostUnregister(own_words(shared));
        words = 0;
    }
    strata_call_scope_leave(&scope);
    return words;
}

bool shared_words_usable(budget_shared *shared, strata_device *device)
{
    if (atomic_load_explicit(&shared->words, memory_order_acquire)) /* a reset of the device ended the mapping */
        return shared->device_of_words == device && !strata_device_is_lost(device);
    if (atomic_exchange_explicit(&shared->words_asked, true, memory_order_relaxed))
        return false; /* refused, or another thread asks */
    strata_error_suppress_begin();
    uint64_t words = map_words(shared, device);
    strata_error_suppress_end(false);
    shared->device_of_words = device;
    atomic_store_explicit(&shared->words, words, memory_order_release);
    return words != 0;
}

void shared_words_write(const budget_shared *shared, const strata_stream_ref *stream, uint64_t ticket)
{
    uint64_t word = atomic_load_explicit(&shared->words, memory_order_relaxed) +
                    offsetof(shared_retired_page, records) + ticket % SHARED_RETIRED * sizeof(shared_record) +
                    offsetof(shared_record, word);
    strata_call_scope scope;
    strata_error_suppress_begin();
    if (strata_call_scope_enter(&scope, stream->device, strata_call_scope_for(stream->handle)) == STRATA_SUCCESS) {
        strata_cu.StreamWriteValue64(stream->handle, word, ticket, CU_STREAM_WRITE_VALUE_DEFAULT);
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
}

bool shared_words_unmap(budget_shared *shared)
{
    strata_call_scope scope;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (!atomic_load_explicit(&shared->words, memory_order_acquire) || strata_device_is_lost(shared->device_of_words))
        return true;
    strata_error_suppress_begin();
    if (strata_call_scope_enter(&scope, shared->device_of_words,
                                STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS) {
        result = strata_cu.MemHostUnregister(own_words(shared));
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
