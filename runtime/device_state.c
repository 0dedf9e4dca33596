/* The state of a device: its record, and the watches of its generation. */
#include "runtime/device_state.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct strata_generation_watch {
    strata_device_state *state; /* NULL: dropped; this and the links are guarded by watches_lock */
    strata_generation_watch *next;
    strata_generation_callback callback; /* these are constant */
    void *data;
    int fd;
};

struct strata_device_state {
    strata_device_record *record; /* constant */
    _Atomic(CUcontext) context;   /* any thread */
    strata_generation_watch *watches;
};

/* One lock for all states: bumps are rare, and a watch may end after its state. */
static strata_lock watches_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_WATCHES);

/* ---- life ---- */

static strata_status create(strata_device *device, int ordinal, CUcontext context, strata_device_state **out)
{
    strata_device_state *state = strata_host_zalloc(sizeof *state);
    strata_device_record *record = strata_host_zalloc(sizeof *record);
    *out = state;
    if (!state || !record) {
        strata_host_free(state);
        strata_host_free(record);
        *out = NULL;
        return strata_fail_host_memory("the state of a device");
    }
    record->device = device;
    record->ordinal = ordinal;
    atomic_init(&record->holders, 1);
    state->record = record;
    atomic_init(&state->context, context);
    return STRATA_SUCCESS;
}

strata_status strata_device_state_create(strata_device *device, strata_device_state **out)
{
    return create(device, device->ordinal, device->context, out);
}

strata_status strata_device_state_create_for(int ordinal, strata_device_state **out)
{
    return create(NULL, ordinal, NULL, out);
}

void strata_device_state_start_at(strata_device_state *state, uint64_t generation)
{
    atomic_store_explicit(&state->record->word, generation << STRATA_RECORD_GENERATION, memory_order_release);
}

strata_status strata_device_state_drop(strata_device_state *state, strata_status (*end)(void *abandoned),
                                       void *abandoned)
{
    strata_device_record *record = state->record;
    strata_lock_take(&watches_lock);
    for (strata_generation_watch *watch = state->watches; watch; watch = watch->next)
        watch->state = NULL;
    strata_lock_release(&watches_lock);
    strata_host_free(state);
    record->end = end;
    record->abandoned = abandoned;
    atomic_fetch_or_explicit(&record->word, STRATA_RECORD_DROPPED, memory_order_acq_rel);
    return strata_device_record_unhold(record, false);
}

void strata_device_state_discard(strata_device_state *state)
{
    if (state)
        strata_host_free(state->record);
    strata_host_free(state);
}

strata_device_record *strata_device_state_record(strata_device_state *state)
{
    return state->record;
}

void strata_device_record_hold(strata_device_record *record, bool block)
{
    atomic_fetch_add_explicit(&record->holders, 1, memory_order_relaxed);
    if (block)
        atomic_fetch_add_explicit(&record->blocks, 1, memory_order_relaxed);
}

strata_status strata_device_record_unhold(strata_device_record *record, bool block)
{
    if (block)
        atomic_fetch_sub_explicit(&record->blocks, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&record->holders, 1, memory_order_acq_rel) != 1)
        return STRATA_SUCCESS;
    const strata_status status = record->end ? record->end(record->abandoned) : STRATA_SUCCESS;
    strata_host_free(record);
    return status;
}

uint64_t strata_device_state_references(const strata_device_state *state)
{
    return atomic_load_explicit(&state->record->holders, memory_order_acquire) - 1;
}

uint64_t strata_device_state_blocks(const strata_device_state *state)
{
    return atomic_load_explicit(&state->record->blocks, memory_order_acquire);
}

strata_stale_reason strata_device_record_stale(const strata_device_record *record, uint64_t word)
{
    const uint64_t now = atomic_load_explicit(&record->word, memory_order_acquire);
    if (now & STRATA_RECORD_DROPPED)
        return STRATA_STALE_STATE_DROPPED;
    if (now & STRATA_RECORD_SHUTTING_DOWN)
        return STRATA_STALE_SHUTTING_DOWN;
    return now != word || (record->device && strata_device_is_lost(record->device)) ? STRATA_STALE_CONTEXT_REBUILT
                                                                                    : STRATA_STALE_NOT;
}

/* ---- public calls ---- */

strata_device_state *strata_runtime_device_state(strata_runtime *runtime)
{
    if (runtime)
        return runtime->state;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_device_state: runtime is NULL");
    return NULL;
}

static strata_status check_state(const strata_device_state *state, const char *call)
{
    return state ? STRATA_SUCCESS : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: state is NULL", call);
}

static uint64_t word_of(const strata_device_state *state)
{
    return atomic_load_explicit(&state->record->word, memory_order_acquire);
}

int strata_device_state_device_id(const strata_device_state *state)
{
    return check_state(state, "strata_device_state_device_id") == STRATA_SUCCESS ? state->record->ordinal
                                                                                 : STRATA_DEVICE_NONE;
}

