/* budget: requests that wait for memory, and marks that tell of use. */
#include "support/budget.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resources/budget/take.h"

#include "support/sweep.h"

/* ---- waiting ---- */

typedef struct helper {
    test_fixture *fixture;
    strata_budget_account *account;
    test_stall *stall;
    strata_block block;
    CUstream stream;
    strata_status status;
    _Atomic bool over; /* the request of the other thread */
} helper;

static void *take_without_a_wait(void *data)
{
    static const _Atomic bool never = false;
    helper *self = data;
    test_make_current();
    self->status = budget_take_while(self->account, 3 * MIB, &never);
    atomic_store(&self->over, true);
    return NULL;
}

/* The guard keeps the freed block until a check that waits for the stuck stream. */
static void a_charge_that_may_not_wait_waits_for_no_layer_below(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    helper taker = {.fixture = fixture, .account = use_stack(fixture, "budget(limit=4MiB), guard, async")};
    CUstream busy = test_stream(fixture, TEST_STREAM_POOL);
    pthread_t thread;
    strata_block block;
    check_ok(try_allocate(fixture, 2 * MIB, busy, &block));
    test_synchronize(busy);
    test_stall *stall = test_stall_begin(busy);
    test_free_on(fixture, &block, busy);
    assert_int_equal(pthread_create(&thread, NULL, take_without_a_wait, &taker), 0);
    for (int i = 0; i < 2000 && !atomic_load(&taker.over); i++)
        nap(1);
    const bool was_over = atomic_load(&taker.over);
    test_stall_end(stall);
    pthread_join(thread, NULL);
    assert_true(was_over);
    assert_int_equal(taker.status, STRATA_ERROR_OUT_OF_BUDGET);
}

/* Until the other thread's request waits, and a moment more; or until it is over, as after a failure of the driver. */
static void await_request(const helper *self)
{
    while (!atomic_load(&self->over) && !usage_of(self->account).waited)
        nap(1);
    nap(20);
}

static strata_status allocate_beside(helper *self, CUstream stream, strata_block *out)
{
    const strata_status status = try_allocate(self->fixture, 3 * MIB, stream, out);
    atomic_store(&self->over, true);
    return status;
}

static void *release_later(void *data)
{
    helper *self = data;
    await_request(self);
    test_stall_release(self->stall);
    return NULL;
}

static void a_request_waits_for_frees_that_are_pending(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=4MiB), async");
    CUstream busy = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block, next;
    pthread_t thread;
    check_ok(try_allocate(fixture, 3 * MIB, busy, &block));
    helper later = {.fixture = fixture, .account = account, .stall = test_stall_begin(busy)};
    test_free_on(fixture, &block, busy);
    assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
    strata_status status = allocate_beside(&later, other, &next);
    pthread_join(thread, NULL);
    check_ok(status);
    test_stall_end(later.stall);
    assert_int_equal(usage_of(account).waited, 1);
    assert_int_equal(usage_of(account).in_use, 3 * MIB);
    test_free_on(fixture, &next, other);
}

static void *free_later(void *data)
{
    helper *self = data;
    await_request(self);
    self->status = strata_runtime_deallocate_on(self->fixture->runtime, &self->block, self->stream);
    return NULL;
}

static void a_request_can_wait_for_what_others_free(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=4MiB, wait=live), null");
    helper later = {.fixture = fixture, .account = account};
    strata_block next;
    pthread_t thread;
    check_ok(try_allocate(fixture, 3 * MIB, NULL, &later.block));
    assert_int_equal(pthread_create(&thread, NULL, free_later, &later), 0);
    strata_status status = allocate_beside(&later, NULL, &next);
    pthread_join(thread, NULL);
    check_ok(status);
    check_ok(later.status);
    assert_int_equal(usage_of(account).waited, 1);
    free_block(fixture, &next);
}

static void waiting_ends_with_its_time(test_fixture *fixture)
{
    struct timespec before, after;
    use_stack(fixture, "budget(limit=4MiB, wait=live, timeout=30ms), null");
    strata_block live, refused;
    check_ok(try_allocate(fixture, 3 * MIB, NULL, &live));
    clock_gettime(CLOCK_MONOTONIC, &before);
    check_status(try_allocate(fixture, 3 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 29);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "Too little was freed within the timeout");
    check_ok(try_allocate(fixture, MIB, NULL, &refused));
    free_block(fixture, &refused);
    free_block(fixture, &live);
}

