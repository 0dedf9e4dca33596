/* A waiting thread spins, then sleeps; a passing thread takes the lock only if a thread sleeps for a row that it has
 * done. */
#include "tools/replay/gate.h"

#include "core/base/lock.h"

#include <stdlib.h>

enum { SPINS = 256 };

bool gate_open(replay_gate *of, uint32_t threads)
{
    of->threads = threads;
    of->places = aligned_alloc(alignof(gate_place), threads * sizeof *of->places);
    if (!of->places)
        return false;
    for (uint32_t i = 0; i < threads; i++) {
        atomic_init(&of->places[i].next, 0);
        atomic_init(&of->places[i].wanted, GATE_DONE);
    }
    pthread_mutex_init(&of->lock, NULL);
    pthread_cond_init(&of->moved, NULL);
    return true;
}

void gate_close(replay_gate *of)
{
    if (!of->places)
        return;
    pthread_cond_destroy(&of->moved);
    pthread_mutex_destroy(&of->lock);
    free(of->places);
    of->places = NULL;
}

/* Sequentially consistent: either this thread sees, after its step, the waiting one, or that one sees the step before
 * it sleeps. */
void gate_pass(replay_gate *of, uint32_t thread, uint32_t next)
{
    gate_place *place = &of->places[thread];
    atomic_store(&place->next, next);
    if (next <= atomic_load(&place->wanted))
        return;
    pthread_mutex_lock(&of->lock);
    atomic_store(&place->wanted, GATE_DONE);
    pthread_cond_broadcast(&of->moved);
    pthread_mutex_unlock(&of->lock);
}

static void sleep_until(replay_gate *of, gate_place *place, uint32_t row)
{
    pthread_mutex_lock(&of->lock);
    for (;;) {
        if (row < atomic_load(&place->wanted))
            atomic_store(&place->wanted, row);
        if (atomic_load(&place->next) > row)
            break;
        pthread_cond_wait(&of->moved, &of->lock);
    }
    pthread_mutex_unlock(&of->lock);
}

void gate_wait(replay_gate *of, uint32_t thread, uint32_t row)
{
    gate_place *place = &of->places[thread];
    for (unsigned spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&place->next, memory_order_acquire) > row)
            return;
        strata_pause();
    }
    sleep_until(of, place, row);
}

/* Waits until there is half a window: a thread does not wake for every row. */
uint32_t gate_keep_window(replay_gate *of, uint32_t self, uint32_t row)
{
    uint32_t slowest = GATE_DONE;
    for (uint32_t i = 0; i < of->threads; i++) {
        if (i == self)
            continue;
        uint32_t next = atomic_load_explicit(&of->places[i].next, memory_order_acquire);
        if (next < row && row - next >= GATE_WINDOW) {
            gate_wait(of, i, row - GATE_WINDOW / 2);
            next = row - GATE_WINDOW / 2 + 1;
        }
        if (next < slowest)
            slowest = next;
    }
    return slowest < GATE_DONE - GATE_WINDOW ? slowest + GATE_WINDOW : GATE_DONE;
}

uint32_t gate_slowest(const replay_gate *of)
{
    uint32_t slowest = GATE_DONE;
    for (uint32_t i = 0; i < of->threads; i++) {
        uint32_t next = atomic_load_explicit(&of->places[i].next, memory_order_relaxed);
        if (next < slowest)
            slowest = next;
    }
    return slowest;
}
