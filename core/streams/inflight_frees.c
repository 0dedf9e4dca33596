/* Waiting for in-flight frees. */
#include "core/streams/inflight_frees.h"

#include "core/base/lock.h"

_Atomic uint32_t strata_inflight_frees_stateless;

static _Atomic uint64_t waits; /* how many have begun */

typedef struct wait_state {
    uint64_t wait; /* its number */
    bool busy;     /* a thread is still in a free that it was in at the first look */
} wait_state;

/* A look for one wait also serves earlier waits. The threads' lock is held. */
static void look_at_thread(strata_thread *thread, void *data)
{
    wait_state *at = data;
    strata_inflight_frees_seen *seen = &thread->inflight_frees_seen;
    if (seen->over >= at->wait || thread == strata_thread_current)
        return;
    const uint64_t word = atomic_load_explicit(&thread->inflight_frees, memory_order_acquire);
    if (seen->wait < at->wait) {
        seen->wait = at->wait;
        seen->word = word;
    }
    if (!(word & STRATA_INFLIGHT_FREES_DEPTH) ||
        word / STRATA_INFLIGHT_FREES_INCARNATION != seen->word / STRATA_INFLIGHT_FREES_INCARNATION)
        seen->over = seen->wait;
    else
        at->busy = true;
}

void strata_inflight_frees_await(void)
{
    wait_state at = {.wait = atomic_fetch_add(&waits, 1) + 1, .busy = true};
    strata_heavy_barrier();
    for (unsigned spins = 0; at.busy; strata_backoff(&spins)) {
        at.busy = false;
        strata_thread_visit_all(look_at_thread, &at);
    }
    for (unsigned spins = 0; atomic_load(&strata_inflight_frees_stateless);)
        strata_backoff(&spins);
}
