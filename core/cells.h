/* A struct for each thread that uses a layer: what the layer keeps so that its fast path meets no other thread. Made at
 * a thread's first use, at an address of its own cache lines, and never moved.
 *
 * A cell belongs to a thread's number. When the thread ends, the cell keeps its values and goes to the next thread with
 * that number, so nothing that is counted there is lost. What a cell's owner alone writes and what others may is for
 * the layer to say. */
#ifndef STRATA_CORE_CELLS_H
#define STRATA_CORE_CELLS_H

#include "core/thread.h"

#include <stdatomic.h>
#include <stddef.h>

enum { STRATA_CELLS_CHUNK = 64 };

typedef struct strata_cells {
    size_t stride;                                                    /* bytes of a cell; constant */
    _Atomic(char *) chunks[STRATA_THREAD_LIMIT / STRATA_CELLS_CHUNK]; /* made on demand, never moved */
} strata_cells;

/* Cells of `bytes` each, all zero at first. */
void strata_cells_init(strata_cells *cells, size_t bytes);

/* Frees the cells; no call is in flight. */
void strata_cells_end(strata_cells *cells);

/* The cell of `thread`, made now; NULL without host memory. */
void *strata_cells_make(strata_cells *cells, const strata_thread *thread);

/* The calling thread's cell; NULL if it has no number or there is no host memory for it: numbers can run out, so a
 * layer has another way then. */
static inline void *strata_cells_mine(strata_cells *cells, const strata_thread *thread)
{
    if (__builtin_expect(!thread || !thread->index, 0))
        return NULL;
    char *chunk = atomic_load_explicit(&cells->chunks[thread->index / STRATA_CELLS_CHUNK], memory_order_acquire);
    return __builtin_expect(chunk != NULL, 1) ? chunk + (thread->index % STRATA_CELLS_CHUNK) * cells->stride
                                              : strata_cells_make(cells, thread);
}

/* The next cell that was made, from *position on, which starts at 0 and is moved; NULL after the last. Cells that no
 * thread has used yet are among them: they are all zero. Whoever stored something sequentially consistent before
 * walking the cells meets each cell, or the thread that had it made loads that something afterwards, in the same way.
 */
void *strata_cells_next(const strata_cells *cells, uint32_t *position);

#endif
