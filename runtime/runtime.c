/* Creation and destruction of runtimes. */
#include "runtime/runtime.h"

#include "core/base/asymmetric.h"
#include "core/base/cancel.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/any_stream_frees.h"
#include "runtime/captures.h"
#include "runtime/device_state.h"
#include "runtime/environment.h"
#include "runtime/references.h"

static strata_status make_runtime(const strata_runtime_config *config, strata_runtime **out)
{
    strata_runtime *runtime = strata_host_zalloc(sizeof *runtime);
    if (!runtime)
        return strata_fail_host_memory("a runtime");
    strata_status status = strata_device_get(config->device, &runtime->device);
    if (status == STRATA_SUCCESS)
        status = strata_device_state_create(runtime->device, &runtime->state);
    if (status != STRATA_SUCCESS)
        goto refuse;
    runtime->stack = config->stack;
    if (!runtime->stack) {
        status = config->stack_text ? strata_stack_create(config->stack_text, config->device, &runtime->stack)
                                    : strata_default_stack_create(config->device, &runtime->stack);
        if (status != STRATA_SUCCESS)
            goto refuse;
    }
    if (!strata_stack_claim(runtime->stack)) {
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "stack \"%s\" already belongs to another runtime",
                             strata_stack_text(runtime->stack));
        goto refuse;
    }
    strata_barriers_open();
    runtime->top = strata_stack_top(runtime->stack);
    runtime->table = runtime->stack->head.table;
    runtime->tracks_plainly = strata_resource_tracks_plainly(runtime->top);
    runtime->hears_graphs = strata_resource_hears_graphs(runtime->top);
    runtime->tracks = (runtime->top->ops->capabilities(runtime->top) & STRATA_CAPABILITY_USE_TRACKING) != 0;
    runtime->early_events = config->events == STRATA_EVENTS_EARLY;
    runtime->stream_capacity = config->stream_capacity ? config->stream_capacity : 16;
    strata_lock_init(&runtime->streams_lock, STRATA_RANK_STREAMS);
    strata_captures_init(runtime);
    strata_open_uses_init(&runtime->open_uses);
    atomic_store_explicit(&runtime->stack->runtime, runtime, memory_order_release);
    *out = runtime;
    return STRATA_SUCCESS;
refuse:
    strata_device_state_discard(runtime->state);
    strata_host_free(runtime);
    return status;
}

static strata_status check_config(const strata_runtime_config *config)
{
    if (config->stack && config->stack_text)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_create: both stack and stack_text are set");
    if (config->stack && strata_stack_device(config->stack) != config->device)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "the stack was built for device %d, the runtime is for device %d",
                           strata_stack_device(config->stack), config->device);
    if ((unsigned)config->events > STRATA_EVENTS_EARLY)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid event mode %d", (int)config->events);
    return STRATA_SUCCESS;
}

strata_status strata_runtime_create(const strata_runtime_config *given, strata_runtime **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_create: out is NULL");
    *out = NULL;
    strata_runtime_config config;
    strata_status status = strata_options_read(&config, sizeof config, given, "strata_runtime_config");
    if (status == STRATA_SUCCESS)
        status = check_config(&config);
    const int cancel = strata_cancel_forbid();
    if (status == STRATA_SUCCESS)
        status = make_runtime(&config, out);
    strata_cancel_restore(cancel);
    return status;
}

static strata_status check_private(const strata_runtime *runtime)
{
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS || !runtime || !runtime->singleton)
        return status;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "the runtime of a device lives until the process ends; only private runtimes can be destroyed");
}

/* Whether the driver can be asked about the device; looks for a reset. */
static bool is_usable(strata_runtime *runtime)
{
    strata_error_suppress_begin();
    const bool usable = strata_driver_is_open() && strata_check_device_now(runtime->device) == STRATA_SUCCESS;
    strata_error_suppress_end(false);
    return usable;
}

/* Frees memory of released references whose free was deferred. Errors: `unwaited`, where it may be why some still
 * cannot be freed. */
static strata_status free_deferred(strata_runtime *runtime, const strata_error *unwaited)
{
    strata_references_free_deferred(runtime);
    return unwaited->status != STRATA_SUCCESS && atomic_load_explicit(&runtime->deferred_frees, memory_order_relaxed)
               ? strata_error_raise_again(unwaited)
               : STRATA_SUCCESS;
}

