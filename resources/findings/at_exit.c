/* The guards' last look: what lives and what was freed when the process exits, before the driver shuts down.
 *
 * Those are looked at that were made from a stack text and whose stack was not ended, as that of strata_runtime_get
 * never is. One that was made by hand may have a callback whose data is gone by now.
 *
 * The handler is registered when the first of them is made, after the driver's own and Strata's, so it runs before
 * them, and after those that the program registers later. It has another thread look (core/stack/exit_look.h has why),
 * which leaves what it found here; the exiting thread tells. With on_finding=exit the process ends with the guard's
 * status only when all other handlers have run, and the logs are written: in the library's last destructor. */
#include "resources/sampling/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/exit_look.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 2000 };

typedef struct last_finding {
    strata_guard_finding finding;
    bool ends; /* the process */
} last_finding;

static strata_lock guards_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_EXIT_LOOKS);
static guard_report *guards; /* guarded by guards_lock, like registered */
static bool registered;
static _Atomic bool exiting; /* who makes a guard from now on does not wait for the last look at others */

static _Thread_local bool is_looking; /* this thread has its findings told by the exiting one */

static strata_lock found_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_EXIT_FINDINGS);
static last_finding *found; /* guarded by found_lock, like all to the next empty line; stays for the process's end */
static size_t found_count, found_room;
static strata_error failure; /* the first one */

static bool ends_the_process; /* the exiting thread's */

/* ---- looking ---- */

/* A context that is gone, as after cudaDeviceReset, has taken the guard's streams along, and nothing is to be asked
 * about them. A device that was stopped answers so here, and a sampling guard has something to say about it. */
static bool has_context(strata_device *device)
{
    strata_scope scope;
    size_t free_bytes, total;
    if (strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED) != STRATA_SUCCESS)
        return false;
    CUresult result = strata_cu.MemGetInfo(&free_bytes, &total);
    strata_scope_leave(&scope);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void keep_failure(void)
{
    strata_lock_take(&found_lock);
    if (failure.status == STRATA_SUCCESS)
        failure = *strata_error_suppressed();
    strata_lock_release(&found_lock);
}

static bool is_about_captures(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* No capture that this ends would have been of use any more; where there is one, nobody waits. What else it answers,
 * the look behind it meets as well. */
static void wait_for_device(strata_device *device)
{
    strata_scope scope;
    if (!strata_cu.CtxSynchronize ||
        strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED) != STRATA_SUCCESS)
        return;
    CUresult result = strata_cu.CtxSynchronize();
    strata_scope_leave(&scope);
    if (!is_about_captures(result))
        return;
    strata_fail_driver(result, "cuCtxSynchronize",
                       "guard: at the exit of the process a stream of device %d is being captured, so that work which "
                       "Strata was not told of may not have been looked at",
                       device->ordinal);
    keep_failure();
}

static void look_at(strata_resource *resource, bool waits)
{
    const strata_stack *stack = resource->stack;
    if (!stack || !has_context(stack->device)) /* without a stack: another thread is making it */
        return;
    if (waits)
        wait_for_device(stack->device);
    strata_status status =
        guard_is_one(resource) ? guard_check_everything((guard *)resource) : sampling_check((sampling *)resource);
    if (status != STRATA_SUCCESS)
        keep_failure();
}

/* Twice: what can be seen at once, and what is there when the device is done with all its work, also such as Strata was
 * not told of; but that may never end. What was found is not found again. */
static void look_at_all(void)
{
    is_looking = true;
    strata_lock_take(&guards_lock);
    for (int waits = 0; waits < 2; waits++)
        for (const guard_report *report = guards; report; report = report->next)
            look_at(report->guard, waits);
    strata_lock_release(&guards_lock);
}

/* Room for more; false without host memory: strata_guard_take_finding has it all the same. The lock is held. */
static bool make_room(size_t count)
{
    if (found_count + count <= found_room)
        return true;
    size_t room = 2 * (found_count + count);
    last_finding *larger = strata_host_zalloc(room * sizeof *larger);
    if (!larger)
        return false;
    if (found)
        memcpy(larger, found, found_count * sizeof *larger);
    strata_host_free(found);
    found = larger;
    found_room = room;
    return true;
}

