/* The runtime of each device: built by the first caller, and kept until the process ends. */
#include "runtime/runtime.h"

#include "core/base/cancel.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/streams/device.h"

static strata_lock singletons_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_SINGLETONS);
static _Atomic(strata_runtime *) singletons[STRATA_DEVICE_LIMIT]; /* set once, under singletons_lock; never freed */

static _Thread_local bool building; /* the calling thread holds singletons_lock and runs code of layers or the user */

static strata_status build_singleton(int ordinal, strata_runtime **out)
{
    strata_status status = STRATA_SUCCESS;
    if (building)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "recursive call of strata_runtime_get: layers of a runtime that is being built, and "
                           "callbacks called meanwhile, cannot call it");
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&singletons_lock);
    *out = atomic_load_explicit(&singletons[ordinal], memory_order_relaxed);
    if (!*out || strata_device_is_lost((*out)->device)) { /* a lost one is kept: its users may still free */
        *out = NULL;
        building = true;
        status = strata_runtime_create(&(strata_runtime_config){.device = ordinal}, out);
        if (status == STRATA_SUCCESS) {
            (*out)->singleton = true;
            atomic_store_explicit(&singletons[ordinal], *out, memory_order_release);
        }
        building = false;
    }
    strata_lock_release(&singletons_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Whether the runtime's context is the device's still. A hit of a pool asks no driver, so it is asked here: a program
 * that has reset its device would get memory of the old context. */
static bool is_current(const strata_runtime *runtime)
{
    if (__builtin_expect(strata_device_has_its_context(runtime->device), 1))
        return true;
    if (!strata_device_is_lost(runtime->device))
        strata_devices_look();
    return false;
}

strata_status strata_runtime_get_if_present(int ordinal, strata_runtime **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_get_if_present: out is NULL");
    *out = NULL;
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal < 0 || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid device %d", ordinal);
    strata_runtime *runtime = atomic_load_explicit(&singletons[ordinal], memory_order_acquire);
    if (runtime && !strata_device_is_lost(runtime->device))
        *out = runtime;
    return STRATA_SUCCESS;
}

strata_status strata_runtime_get(int ordinal, strata_runtime **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_get: out is NULL");
    *out = NULL;
    const strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal < 0 || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid device %d", ordinal);
    strata_runtime *runtime = atomic_load_explicit(&singletons[ordinal], memory_order_acquire);
    if (!runtime || !is_current(runtime)) {
        const int cancel = strata_cancel_forbid();
        const strata_status built = build_singleton(ordinal, out);
        strata_cancel_restore(cancel);
        return built;
    }
    *out = runtime;
    return STRATA_SUCCESS;
}
