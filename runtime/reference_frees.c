/* The end of references: frees in stream order, deferred ones, imported tensors, and the end of an abandoned runtime.
 *
 * What other libraries submitted with exported or foreign memory is not recorded, on streams that may be unknown or
 * gone: such memory goes once the device has done all that was submitted so far. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/captures.h"
#include "runtime/references.h"

#include <strata/dlpack_types.h>

/* After a bump, asks the driver for the context: if it was reset, which may not be known yet, the memory is gone. */
static void look_for_reset(const strata_ref *whole)
{
    const uint64_t now = atomic_load_explicit(&whole->record->word, memory_order_acquire);
    if ((now ^ whole->word) >> STRATA_RECORD_GENERATION && strata_driver_is_open())
        strata_check_device_now(whole->record->device);
}

/* Waits for unrecorded work, of other libraries as a rule, if there may be any. */
static strata_status wait_for_others(const strata_ref *whole)
{
    if (!whole->foreign && !atomic_load_explicit(&whole->unrecorded, memory_order_relaxed))
        return STRATA_SUCCESS;
    if (!strata_device_is_usable(whole->record->device))
        return STRATA_SUCCESS;
    const strata_status status = strata_device_wait_with_uncovered(whole->record->device);
    return strata_ends_without_driver(status) ? STRATA_SUCCESS : status;
}

/* Frees the block in the order of its allocation stream, after its open uses. Errors are suppressed. */
static strata_status free_block(const strata_ref *whole)
{
    strata_resource *top = whole->runtime->top;
    if (strata_block_is_empty(&whole->block))
        return STRATA_SUCCESS;
    look_for_reset(whole);
    strata_status status = wait_for_others(whole);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_open_uses_record(whole->runtime, &whole->block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_open_uses_forget(whole->runtime, &whole->block); /* at the last release, also of a free that is deferred */
    const bool kept = strata_runtime_keeps(whole->runtime, &whole->block);
    status = kept ? strata_kept_block_free(whole->runtime, &whole->block, NULL, true)
                  : strata_free_from_top_on_own_stream(top, &whole->block);
    if (status != STRATA_ERROR_STREAM_MISUSE)
        return status;
    /* The handle of an unknown allocation stream may be dead: the free comes after recorded uses alone. */
    const strata_error why = *strata_error_in_force();
    status = kept ? strata_kept_block_free(whole->runtime, &whole->block, STRATA_STREAM_GONE, false)
                  : strata_free_from_top(top, &whole->block, STRATA_STREAM_GONE);
    /* Of a known stream the free failed for another reason. */
    return status == STRATA_ERROR_INVALID_VALUE ? strata_error_raise_again(&why) : status;
}

/* Whether no other try is due: the block is freed, also if the program freed it behind the reference's back. */
static bool is_over(strata_status status)
{
    return status == STRATA_SUCCESS || status == STRATA_ERROR_DOUBLE_FREE || status == STRATA_ERROR_FOREIGN_POINTER;
}

static void defer(strata_ref *whole)
{
    _Atomic(strata_ref *) *deferred = &whole->runtime->deferred_frees;
    whole->next_deferred = atomic_load_explicit(deferred, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(deferred, &whole->next_deferred, whole, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

/* Frees the block, or gives an imported tensor back. `tell`: raises why it failed, other than for a prepared use. */
static strata_status end_memory(const strata_ref *whole, bool tell)
{
    struct DLManagedTensorVersioned *imported = whole->imported;
    strata_error_suppress_begin();
    const strata_status status = imported ? wait_for_others(whole) : free_block(whole);
    strata_error_suppress_end(tell && status != STRATA_SUCCESS && status != STRATA_ERROR_BLOCK_IN_USE);
    if (status == STRATA_SUCCESS && imported && imported->deleter)
        imported->deleter(imported);
    return status;
}

static strata_status drop(strata_ref *whole)
{
    strata_device_record *record = whole->record;
    const bool block = !whole->imported && !strata_block_is_empty(&whole->block);
    strata_host_free(whole);
    return strata_device_record_unhold(record, block);
}

strata_status strata_reference_free(strata_ref *whole)
{
    if (!whole->runtime) {
        whole->end(whole->data);
        return drop(whole);
    }
    strata_references_free_deferred(whole->runtime);
    const strata_status status = end_memory(whole, true);
    if (!is_over(status)) {
        defer(whole);
        return status == STRATA_ERROR_BLOCK_IN_USE ? STRATA_SUCCESS : status;
    }
    const strata_status dropped = drop(whole);
    return status == STRATA_SUCCESS ? dropped : status;
}

void strata_references_free_deferred_slow(strata_runtime *runtime)
{
    strata_ref *whole = atomic_exchange_explicit(&runtime->deferred_frees, NULL, memory_order_acquire);
    while (whole) {
        strata_ref *next = whole->next_deferred; /* keeps the runtime */
        if (is_over(end_memory(whole, false)))
            drop(whole);
        else
            defer(whole);
        whole = next;
    }
}
