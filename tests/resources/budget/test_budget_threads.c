/* budget under threads: together they never hold more than the limit, a request that fits is not refused, and what a
 * thread leaves behind can be used again. */
#include "support/budget.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/sweep.h"

typedef struct in_thread {
    strata_runtime *runtime;
    strata_status status;
} in_thread;

enum { THREADS = 16, HELD = 8 };

/* Below the budget: counts the bytes charged, and their highest value. */
typedef struct meter {
    strata_resource resource;
    _Atomic uint64_t now, highest;
} meter;

static strata_status meter_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    meter *self = (meter *)resource;
    uint64_t now = atomic_fetch_add(&self->now, request->bytes) + request->bytes;
    uint64_t highest = atomic_load(&self->highest);
    while (now > highest && !atomic_compare_exchange_weak(&self->highest, &highest, now))
        ;
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status != STRATA_SUCCESS)
        atomic_fetch_sub(&self->now, request->bytes);
    return status;
}

/* Called before the budget's, which stands above: afterwards the bytes may be granted again. */
static void meter_completed(strata_resource *resource, const strata_completion *completion)
{
    atomic_fetch_sub(&((meter *)resource)->now, completion->bytes);
}

static void meter_destroy(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops meter_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "meter",
    .allocate = meter_allocate,
    .completed = meter_completed,
    .destroy = meter_destroy,
};

typedef struct worker {
    strata_runtime *runtime;
    pthread_barrier_t *begin;
    uint64_t seed;
    uint64_t quota; /* the thread never holds more */
    size_t operations;
    size_t refused;
    bool failed;
    strata_block held[HELD];
    uint64_t bytes;
} worker;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void drop(worker *self, strata_block *block)
{
    self->bytes -= block->bytes;
    self->failed |= strata_runtime_deallocate_on(self->runtime, block, NULL) != STRATA_SUCCESS;
    *block = (strata_block){0};
}

static void *work(void *data)
{
    worker *self = data;
    pthread_barrier_wait(self->begin);
    for (size_t i = 0; i < self->operations; i++) {
        strata_block *block = &self->held[next_random(&self->seed) % HELD];
        if (block->bytes)
            drop(self, block);
        size_t bytes = 1 + next_random(&self->seed) % (self->quota / 3);
        if (self->bytes + bytes > self->quota)
            continue;
        strata_status status = strata_runtime_allocate(self->runtime, bytes, NULL, block);
        self->refused += status == STRATA_ERROR_OUT_OF_BUDGET;
        self->failed |= status != STRATA_SUCCESS && status != STRATA_ERROR_OUT_OF_BUDGET;
        self->bytes += block->bytes;
    }
    for (size_t i = 0; i < HELD; i++)
        if (self->held[i].bytes)
            drop(self, &self->held[i]);
    return NULL;
}

/* Sixteen threads under `limit`, 0: none, each holding at most `quota`. Returns how many requests were refused. */
static size_t run_threads(uint64_t limit, uint64_t quota, size_t operations)
{
    static worker workers[THREADS];
    static meter counting;
    memset(workers, 0, sizeof workers);
    memset(&counting, 0, sizeof counting);
    counting.resource.ops = &meter_ops;
    pthread_t threads[THREADS];
    strata_resource *resources[] = {NULL, &counting.resource, NULL};
    strata_runtime_config config = {.device = 0};
    const strata_budget_options options = {.limit.bytes = limit, .wait = STRATA_BUDGET_WAIT_NONE};
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&config, &runtime));
    strata_budget_account *account = strata_budget_base(resources[0]);
    pthread_barrier_t begin;
    pthread_barrier_init(&begin, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){
            .begin = &begin, .runtime = runtime, .seed = i + 1, .quota = quota, .operations = operations / THREADS};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    size_t refused = 0;
    bool failed = false;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        refused += workers[i].refused;
        failed |= workers[i].failed;
    }
    pthread_barrier_destroy(&begin);
    strata_budget_usage usage = usage_of(account);
    check_ok(strata_runtime_destroy(runtime));
    assert_false(failed);
    assert_true(!limit || counting.highest <= limit);
    assert_int_equal(counting.now, 0);
    assert_int_equal(usage.in_use, 0);
    assert_true(!limit || usage.peak <= limit);
    assert_int_equal(usage.refused, refused);
    return refused;
}

static void *leave_quota(void *data)
{
    in_thread *self = data;
    strata_block block;
    self->status = strata_runtime_allocate(self->runtime, 500 * KIB, NULL, &block);
    if (self->status == STRATA_SUCCESS)
        self->status = strata_runtime_deallocate(self->runtime, &block);
    return NULL;
}

