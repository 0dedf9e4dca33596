/* Contexts of the simulated driver that end while other threads use them: their work is waited for, and calls that wait
 * in them come back. */
#include "support/sim.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { A_WHILE = 30000 }; /* us, in which another thread reaches its wait */

/* A host function that waits until the test lets it go. */
typedef struct gate {
    sem_t open;
    _Atomic bool passed;
} gate;

static void wait_at(void *data)
{
    gate *self = data;
    while (sem_wait(&self->open) != 0) {
    }
    self->passed = true;
}

static void shut(gate *self, CUstream stream)
{
    *self = (gate){0};
    assert_int_equal(sem_init(&self->open, 0, 0), 0);
    OK(p_cuLaunchHostFunc(stream, wait_at, self));
}

typedef struct ending {
    pthread_t thread;
    CUcontext context; /* NULL: device 0's primary one is reset */
    _Atomic bool over;
    CUresult result;
} ending;

static void *end_context(void *data)
{
    ending *self = data;
    self->result = self->context ? p_cuCtxDestroy(self->context) : p_cuDevicePrimaryCtxReset(0);
    self->over = true;
    return NULL;
}

static void begin_ending(ending *self, CUcontext context)
{
    *self = (ending){.context = context};
    assert_int_equal(pthread_create(&self->thread, NULL, end_context, self), 0);
    usleep(A_WHILE);
    assert_false(self->over);
}

static void finish(ending *self)
{
    pthread_join(self->thread, NULL);
    assert_int_equal(self->result, CUDA_SUCCESS);
}

static void check_late_work(CUcontext context)
{
    CUstream stream, other;
    gate first, late;
    ending end;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    shut(&first, stream);
    begin_ending(&end, context);
    shut(&late, other);
    sem_post(&first.open);
    usleep(A_WHILE);
    assert_false(end.over);
    sem_post(&late.open);
    finish(&end);
    assert_true(first.passed && late.passed);
    sem_destroy(&first.open);
    sem_destroy(&late.open);
}

static void the_end_of_a_context_waits_for_work_that_came_during_its_wait(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        CUcontext made;
        OK(p_set_policy(test_policies[i]));
        test_sim_begin();
        OK(p_cuCtxCreate(&made, CU_CTX_SCHED_AUTO, 0));
        check_late_work(made);
        OK(p_cuCtxPopCurrent(&made));
        check_late_work(NULL);
        OK(p_cuCtxSetCurrent(NULL));
        OK(p_cuDevicePrimaryCtxRelease(0));
    }
}

typedef struct copying {
    pthread_t thread;
    CUcontext context;
    CUdeviceptr to;
    CUresult result;
} copying;

/* From pageable memory: the call waits for its stream before it stages the bytes. */
static void *copy(void *data)
{
    copying *self = data;
    const char bytes[64] = {1};
    OK(p_cuCtxSetCurrent(self->context));
    self->result = p_cuMemcpyHtoD(self->to, bytes, sizeof bytes);
    return NULL;
}

/* Which thread goes on first is left open; an address sanitizer finds a copy on a queue that has ended. */
static void a_copy_that_waits_in_a_context_that_ends_comes_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        copying self = {0};
        CUstream stream;
        gate first;
        ending end;
        test_sim_begin();
        OK(p_cuCtxCreate(&self.context, CU_CTX_SCHED_AUTO, 0));
        OK(p_cuMemAlloc(&self.to, 64));
        OK(p_cuStreamCreate(&stream, CU_STREAM_DEFAULT));
        shut(&first, stream);
        begin_ending(&end, self.context);
        assert_int_equal(pthread_create(&self.thread, NULL, copy, &self), 0);
        usleep(A_WHILE);
        sem_post(&first.open);
        pthread_join(self.thread, NULL);
        finish(&end);
        assert_true(self.result == CUDA_SUCCESS || self.result == CUDA_ERROR_CONTEXT_IS_DESTROYED);
        sem_destroy(&first.open);
        OK(p_cuCtxPopCurrent(&self.context));
        test_sim_end();
    }
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_context_waits_for_work_that_came_during_its_wait),
        cmocka_unit_test(a_copy_that_waits_in_a_context_that_ends_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