static strata_status check_references_released(strata_runtime *runtime)
{
    const unsigned long long live = strata_device_state_references(runtime->state);
    return live ? strata_fail(STRATA_ERROR_BUSY,
                              "the runtime still has %llu live reference%s; release them, or end the runtime without "
                              "them by strata_runtime_abandon",
                              live, live == 1 ? "" : "s")
                : STRATA_SUCCESS;
}

static strata_status close_stack(void *closed)
{
    strata_runtime *runtime = closed;
    const int cancel = strata_cancel_forbid(); /* may be in the release of the last reference, on any thread */
    const strata_status status = strata_stack_close(runtime->stack);
    strata_cancel_restore(cancel);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_destroy(&runtime->streams_lock);
    strata_captures_destroy(runtime);
    strata_open_uses_destroy(&runtime->open_uses);
    strata_host_free(runtime);
    return STRATA_SUCCESS;
}

static strata_status destroy(strata_runtime *runtime)
{
    strata_status status;
    const bool usable = is_usable(runtime);
    strata_error unwaited = {.status = STRATA_SUCCESS};
    strata_any_stream_frees_finish(runtime);
    if (usable) /* before what was deferred is freed */
        strata_devices_wait_if_uncovered(&unwaited);
    status = strata_captures_discard(runtime);
    if (status == STRATA_SUCCESS)
        status = free_deferred(runtime, &unwaited);
    if (status == STRATA_SUCCESS)
        status = check_references_released(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_check_stack_empty(runtime->stack, "the runtime");
    if (status == STRATA_SUCCESS && !strata_device_is_lost(runtime->device)) /* else no stream can be released */
        status = strata_check_streams_released(runtime);
    if (status == STRATA_SUCCESS && usable)
        status = strata_reap_finally(runtime->top, &unwaited); /* before anything is undone */
    if (status == STRATA_SUCCESS || strata_ends_without_driver(status))
        status = strata_streams_destroy(runtime);
    strata_device_state *state = runtime->state;
    if (status == STRATA_SUCCESS)
        status = close_stack(runtime);
    return status == STRATA_SUCCESS ? strata_device_state_drop(state, NULL, NULL) : status;
}

strata_status strata_runtime_destroy(strata_runtime *runtime)
{
    strata_status status = check_private(runtime);
    if (!runtime || status != STRATA_SUCCESS)
        return status;
    const int cancel = strata_cancel_forbid();
    status = destroy(runtime);
    strata_cancel_restore(cancel);
    return status;
}

/* Raises BUSY if blocks live that no reference holds. References may be released meanwhile: their blocks are counted
 * first. */
static strata_status check_only_references(strata_runtime *runtime)
{
    const uint64_t held = strata_device_state_blocks(runtime->state);
    strata_usage usage = {0};
    strata_error_suppress_begin();
    runtime->top->ops->usage(runtime->top, &usage); /* live blocks need no driver call */
    strata_error_suppress_end(false);
    return usage.live_blocks <= held
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_BUSY,
                             "the runtime still has %llu live blocks that no reference holds; free them first",
                             (unsigned long long)(usage.live_blocks - held));
}

static strata_status abandon(strata_runtime *runtime)
{
    strata_error unwaited = {.status = STRATA_SUCCESS};
    strata_any_stream_frees_finish(runtime);
    if (is_usable(runtime))
        strata_devices_wait_if_uncovered(&unwaited);
    strata_status status = strata_captures_discard(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    status = free_deferred(runtime, &unwaited);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_device_state_references(runtime->state) == 0)
        return destroy(runtime);
    if (is_usable(runtime))
        status = check_only_references(runtime);
    if (status == STRATA_SUCCESS && !strata_device_is_lost(runtime->device))
        status = strata_check_streams_released(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_streams_destroy(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    atomic_store_explicit(&runtime->stack->runtime, NULL, memory_order_release);
    return strata_device_state_drop(runtime->state, close_stack, runtime);
}

strata_status strata_runtime_abandon(strata_runtime *runtime)
{
    strata_status status = check_private(runtime);
    if (!runtime || status != STRATA_SUCCESS)
        return status;
    const int cancel = strata_cancel_forbid();
    status = abandon(runtime);
    strata_cancel_restore(cancel);
    return status;
}

int strata_runtime_device(const strata_runtime *runtime)
{
    if (runtime)
        return runtime->device->ordinal;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_device: runtime is NULL");
    return -1;
}

strata_stack *strata_runtime_stack(strata_runtime *runtime)
{
    if (runtime)
        return runtime->stack;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_stack: runtime is NULL");
    return NULL;
}