uint64_t strata_device_state_generation(const strata_device_state *state)
{
    return check_state(state, "strata_device_state_generation") == STRATA_SUCCESS
               ? word_of(state) >> STRATA_RECORD_GENERATION
               : 0;
}

bool strata_device_state_accepting_ops(const strata_device_state *state)
{
    return check_state(state, "strata_device_state_accepting_ops") == STRATA_SUCCESS &&
           !(word_of(state) & STRATA_RECORD_FLAGS);
}

strata_status strata_device_state_begin_shutdown(strata_device_state *state)
{
    const strata_status status = check_state(state, "strata_device_state_begin_shutdown");
    if (status == STRATA_SUCCESS)
        atomic_fetch_or_explicit(&state->record->word, STRATA_RECORD_SHUTTING_DOWN, memory_order_acq_rel);
    return status;
}

CUcontext strata_device_state_current_context(const strata_device_state *state)
{
    return check_state(state, "strata_device_state_current_context") == STRATA_SUCCESS
               ? atomic_load_explicit(&state->context, memory_order_acquire)
               : NULL;
}

strata_status strata_device_state_install_context(strata_device_state *state, CUcontext context)
{
    if (!state || !context)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_device_state_install_context: state or context is NULL; "
                                                       "strata_device_state_clear_context removes a context");
    atomic_store_explicit(&state->context, context, memory_order_release);
    return STRATA_SUCCESS;
}

strata_status strata_device_state_clear_context(strata_device_state *state)
{
    const strata_status status = check_state(state, "strata_device_state_clear_context");
    if (status == STRATA_SUCCESS)
        atomic_store_explicit(&state->context, NULL, memory_order_release);
    return status;
}

/* ---- watches ---- */

/* An eventfd counts the changes that were not taken; it blocks no writer before 2^64 - 2. */
static void tell(const strata_generation_watch *watch, uint64_t generation)
{
    if (watch->callback)
        watch->callback(generation, watch->data);
    while (eventfd_write(watch->fd, 1) < 0 && errno == EINTR)
        ;
}

strata_status strata_device_state_bump_generation(strata_device_state *state, uint64_t *generation)
{
    strata_status status = check_state(state, "strata_device_state_bump_generation");
    if (status == STRATA_SUCCESS)
        status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    const uint64_t one = UINT64_C(1) << STRATA_RECORD_GENERATION;
    const int cancel = strata_cancel_forbid(); /* callbacks and writes are places to end a thread at */
    strata_lock_take(&watches_lock);
    const uint64_t now =
        (atomic_fetch_add_explicit(&state->record->word, one, memory_order_acq_rel) + one) >> STRATA_RECORD_GENERATION;
    for (const strata_generation_watch *watch = state->watches; watch; watch = watch->next)
        tell(watch, now);
    strata_lock_release(&watches_lock);
    strata_cancel_restore(cancel);
    if (generation)
        *generation = now;
    return STRATA_SUCCESS;
}

strata_status strata_generation_watch_create(strata_device_state *state, strata_generation_callback callback,
                                             void *data, strata_generation_watch **out)
{
    if (!state || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_generation_watch_create: state or out is NULL");
    *out = NULL;
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_generation_watch *watch = strata_host_zalloc(sizeof *watch);
    if (!watch)
        return strata_fail_host_memory("a watch");
    *watch = (strata_generation_watch){.state = state, .callback = callback, .data = data};
    watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->fd < 0) {
        const int error = errno;
        strata_host_free(watch);
        return strata_fail(STRATA_ERROR_IO, "a watch has no file descriptor: eventfd: %s", strerror(error));
    }
    strata_lock_take(&watches_lock);
    watch->next = state->watches;
    state->watches = watch;
    strata_lock_release(&watches_lock);
    *out = watch;
    return STRATA_SUCCESS;
}

int strata_generation_watch_fd(const strata_generation_watch *watch)
{
    if (watch)
        return watch->fd;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_generation_watch_fd: watch is NULL");
    return -1;
}

strata_status strata_generation_watch_take(strata_generation_watch *watch, uint64_t *changes)
{
    if (!watch)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_generation_watch_take: watch is NULL");
    eventfd_t count = 0;
    int result;
    while ((result = eventfd_read(watch->fd, &count)) < 0 && errno == EINTR)
        ;
    if (changes)
        *changes = result < 0 ? 0 : count;
    return result < 0 && errno != EAGAIN
               ? strata_fail(STRATA_ERROR_IO, "a watch's descriptor cannot be read: %s", strerror(errno))
               : STRATA_SUCCESS;
}

strata_status strata_generation_watch_destroy(strata_generation_watch *watch)
{
    const strata_status status = strata_check_not_forked();
    if (!watch || status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&watches_lock);
    strata_generation_watch **link = watch->state ? &watch->state->watches : NULL;
    while (link && *link != watch)
        link = &(*link)->next;
    if (link)
        *link = watch->next;
    strata_lock_release(&watches_lock);
    const int cancel = strata_cancel_forbid();
    close(watch->fd);
    strata_cancel_restore(cancel);
    strata_host_free(watch);
    return STRATA_SUCCESS;
}
