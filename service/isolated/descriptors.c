/* Descriptors that a forked child closes. A table without a lock, since a child may inherit a lock as taken; what does
 * not fit is inherited, which costs a descriptor and nothing else. */
#include "service/isolated/descriptors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

enum { PLACES = 4096 };

static _Atomic int places[PLACES]; /* a descriptor plus 1; 0: free; any thread */
static _Atomic size_t most;        /* places below it were ever used */
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void close_in_child(void)
{
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        const int fd = atomic_exchange_explicit(&places[i], 0, memory_order_relaxed) - 1;
        if (fd >= 0)
            close(fd);
    }
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, close_in_child);
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
    pthread_once(&watching, watch);
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
    const size_t count = atomic_load_explicit(&most, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        int own = fd + 1;
        if (atomic_compare_exchange_strong_explicit(&places[i], &own, 0, memory_order_relaxed, memory_order_relaxed))
            break;
    }
    close(fd);
}
