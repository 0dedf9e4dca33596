/* Threads that are to be ended by pthread_cancel: what they call returns, and leaves no lock taken. */
#define _GNU_SOURCE
#include "support/driver.h"

#include <strata/strata.h>

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20, HALF = 40 << 20 /* more than half of the budgets */, PATIENCE = 60 /* s */ };

static strata_runtime *runtime;
static CUstream stream;
static char folder[] = "/tmp/strata-cancelled-XXXXXX"; /* of logs, and of the shared budget's file */
static char first_log[64], later_logs[128];

static void allocate(void)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, SIZE, stream, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
}

static void be_refused(void)
{
    strata_block first, second;
    check_ok(strata_runtime_allocate(runtime, HALF, stream, &first));
    assert_int_equal(strata_runtime_allocate(runtime, HALF, stream, &second), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_runtime_deallocate(runtime, &first));
}

static void be_refused_a_reservation(void)
{
    strata_budget_account *account = strata_budget_base(strata_stack_layer(strata_runtime_stack(runtime), "budget", 0));
    strata_budget_account *first, *second;
    check_ok(strata_budget_reserve(account, HALF, NULL, &first));
    assert_int_equal(strata_budget_reserve(account, HALF, NULL, &second), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_budget_account_close(first));
}

static unsigned crossings;

static void count_a_crossing(strata_budget_account *account, bool above, size_t in_use, void *data)
{
    (void)account, (void)above, (void)in_use, (void)data;
    crossings++;
    pthread_testcancel(); /* as where it writes to a log */
}

static void cross_a_mark(void)
{
    const strata_budget_account_options options = {.soft.bytes = SIZE, .soft_callback = count_a_crossing};
    strata_budget_account *base = strata_budget_base(strata_stack_layer(strata_runtime_stack(runtime), "budget", 0));
    strata_budget_account *account;
    strata_block block;
    const unsigned before = crossings;
    check_ok(strata_budget_account_open(base, &options, &account));
    check_ok(strata_budget_enter(account, NULL));
    check_ok(strata_runtime_allocate(runtime, 2 * SIZE, stream, &block));
    assert_int_equal(crossings, before + 1);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(crossings, before + 2);
    check_ok(strata_budget_account_close(account));
}

static bool have_no_room(const strata_request *request, const strata_error *why, void *data)
{
    (void)request, (void)why, (void)data;
    pthread_testcancel();
    return false;
}

/* With the request counted by the budget above. */
static void be_refused_below(strata_resource **layers, size_t count)
{
    strata_stack *stack;
    strata_block block;
    strata_budget_usage usage;
    check_ok(strata_budget_create(0, NULL, &layers[0]));
    check_ok(strata_pool_create(0, &(strata_pool_options){.max_size = SIZE}, &layers[count - 1]));
    check_ok(strata_stack_build(layers, count, 0, &stack));
    const strata_request request = {.bytes = HALF, .stream = stream};
    assert_int_equal(strata_resource_allocate(strata_stack_top(stack), &request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(strata_budget_account_usage(strata_budget_base(layers[0]), &usage));
    assert_int_equal(usage.in_use, 0);
    check_ok(strata_stack_destroy(stack));
}

static void ask_for_room(void)
{
    const strata_failure_callback_options options = {.callback = have_no_room};
    strata_resource *layers[3];
    check_ok(strata_failure_callback_create(&options, &layers[1]));
    be_refused_below(layers, 3);
}

static void log_an_error(const strata_error *error, void *data)
{
    (void)error, (void)data;
    pthread_testcancel(); /* as where it writes to a file */
}

static void hear_of_an_error(void)
{
    strata_resource *layers[2];
    strata_set_log_callback(log_an_error, NULL);
    be_refused_below(layers, 2);
    strata_set_log_callback(NULL, NULL);
}

static void end_at_a_finding(const strata_guard_finding *finding, void *data)
{
    (void)finding, (void)data;
    pthread_testcancel();
}

/* A free that the guard refuses. */
static void hear_of_a_finding(void)
{
    const strata_guard_options options = {.on_finding = STRATA_GUARD_REPORT, .on_finding_call = end_at_a_finding};
    strata_resource *layers[2];
    strata_stack *stack;
    strata_block block;
    check_ok(strata_guard_create(0, &options, &layers[0]));
    check_ok(strata_pool_create(0, NULL, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    const strata_request request = {.bytes = SIZE, .stream = stream};
    check_ok(strata_resource_allocate(strata_stack_top(stack), &request, &block));
    check_ok(strata_resource_deallocate(strata_stack_top(stack), &block, stream));
    assert_int_equal(strata_resource_deallocate(strata_stack_top(stack), &block, stream), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_stack_destroy(stack));
}

static void flush(void)
{
    strata_resource *logging = strata_stack_layer(strata_runtime_stack(runtime), "logging", 0);
    if (logging)
        check_ok(strata_logging_flush(logging));
}

static void make_a_runtime(void)
{
    const strata_runtime_config config = {.size = sizeof config, .stack_text = later_logs};
    strata_runtime *made;
    check_ok(strata_runtime_create(&config, &made));
    check_ok(strata_runtime_destroy(made));
}

static void abandon_a_runtime(void)
{
    const strata_runtime_config config = {.size = sizeof config, .stack_text = later_logs};
    strata_runtime *made;
    CUstream pooled;
    strata_ref *ref;
    check_ok(strata_runtime_create(&config, &made));
    check_ok(strata_runtime_stream_acquire(made, &pooled));
    check_ok(strata_runtime_stream_release(made, pooled));
    check_ok(strata_ref_allocate(made, STRATA_ELEMENT_U8, SIZE, false, NULL, &ref));
    check_ok(strata_runtime_abandon(made));
    check_ok(strata_ref_release(ref));
}

static void bump_the_generation(void)
{
    strata_device_state *state = strata_runtime_device_state(runtime);
    strata_generation_watch *watch;
    check_ok(strata_generation_watch_create(state, NULL, NULL, &watch));
    check_ok(strata_device_state_bump_generation(state, NULL));
    check_ok(strata_generation_watch_destroy(watch));
}

static void use_futures(strata_service *service)
{
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, SIZE, NULL, &future));
    check_ok(strata_future_wait(future));
    assert_true(strata_future_fd(future) >= 0); /* which is rung at once */
    strata_future_release(future);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, SIZE, NULL, &future));
    assert_true(strata_future_fd(future) >= 0);
    strata_future_cancel(future); /* unless it has begun */
    const strata_status status = strata_future_wait(future);
    assert_true(status == STRATA_SUCCESS || status == STRATA_ERROR_CANCELLED);
    strata_future_release(future);
}