bool guard_leaves_findings(const guard_report *report, const strata_guard_finding *findings, size_t count)
{
    if (!is_looking)
        return false;
    bool ends = report->options->on_finding == STRATA_GUARD_EXIT;
    strata_lock_take(&found_lock);
    for (size_t i = 0; i < count && make_room(1); i++)
        found[found_count++] = (last_finding){.finding = findings[i], .ends = ends};
    strata_lock_release(&found_lock);
    return true;
}

/* ---- telling ---- */

/* The one at `index`; false if there is none. A thread that was given up on may still add some. */
static bool get_found(size_t index, last_finding *out)
{
    strata_lock_take(&found_lock);
    bool any = index < found_count;
    if (any)
        *out = found[index];
    strata_lock_release(&found_lock);
    return any;
}

static void tell_all(void)
{
    last_finding one;
    size_t count = 0;
    while (get_found(count, &one)) {
        guard_raise(&one.finding);
        count++;
    }
    guard_words words;
    guard_words_begin(&words);
    for (size_t i = 0; i < count && get_found(i, &one); i++) {
        if (one.ends)
            strata_guard_finding_print(&one.finding, guard_words_add, &words);
        ends_the_process |= one.ends;
    }
    guard_words_end(&words);
}

static void tell_failure(bool over)
{
    strata_lock_take(&found_lock);
    strata_error kept = failure;
    strata_lock_release(&found_lock);
    if (kept.status != STRATA_SUCCESS)
        strata_error_raise_again(&kept);
    if (!over)
        strata_fail(STRATA_ERROR_BUSY,
                    "guard: at the exit of the process not everything was looked at within %d s; the device may have "
                    "work that does not end",
                    PATIENCE_MS / 1000);
}

static bool any_guard(void)
{
    strata_lock_take(&guards_lock);
    bool any = guards != NULL;
    strata_lock_release(&guards_lock);
    return any;
}

/* Forked children have no blocks. A program that exits from its log callback may do so under locks of Strata's. */
static void look_at_exit(void)
{
    if (strata_driver_state_now() != STRATA_DRIVER_OPEN || strata_error_is_being_reported() || !any_guard())
        return;
    atomic_store(&exiting, true);
    bool over = strata_exit_look_hold(look_at_all, PATIENCE_MS);
    tell_failure(over);
    tell_all();
}

/* ---- the end ---- */

static sem_t flushed;

static void *flush(void *unused)
{
    fflush(NULL);
    sem_post(&flushed);
    return unused;
}

/* What the program has buffered is written as exit would do it; where a thread keeps a stream locked, that is given up
 * on. */
static void flush_output(void)
{
    struct timespec end;
    pthread_t thread;
    if (sem_init(&flushed, 0, 0) != 0 || pthread_create(&thread, NULL, flush, NULL) != 0)
        return;
    pthread_detach(thread); /* it may stay for ever */
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE_MS / 1000;
    while (sem_clockwait(&flushed, CLOCK_MONOTONIC, &end) != 0 && errno == EINTR)
        ;
}

/* The last of the library's: 101 comes after all without a number, which write logs and reports. */
static __attribute__((destructor(101))) void end_process(void)
{
    if (!ends_the_process || strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    flush_output();
    _exit(STRATA_GUARD_EXIT_STATUS);
}

/* ---- which ---- */

void guard_report_look_at_exit(guard_report *self, strata_resource *resource)
{
    if (atomic_load(&exiting))
        return;
    strata_lock_take(&guards_lock);
    if (!registered)
        registered = atexit(look_at_exit) == 0; /* without host memory nobody looks at the exit */
    self->guard = resource;
    self->next = guards;
    if (guards)
        guards->previous = self;
    guards = self;
    strata_lock_release(&guards_lock);
}

void guard_report_leave_exit(guard_report *self)
{
    if (!self->guard)
        return;
    strata_lock_take(&guards_lock);
    if (self->next)
        self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else
        guards = self->next;
    strata_lock_release(&guards_lock);
}