/* An account counts a thousand charges before threads have quotas. */
static void have_quotas(test_fixture *fixture, size_t bytes)
{
    strata_block block;
    for (size_t i = 0; i < 1100; i++) {
        check_ok(try_allocate(fixture, bytes, NULL, &block));
        free_block(fixture, &block);
    }
}

static void quotas_of_threads_are_recalled_wherever_they_are(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=8MiB, wait=none), null");
    strata_block all;
    have_quotas(fixture, 8 * MIB);
    const uint64_t before = usage_of(account).recalls;
    for (size_t i = 0; i < 4; i++) {
        in_thread other = {.runtime = fixture->runtime};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, leave_quota, &other), 0);
        pthread_join(thread, NULL);
        check_ok(other.status);
        check_ok(try_allocate(fixture, 8 * MIB, NULL, &all));
        free_block(fixture, &all);
    }
    assert_true(usage_of(account).recalls > before);
    assert_int_equal(usage_of(account).refused, 0);
}

typedef struct in_account {
    strata_runtime *runtime;
    strata_budget_account *account; /* to enter; NULL: none */
    strata_block block;
    strata_status status;
} in_account;

static void *allocate_in_account(void *data)
{
    in_account *self = data;
    self->status = self->account ? strata_budget_enter(self->account, NULL) : STRATA_SUCCESS;
    if (self->status == STRATA_SUCCESS)
        self->status = strata_runtime_allocate(self->runtime, MIB, NULL, &self->block);
    return NULL;
}

/* The next thread gets the same number, and the slot with it. */
static void the_account_of_a_thread_that_ended_is_not_inherited(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB), null"), *account;
    check_ok(strata_budget_account_open(base, NULL, &account));
    in_account first = {.runtime = fixture->runtime, .account = account}, second = {.runtime = fixture->runtime};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_account, &first), 0);
    pthread_join(thread, NULL);
    check_ok(first.status);
    assert_int_equal(usage_of(account).in_use, MIB);
    free_block(fixture, &first.block);
    check_ok(strata_budget_account_close(account));
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_account, &second), 0);
    pthread_join(thread, NULL);
    check_ok(second.status);
    assert_int_equal(usage_of(base).in_use, MIB);
    free_block(fixture, &second.block);
}

/* A layer below whose allocation calls the stack, as a callback may. */
typedef struct calling_layer {
    strata_resource resource;
    strata_resource *top;
    bool armed;
    strata_status answered;
} calling_layer;

static strata_status calling_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    calling_layer *self = (calling_layer *)resource;
    if (self->armed) {
        strata_block block;
        const strata_request small = {.bytes = 4096, .stream = request->stream};
        self->armed = false;
        self->answered = self->top->ops->allocate(self->top, &small, &block);
        if (self->answered == STRATA_SUCCESS)
            self->top->ops->deallocate(self->top, &block, request->stream);
    }
    return resource->upstream->ops->allocate(resource->upstream, request, out);
}

static const strata_resource_ops calling_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "calling",
    .allocate = calling_allocate,
    .destroy = meter_destroy,
};

static void a_layer_below_may_come_back_while_memory_is_reused(test_fixture *fixture)
{
    static calling_layer calling;
    calling = (calling_layer){.resource.ops = &calling_ops};
    strata_resource *resources[] = {NULL, &calling.resource, NULL};
    strata_runtime_config config = {.device = 0, .stream_capacity = 4};
    const strata_budget_options options = {.limit.bytes = 3 * GIB / 2, .wait = STRATA_BUDGET_WAIT_NONE};
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_async_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    calling.top = resources[0];
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    check_ok(try_allocate(fixture, GIB, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &block, stream);
    calling.armed = true;
    strata_status status = try_allocate(fixture, GIB, stream, &block); /* the nested call returns */
    test_stall_end(stall);
    assert_false(calling.armed);
    assert_true(calling.answered == STRATA_SUCCESS || calling.answered == STRATA_ERROR_OUT_OF_BUDGET);
    if (status == STRATA_SUCCESS)
        test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(strata_budget_base(resources[0])).in_use, 0);
}

/* ---- a request in flight ---- */

/* Below the budget: holds the first request back, then refuses it. */
typedef struct slow_layer {
    strata_resource resource;
    _Atomic bool entered, go_on;
} slow_layer;

static strata_status slow_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    slow_layer *self = (slow_layer *)resource;
    if (atomic_exchange(&self->entered, true))
        return resource->upstream->ops->allocate(resource->upstream, request, out);
    while (!atomic_load(&self->go_on))
        nap(1);
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "refused on purpose");
}

