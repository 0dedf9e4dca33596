/* A struct for each thread that uses a layer: what the layer keeps so that its fast path meets no other thread. Made at
 * a thread's first use, at an address of its own cache lines, and never moved.
 *
 * A cell belongs to a thread's number. When the thread ends, the cell keeps its values and goes to the next thread with
 * that number, so nothing that is counted there is lost. What a cell's owner alone writes and what others may is for
 * the layer to say. */
#ifndef STRATA_CORE_BASE_PER_THREAD_H
#define STRATA_CORE_BASE_PER_THREAD_H

#include "core/base/thread.h"

#include <stdatomic.h>
#include <stddef.h>

enum { STRATA_PER_THREAD_CHUNK = 64 };

typedef struct strata_per_thread {
    size_t stride;   /* bytes of a cell; constant */
    uint32_t number; /* threads keep their cell under it; 0: none */
    _Atomic(char *) chunks[STRATA_THREAD_LIMIT / STRATA_PER_THREAD_CHUNK]; /* made on demand, never moved */
} strata_per_thread;

/* Cells of `bytes` each, all zero at first. */
void strata_per_thread_init(strata_per_thread *cells, size_t bytes);

/* For cells that are looked for in every allocation: gives them a number, if one is left of the few that there are, so
 * that a thread finds its cell where it finds its own state. Before the first use. */
void strata_per_thread_take_number(strata_per_thread *cells);

/* Frees the cells; no call is in flight. Takes the threads' lock if they have a number. */
void strata_per_thread_destroy(strata_per_thread *cells);

/* The cell of `thread`, made now; NULL without host memory. */
void *strata_per_thread_make(strata_per_thread *cells, const strata_thread *thread);

/* For cells without a number, and a thread's first look. */
void *strata_per_thread_find(strata_per_thread *cells, strata_thread *thread);

/* The calling thread's cell; NULL if it has no number or there is no host memory for it: numbers can run out, so a
 * layer has another way then. */
static inline void *strata_per_thread_self(strata_per_thread *cells, strata_thread *thread)
{
    if (__builtin_expect(!thread, 0))
        return NULL;
    void *cell = thread->cells[cells->number];
    return __builtin_expect(cell != NULL, 1) ? cell : strata_per_thread_find(cells, thread);
}

/* The same, but NULL also before the thread's first look: calls nobody, so that a fast path need not save its
 * registers. */
static inline void *strata_per_thread_if_present(const strata_per_thread *cells, const strata_thread *thread)
{
    return __builtin_expect(thread != NULL, 1) ? thread->cells[cells->number] : NULL;
}

/* The next cell that was made, from *position on, which starts at 0 and is moved; NULL after the last. Cells that no
 * thread has used yet are among them: they are all zero. Whoever stored something sequentially consistent before
 * walking the cells meets each cell, or the thread that had it made loads that something afterwards, in the same way.
 */
void *strata_per_thread_next(const strata_per_thread *cells, uint32_t *position);

#endif