/* The request would fit into its own account later, but never into the parent. */
static void what_never_fits_in_some_account_above_does_not_wait(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(wait=live, timeout=5s), null"), *tenant, *request;
    const strata_budget_account_options outer = {.name = "tenant", .limit.bytes = 6 * MIB};
    const strata_budget_account_options inner = {.name = "request", .limit.bytes = 8 * MIB};
    strata_block live, refused;
    check_ok(strata_budget_account_open(base, &outer, &tenant));
    check_ok(strata_budget_account_open(tenant, &inner, &request));
    check_ok(strata_budget_enter(request, NULL));
    check_ok(try_allocate(fixture, 5 * MIB, NULL, &live));
    check_status(try_allocate(fixture, 7 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"tenant\"");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "alone exceeds the limit");
    assert_int_equal(usage_of(request).waited + usage_of(tenant).waited, 0);
    assert_int_equal(usage_of(tenant).refused, 1);
    free_block(fixture, &live);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(request));
    check_ok(strata_budget_account_close(tenant));
}

static void *lower_later(void *data)
{
    helper *self = data;
    await_request(self);
    self->status = strata_budget_set_limit(self->account, 2 * MIB);
    return NULL;
}

static void a_request_that_waits_is_refused_when_the_limit_falls_below_it(test_fixture *fixture)
{
    helper later = {.fixture = fixture,
                    .account = use_stack(fixture, "budget(limit=4MiB, wait=live, timeout=20s), null")};
    strata_block live, refused;
    pthread_t thread;
    check_ok(try_allocate(fixture, 3 * MIB, NULL, &live));
    assert_int_equal(pthread_create(&thread, NULL, lower_later, &later), 0);
    time_t before = time(NULL);
    strata_status status = allocate_beside(&later, NULL, &refused);
    pthread_join(thread, NULL);
    check_ok(later.status);
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "alone exceeds the limit");
    assert_true(time(NULL) - before < 15);
    assert_int_equal(usage_of(later.account).waited, 1);
    free_block(fixture, &live);
}

/* The deadline is beyond the range of the clock. */
static void a_request_may_wait_for_ever(test_fixture *fixture)
{
    helper later = {.fixture = fixture};
    strata_resource *resources[2];
    strata_runtime_config config = {.device = 0};
    const strata_budget_options options = {
        .limit.bytes = 4 * MIB, .wait = STRATA_BUDGET_WAIT_LIVE, .timeout = UINT64_MAX};
    strata_block next;
    pthread_t thread;
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[1]));
    check_ok(strata_stack_build(resources, 2, 0, &config.stack));
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    later.account = strata_budget_base(resources[0]);
    check_ok(try_allocate(fixture, 3 * MIB, NULL, &later.block));
    assert_int_equal(pthread_create(&thread, NULL, free_later, &later), 0);
    strata_status status = allocate_beside(&later, NULL, &next);
    pthread_join(thread, NULL);
    check_ok(status);
    check_ok(later.status);
    free_block(fixture, &next);
}

/* ---- the soft mark ---- */

typedef struct heard {
    size_t rises, falls;
    size_t in_use;
    strata_budget_account *account;
} heard;

static void hear(strata_budget_account *account, bool above, size_t in_use, void *data)
{
    heard *self = data;
    self->rises += above;
    self->falls += !above;
    self->in_use = in_use;
    self->account = account;
}

static void the_soft_mark_notifies_once_until_the_low_one_was_passed(test_fixture *fixture)
{
    heard all = {0};
    strata_budget_account *base = use_stack(fixture, "budget(limit=100MiB), null"), *account;
    const strata_budget_account_options options = {
        .limit.bytes = 20 * MIB,
        .soft.bytes = 10 * MIB,
        .soft_low.bytes = 5 * MIB,
        .soft_callback = hear,
        .soft_data = &all,
    };
    strata_block first, second, third;
    check_ok(strata_budget_account_open(base, &options, &account));
    check_ok(strata_budget_enter(account, NULL));
    check_ok(try_allocate(fixture, 10 * MIB - 1, NULL, &first));
    assert_int_equal(all.rises, 0);
    check_ok(try_allocate(fixture, 1, NULL, &second));
    assert_int_equal(all.rises, 1);
    assert_int_equal(all.in_use, 10 * MIB);
    assert_ptr_equal(all.account, account);
    for (size_t i = 0; i < 4; i++) { /* around the mark: no further notification */
        free_block(fixture, &second);
        check_ok(try_allocate(fixture, 2 * MIB, NULL, &second));
    }
    assert_int_equal(all.rises, 1);
    assert_int_equal(all.falls, 0);
    free_block(fixture, &first);
    assert_int_equal(all.falls, 1);
    assert_int_equal(all.in_use, 2 * MIB);
    check_ok(try_allocate(fixture, 8 * MIB, NULL, &third));
    assert_int_equal(all.rises, 2);
    free_block(fixture, &second);
    free_block(fixture, &third);
    assert_int_equal(all.falls, 2);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(account));
}