static const strata_resource_ops slow_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "slow",
    .allocate = slow_allocate,
    .destroy = meter_destroy,
};

typedef struct in_flight {
    strata_resource *top;
    slow_layer *layer;
    strata_budget_account *account;
    size_t bytes;
    strata_block block;
    strata_status status;
} in_flight;

static void *allocate_in_flight(void *data)
{
    in_flight *self = data;
    self->status = strata_budget_enter(self->account, NULL);
    if (self->status == STRATA_SUCCESS)
        self->status = self->top->ops->allocate(self->top, &(strata_request){.bytes = self->bytes}, &self->block);
    return NULL;
}

static void *let_go_later(void *data)
{
    in_flight *self = data;
    nap(20);
    atomic_store(&self->layer->go_on, true);
    return NULL;
}

/* The first request has the whole limit and will be refused below. Then come a request of the same size, a small one
 * and one of zero bytes. Of the large and the small one, the first to lock the account succeeds. */
static void wait_for_a_flight(const strata_budget_options *options, bool reserved)
{
    enum { FIRST, LARGE, SMALL, NOTHING, ALL };
    static const size_t bytes[ALL] = {1 << 20, 1 << 20, 4096, 0};
    static slow_layer slow;
    slow = (slow_layer){.resource.ops = &slow_ops};
    strata_resource *resources[] = {NULL, &slow.resource, NULL};
    strata_runtime_config config = {.device = 0};
    in_flight flights[ALL];
    pthread_t threads[ALL], releasing;
    check_ok(strata_budget_create(0, options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&config, &runtime));
    strata_budget_account *base = strata_budget_base(resources[0]), *account = base;
    if (reserved)
        check_ok(strata_budget_reserve(base, MIB, NULL, &account));
    for (size_t i = 0; i < ALL; i++) {
        flights[i] = (in_flight){.top = resources[0], .layer = &slow, .account = account, .bytes = bytes[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_in_flight, &flights[i]), 0);
        while (i == FIRST && !atomic_load(&slow.entered))
            nap(1);
        if (i == LARGE)
            nap(5);
    }
    assert_int_equal(pthread_create(&releasing, NULL, let_go_later, &flights[FIRST]), 0);
    for (size_t i = 0; i < ALL; i++)
        pthread_join(threads[i], NULL);
    pthread_join(releasing, NULL);
    assert_int_equal(flights[FIRST].status, STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(flights[NOTHING].status);
    const in_flight *served = &flights[flights[LARGE].status == STRATA_SUCCESS ? LARGE : SMALL];
    const in_flight *refused = &flights[served == &flights[LARGE] ? SMALL : LARGE];
    check_ok(served->status);
    check_status(refused->status, STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(usage_of(account).in_use, served->bytes);
    check_ok(strata_runtime_deallocate(runtime, &served->block));
    assert_int_equal(usage_of(account).in_use, 0);
    if (reserved)
        check_ok(strata_budget_account_close(account));
    assert_int_equal(usage_of(base).in_use, 0);
    check_ok(strata_runtime_destroy(runtime));
}

static void a_request_that_is_not_decided_is_waited_for_before_a_refusal(test_fixture *fixture)
{
    (void)fixture;
    strata_budget_options options = {.limit.bytes = MIB, .wait = STRATA_BUDGET_WAIT_NONE};
    wait_for_a_flight(&options, false);
    wait_for_a_flight(&options, true);
    options.shared = "flights";
    wait_for_a_flight(&options, false);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { OPERATIONS = 40000 };
#else
enum { OPERATIONS = 400000 };
#endif

static size_t operations(void)
{
    if (test_is_swept())
        return 20000;
    return getenv("STRATA_TEST_FULL") ? 10000000 : test_effort(OPERATIONS, 4000);
}

/* The threads together never hold more than the limit, so each request fits. */
static void nothing_that_fits_is_refused_while_threads_allocate(test_fixture *fixture)
{
    (void)fixture;
    assert_int_equal(run_threads(THREADS * MIB, MIB, operations()), 0);
    assert_int_equal(run_threads(0, 64 * MIB, operations() / 4), 0); /* more than a thread's quota */
}

static void threads_that_want_too_much_never_exceed_the_limit(test_fixture *fixture)
{
    (void)fixture;
    assert_true(run_threads(MIB, 2 * MIB, operations() / 4) > 0);
}

/* ---- marks ---- */

enum { NOTIFIED = 64 };

/* A slow callback: its first call waits. */
typedef struct slow_callback {
    sem_t entered, go_on;
    size_t count;
    bool above[NOTIFIED];
    size_t in_use[NOTIFIED];
    pthread_t thread[NOTIFIED];
} slow_callback;

static void hear_slow(strata_budget_account *account, bool above, size_t in_use, void *data)
{
    slow_callback *self = data;
    size_t at = self->count++;
    (void)account;
    self->above[at % NOTIFIED] = above;
    self->in_use[at % NOTIFIED] = in_use;
    self->thread[at % NOTIFIED] = pthread_self();
    if (at == 0) {
        sem_post(&self->entered);
        sem_wait(&self->go_on);
    }
}

static void *pass_the_mark(void *data)
{
    in_thread *self = data;
    strata_block block;
    self->status = strata_runtime_allocate(self->runtime, 4 * MIB, NULL, &block);
    if (self->status == STRATA_SUCCESS)
        self->status = strata_runtime_deallocate_on(self->runtime, &block, NULL);
    return NULL;
}

/* While one thread is in the callback, this thread crosses the marks `crossings` times, and none of its calls waits.
 * Returns the number of calls of the callback. */
static size_t cross_meanwhile(slow_callback *ear, size_t crossings)
{
    pthread_t thread;
    strata_block block;
    strata_resource *resources[2];
    strata_runtime_config config = {.device = 0};
    in_thread other = {0};
    const strata_budget_options options = {.limit.bytes = 100 * MIB,
                                           .soft.bytes = 8 * MIB,
                                           .soft_low.bytes = 5 * MIB,
                                           .soft_callback = hear_slow,
                                           .soft_data = ear};
    memset(ear, 0, sizeof *ear);
    assert_int_equal(sem_init(&ear->entered, 0, 0) + sem_init(&ear->go_on, 0, 0), 0);
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[1]));
    check_ok(strata_stack_build(resources, 2, 0, &config.stack));
    check_ok(strata_runtime_create(&config, &other.runtime));
    check_ok(strata_runtime_allocate(other.runtime, 6 * MIB, NULL, &block));
    assert_int_equal(pthread_create(&thread, NULL, pass_the_mark, &other), 0);
    sem_wait(&ear->entered);
    for (size_t i = 0; i < crossings; i++)
        if (i % 2)
            check_ok(strata_runtime_allocate(other.runtime, 6 * MIB, NULL, &block));
        else
            check_ok(strata_runtime_deallocate_on(other.runtime, &block, NULL));
    assert_int_equal(ear->count, 1);
    sem_post(&ear->go_on);
    pthread_join(thread, NULL);
    check_ok(other.status);
    size_t told = ear->count;
    if (crossings % 2 == 0)
        check_ok(strata_runtime_deallocate_on(other.runtime, &block, NULL));
    check_ok(strata_runtime_destroy(other.runtime));
    sem_destroy(&ear->entered);
    sem_destroy(&ear->go_on);
    return told;
}

static void marks_are_notified_one_after_another_in_the_order_in_which_they_were_passed(test_fixture *fixture)
{
    static slow_callback ear;
    static const size_t in_use[] = {10, 4, 10, 4, 10};
    (void)fixture;
    assert_int_equal(cross_meanwhile(&ear, 4), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ear.above[i], i % 2 == 0);
        assert_int_equal(ear.in_use[i], in_use[i] * MIB);
        assert_true(pthread_equal(ear.thread[i], ear.thread[0]));
    }
    for (size_t crossings = 15; crossings < 40; crossings++) { /* more than the ring has: pairs are left out */
        size_t told = cross_meanwhile(&ear, crossings);
        assert_in_range(told, 16, 17);
        for (size_t i = 0; i < told; i++)
            assert_int_equal(ear.above[i], i % 2 == 0);
        assert_int_equal(ear.above[told - 1], crossings % 2 == 0);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(quotas_of_threads_are_recalled_wherever_they_are),
        TEST_CASE(the_account_of_a_thread_that_ended_is_not_inherited),
        TEST_CASE(a_layer_below_may_come_back_while_memory_is_reused),
        TEST_CASE(a_request_that_is_not_decided_is_waited_for_before_a_refusal),
        TEST_CASE(nothing_that_fits_is_refused_while_threads_allocate),
        TEST_CASE(threads_that_want_too_much_never_exceed_the_limit),
        TEST_CASE(marks_are_notified_one_after_another_in_the_order_in_which_they_were_passed),
    };
    static const char *const stacks[] = {"async"};
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
