/* What the libraries of a Python program keep for themselves: PyTorch, CuPy and JAX take memory from the driver in
 * large pieces and give it out again. The stack sees what they hold; what they use of it they alone know.
 *
 * They are asked in the interpreter's main thread, by a pending call of the interpreter (Py_AddPendingCall, which any
 * thread may call without its lock), each second, at `strata top` and SIGUSR1, and at the interpreter's end by atexit.
 * Only functions of C are called (caches_asked.c); no line of Python runs, so that a program that traces or compiles
 * what runs sees nothing. (The module atexit is imported for this, untraced.) A main thread that stays in one call for
 * long answers late.
 *
 * PyTorch and JAX keep their peaks; of CuPy the largest answer is kept. */
#define _GNU_SOURCE
#include "adapters/exec/caches.h"

#include "adapters/exec/exec.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CACHES = 32, ANSWER_WITHIN = 300 /* ms */, TICKS = 5 };

/* ---- what was answered ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered_now = PTHREAD_COND_INITIALIZER;
static exec_cache caches[MOST_CACHES]; /* guarded by the lock, as all of these */
static size_t cache_count;
static bool outstanding;      /* a pending call is queued */
static bool registered;       /* with atexit: there is an end to wait for */
static bool ended;            /* the interpreter ends: it is not called any more */
static uint64_t answers;      /* so far */
static struct timespec since; /* the latest answer */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Enters an answer. Peaks that the library does not keep are the largest of all its answers. */
static void note(const exec_cache *now)
{
    pthread_mutex_lock(&lock);
    exec_cache *entry = caches, *end = caches + cache_count;
    while (entry < end && (strcmp(entry->library, now->library) != 0 || entry->device != now->device))
        entry++;
    if (entry < caches + MOST_CACHES) {
        const exec_cache before = entry == end ? *now : *entry;
        cache_count += entry == end;
        *entry = *now;
        if (!now->keeps_peaks) {
            entry->held_peak = larger(before.held_peak, now->held);
            entry->used_peak = larger(before.used_peak, now->used);
        }
        entry->unused_peak = now->held != EXEC_UNKNOWN && now->used != EXEC_UNKNOWN
                                 ? larger(before.unused_peak, now->held - now->used)
                                 : EXEC_UNKNOWN;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- asking, with the interpreter's lock ---- */

static void ask_all(void)
{
    exec_caches_ask_libraries(note);
    pthread_mutex_lock(&lock);
    answers++;
    clock_gettime(CLOCK_MONOTONIC, &since);
    pthread_cond_broadcast(&answered_now);
    pthread_mutex_unlock(&lock);
}

/* ---- the interpreter's end ---- */

static pid_t owner; /* a forked child is not asked; constant */

static exec_object *answer_last(exec_object *self, exec_object *arguments)
{
    (void)self, (void)arguments;
    if (getpid() == owner) { /* in a child the lock may be held by a thread that is not there */
        ask_all();
        pthread_mutex_lock(&lock);
        ended = true;
        pthread_mutex_unlock(&lock);
    }
    exec_python_functions.hold(exec_python_functions.none);
    return exec_python_functions.none;
}

static bool register_last_answer(void)
{
    enum { NO_ARGUMENTS = 4 };
    static exec_method definition = {"strata_exec_caches", answer_last, NO_ARGUMENTS, NULL};
    exec_object *module = exec_object_import("atexit");
    exec_object *function = module ? exec_python_functions.new_function(&definition, NULL, NULL) : NULL;
    exec_object *done = function ? exec_python_functions.call_method(module, "register", "O", function) : NULL;
    const bool is_done = done != NULL;
    exec_object_drop(done);
    exec_object_drop(function);
    exec_object_drop(module);
    return is_done;
}

/* ---- pending calls ---- */

static int answer(void *unused)
{
    (void)unused;
    if (getpid() != owner)
        return 0;
    if (!registered)
        registered = register_last_answer(); /* in the main thread alone */
    if (registered)
        ask_all();
    pthread_mutex_lock(&lock);
    outstanding = false;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Queues a pending call, unless one is queued or the interpreter ends. Under the lock, which answer_last takes at the
 * interpreter's end. The first call is queued before that is registered. */
static void queue_answer(void)
{
    if (!ended && !outstanding && exec_python_functions.add_pending && exec_python_functions.is_initialized())
        outstanding = exec_python_functions.add_pending(answer, NULL) == 0;
}

void exec_caches_start(void)
{
    owner = getpid();
    pthread_mutex_lock(&lock);
    if (exec_python_find_functions())
        queue_answer();
    pthread_mutex_unlock(&lock);
}

void exec_caches_tick(void)
{
    static unsigned ticks; /* live.c's thread's */
    if (!exec_python_functions.add_pending || ++ticks % TICKS)
        return;
    pthread_mutex_lock(&lock);
    queue_answer();
    pthread_mutex_unlock(&lock);
}

void exec_caches_ask(void)
{
    struct timespec until;
    if (!exec_python_functions.add_pending)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ANSWER_WITHIN * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    const uint64_t before = answers;
    queue_answer();
    while (!ended && answers == before && pthread_cond_timedwait(&answered_now, &lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&lock);
}

/* ---- reporting ---- */

static void emit_known(strata_emitter *emitter, const char *name, int64_t bytes)
{
    if (bytes == EXEC_UNKNOWN)
        strata_emit_text(emitter, name, "unknown");
    else
        strata_emit_bytes(emitter, name, (uint64_t)bytes);
}

static void emit_cache(strata_emitter *emitter, const exec_cache *entry)
{
    const bool known = entry->held != EXEC_UNKNOWN && entry->used != EXEC_UNKNOWN;
    strata_emit_object_begin(emitter, NULL);
    strata_emit_text(emitter, "library", entry->library);
    if (entry->device != EXEC_UNKNOWN)
        strata_emit_count(emitter, "device", (uint64_t)entry->device);
    emit_known(emitter, "held", entry->held);
    emit_known(emitter, "used", entry->used);
    emit_known(emitter, "unused", known ? larger(entry->held - entry->used, 0) : EXEC_UNKNOWN);
    emit_known(emitter, "held_peak", entry->held_peak);
    emit_known(emitter, "used_peak", entry->used_peak);
    emit_known(emitter, "unused_peak_seen", entry->unused_peak);
    strata_emit_text(emitter, "peaks", entry->keeps_peaks ? "kept by the library" : "the largest of its answers");
    strata_emit_object_end(emitter);
}

/* Whole ones. */
static uint64_t seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - then->tv_sec - (now.tv_nsec < then->tv_nsec));
}

void exec_caches_emit(strata_emitter *emitter)
{
    exec_cache read[MOST_CACHES];
    pthread_mutex_lock(&lock);
    const size_t count = cache_count;
    const uint64_t times = answers;
    const struct timespec then = since;
    memcpy(read, caches, count * sizeof read[0]);
    pthread_mutex_unlock(&lock);
    if (!exec_python_functions.add_pending || (times && !count))
        return;
    strata_emit_object_begin(emitter, "caches");
    strata_emit_count(emitter, "answers", times); /* 0: the main thread has not come to Python code */
    if (times)
        strata_emit_count(emitter, "seconds_ago", seconds_since(&then));
    strata_emit_list_begin(emitter, "libraries");
    for (size_t i = 0; i < count; i++)
        emit_cache(emitter, &read[i]);
    strata_emit_list_end(emitter);
    strata_emit_object_end(emitter);
}
