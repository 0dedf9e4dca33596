/* Descriptors that a forked child closes. A table without a lock, since a child may inherit a lock as taken; what does
 * not fit is inherited, which costs a descriptor and nothing else.
 *
 * A fork waits while another thread is about to make a descriptor and to add it, or to take it out and to close it, and
 * such a thread waits while a fork is under way. Both wait for a second at most: the fork may be a signal handler's, in
 * such a thread, and handlers of the program's may wait for one. */
#include "service/isolated/descriptors.h"

#include "service/service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const uint64_t patience = 1000000000; /* ns */

enum { PLACES = 4096 };

static _Atomic int places[PLACES]; /* a descriptor plus 1; 0: free; any thread */
static _Atomic size_t most;        /* places below it were ever used */
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static _Atomic unsigned changing, forking; /* threads that change descriptors, and that fork; any thread */

/* False: it has waited since `begun` for long enough. */
static bool wait_a_little(uint64_t begun)
{
    const struct timespec time = {.tv_nsec = 50000};
    nanosleep(&time, NULL);
    return service_clock() - begun < patience;
}

static void before_fork(void)
{
    atomic_fetch_add(&forking, 1);
    for (const uint64_t begun = service_clock(); atomic_load(&changing) && wait_a_little(begun);)
        ;
}

static void after_fork(void)
{
    atomic_fetch_sub(&forking, 1);
}

static void close_in_child(void)
{
    atomic_store(&forking, 0);
    atomic_store(&changing, 0);
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        const int fd = atomic_exchange_explicit(&places[i], 0, memory_order_relaxed) - 1;
        if (fd >= 0)
            close(fd);
    }
}

static void watch(void)
{
    pthread_atfork(before_fork, after_fork, close_in_child);
}

void isolated_descriptors_begin(void)
{
    uint64_t begun = 0;
    pthread_once(&watching, watch);
    atomic_fetch_add(&changing, 1);
    for (bool waits = true; waits && atomic_load(&forking);) {
        atomic_fetch_sub(&changing, 1);
        begun = begun ? begun : service_clock();
        waits = wait_a_little(begun);
        atomic_fetch_add(&changing, 1);
    }
}

void isolated_descriptors_end(void)
{
    atomic_fetch_sub(&changing, 1);
}

static void note_used(size_t place)
{
    size_t before = atomic_load_explicit(&most, memory_order_relaxed);
    while (before <= place && !atomic_compare_exchange_weak_explicit(&most, &before, place + 1, memory_order_relaxed,
                                                                     memory_order_relaxed))
        ;
}

void isolated_descriptor_add(int fd)
{
    if (fd < 0)
        return;
    for (size_t i = 0; i < PLACES; i++) {
        int none = 0;
        if (atomic_load_explicit(&places[i], memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&places[i], &none, fd + 1, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            note_used(i);
            return;
        }
    }
}

/* The place is cleared first: the number may be another file's at once. */
void isolated_descriptor_close(int fd)
{
    if (fd < 0)
        return;
    isolated_descriptors_begin();
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        int own = fd + 1;
        if (atomic_compare_exchange_strong_explicit(&places[i], &own, 0, memory_order_relaxed, memory_order_relaxed))
            break;
    }
    close(fd);
    isolated_descriptors_end();
}
