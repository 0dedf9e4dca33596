/* Another thread's call while an error is logged. The log callback is the program's, which may wait there for a thread
 * that calls the library: so no lock is held that such a call needs. */
#ifndef STRATA_TEST_BESIDE_H
#define STRATA_TEST_BESIDE_H

#include "support/driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <strata/graph.h>
#include <time.h>

typedef struct test_beside {
    void (*call)(void *data);
    void *data;
    pthread_t thread;
    sem_t begin, over;
    bool begun;    /* an error was logged; the first alone counts */
    bool returned; /* before the log callback did */
} test_beside;

static inline void *test_beside_run(void *data)
{
    test_beside *self = data;
    sem_wait(&self->begin);
    self->call(self->data);
    sem_post(&self->over);
    return NULL;
}

static inline void test_beside_hear(const strata_error *error, void *data)
{
    test_beside *self = data;
    struct timespec until;
    (void)error;
    if (self->begun)
        return;
    self->begun = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    sem_post(&self->begin);
    self->returned = sem_timedwait(&self->over, &until) == 0;
}

/* From now on the next error that is logged has `call` made by another thread. */
static inline void test_beside_begin(test_beside *self, void (*call)(void *data), void *data)
{
    *self = (test_beside){.call = call, .data = data};
    sem_init(&self->begin, 0, 0);
    sem_init(&self->over, 0, 0);
    if (pthread_create(&self->thread, NULL, test_beside_run, self) != 0)
        abort(); /* also in children, which do not use cmocka */
    strata_set_log_callback(test_beside_hear, self);
}

/* Whether an error was logged, and the call returned meanwhile. */
static inline bool test_beside_end(test_beside *self)
{
    strata_set_log_callback(NULL, NULL);
    if (!self->begun)
        sem_post(&self->begin);
    pthread_join(self->thread, NULL);
    sem_destroy(&self->over);
    sem_destroy(&self->begin);
    return self->returned;
}

/* A call for test_beside_begin, with its data. */
typedef struct test_launch {
    strata_graph *graph;
    CUstream stream;
} test_launch;

static inline void test_launch_beside(void *data)
{
    const test_launch *self = data;
    strata_graph_launch(self->graph, self->stream);
}

#endif
