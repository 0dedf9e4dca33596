/* Descriptors that a forked child closes: a bit for each number. Without a lock, since a child may inherit a lock as
 * taken. A number of 2^20 or more is inherited; the kernel gives it only to a process with a million open files.
 *
 * A fork waits while another thread is about to make a descriptor and to add it, or to take it out and to close it, and
 * such a thread waits while a fork is under way. Both wait for a second at most: the fork may be a signal handler's, in
 * such a thread, and handlers of the program's may wait for one. Beyond it a child may have the descriptor that is
 * being made, without a bit: it is closed when the child executes a program or ends. */
#include "service/isolated/descriptors.h"

#include "service/service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

uint64_t isolated_descriptors_patience = 1000000000;

enum { NUMBERS = 1 << 20, WORD_BITS = 64 };

static _Atomic uint64_t added[NUMBERS / WORD_BITS]; /* any thread */
static _Atomic size_t most;                         /* words below it were ever used; any thread */
static pthread_once_t watching = PTHREAD_ONCE_INIT;

/* The low half: threads that change descriptors. The high half: the generation, one more in each child. A thread whose
 * signal handler forked goes on in the child, too, which does not count it: its change is of an older generation. Any
 * thread. */
static _Atomic uint64_t changing;
static const uint64_t one_generation = (uint64_t)1 << 32;

static _Atomic unsigned forking; /* threads that fork; any thread */

static bool any_changes(void)
{
    return (uint32_t)atomic_load(&changing) != 0;
}

/* Sleeps for a moment; false: the thread has waited since `begun` for long enough. */
static bool wait_a_little(uint64_t begun)
{
    const struct timespec time = {.tv_nsec = 50000};
    nanosleep(&time, NULL);
    return service_clock() - begun < isolated_descriptors_patience;
}

static void before_fork(void)
{
    atomic_fetch_add(&forking, 1);
    for (const uint64_t begun = service_clock(); any_changes() && wait_a_little(begun);)
        ;
}

/* In a child of a signal handler that interrupted before_fork the fork is not counted. */
static void after_fork(void)
{
    unsigned now = atomic_load(&forking);
    while (now && !atomic_compare_exchange_weak(&forking, &now, now - 1))
        ;
}

static void close_in_child(void)
{
    atomic_store(&forking, 0);
    atomic_store(&changing, (atomic_load(&changing) / one_generation + 1) * one_generation);
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++)
        for (uint64_t word = atomic_exchange_explicit(&added[i], 0, memory_order_relaxed); word; word &= word - 1)
            close((int)(i * WORD_BITS) + __builtin_ctzll(word));
}

static void watch(void)
{
    pthread_atfork(before_fork, after_fork, close_in_child);
}

static isolated_change enter(void)
{
    return (isolated_change){(uint32_t)(atomic_fetch_add(&changing, 1) / one_generation)};
}

isolated_change isolated_descriptors_begin(void)
{
    pthread_once(&watching, watch);
    isolated_change change = enter();
    uint64_t begun = 0;
    for (bool waits = true; waits && atomic_load(&forking);) {
        isolated_descriptors_end(change);
        begun = begun ? begun : service_clock();
        waits = wait_a_little(begun);
        change = enter();
    }
    return change;
}

void isolated_descriptors_end(isolated_change change)
{
    uint64_t now = atomic_load(&changing);
    while (now / one_generation == change.generation && !atomic_compare_exchange_weak(&changing, &now, now - 1))
        ;
}

static void note_used(size_t word)
{
    size_t before = atomic_load_explicit(&most, memory_order_relaxed);
    while (before <= word &&
           !atomic_compare_exchange_weak_explicit(&most, &before, word + 1, memory_order_relaxed, memory_order_relaxed))
        ;
}

void isolated_descriptor_add(int fd)
{
    if (fd < 0 || fd >= NUMBERS)
        return;
    const size_t word = (size_t)fd / WORD_BITS;
    atomic_fetch_or_explicit(&added[word], (uint64_t)1 << fd % WORD_BITS, memory_order_relaxed);
    note_used(word);
}

/* The bit is cleared first: the number may be another file's at once. */
void isolated_descriptor_close(int fd)
{
    if (fd < 0)
        return;
    const isolated_change change = isolated_descriptors_begin();
    if (fd < NUMBERS)
        atomic_fetch_and_explicit(&added[(size_t)fd / WORD_BITS], ~((uint64_t)1 << fd % WORD_BITS),
                                  memory_order_relaxed);
    close(fd);
    isolated_descriptors_end(change);
}
