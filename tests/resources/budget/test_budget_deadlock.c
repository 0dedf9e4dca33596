/* wait=live without a time-out: requests that wait for each other for ever are noticed, others are left waiting. */
#include "support/budget_waiters.h"
#include "support/fixture.h"

#include <pthread.h>
#include <time.h>

enum { MIB = 1 << 20, ROOM = 3, DEADLINE_S = 60 };

static strata_stack *stack;
static strata_resource *top;
static budget *layer;

/* A thread that does what it is told, one thing after another. */
typedef struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum todo { REST, ALLOCATE, FREE, LEAVE } todo; /* guarded by mutex */
    size_t bytes;
    strata_budget_account *account; /* entered before each request; NULL: none */
    strata_block blocks[ROOM];
    size_t count;
    strata_status status;
    bool runs;
} worker;

static worker workers[3];

static void do_it(worker *self)
{
    if (self->todo == FREE) {
        self->status = strata_resource_deallocate(top, &self->blocks[--self->count], NULL);
        return;
    }
    if (self->account)
        strata_budget_enter(self->account, NULL);
    self->status = strata_resource_allocate(top, &(strata_request){.bytes = self->bytes}, &self->blocks[self->count]);
    self->count += self->status == STRATA_SUCCESS;
}

static void *work(void *data)
{
    worker *self = data;
    test_make_current();
    pthread_mutex_lock(&self->mutex);
    for (;;) {
        while (self->todo == REST)
            pthread_cond_wait(&self->changed, &self->mutex);
        if (self->todo == LEAVE)
            break;
        pthread_mutex_unlock(&self->mutex);
        do_it(self);
        pthread_mutex_lock(&self->mutex);
        self->todo = REST;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

static void start(worker *self, enum todo todo, size_t bytes)
{
    pthread_mutex_lock(&self->mutex);
    self->bytes = bytes;
    self->todo = todo;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

static bool rests(worker *self)
{
    pthread_mutex_lock(&self->mutex);
    bool rest = self->todo == REST;
    pthread_mutex_unlock(&self->mutex);
    return rest;
}

static time_t deadline; /* of the test */

static bool in_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!deadline)
        deadline = now.tv_sec + DEADLINE_S;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return now.tv_sec < deadline;
}

static strata_status finish(worker *self)
{
    while (!rests(self))
        assert_true(in_time());
    return self->status;
}

static void hold(worker *self, size_t bytes)
{
    start(self, ALLOCATE, bytes);
    check_ok(finish(self));
}

static void let_go(worker *self)
{
    start(self, FREE, 0);
    check_ok(finish(self));
}

static void await_waiting(size_t count)
{
    while (budget_waiters(layer) != count)
        assert_true(in_time());
}

/* Until the layer has looked for deadlocks for longer than its grace time. */
static void await_looks(void)
{
    uint64_t until = 0, now = 0;
    while (!until || now < until) {
        now = budget_next_look(layer);
        if (!until)
            until = now + UINT64_C(3000000000);
        assert_true(in_time());
    }
}

static void build(const char *text)
{
    check_ok(strata_stack_create(text, 0, &stack));
    top = strata_stack_top(stack);
    layer = (budget *)top;
    deadline = 0;
    for (size_t i = 0; i < 3; i++) {
        worker *self = &workers[i];
        *self = (worker){.runs = true};
        pthread_mutex_init(&self->mutex, NULL);
        pthread_cond_init(&self->changed, NULL);
        assert_int_equal(pthread_create(&self->thread, NULL, work, self), 0);
    }
}

static int end(void **state)
{
    (void)state;
    if (layer) /* threads that still wait after a failed check go on */
        strata_budget_set_limit(&layer->base, 0);
    for (size_t i = 0; i < 3; i++) {
        worker *self = &workers[i];
        if (!self->runs)
            continue;
        while (!rests(self))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        start(self, LEAVE, 0);
        pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->mutex);
        while (self->count)
            strata_resource_deallocate(top, &self->blocks[--self->count], NULL);
        self->runs = false;
    }
    strata_status status = stack ? strata_stack_destroy(stack) : STRATA_SUCCESS;
    stack = NULL;
    layer = NULL;
    return status != STRATA_SUCCESS;
}

static void of_two_threads_that_wait_for_each_other_one_is_told_and_the_other_goes_on(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), logging(format=null), statistics, null");
    worker *first = &workers[0], *second = &workers[1];
    hold(first, 40 * MIB);
    hold(second, 40 * MIB);
    start(first, ALLOCATE, 40 * MIB);
    await_waiting(1);
    start(second, ALLOCATE, 40 * MIB);
    check_status(finish(second), STRATA_ERROR_DEADLOCK); /* it began to wait last */
    await_looks();
    assert_false(rests(first));
    let_go(second);
    check_ok(finish(first));
    assert_int_equal(strata_statistics_failures(strata_stack_layer(stack, "statistics", 0), STRATA_ERROR_DEADLOCK), 1);
}

