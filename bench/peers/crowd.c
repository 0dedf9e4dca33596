#include "crowd.h"

#include "bare.h"
#include "loops.h"

#include <pthread.h>
#include <semaphore.h>

typedef struct member {
    crowd *of;
    unsigned index;
    pthread_t thread;
    sem_t wake;
} member;

struct crowd {
    CUcontext context;
    /* written by the measuring thread before it wakes a member, read by the member afterwards */
    crowd_work work;
    void *state;
    unsigned count;
    size_t turn;
    bool stop;
    _Atomic unsigned awake, ended; /* members without the first */
    _Atomic size_t go;             /* the run that may begin; written by the measuring thread */
    member members[CROWD_LIMIT];
};

static void *live(void *state)
{
    member *self = state;
    crowd *of = self->of;
    bare_check(bare.CtxSetCurrent(of->context), "cuCtxSetCurrent");
    for (;;) {
        while (sem_wait(&self->wake) != 0)
            continue;
        if (of->stop)
            return NULL;
        const size_t turn = of->turn;
        atomic_fetch_add_explicit(&of->awake, 1, memory_order_release);
        for (unsigned spins = 0; atomic_load_explicit(&of->go, memory_order_acquire) < turn; loop_pause(&spins))
            continue;
        of->work(of->state, self->index);
        atomic_fetch_add_explicit(&of->ended, 1, memory_order_release);
    }
}

crowd *crowd_begin(CUcontext context)
{
    crowd *self = aligned_alloc(64, (sizeof *self + 63) / 64 * 64);
    if (!self)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "aligned_alloc");
    *self = (crowd){.context = context};
    for (unsigned i = 1; i < CROWD_LIMIT; i++) {
        member *each = &self->members[i];
        each->of = self;
        each->index = i;
        if (sem_init(&each->wake, 0, 0) != 0 || pthread_create(&each->thread, NULL, live, each) != 0)
            bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
    }
    return self;
}

void crowd_end(crowd *self)
{
    self->stop = true;
    for (unsigned i = 1; i < CROWD_LIMIT; i++) {
        sem_post(&self->members[i].wake);
        pthread_join(self->members[i].thread, NULL);
        sem_destroy(&self->members[i].wake);
    }
    free(self);
}

void crowd_wake(crowd *self, unsigned count, crowd_work work, void *state)
{
    self->work = work;
    self->state = state;
    self->count = count;
    self->turn++;
    atomic_store_explicit(&self->awake, 0, memory_order_relaxed);
    atomic_store_explicit(&self->ended, 0, memory_order_relaxed);
    for (unsigned i = 1; i < count; i++)
        sem_post(&self->members[i].wake);
    for (unsigned spins = 0; atomic_load_explicit(&self->awake, memory_order_acquire) < count - 1; loop_pause(&spins))
        continue;
}

void crowd_run(crowd *self)
{
    atomic_store_explicit(&self->go, self->turn, memory_order_release);
    self->work(self->state, 0);
    for (unsigned spins = 0; atomic_load_explicit(&self->ended, memory_order_acquire) < self->count - 1;
         loop_pause(&spins))
        continue;
}
