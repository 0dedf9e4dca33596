/* The runtime of each device: built by the first caller, and kept until the process ends. */
#include "runtime/runtime.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"

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
    strata_runtime *before = *out = atomic_load_explicit(&singletons[ordinal], memory_order_relaxed);
    if (!*out || strata_device_is_lost((*out)->device)) { /* a lost one is kept: its users may still free */
        *out = NULL;
        building = true;
        status = strata_runtime_create(&(strata_runtime_config){.device = ordinal}, out);
        if (status == STRATA_SUCCESS) {
            (*out)->singleton = true;
            (*out)->replaced = before;
            atomic_store_explicit(&singletons[ordinal], *out, memory_order_release);
        }
        building = false;
    }
    strata_lock_release(&singletons_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_runtime_get(int ordinal, strata_runtime **out)
{
    if (__builtin_expect(out && ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT &&
                             strata_driver_state_now() == STRATA_DRIVER_OPEN,
                         1)) {
        *out = atomic_load_explicit(&singletons[ordinal], memory_order_acquire);
        return __builtin_expect(*out != NULL, 1) ? STRATA_SUCCESS : build_singleton(ordinal, out);
    }
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_get: out is NULL");
    *out = NULL;
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal < 0 || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid device %d", ordinal);
    *out = atomic_load_explicit(&singletons[ordinal], memory_order_acquire);
    if (*out && !strata_device_is_lost((*out)->device))
        return STRATA_SUCCESS;
    *out = NULL;
    return build_singleton(ordinal, out);
}
