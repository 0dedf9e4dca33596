/* Holds a stream back from the host, and never hangs. */
#include "ask.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct gate {
    sem_t open;
    sem_t left;
    int milliseconds;          /* written once, before publication */
    atomic_bool closed;        /* set by the host function when it begins */
    atomic_bool opened_itself; /* set by the host function before it posts `left` */
};

static bool wait_for(sem_t *semaphore, int milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int answer;
    do {
        answer = sem_timedwait(semaphore, &until);
    } while (answer != 0 && errno == EINTR);
    return answer == 0;
}

static void CUDA_CB block(void *data)
{
    struct gate *gate = data;
    atomic_store(&gate->closed, true);
    if (!wait_for(&gate->open, gate->milliseconds))
        atomic_store(&gate->opened_itself, true);
    sem_post(&gate->left);
}

/* Waits until the host function has begun, unless the stream is held back already. It queries the stream, since work
 * that is not queried may be delayed. */
static void wait_until_closed(struct gate *gate, CUstream stream)
{
    for (int i = 0; i < PATIENCE_MS && !atomic_load(&gate->closed); i++) {
        cu.StreamQuery(stream);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

struct gate *gate_hold(CUstream stream, int milliseconds)
{
    struct gate *gate = calloc(1, sizeof *gate);
    if (gate == NULL)
        exit(EXIT_FAILURE);
    sem_init(&gate->open, 0, 0);
    sem_init(&gate->left, 0, 0);
    gate->milliseconds = milliseconds;
    atomic_init(&gate->closed, false);
    atomic_init(&gate->opened_itself, false);
    if (cu.LaunchHostFunc(stream, block, gate) != CUDA_SUCCESS)
        sem_post(&gate->left);
    else
        wait_until_closed(gate, stream);
    return gate;
}

bool gate_release(struct gate *gate)
{
    bool closed = !atomic_load(&gate->opened_itself);
    sem_post(&gate->open);
    /* A host function that has not run by now may still run later: then the gate is not freed. */
    if (wait_for(&gate->left, PATIENCE_MS)) {
        sem_destroy(&gate->open);
        sem_destroy(&gate->left);
        free(gate);
    }
    return closed;
}
