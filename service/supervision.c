/* Failures: of which class each is, what is done about it, and how often a context is made again. */
#include "core/base/error.h"
#include "runtime/device_state.h"
#include "service/service.h"

#include <stdio.h>
#include <string.h>

enum { TRY_AGAIN = 100000000 }; /* ns: the first pause between attempts; later ones are longer */

/* ---- classes ---- */

/* After these no call in the context succeeds (CUDA Driver API, "CUresult": "leaves the process in an inconsistent
 * state", and what a lost device gives). */
bool service_is_sticky(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

/* What a request's own arguments cause, such as a kernel that its module does not have; the context is sound. */
static bool is_of_arguments(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_NOT_SUPPORTED:
        return true;
    default:
        return false;
    }
}

static bool is_poisoned(const strata_error *error)
{
    return error->status == STRATA_ERROR_POISONED || error->status == STRATA_ERROR_DEVICE_RESET ||
           (error->status == STRATA_ERROR_DRIVER && service_is_sticky(error->driver_code));
}

static bool is_of_request(const strata_error *error)
{
    return error->status == STRATA_ERROR_DRIVER ? is_of_arguments(error->driver_code)
                                                : error->status != STRATA_ERROR_CORRUPTED;
}

strata_failure_class service_classify(const strata_service *service, const strata_error *error)
{
    switch (error->status) {
    case STRATA_SUCCESS:
        return STRATA_FAILURE_NONE;
    case STRATA_ERROR_OUT_OF_MEMORY:
    case STRATA_ERROR_OUT_OF_HOST_MEMORY:
    case STRATA_ERROR_OUT_OF_BUDGET:
        return STRATA_FAILURE_OUT_OF_MEMORY;
    case STRATA_ERROR_LIBRARY:
        return STRATA_FAILURE_LIBRARY;
    case STRATA_ERROR_TIMEOUT:
        return STRATA_FAILURE_TIMEOUT;
    case STRATA_ERROR_SHUT_DOWN:
    case STRATA_ERROR_DRIVER_NOT_FOUND:
        return STRATA_FAILURE_UNRECOVERABLE;
    default:
        break;
    }
    if (is_poisoned(error))
        return !service->options.no_rebuild && service->backend->survives(error) ? STRATA_FAILURE_POISONED
                                                                                 : STRATA_FAILURE_UNRECOVERABLE;
    return is_of_request(error) ? STRATA_FAILURE_REQUEST : STRATA_FAILURE_OTHER;
}

const char *strata_failure_class_name(strata_failure_class value)
{
    static const char *const names[] = {
        [STRATA_FAILURE_NONE] = "none",
        [STRATA_FAILURE_REQUEST] = "request",
        [STRATA_FAILURE_OUT_OF_MEMORY] = "out of memory",
        [STRATA_FAILURE_POISONED] = "poisoned",
        [STRATA_FAILURE_LIBRARY] = "library",
        [STRATA_FAILURE_TIMEOUT] = "timeout",
        [STRATA_FAILURE_UNRECOVERABLE] = "unrecoverable",
        [STRATA_FAILURE_OTHER] = "other",
    };
    return (unsigned)value < sizeof names / sizeof names[0] ? names[value] : "unknown";
}

/* ---- the phase ---- */

/* What waits for a phase looks under the lock. */
static void change_phase(strata_service *service, service_phase phase)
{
    const uint32_t limit =
        phase == SERVICE_RUNNING ? service->options.queue_capacity : service->options.pending_queue_capacity;
    atomic_store_explicit(&service->mailbox.limit, limit, memory_order_relaxed);
    strata_lock_take(&service->lock);
    if (phase == SERVICE_RUNNING)
        service->last_failure = (strata_error){0};
    else
        service->snapshot = (strata_service_snapshot){0};
    atomic_store_explicit(&service->phase, phase, memory_order_release);
    pthread_cond_broadcast(&service->ready);
    strata_lock_release(&service->lock);
}

static void note_failure(strata_service *service, const strata_error *why)
{
    strata_lock_take(&service->lock);
    service->last_failure = *why;
    strata_lock_release(&service->lock);
}

void service_tell_last_failure(strata_service *service, char *text, size_t room)
{
    text[0] = '\0';
    strata_lock_take(&service->lock);
    if (service_phase_now(service) == SERVICE_OPENING && service->last_failure.status != STRATA_SUCCESS)
        snprintf(text, room, "; the last failure: %.300s", service->last_failure.message);
    strata_lock_release(&service->lock);
}

static void tell(strata_service *service, strata_service_event event)
{
    strata_error_aside aside;
    if (!service->options.notice)
        return;
    strata_error_set_aside(&aside);
    service->options.notice(service, event, strata_device_state_generation(service->state),
                            service->options.notice_data);
    strata_error_take_back(&aside);
}

void service_stop(strata_service *service, const strata_error *why)
{
    strata_lock_take(&service->lock);
    service->stopped = *why;
    strata_lock_release(&service->lock);
    change_phase(service, SERVICE_STOPPED);
    tell(service, STRATA_SERVICE_STOPPED);
}

/* ---- rebuilding ---- */

