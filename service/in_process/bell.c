/* What host functions of the driver tell of a lane. The driver may call one when the lane and its service are gone:
 * after an error it does not say whether it will. So each function that was submitted holds the bell. */
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "service/in_process/in_process.h"

struct service_bell {
    _Atomic uint64_t holders; /* the lane, and functions that were submitted */
    _Atomic uint64_t calls;   /* told */
    _Atomic uint64_t entered, left;
    _Atomic bool closed;  /* functions that enter from then on do not ring */
    service_mailbox *box; /* constant; not used once `closed`, and functions that entered before have left */
};

service_bell *service_bell_make(service_mailbox *box)
{
    service_bell *bell = strata_host_zalloc(sizeof *bell);
    if (!bell)
        return NULL;
    atomic_init(&bell->holders, 1);
    bell->box = box;
    return bell;
}

void service_bell_hold(service_bell *bell)
{
    atomic_fetch_add_explicit(&bell->holders, 1, memory_order_relaxed);
}

void service_bell_unhold(service_bell *bell)
{
    if (atomic_fetch_sub_explicit(&bell->holders, 1, memory_order_acq_rel) == 1)
        strata_host_free(bell);
}

/* May call nothing of the driver (CUDA Driver API, cuLaunchHostFunc). */
void CUDA_CB service_bell_ring(void *data)
{
    service_bell *bell = data;
    atomic_fetch_add_explicit(&bell->entered, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&bell->closed, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&bell->calls, 1, memory_order_release);
        strata_lock_jitter();
        service_mailbox_ring(bell->box);
    }
    atomic_fetch_add_explicit(&bell->left, 1, memory_order_release); /* the mailbox may end from here on */
    strata_lock_jitter();
    service_bell_unhold(bell);
}

uint64_t service_bell_calls(const service_bell *bell)
{
    return atomic_load_explicit(&bell->calls, memory_order_acquire);
}

/* Functions of one stream run one after the other. */
void service_bell_close(service_bell *bell)
{
    unsigned spins = 0;
    atomic_store_explicit(&bell->closed, true, memory_order_seq_cst);
    const uint64_t entered = atomic_load_explicit(&bell->entered, memory_order_seq_cst);
    while (atomic_load_explicit(&bell->left, memory_order_acquire) < entered)
        strata_backoff(&spins);
    service_bell_unhold(bell);
}
