/* `strata exec --set-aside SIZE`: a part of the budget for what no hook sees, such as contexts and modules. The budget
 * of each device's stack is charged with it when the stack is built, at the device's first use, and gets it back when
 * the context ends.
 *
 * If it does not fit, since other processes have used a shared budget up, the device's stack gives no memory: each
 * request tries this charge again before its own. A request waits for it as the budget's option says; what asks for no
 * memory does not wait. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "resources/budget/take.h"

#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around a change of what is set aside */

bool exec_set_aside_is_asked_for(void)
{
    const strata_amount *amount = &exec_settings_now.set_aside;
    return amount->bytes || amount->percent > 0;
}

static size_t amount_of(const exec_device *device)
{
    const strata_device *own = strata_runtime_stack(device->runtime)->device;
    return strata_amount_bytes(&exec_settings_now.set_aside, own->info.total_bytes);
}

/* ---- charging ---- */

/* Charges a part of the limit. Refuses the whole of it, which would fit but leave nothing. */
static strata_status take_part(strata_budget_account *account, size_t bytes, const _Atomic bool *wanted)
{
    strata_budget_usage usage;
    const strata_status status = strata_budget_account_usage(account, &usage);
    if (status != STRATA_SUCCESS || !usage.limit || bytes < usage.limit)
        return status == STRATA_SUCCESS ? budget_take_while(account, bytes, wanted) : status;
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_BUDGET);
    error->requested = bytes;
    error->limit = usage.limit;
    error->in_use = usage.in_use;
    error->remaining = usage.remaining;
    return strata_error_raise(error, "%s would leave the program nothing of the limit of %s",
                              strata_size_text(bytes).text, strata_size_text(usage.limit).text);
}

/* Raises the error again with a name for what was refused: it answers the program's request, whose size is another one.
 */
static strata_status raise_as_own(const strata_error *why)
{
    strata_error *error = strata_error_begin(why->status);
    error->requested = why->requested;
    error->limit = why->limit;
    error->in_use = why->in_use;
    error->remaining = why->remaining;
    return strata_error_raise(error, "--set-aside: %s", why->message);
}

/* Notes a charge, unless another thread's was noted, or the device's stack has ended. */
static bool note(exec_device *device, strata_budget_account *account, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const bool owed = atomic_load(&device->owes_set_aside) && device->account == account;
    if (owed) {
        device->set_aside_of = account;
        atomic_store(&device->set_aside, bytes);
        atomic_store(&device->owes_set_aside, false);
    }
    pthread_mutex_unlock(&lock);
    return owed;
}

/* Charges what a device owes, and waits for it while *wanted is set: without the lock, which other devices and the end
 * of this one need. */
static strata_status charge(exec_device *device, const _Atomic bool *wanted)
{
    strata_budget_account *account = device->account;
    const size_t bytes = amount_of(device);
    strata_error_suppress_begin();
    const strata_status status = take_part(account, bytes, wanted);
    const strata_error why = *strata_error_suppressed();
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS && !note(device, account, bytes))
        budget_give(account, bytes);
    return status == STRATA_SUCCESS || !atomic_load(&device->owes_set_aside) ? STRATA_SUCCESS : raise_as_own(&why);
}

/* ---- begin and end ---- */

void exec_set_aside_begin(exec_device *device)
{
    if (!exec_set_aside_is_asked_for() || !device->account)
        return;
    atomic_store(&device->owes_set_aside, true);
    if (exec_set_aside_settle(device, false) != STRATA_SUCCESS)
        exec_say("device %d: what is to be set aside does not fit, and memory is refused until it does: %s",
                 device->ordinal, strata_error_in_force()->message);
}

strata_status exec_set_aside_settle(exec_device *device, bool may_wait)
{
    static const _Atomic bool never = false;
    return charge(device, may_wait ? &device->owes_set_aside : &never);
}

void exec_set_aside_end(exec_device *device)
{
    pthread_mutex_lock(&lock);
    const uint64_t bytes = atomic_exchange(&device->set_aside, 0);
    atomic_store(&device->owes_set_aside, false);
    if (bytes)
        budget_give(device->set_aside_of, bytes);
    pthread_mutex_unlock(&lock);
}

/* ---- reporting ---- */

/* Advises a size in whole MiB: an upper bound, since what other processes have without a charge to the same budget
 * cannot be told apart. */
static void emit_advice(strata_emitter *emitter, uint64_t bytes)
{
    char text[128];
    const uint64_t mebibytes = (bytes + (UINT64_C(1) << 20) - 1) >> 20;
    snprintf(text, sizeof text, "--set-aside %lluMiB, or less if other processes have memory of the device",
             (unsigned long long)mebibytes);
    strata_emit_text(emitter, "enough_would_be", text);
}

void exec_set_aside_emit(strata_emitter *emitter, exec_device *device, uint64_t hidden, bool known)
{
    const uint64_t kept = atomic_load(&device->set_aside);
    if (!exec_set_aside_is_asked_for() || !device->account)
        return;
    strata_emit_bytes(emitter, "set_aside", kept);
    if (!known || !kept)
        return;
    const uint64_t others = budget_of_others(device->account);
    const uint64_t own = hidden > others ? hidden - others : 0;
    if (own <= kept)
        return;
    strata_emit_bytes(emitter, "more_than_set_aside", own - kept);
    emit_advice(emitter, own);
}