/* Whether so many rebuilds lie within the window that another one is too many; notes this one. */
static bool is_too_often(strata_service *service, uint64_t now)
{
    const unsigned limit = service->options.rebuild_limit;
    const uint64_t before = service->rebuilds_at[service->rebuild_count % limit]; /* `limit` rebuilds ago */
    if (service->rebuild_count >= limit && now - before < service->options.rebuild_window)
        return true;
    service->rebuilds_at[service->rebuild_count++ % limit] = now;
    return false;
}

static double seconds(uint64_t nanoseconds)
{
    return 1e-9 * (double)nanoseconds;
}

static void stop_rebuilding(strata_service *service, const strata_error *why)
{
    strata_error stopped = *why;
    snprintf(stopped.message, sizeof stopped.message,
             "the context was rebuilt %u times within %g s, and is lost again; the service has stopped. Last: %.300s",
             service->options.rebuild_limit, seconds(service->options.rebuild_window), why->message);
    service_stop(service, &stopped);
}

/* `why` may be of any call: it says neither that the service has stopped nor what to do about it. */
static void stop_without_rebuilding(strata_service *service, const strata_error *why)
{
    const bool ended = is_poisoned(why) && !service->options.no_rebuild;
    strata_error stopped = *why;
    snprintf(stopped.message, sizeof stopped.message, "the device service has stopped: %.300s%s", why->message,
             ended ? "; a context that a fault has ended cannot be made again in its process: start that again, or use "
                     "an isolated service, which goes on"
                   : "");
    service_stop(service, &stopped);
}

/* The process that was lost may hold the device's memory for a second: the last of three attempts comes after that. */
static uint64_t pause_after(const strata_service *service)
{
    enum { AFTER_A_LOSS = 30 };
    return service->attempts == 1 ? TRY_AGAIN
           : service->was_open    ? AFTER_A_LOSS * (uint64_t)TRY_AGAIN
                                  : 4ull * TRY_AGAIN;
}

/* After rebuild_limit failures, or failures for the whole of rebuild_window, it stops instead. */
static void try_again_later(strata_service *service, const strata_error *why, uint64_t *later)
{
    const uint64_t now = service_clock();
    if (!service->failing_since)
        service->failing_since = now;
    service->attempts++;
    *later = now + pause_after(service);
    note_failure(service, why);
    if (now - service->failing_since < service->options.rebuild_window &&
        service->attempts < service->options.rebuild_limit)
        return;
    strata_error stopped = *why;
    snprintf(stopped.message, sizeof stopped.message,
             "no context could be made in %u attempts within %g s; the service has stopped. Last: %.300s",
             service->attempts, seconds(now - service->failing_since), why->message);
    service_stop(service, &stopped);
}

void service_try_open(strata_service *service, uint64_t *later)
{
    const strata_status status = service->backend->open(service);
    if (status == STRATA_SUCCESS) {
        if (service->was_open)
            atomic_fetch_add_explicit(&service->rebuilds, 1, memory_order_relaxed);
        service->was_open = true;
        service->failing_since = service->attempts = 0;
        change_phase(service, SERVICE_RUNNING);
        tell(service, STRATA_SERVICE_READY);
        return;
    }
    const strata_error why = *strata_error_in_force();
    const strata_failure_class class = service_classify(service, &why);
    if (class == STRATA_FAILURE_UNRECOVERABLE || (!service->was_open && class != STRATA_FAILURE_POISONED))
        service_stop(service, &why);
    else
        try_again_later(service, &why, later);
}

void service_judge(strata_service *service, const strata_error *error)
{
    strata_escalation escalation = STRATA_ESCALATION_STOP;
    switch (service_classify(service, error)) {
    case STRATA_FAILURE_POISONED:
    case STRATA_FAILURE_UNRECOVERABLE:
        break;
    case STRATA_FAILURE_OTHER:
        if (service->options.escalate) {
            strata_error_aside aside;
            strata_error_set_aside(&aside);
            escalation = service->options.escalate(service, error, service->options.escalate_data);
            strata_error_take_back(&aside);
        }
        if (escalation == STRATA_ESCALATION_GO_ON)
            return;
        break;
    default:
        return;
    }
    if (service->lost)
        return;
    service->lost = true;
    service->rebuild_wanted = escalation == STRATA_ESCALATION_REBUILD;
    service->why_lost = *error;
}

void service_handle_loss(strata_service *service)
{
    const strata_error why = service->why_lost;
    const strata_failure_class class = service_classify(service, &why);
    const bool rebuild = class == STRATA_FAILURE_POISONED || (class == STRATA_FAILURE_OTHER && service->rebuild_wanted);
    service->lost = service->rebuild_wanted = false;
    note_failure(service, &why);
    change_phase(service, SERVICE_OPENING);
    strata_device_state_clear_context(service->state);
    strata_device_state_bump_generation(service->state, NULL); /* before the answers: they have the new one */
    service->backend->lose(service, &why);
    tell(service, STRATA_SERVICE_LOST);
    if (!rebuild)
        stop_without_rebuilding(service, &why);
    else if (is_too_often(service, service_clock()))
        stop_rebuilding(service, &why);
}
