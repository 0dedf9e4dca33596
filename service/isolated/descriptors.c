/* Descriptors that a forked child closes: a bit for each number. Without a lock, since a child may inherit a lock as
 * taken. A number of 2^20 or more is inherited; the kernel gives it only to a process with a million open files.
 *
 * A fork waits while another thread is about to make a descriptor and to add it, or to take it out and to close it, and
 * such a thread waits while a fork is under way (core/base/fork_wait.h). Beyond what they wait a child may have the
 * descriptor that is being made, without a bit: it is closed when the child executes a program or ends. */
#include "service/isolated/descriptors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

enum { NUMBERS = 1 << 20, WORD_BITS = 64 };

static _Atomic uint64_t added[NUMBERS / WORD_BITS]; /* any thread */
static _Atomic size_t most;                         /* words below it were ever used; any thread */
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void close_in_child(void)
{
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++)
        for (uint64_t word = atomic_exchange_explicit(&added[i], 0, memory_order_relaxed); word; word &= word - 1)
            close((int)(i * WORD_BITS) + __builtin_ctzll(word));
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, close_in_child);
}

isolated_change isolated_descriptors_begin(void)
{
    pthread_once(&watching, watch);
    return strata_fork_hold_begin();
}

void isolated_descriptors_end(isolated_change change)
{
    strata_fork_hold_end(change);
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