/* One reap completes blocks of many accounts. */
static void marks_of_any_number_of_accounts_are_notified(test_fixture *fixture)
{
    enum { ACCOUNTS = 40 };
    heard all = {0};
    strata_budget_account *base = use_stack(fixture, "budget(wait=none), async"), *accounts[ACCOUNTS];
    const strata_budget_account_options options = {.soft.bytes = MIB, .soft_callback = hear, .soft_data = &all};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[ACCOUNTS];
    for (size_t i = 0; i < ACCOUNTS; i++) {
        check_ok(strata_budget_account_open(base, &options, &accounts[i]));
        check_ok(strata_budget_enter(accounts[i], NULL));
        check_ok(try_allocate(fixture, MIB, stream, &blocks[i]));
        assert_int_equal(all.rises, i + 1);
        assert_ptr_equal(all.account, accounts[i]);
    }
    check_ok(strata_budget_enter(base, NULL));
    test_stall *stall = test_stall_begin(stream);
    for (size_t i = 0; i < ACCOUNTS; i++)
        test_free_on(fixture, &blocks[i], stream);
    assert_int_equal(all.falls, 0);
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(all.falls, ACCOUNTS);
    for (size_t i = 0; i < ACCOUNTS; i++) {
        assert_int_equal(usage_of(accounts[i]).in_use, 0);
        check_ok(strata_budget_account_close(accounts[i]));
    }
}

/* An error in the callback, and how it is reported. */
typedef struct failing_listener {
    unsigned calls, heard;
    strata_status last;
} failing_listener;

static void fail_a_call(strata_budget_account *account, bool above, size_t in_use, void *data)
{
    failing_listener *self = data;
    (void)account, (void)above, (void)in_use;
    self->calls++;
    strata_stack_create(NULL, 0, NULL);
    self->last = strata_last_error()->status;
}

static void count_invalid(const strata_error *error, void *data)
{
    ((failing_listener *)data)->heard += error->status == STRATA_ERROR_INVALID_VALUE;
}

/* The layer above suppresses errors of its call; the callback's own errors are reported. */
static void what_goes_wrong_in_a_marks_callback_is_heard_under_a_layer_that_tries(test_fixture *fixture)
{
    failing_listener self = {0};
    strata_runtime *runtime;
    strata_budget_account *account;
    strata_block block;
    const strata_budget_account_options options = {.soft.bytes = MIB, .soft_callback = fail_a_call, .soft_data = &self};
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "failure_callback, budget, null"}, &runtime));
    strata_budget_account *base = strata_budget_base(strata_stack_top(strata_runtime_stack(runtime))->upstream);
    check_ok(strata_budget_account_open(base, &options, &account));
    check_ok(strata_budget_enter(account, NULL));
    check_status(strata_runtime_create(&(strata_runtime_config){.stack_text = "nothing"}, &(strata_runtime *){0}),
                 STRATA_ERROR_SYNTAX);
    const strata_error before = *strata_last_error();
    strata_set_log_callback(count_invalid, &self);
    const strata_status status = strata_runtime_allocate(runtime, MIB, NULL, &block);
    strata_set_log_callback(NULL, NULL);
    check_ok(status);
    assert_int_equal(self.calls, 1);
    assert_int_equal(self.last, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.heard, 1);
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(account));
    check_ok(strata_runtime_destroy(runtime));
}

/* A stack text has a mark without a callback. */
static void a_mark_without_a_callback_changes_nothing(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=4MiB, soft=1MiB, wait=none), null");
    strata_block blocks[4], refused;
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < 4; i++)
            check_ok(try_allocate(fixture, MIB, NULL, &blocks[i]));
        check_status(try_allocate(fixture, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
        for (size_t i = 0; i < 4; i++)
            free_block(fixture, &blocks[i]);
        assert_int_equal(usage_of(account).in_use, 0);
        assert_int_equal(usage_of(account).peak, 4 * MIB);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_request_waits_for_frees_that_are_pending),
        TEST_CASE(a_charge_that_may_not_wait_waits_for_no_layer_below),
        TEST_CASE(a_request_can_wait_for_what_others_free),
        TEST_CASE(waiting_ends_with_its_time),
        TEST_CASE(what_never_fits_in_some_account_above_does_not_wait),
        TEST_CASE(a_request_that_waits_is_refused_when_the_limit_falls_below_it),
        TEST_CASE(a_request_may_wait_for_ever),
        TEST_CASE(the_soft_mark_notifies_once_until_the_low_one_was_passed),
        TEST_CASE(marks_of_any_number_of_accounts_are_notified),
        TEST_CASE(what_goes_wrong_in_a_marks_callback_is_heard_under_a_layer_that_tries),
        TEST_CASE(a_mark_without_a_callback_changes_nothing),
    };
    static const char *const stacks[] = {"async"};
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