static void make_a_service(void)
{
    const strata_service_options options = {.stack_text = "pool"};
    strata_service *service;
    check_ok(strata_service_create(&options, &service));
    use_futures(service); /* the first before there is a context */
    check_ok(strata_service_wait_ready(service, UINT64_MAX));
    use_futures(service);
    check_ok(strata_service_destroy(service));
}

/* A GPU's driver may end a thread in the middle of its own calls, and then keeps its locks. */
static const struct {
    void (*call)(void);
    bool asks_driver;
} calls[] = {
    {allocate, false},       {be_refused, false},       {be_refused_a_reservation, false}, {flush, false},
    {cross_a_mark, true},    {ask_for_room, true},      {hear_of_an_error, true},          {hear_of_a_finding, true},
    {make_a_runtime, false}, {abandon_a_runtime, true}, {bump_the_generation, false},      {make_a_service, false},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

typedef struct caller {
    void (*call)(void);
    bool ends; /* it is to be ended */
    bool returned;
} caller;

static void *call(void *data)
{
    caller *self = data;
    if (self->ends)
        pthread_cancel(pthread_self());
    self->call();
    self->returned = true;
    return NULL;
}

static bool returns(void (*function)(void), bool ends)
{
    caller self = {function, ends, false};
    struct timespec end;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    assert_int_equal(pthread_create(&thread, NULL, call, &self), 0);
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        fprintf(stderr, "a call does not return\n");
        _exit(1); /* what it waits for would keep the other tests, too */
    }
    return self.returned;
}

static void check_stack(const char *text)
{
    const strata_runtime_config config = {.size = sizeof config, .stack_text = text};
    check_ok(strata_runtime_create(&config, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    for (size_t i = 0; i < CALLS; i++) {
        if (test_on_simulated_driver() || !calls[i].asks_driver)
            assert_true(returns(calls[i].call, true));
        assert_true(returns(calls[i].call, false));
    }
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

static void threads_that_wait_in_a_budget_return(void **state)
{
    (void)state;
    check_stack("budget(limit=64MiB, wait=live, timeout=50ms), pool");
}

/* Not over async: a thread may be ended in the middle of cuMemAllocAsync, whose locks a GPU's driver then keeps. */
static void threads_that_share_a_budget_return(void **state)
{
    (void)state;
    check_stack("budget(limit=64MiB, shared=cancelled), pool");
}

static void threads_that_record_return(void **state)
{
    (void)state;
    char text[256];
    snprintf(text, sizeof text, "budget(limit=64MiB), logging(file=%s), statistics(stacks=on), pool", first_log);
    check_stack(text);
}

static int find_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || setenv("STRATA_SHARED_DIR", folder, 1) != 0)
        return -1;
    snprintf(first_log, sizeof first_log, "%s/first.slog", folder);
    snprintf(later_logs, sizeof later_logs, "logging(file=%s/later.slog, existing=replace), pool", folder);
    return 0;
}

static int remove_file(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts, (void)kind, (void)place;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_file, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_wait_in_a_budget_return),
        cmocka_unit_test(threads_that_share_a_budget_return),
        cmocka_unit_test(threads_that_record_return),
    };
    return cmocka_run_group_tests(tests, find_folder, remove_folder);
}
