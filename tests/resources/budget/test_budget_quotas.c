/* budget's quotas under threads: they stay where they are while sizes change, one recall serves all threads that meet
 * it, and the limit holds with quotas out. */
#include "support/budget.h"

#include <pthread.h>
#include <semaphore.h>

#include "support/budget_accounts.h"
#include "support/sweep.h"

enum { COUNTED = 1100 /* pairs; after these, threads have quotas */, HELPERS = 4 };

/* A thread that makes pairs on demand. */
typedef struct helper {
    strata_runtime *runtime;
    pthread_t thread;
    sem_t go, done;
    size_t bytes, pairs; /* of the next order, written before `go`; no pairs: ends */
    strata_status status;
} helper;

static void *obey(void *data)
{
    helper *self = data;
    for (;;) {
        sem_wait(&self->go);
        if (!self->pairs)
            return NULL;
        for (size_t i = 0; i < self->pairs && self->status == STRATA_SUCCESS; i++) {
            strata_block block;
            self->status = strata_runtime_allocate(self->runtime, self->bytes, NULL, &block);
            if (self->status == STRATA_SUCCESS)
                self->status = strata_runtime_deallocate(self->runtime, &block);
        }
        sem_post(&self->done);
    }
}

static void start(helper *self, test_fixture *fixture)
{
    *self = (helper){.runtime = fixture->runtime};
    sem_init(&self->go, 0, 0);
    sem_init(&self->done, 0, 0);
    assert_int_equal(pthread_create(&self->thread, NULL, obey, self), 0);
}

static void order(helper *self, size_t bytes, size_t pairs)
{
    self->bytes = bytes;
    self->pairs = pairs;
    sem_post(&self->go);
}

static void order_and_wait(helper *self, size_t bytes, size_t pairs)
{
    order(self, bytes, pairs);
    sem_wait(&self->done);
    check_ok(self->status);
}

static void end_helper(helper *self)
{
    order(self, 0, 0);
    pthread_join(self->thread, NULL);
    sem_destroy(&self->go);
    sem_destroy(&self->done);
}

static void make_pairs(test_fixture *fixture, size_t bytes, size_t pairs)
{
    strata_block block;
    for (size_t i = 0; i < pairs; i++) {
        check_ok(try_allocate(fixture, bytes, NULL, &block));
        free_block(fixture, &block);
    }
}

/* A peak of `bytes`, and quotas for this thread and the helper. */
static void have_quotas(test_fixture *fixture, strata_budget_account *account, helper *other, size_t bytes)
{
    make_pairs(fixture, bytes, 1);
    order_and_wait(other, KIB, 8);
    make_pairs(fixture, bytes, COUNTED);
    assert_false(account->counts);
    assert_int_equal(account->threads, 2);
}

/* ---- one thread's quota ---- */

static void small_blocks_after_large_ones_leave_a_thread_its_quota(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=1GiB), null");
    helper other;
    start(&other, fixture);
    have_quotas(fixture, account, &other, 64 * KIB);
    int64_t free_quota = 0;
    for (size_t i = 0; i < 64; i++) {
        if (i == 8)
            free_quota = account->free_quota;
        strata_block large, small;
        check_ok(try_allocate(fixture, 64 * KIB, NULL, &large));
        check_ok(try_allocate(fixture, KIB, NULL, &small));
        free_block(fixture, &large);
        assert_true(i < 8 || account->free_quota == free_quota);
        free_block(fixture, &small);
        assert_true(i < 8 || account->free_quota == free_quota);
    }
    end_helper(&other);
}

static void quotas_follow_a_recall_at_once_after_many_charges_within_them(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=1GiB), null");
    helper other;
    start(&other, fixture);
    have_quotas(fixture, account, &other, MIB);
    make_pairs(fixture, MIB, COUNTED); /* this thread has a quota of a block now */
    const uint64_t before = usage_of(account).recalls;
    order_and_wait(&other, MIB, 1);
    assert_int_equal(usage_of(account).recalls, before + 1);
    assert_false(account->counts);
    order_and_wait(&other, MIB, 1); /* too few charges since the last recall */
    make_pairs(fixture, MIB, 1);
    assert_int_equal(usage_of(account).recalls, before + 2);
    assert_true(account->counts);
    end_helper(&other);
}

/* ---- a recall that others meet ---- */

/* Holds a request of 1 MiB back until `go_on`, then refuses it. */
typedef struct slow_layer {
    strata_resource resource;
    _Atomic bool entered, go_on;
} slow_layer;

static strata_status slow_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    slow_layer *self = (slow_layer *)resource;
    if (request->bytes != MIB)
        return resource->upstream->ops->allocate(resource->upstream, request, out);
    atomic_store(&self->entered, true);
    while (!atomic_load(&self->go_on))
        nap(1);
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "refused on purpose");
}

static void slow_destroy(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops slow_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "slow",
    .allocate = slow_allocate,
    .destroy = slow_destroy,
};

static strata_budget_account *use_slow_layer(test_fixture *fixture, slow_layer *slow)
{
    *slow = (slow_layer){.resource.ops = &slow_ops};
    strata_resource *resources[] = {NULL, &slow->resource, NULL};
    strata_runtime_config config = {.device = 0};
    const strata_budget_options options = {.limit.bytes = 2 * MIB, .wait = STRATA_BUDGET_WAIT_NONE};
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    return strata_budget_base(resources[0]);
}

/* The first helper's request is undecided. The second one's does not fit beside it, and has the account's lock while it
 * waits. The others come meanwhile. */
static void one_recall_serves_all_threads_that_meet_it(test_fixture *fixture)
{
    static slow_layer slow;
    strata_budget_account *account = use_slow_layer(fixture, &slow);
    helper undecided, too_large, others[HELPERS];
    start(&undecided, fixture);
    start(&too_large, fixture);
    for (size_t i = 0; i < HELPERS; i++)
        start(&others[i], fixture);
    order(&undecided, MIB, 1);
    while (!atomic_load(&slow.entered))
        nap(1);
    const uint64_t before = account->recalls;
    order(&too_large, 3 * MIB / 2, 1);
    while (account->recalls == before)
        nap(1);
    for (size_t i = 0; i < HELPERS; i++)
        order(&others[i], KIB, 1);
    nap(50); /* until they wait; one that comes later recalls nothing either */
    atomic_store(&slow.go_on, true);
    sem_wait(&undecided.done);
    sem_wait(&too_large.done);
    check_status(undecided.status, STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(too_large.status);
    for (size_t i = 0; i < HELPERS; i++) {
        sem_wait(&others[i].done);
        check_ok(others[i].status);
        end_helper(&others[i]);
    }
    assert_int_equal(account->recalls, before + 1);
    end_helper(&undecided);
    end_helper(&too_large);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(small_blocks_after_large_ones_leave_a_thread_its_quota),
        TEST_CASE(quotas_follow_a_recall_at_once_after_many_charges_within_them),
        TEST_CASE(one_recall_serves_all_threads_that_meet_it),
    };
    static const char *const stacks[] = {"async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
