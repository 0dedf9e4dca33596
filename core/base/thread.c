/* States are created at a thread's first call, ended by the destructor of a thread-specific key. */
#include "core/base/thread.h"

#include "core/base/host_memory.h"
#include "core/base/lock.h"

#include <pthread.h>
#include <stdatomic.h>

_Thread_local strata_thread *strata_thread_current __attribute__((tls_model("initial-exec")));

static void *const no_slots[STRATA_PER_THREAD_LIMIT];
_Thread_local void *const *strata_thread_slots __attribute__((tls_model("initial-exec"))) = no_slots;

static strata_lock threads_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_THREADS);
static strata_thread *threads;                        /* guarded by threads_lock */
static uint64_t taken[STRATA_THREAD_LIMIT / 64];      /* thread numbers in use, one bit each; guarded by threads_lock */
static uint64_t last_serial;                          /* of the latest thread; guarded by threads_lock */
static _Atomic(strata_thread_exit_hook *) exit_hooks; /* any thread */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static uint32_t take_number(void)
{
    for (uint32_t word = 0; word < STRATA_THREAD_LIMIT / 64; word++) {
        uint64_t free_bits = ~taken[word];
        if (word == 0)
            free_bits &= ~UINT64_C(1);
        if (!free_bits)
            continue;
        uint32_t bit = (uint32_t)__builtin_ctzll(free_bits);
        taken[word] |= UINT64_C(1) << bit;
        return word * 64 + bit;
    }
    return 0;
}

void strata_thread_add_exit_hook(strata_thread_exit_hook *hook)
{
    hook->next = atomic_load_explicit(&exit_hooks, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&exit_hooks, &hook->next, hook, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void end_thread(void *state)
{
    strata_thread *thread = state;
    strata_lock_take(&threads_lock);
    for (const strata_thread_exit_hook *hook = atomic_load_explicit(&exit_hooks, memory_order_acquire); hook;
         hook = hook->next)
        hook->run(thread);
    if (thread->index)
        taken[thread->index / 64] &= ~(UINT64_C(1) << (thread->index % 64));
    if (thread->next)
        thread->next->previous = thread->previous;
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        threads = thread->next;
    strata_lock_release(&threads_lock);
    strata_thread_current = NULL;
    strata_thread_slots = no_slots;
    strata_host_thread_exit();
    strata_host_free(thread);
}

/* A forked child refuses every call, and needs a thread state to say so: the list's lock must be free in it. */
static void before_fork(void)
{
    strata_lock_take(&threads_lock);
}

static void after_fork(void)
{
    strata_lock_release(&threads_lock);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, end_thread) == 0 && pthread_atfork(before_fork, after_fork, after_fork) == 0;
}

strata_thread *strata_thread_start(void)
{
    pthread_once(&key_once, make_key);
    strata_thread *thread = key_made ? strata_host_zalloc(sizeof *thread) : NULL;
    if (!thread)
        return NULL;
    if (pthread_setspecific(key, thread) != 0) {
        strata_host_free(thread);
        return NULL;
    }
    strata_lock_take(&threads_lock);
    thread->index = take_number();
    thread->serial = ++last_serial;
    thread->next = threads;
    if (threads)
        threads->previous = thread;
    threads = thread;
    strata_lock_release(&threads_lock);
    strata_thread_current = thread;
    strata_thread_slots = thread->per_thread;
    strata_host_thread_begin();
    return thread;
}

void strata_thread_visit_all(void (*visit)(strata_thread *thread, void *data), void *data)
{
    strata_lock_take(&threads_lock);
    for (strata_thread *thread = threads; thread; thread = thread->next)
        visit(thread, data);
    strata_lock_release(&threads_lock);
}
