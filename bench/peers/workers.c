#include "workers.h"

#include "bare.h"
#include "loops.h"

#include <pthread.h>
#include <semaphore.h>

typedef struct member {
    workers *of;
    unsigned index;
    pthread_t thread;
    sem_t wake;
} member;

struct workers {
    CUcontext context;
    /* written by the measuring thread before it wakes a member, read by the member afterwards */
    worker_call work;
    void *state;
    unsigned count;
    size_t run;
    bool stop;
    _Atomic unsigned awake, ended; /* members without the first */
    _Atomic size_t go;             /* the run that may begin; written by the measuring thread */
    member members[WORKERS_LIMIT];
};

static void *live(void *state)
{
    member *self = state;
    workers *of = self->of;
    bare_check(bare.CtxSetCurrent(of->context), "cuCtxSetCurrent");
    for (;;) {
        while (sem_wait(&self->wake) != 0)
            continue;
        if (of->stop)
            return NULL;
        const size_t run = of->run;
        atomic_fetch_add_explicit(&of->awake, 1, memory_order_release);
        for (unsigned spins = 0; atomic_load_explicit(&of->go, memory_order_acquire) < run; loop_pause(&spins))
            continue;
        of->work(of->state, self->index);
        atomic_fetch_add_explicit(&of->ended, 1, memory_order_release);
    }
}

workers *workers_create(CUcontext context)
{
    workers *self = aligned_alloc(64, (sizeof *self + 63) / 64 * 64);
    if (!self)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "aligned_alloc");
    *self = (workers){.context = context};
    for (unsigned i = 1; i < WORKERS_LIMIT; i++) {
        member *each = &self->members[i];
        each->of = self;
        each->index = i;
        if (sem_init(&each->wake, 0, 0) != 0 || pthread_create(&each->thread, NULL, live, each) != 0)
            bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
    }
    return self;
}

void workers_destroy(workers *self)
{
    self->stop = true;
    for (unsigned i = 1; i < WORKERS_LIMIT; i++) {
        sem_post(&self->members[i].wake);
        pthread_join(self->members[i].thread, NULL);
        sem_destroy(&self->members[i].wake);
    }
    free(self);
}

void workers_wake(workers *self, unsigned count, worker_call work, void *state)
{
    self->work = work;
    self->state = state;
    self->count = count;
    self->run++;
    atomic_store_explicit(&self->awake, 0, memory_order_relaxed);
    atomic_store_explicit(&self->ended, 0, memory_order_relaxed);
    for (unsigned i = 1; i < count; i++)
        sem_post(&self->members[i].wake);
    for (unsigned spins = 0; atomic_load_explicit(&self->awake, memory_order_acquire) < count - 1; loop_pause(&spins))
        continue;
}

void workers_run(workers *self)
{
    atomic_store_explicit(&self->go, self->run, memory_order_release);
    self->work(self->state, 0);
    for (unsigned spins = 0; atomic_load_explicit(&self->ended, memory_order_acquire) < self->count - 1;
         loop_pause(&spins))
        continue;
}
