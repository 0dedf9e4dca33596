/* Creating, walking and freeing the cells. */
#include "core/base/per_thread.h"

#include "core/base/host_memory.h"
#include "core/base/lock.h"

enum { LINE = 64, CHUNKS = STRATA_THREAD_LIMIT / STRATA_PER_THREAD_CHUNK };

static strata_lock making = STRATA_LOCK_INITIALIZER(STRATA_RANK_COUNTERS);
static bool number_taken[STRATA_PER_THREAD_LIMIT] = {true}; /* 0 is none; guarded by `making` */

void strata_per_thread_init(strata_per_thread *cells, size_t bytes)
{
    cells->stride = (bytes + LINE - 1) & ~(size_t)(LINE - 1);
}

void strata_per_thread_take_number(strata_per_thread *cells)
{
    strata_lock_take(&making);
    uint32_t number = 1;
    while (number < STRATA_PER_THREAD_LIMIT && number_taken[number])
        number++;
    if (number < STRATA_PER_THREAD_LIMIT) {
        number_taken[number] = true;
        cells->number = number;
    }
    strata_lock_release(&making);
}

static void forget_cell(strata_thread *thread, void *data)
{
    const strata_per_thread *cells = data;
    thread->cells[cells->number] = NULL;
}

static void give_number_back(strata_per_thread *cells)
{
    strata_thread_visit_all(forget_cell, cells);
    strata_lock_take(&making);
    number_taken[cells->number] = false;
    strata_lock_release(&making);
    cells->number = 0;
}

void strata_per_thread_destroy(strata_per_thread *cells)
{
    if (cells->number)
        give_number_back(cells);
    for (size_t i = 0; i < CHUNKS; i++)
        strata_host_free(atomic_load_explicit(&cells->chunks[i], memory_order_relaxed));
}

void *strata_per_thread_make(strata_per_thread *cells, const strata_thread *thread)
{
    _Atomic(char *) *at = &cells->chunks[thread->index / STRATA_PER_THREAD_CHUNK];
    strata_lock_take(&making);
    char *chunk = atomic_load_explicit(at, memory_order_relaxed);
    if (!chunk) {
        chunk = strata_host_zalloc_aligned(LINE, STRATA_PER_THREAD_CHUNK * cells->stride);
        atomic_store_explicit(at, chunk, memory_order_seq_cst); /* see strata_per_thread_next */
    }
    strata_lock_release(&making);
    return chunk ? chunk + (thread->index % STRATA_PER_THREAD_CHUNK) * cells->stride : NULL;
}

void *strata_per_thread_find(strata_per_thread *cells, strata_thread *thread)
{
    if (!thread->index)
        return NULL;
    char *chunk = atomic_load_explicit(&cells->chunks[thread->index / STRATA_PER_THREAD_CHUNK], memory_order_acquire);
    void *cell = chunk ? chunk + (thread->index % STRATA_PER_THREAD_CHUNK) * cells->stride
                       : strata_per_thread_make(cells, thread);
    if (cells->number)
        thread->cells[cells->number] = cell;
    return cell;
}

void *strata_per_thread_next(const strata_per_thread *cells, uint32_t *position)
{
    while (*position < STRATA_THREAD_LIMIT) {
        char *chunk = atomic_load_explicit(&cells->chunks[*position / STRATA_PER_THREAD_CHUNK], memory_order_seq_cst);
        if (chunk)
            return chunk + ((*position)++ % STRATA_PER_THREAD_CHUNK) * cells->stride;
        *position += STRATA_PER_THREAD_CHUNK - *position % STRATA_PER_THREAD_CHUNK;
    }
    return NULL;
}