static void a_thread_that_waits_for_its_own_blocks_is_told(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), null");
    hold(&workers[0], 80 * MIB);
    start(&workers[0], ALLOCATE, 40 * MIB);
    check_status(finish(&workers[0]), STRATA_ERROR_DEADLOCK);
    let_go(&workers[0]);
    hold(&workers[0], 40 * MIB);
}

static void if_what_others_hold_does_not_suffice_one_is_told_too(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), null");
    hold(&workers[0], 40 * MIB);
    hold(&workers[1], 40 * MIB);
    hold(&workers[2], 1 * MIB);
    start(&workers[0], ALLOCATE, 40 * MIB);
    await_waiting(1);
    start(&workers[1], ALLOCATE, 40 * MIB);
    check_status(finish(&workers[1]), STRATA_ERROR_DEADLOCK);
    let_go(&workers[1]);
    check_ok(finish(&workers[0]));
}

static void a_wait_for_a_thread_that_works_goes_on(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), null");
    hold(&workers[0], 40 * MIB);
    hold(&workers[1], 40 * MIB);
    hold(&workers[2], 1 * MIB);
    start(&workers[0], ALLOCATE, 40 * MIB);
    start(&workers[1], ALLOCATE, 20 * MIB);
    await_waiting(2);
    await_looks();
    assert_false(rests(&workers[0]) || rests(&workers[1]));
    let_go(&workers[2]);
    check_ok(finish(&workers[1]));
    let_go(&workers[1]);
    let_go(&workers[1]); /* 60 MiB are free */
    check_ok(finish(&workers[0]));
}

/* The second one waits for a thread that works, in another account. */
static void a_wait_for_a_thread_that_waits_for_one_that_works_goes_on(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), null");
    strata_budget_account *accounts[2];
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_budget_account_open(&layer->base, &(strata_budget_account_options){.limit.bytes = 40 * MIB},
                                            &accounts[i]));
    workers[1].account = accounts[0];
    hold(&workers[1], 40 * MIB);
    workers[2].account = accounts[1];
    hold(&workers[2], 40 * MIB);
    workers[0].account = accounts[0];
    start(&workers[0], ALLOCATE, 10 * MIB);
    workers[1].account = accounts[1];
    start(&workers[1], ALLOCATE, 10 * MIB);
    await_waiting(2);
    await_looks();
    assert_false(rests(&workers[0]) || rests(&workers[1]));
    let_go(&workers[2]);
    check_ok(finish(&workers[1]));
    let_go(&workers[1]);
    let_go(&workers[1]);
    check_ok(finish(&workers[0]));
    let_go(&workers[0]);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_budget_account_close(accounts[i]));
}

static void where_threads_free_each_others_blocks_no_wait_is_in_vain(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), null");
    hold(&workers[0], MIB);
    check_ok(strata_resource_deallocate(top, &workers[0].blocks[--workers[0].count], NULL));
    hold(&workers[0], 80 * MIB);
    start(&workers[0], ALLOCATE, 40 * MIB);
    while (atomic_load(&layer->base.waited) == 0)
        assert_true(in_time());
    assert_int_equal(budget_waiters(layer), 0);
    check_ok(strata_resource_deallocate(top, &workers[0].blocks[0], NULL));
    check_ok(finish(&workers[0]));
    workers[0].blocks[0] = workers[0].blocks[1];
}

static void a_free_that_fails_leaves_the_block_its_threads(void **state)
{
    (void)state;
    build("budget(limit=100MiB, wait=live), fault(operation=deallocate, nth=1), null");
    hold(&workers[0], 80 * MIB);
    start(&workers[0], FREE, 0);
    check_status(finish(&workers[0]), STRATA_ERROR_OUT_OF_MEMORY);
    workers[0].count = 1;
    start(&workers[0], ALLOCATE, 40 * MIB);
    check_status(finish(&workers[0]), STRATA_ERROR_DEADLOCK);
}

int main(void)
{
    test_open_driver();
#define HERE(test) cmocka_unit_test_teardown(test, end)
    const struct CMUnitTest tests[] = {
        HERE(of_two_threads_that_wait_for_each_other_one_is_told_and_the_other_goes_on),
        HERE(a_thread_that_waits_for_its_own_blocks_is_told),
        HERE(if_what_others_hold_does_not_suffice_one_is_told_too),
        HERE(a_wait_for_a_thread_that_works_goes_on),
        HERE(a_wait_for_a_thread_that_waits_for_one_that_works_goes_on),
        HERE(where_threads_free_each_others_blocks_no_wait_is_in_vain),
        HERE(a_free_that_fails_leaves_the_block_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
