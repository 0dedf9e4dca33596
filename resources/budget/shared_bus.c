/* Mapped files that another process truncates: an access beyond the file's end raises SIGBUS, which would end this
 * process. The handler puts private pages of zeros in place of the file: slots without processes, and leases of 0. The
 * next request that needs a lease finds the file damaged (shared_problem).
 *
 * As in libwayland's wl_shm_buffer_begin_access(). A program whose own handler replaces this one is not protected. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum { FILES = 256 }; /* later ones are not protected */

typedef struct mapping {
    _Atomic(char *) begin; /* NULL: none */
    _Atomic size_t bytes;
} mapping;

/* Written by threads under files_lock, read by the handler. */
static mapping mapped[FILES];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;

static bool put_zeros_at(const void *address)
{
    for (size_t i = 0; i < FILES; i++) {
        char *begin = atomic_load_explicit(&mapped[i].begin, memory_order_acquire);
        size_t bytes = atomic_load_explicit(&mapped[i].bytes, memory_order_relaxed);
        if (begin && (uintptr_t)address - (uintptr_t)begin < bytes)
            return mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                   MAP_FAILED;
    }
    return false;
}

/* A signal of no mapped file goes where it would have gone. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
        sigaction(number, &before, NULL);
    else
        before.sa_handler(number);
}

static void handle(int number, siginfo_t *info, void *context)
{
    int error = errno;
    bool replaced = put_zeros_at(info->si_addr);
    errno = error;
    if (!replaced)
        pass_on(number, info, context);
}

static void install(void)
{
    struct sigaction now, ours = {.sa_sigaction = handle};
    if (sigaction(SIGBUS, NULL, &now) != 0)
        return;
    before = now;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | (now.sa_flags & SA_ONSTACK);
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

void shared_bus_protect(void *begin, size_t bytes)
{
    pthread_once(&once, install);
    for (size_t i = 0; i < FILES; i++) {
        if (atomic_load_explicit(&mapped[i].begin, memory_order_relaxed))
            continue;
        atomic_store_explicit(&mapped[i].bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&mapped[i].begin, begin, memory_order_release);
        return;
    }
}

void shared_bus_forget(const void *begin)
{
    for (size_t i = 0; i < FILES; i++)
        if (atomic_load_explicit(&mapped[i].begin, memory_order_relaxed) == begin)
            atomic_store_explicit(&mapped[i].begin, NULL, memory_order_release);
}
