/* The begins and ends of contexts. Work in a context of cuCtxCreate, and in one with access to another device, may use
 * the memory of a stack (beside.c). What belonged to a context ends with it.
 *
 * Strata retains the primary context, too. When the program has no reference of its own left, Strata's is given back:
 * the context ends then, as it would without Strata, unless others hold it, such as green contexts. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "resources/findings/findings.h"

#include <strata/guard.h>
#include <strata/info.h>
#include <strata/stack.h>

static _Atomic int retained[EXEC_DEVICES]; /* by the program; Strata's own does not come here */

/* ---- begins ---- */

static bool is_ordered(CUcontext context, int ordinal)
{
    exec_device *device = exec_device_at((size_t)ordinal);
    return !device || exec_order_new_context(device, context) || exec_device_found_reset(ordinal);
}

/* Notices a context whose work may use the device's memory, and orders it. The device may have no stack yet. */
static bool notice(CUcontext context, int ordinal)
{
    exec_device_meet_reset(ordinal);
    return exec_context_notice(context, ordinal) && is_ordered(context, ordinal);
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < EXEC_DEVICES;
}

static void begin_device(int ordinal)
{
    if (exec_set_aside_is_asked_for())
        (void)exec_device_start(ordinal);
}

/* Destroys the new context again if its work could not be ordered. */
static CUresult created(CUresult result, const CUcontext *context, CUdevice ordinal)
{
    if (result != CUDA_SUCCESS || !context || !is_device(ordinal) || !exec_open_driver())
        return result;
    exec_context_await_forgetting(*context);
    if (notice(*context, ordinal)) {
        begin_device(ordinal);
        return result;
    }
    exec_context_mark_ending(*context, true);
    (void)EXEC_CALL(cuCtxDestroy_v2, *context);
    exec_context_forget(*context);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define CONTEXT_CREATE(name, parameters, ...)                       \
    EXEC_EXPORT CUresult CUDAAPI name parameters                    \
    {                                                               \
        return created(EXEC_CALL(name, __VA_ARGS__), made, device); \
    }

CONTEXT_CREATE(cuCtxCreate, (CUcontext * made, unsigned flags, CUdevice device), made, flags, device)
CONTEXT_CREATE(cuCtxCreate_v2, (CUcontext * made, unsigned flags, CUdevice device), made, flags, device)
CONTEXT_CREATE(cuCtxCreate_v3,
               (CUcontext * made, CUexecAffinityParam *affinities, int count, unsigned flags, CUdevice device), made,
               affinities, count, flags, device)
CONTEXT_CREATE(cuCtxCreate_v4, (CUcontext * made, CUctxCreateParams *given, unsigned flags, CUdevice device), made,
               given, flags, device)

/* As above, for a green context, whose default streams may use the device's memory. */
static CUresult green_created(CUresult result, const CUgreenCtx *green, CUdevice ordinal)
{
    if (result != CUDA_SUCCESS || !green || !is_device(ordinal) || !exec_open_driver())
        return result;
    exec_look_up_green();
    CUcontext context = exec_context_of_green(*green);
    if (!context || exec_is_primary(context, ordinal))
        context = (CUcontext)(void *)*green;
    exec_context_await_forgetting(context);
    exec_device_meet_reset(ordinal);
    if (exec_green_notice(*green, context, ordinal) && is_ordered(context, ordinal) &&
        exec_green_notice(*green, context, ordinal)) /* a reset that was found has forgotten all */
        return result;
    exec_context_mark_ending(context, true);
    (void)EXEC_CALL(cuGreenCtxDestroy, *green);
    exec_context_forget(context);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXEC_EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                                              unsigned flags)
{
    return green_created(EXEC_CALL(cuGreenCtxCreate, green, resources, device, flags), green, device);
}

/* The current context may use the memory of the peer's device from now on. It is noticed only if its end will be seen:
 * that of a primary context is seen if its device has a stack, that of another one if it was noticed. */
EXEC_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    const CUresult result = EXEC_CALL(cuCtxEnablePeerAccess, peer, flags);
    const exec_here here = result == CUDA_SUCCESS ? exec_device_here() : (exec_here){0};
    if (!here.context) /* also in a forked child, which may not take a lock */
        return result;
    const int ordinal = exec_ordinal_of(peer);
    if (here.primary)
        exec_device_meet_reset(here.device->ordinal);
    const bool ends_seen = here.primary || exec_context_uses(here.context, exec_ordinal_of(here.context));
    return ordinal < 0 || !ends_seen || notice(here.context, ordinal) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- before an end ---- */

static void say_unchecked(const exec_device *device, strata_status status)
{
    if (status != STRATA_SUCCESS && status != STRATA_ERROR_CORRUPTED && status != STRATA_ERROR_DEVICE_RESET)
        exec_say("the guard of device %d made no last check before its context ended: %s", device->ordinal,
                 strata_error_suppressed()->message);
}

/* Makes the guards' last check now: one at the process's exit would find memory and streams gone. */
static void check_guards(exec_device *device)
{
    strata_resource *guard;
    if (!exec_device_enter(device))
        return;
    strata_stack *stack = strata_runtime_stack(device->runtime);
    strata_error_suppress_begin();
    for (size_t i = 0; (guard = strata_stack_layer(stack, "guard", i)); i++)
        say_unchecked(device, strata_guard_check(guard, NULL));
    strata_error_suppress_end(false);
    exec_device_leave(device);
}

/* Waits first: any work may write what a guard checks. */
static void check_guards_behind_work(exec_device *device)
{
    if (exec_device_work_ends(device))
        check_guards(device);
    else
        exec_say("the guard of device %d made no last check before its context ended: the device had work that did not "
                 "end within %d s",
                 device->ordinal, FINDINGS_PATIENCE_MS / 1000);
}

/* Before the call that ends the primary context. Frees that wait could not be told to a stack whose context is gone.
 * `device`: NULL: it has no stack. */
static void settle(exec_device *device)
{
    if (!device)
        return;
    if (exec_settings_now.report != EXEC_REPORT_NONE)
        exec_free_waiting(device);
    if (device->is_guarded && exec_device_has_its_context(device))
        check_guards_behind_work(device);
}

/* ---- ends ---- */

static void mark_ending(CUcontext context, bool ending)
{
    exec_streams_mark_ending(context, ending);
    exec_context_mark_ending(context, ending);
}

/* Orders what the context's streams did before what any stream does later. From then on no call of this library takes a
 * stream of the context. */
void exec_context_ending(CUcontext context)
{
    exec_device *device;
    for (size_t i = 0; exec_streams_any() && (device = exec_device_next(&i));)
        exec_order_last_words(device, context);
    mark_ending(context, true);
}

/* Another context may have the handle already: its maker waits for exec_context_forget, which comes last. */
static void context_ended(CUcontext context)
{
    exec_streams_forget(context);
    exec_free_all_waiting(); /* a capture may have ended with it */
    exec_passed_forget(context);
    exec_device_context_ended();
    exec_context_forget(context);
}

/* Forgets a device's green contexts, which end with the primary one; with `ending` only those that are marked so, since
 * another thread may have made others meanwhile. */
static void forget_green(int ordinal, bool ending)
{
    exec_beside green;
    size_t i = 0;
    while (exec_green_find(NULL, ordinal, i, &green)) {
        if (ending && !green.ending) {
            i++;
            continue;
        }
        exec_streams_forget(green.handle);
        exec_streams_forget((CUcontext)(void *)green.green);
        exec_passed_forget(green.handle);
        exec_context_forget(green.handle);
    }
}

/* Inside of device.c's lock. */
static void forget_primary(exec_device *device)
{
    const CUcontext context = device->context;
    exec_ended_note(device);
    exec_forget_waiting(device);
    forget_green(device->ordinal, false);
    exec_streams_forget(context);
    exec_passed_forget(context);
    exec_context_forget(context);
}

void exec_device_was_reset(int ordinal)
{
    if (exec_device_give_up(ordinal, forget_primary))
        exec_free_all_waiting(); /* a capture may have ended with it */
}

bool exec_device_found_reset(int ordinal)
{
    strata_error_suppress_begin();
    const bool reset = strata_device_check(ordinal) == STRATA_ERROR_DEVICE_RESET;
    strata_error_suppress_end(false);
    if (reset)
        exec_device_was_reset(ordinal);
    return reset;
}

CUresult exec_context_ended(CUcontext context, CUresult result)
{
    if (result == CUDA_SUCCESS)
        context_ended(context);
    else
        mark_ending(context, false);
    return result;
}

#define CONTEXT_DESTROY(name)                                         \
    EXEC_EXPORT CUresult CUDAAPI name(CUcontext context)              \
    {                                                                 \
        exec_context_ending(context);                                 \
        return exec_context_ended(context, EXEC_CALL(name, context)); \
    }

CONTEXT_DESTROY(cuCtxDestroy)
CONTEXT_DESTROY(cuCtxDestroy_v2)

/* A context that is attached once more stays, and stays current. */
EXEC_EXPORT CUresult CUDAAPI cuCtxDetach(CUcontext context)
{
    CUcontext current = NULL;
    exec_context_ending(context);
    const CUresult result = EXEC_CALL(cuCtxDetach, context);
    const bool stays =
        result != CUDA_SUCCESS ||
        (strata_driver_is_open() && strata_cu.CtxGetCurrent(&current) == CUDA_SUCCESS && current == context);
    exec_context_ended(context, stays ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
    return result;
}

/* ---- primary contexts ---- */

static exec_device *stack_of(CUdevice ordinal)
{
    return is_device(ordinal) ? exec_device_at((size_t)ordinal) : NULL;
}

/* The primary context of a device. NULL: it has no stack. */
static CUcontext primary_of(CUdevice ordinal)
{
    const exec_device *device = stack_of(ordinal);
    return device ? device->context : NULL;
}

/* Orders what the context's streams did with memory of other devices before what any stream does there later. */
static void order_on_other_devices(CUdevice ordinal, CUcontext context)
{
    exec_device *device;
    for (size_t i = 0; context && exec_streams_any() && (device = exec_device_next(&i));)
        if (device->ordinal != ordinal)
            exec_order_last_words(device, context);
}

static void mark_green_ending(CUdevice ordinal, bool ending)
{
    exec_beside green;
    for (size_t i = 0; is_device(ordinal) && exec_green_find(NULL, ordinal, i, &green); i++) {
        if (ending)
            order_on_other_devices(ordinal, green.handle);
        mark_ending(green.handle, ending);
        mark_ending((CUcontext)(void *)green.green, ending);
    }
}

/* References to a primary context outlive a reset. Strata's is given back, so that the program's next release has the
 * result that it has without Strata. */
static CUresult was_reset(CUdevice device, CUcontext primary, CUresult result)
{
    if (exec_is_forked())
        return result;
    if (result != CUDA_SUCCESS) {
        exec_device_mark_reset(device, false);
        mark_ending(primary, false);
        mark_green_ending(device, false);
        return result;
    }
    exec_device_was_reset(device);
    forget_green(device, true);
    exec_device_mark_reset(device, false);
    if (is_device(device) && strata_driver_is_open()) {
        strata_devices_look();
        strata_device_give_back(device);
    }
    return result;
}

#define PRIMARY_RESET(name)                                           \
    EXEC_EXPORT CUresult CUDAAPI name(CUdevice device)                \
    {                                                                 \
        exec_device *with_stack = stack_of(device);                   \
        settle(with_stack);                                           \
        const CUcontext primary = primary_of(device);                 \
        order_on_other_devices(device, primary);                      \
        mark_ending(primary, true);                                   \
        mark_green_ending(device, true);                              \
        exec_device_mark_reset(device, true);                         \
        const exec_ending ending = exec_device_end_begin(with_stack); \
        const CUresult result = EXEC_CALL(name, device);              \
        exec_device_end_over(&ending);                                \
        return was_reset(device, primary, result);                    \
    }

PRIMARY_RESET(cuDevicePrimaryCtxReset)
PRIMARY_RESET(cuDevicePrimaryCtxReset_v2)

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const CUresult result = EXEC_CALL(cuDevicePrimaryCtxRetain, context, device);
    if (result == CUDA_SUCCESS && is_device(device)) {
        atomic_fetch_add(&retained[device], 1);
        begin_device(device);
    }
    return result;
}

/* Gives back Strata's reference to the primary context if the program has none left; the context may end with it. */
static void end_if_unused(int ordinal)
{
    if (atomic_load(&retained[ordinal]))
        return;
    exec_device *device = stack_of(ordinal);
    exec_beside green;
    if (!exec_green_find(NULL, ordinal, 0, &green)) /* else it holds the context */
        settle(device);
    exec_device_mark_reset(ordinal, true);
    const exec_ending ending = exec_device_end_begin(device);
    const bool ended = strata_device_give_back(ordinal);
    exec_device_end_over(&ending);
    if (ended)
        exec_device_was_reset(ordinal);
    exec_device_mark_reset(ordinal, false);
}

/* A release may be one more than this library has seen: of a reference that the CUDA runtime took in its own way. */
static CUresult released(CUresult result, CUdevice device)
{
    if (result != CUDA_SUCCESS || !is_device(device))
        return result;
    int count = atomic_load(&retained[device]);
    while (count > 0 && !atomic_compare_exchange_weak(&retained[device], &count, count - 1)) {
    }
    end_if_unused(device);
    return result;
}

#define PRIMARY_RELEASE(name)                             \
    EXEC_EXPORT CUresult CUDAAPI name(CUdevice device)    \
    {                                                     \
        return released(EXEC_CALL(name, device), device); \
    }

PRIMARY_RELEASE(cuDevicePrimaryCtxRelease)
PRIMARY_RELEASE(cuDevicePrimaryCtxRelease_v2)

/* ---- green contexts ---- */

/* Returns the context that is current while the green one is, in which its streams were made. NULL: it is the primary
 * one, or not known. */
static CUcontext context_of(CUgreenCtx green)
{
    exec_beside beside;
    const exec_device *device;
    if (exec_is_forked())
        return NULL;
    if (exec_green_find(green, -1, 0, &beside))
        return beside.handle;
    const CUcontext context = exec_context_of_green(green);
    for (size_t i = 0; (device = exec_device_next(&i));)
        if (device->context == context)
            return NULL;
    return context;
}

/* A green context holds the primary one of its device. Its streams were made in it by name, or while its context was
 * current. */
EXEC_EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green)
{
    const CUcontext context = context_of(green), own = (CUcontext)(void *)green;
    if (context && context != own)
        exec_context_ending(context);
    exec_context_ending(own);
    const CUresult result = EXEC_CALL(cuGreenCtxDestroy, green);
    if (context && context != own)
        exec_context_ended(context, result);
    exec_context_ended(own, result);
    for (int i = 0; result == CUDA_SUCCESS && i < EXEC_DEVICES; i++)
        end_if_unused(i);
    return result;
}
