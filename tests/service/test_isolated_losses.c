/* The device service, isolated: workers that are lost, and those that come after them. */
#include "support/one_service.h"
#include "support/worker.h"

#include "service/isolated/process.h"

#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

static strata_service_options test_options = {.form = STRATA_SERVICE_ISOLATED, .worker_silence = TEST_LONG_SILENCE};

static int lost, made_ready;

static void count_event(strata_service *which, strata_service_event event, uint64_t generation, void *data)
{
    (void)which;
    (void)generation;
    (void)data;
    lost += event == STRATA_SERVICE_LOST;
    made_ready += event == STRATA_SERVICE_READY;
}

static void a_worker_that_is_killed_at_rest_is_replaced(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.notice = count_event;
    lost = made_ready = 0;
    strata_service *own = test_service_make(&options);
    strata_ref *ref = test_service_allocate(own, 64);
    strata_ref_memory memory;
    strata_generation_watch *watch;
    uint64_t changes;
    const uint64_t generation = test_generation(own);
    const pid_t worker = test_worker(own);
    check_ok(strata_generation_watch_create(strata_service_device_state(own), NULL, NULL, &watch));
    assert_true(worker > 0);
    assert_int_equal(kill(worker, SIGKILL), 0);
    test_wait_replaced(own, generation);
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    assert_int_equal(memory.stale, STRATA_STALE_CONTEXT_REBUILT);
    assert_int_equal(test_generation(own), generation + 1);
    check_ok(strata_generation_watch_take(watch, &changes));
    assert_int_equal(changes, 1);
    check_ok(strata_generation_watch_destroy(watch));
    assert_int_not_equal(test_worker(own), worker);
    check_ok(strata_ref_release(ref));
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
    assert_int_equal(lost, 1);
    assert_int_equal(made_ready, 2);
    assert_false(test_has_zombie());
}

static void what_a_killed_worker_had_begun_answers_poisoned_at_once(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    strata_service *own = test_service_make(&test_options);
    const uint64_t generation = test_generation(own);
    const pid_t worker = test_worker(own);
    strata_future *futures[COUNT];
    kill(worker, SIGSTOP);
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &futures[i]));
    test_wait_begun(own, COUNT);
    const uint64_t begun = test_clock();
    kill(worker, SIGKILL);
    for (int i = 0; i < COUNT; i++) {
        strata_answer answer;
        check_status(strata_future_wait(futures[i]), STRATA_ERROR_POISONED);
        check_ok(strata_future_take(futures[i], &answer));
        assert_int_equal(answer.failure, STRATA_FAILURE_POISONED);
        assert_true(answer.generation > generation);
        /* On a busy machine the socket is closed long before the process is over. */
        assert_true(strstr(answer.error->message, "killed by signal 9") ||
                    strstr(answer.error->message, "has closed its socket"));
        strata_future_release(futures[i]);
    }
    assert_true(test_clock() - begun < 5ull * TEST_SECOND);
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
}

/* The next worker counts its modules from the start. */
static void a_module_of_a_worker_that_has_ended_is_not_taken_for_another_one(void **state)
{
    (void)state;
    strata_service *own = test_service_make(&test_options);
    const uint64_t generation = test_generation(own), before = test_load_fill(own);
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    strata_ref *ref = test_service_allocate(own, 64);
    const strata_argument arguments[] = {{.kind = STRATA_ARGUMENT_WRITE, .ref = ref}, test_value(64), test_value(1)};
    strata_kernel kernel = {
        .module = before, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    strata_future *future;
    const uint64_t after = test_load_fill(own);
    assert_int_not_equal(after, before);
    check_ok(strata_service_launch(own, &kernel, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "it was loaded before the context was rebuilt, or never");
    strata_future_release(future);
    assert_true(test_ref_has(own, ref, 0));
    kernel.module = after;
    check_ok(strata_service_launch(own, &kernel, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_false(test_ref_has(own, ref, 0));
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
}

static void a_kernel_that_faults_costs_the_generation_and_not_the_service(void **state)
{
    (void)state;
    strata_service *own = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(own, 64);
    strata_ref_memory memory;
    const uint64_t generation = test_generation(own);
    strata_future *future = test_poison(own);
    strata_answer answer;
    check_status(strata_future_wait(future), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "the context is lost, and made again: make new references and modules");
    check_ok(strata_future_take(future, &answer));
    assert_int_equal(answer.status, STRATA_ERROR_DRIVER);
    assert_int_equal(answer.error->driver_code, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(answer.failure, STRATA_FAILURE_POISONED);
    strata_future_release(future);
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    assert_int_equal(test_generation(own), generation + 1);
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
}

/* Whether all was answered within a tenth of a second after the fault. */
static bool are_answered_at_once(strata_completion_mode mode)
{
    enum { BEHIND = 20 };
    strata_service_options options = test_options;
    options.completion = mode;
    strata_service *own = test_service_make(&options);
    strata_ref *ref = test_service_allocate(own, 64);
    strata_host_buffer *buffer = test_buffer(64, 1);
    strata_future *behind[BEHIND], *fault = test_poison(own);
    for (int i = 0; i < BEHIND; i++)
        if (strata_service_copy_from_host(own, buffer, ref, NULL, &behind[i]) != STRATA_SUCCESS)
            behind[i] = NULL; /* it is known already */
    strata_future_wait(fault);
    const uint64_t told = test_clock();
    for (int i = 0; i < BEHIND; i++)
        if (behind[i])
            strata_host_buffer_release(test_take(behind[i]).buffer);
    const uint64_t took = test_clock() - told;
    assert_int_equal(test_take(fault).failure, STRATA_FAILURE_POISONED);
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
    return took < test_long_enough(100000000);
}

/* In each way of completion: a context in error runs no host function. On a busy machine a thread may not run for
 * longer than that; what waits for something else than the fault takes longer each time. */
static void what_is_behind_a_kernel_that_faults_is_answered_at_once(void **state)
{
    (void)state;
    for (int mode = STRATA_COMPLETION_POLLING; mode <= STRATA_COMPLETION_SYNCHRONIZING; mode++) {
        bool at_once = false;
        for (int tries = 0; tries < 5 && !at_once; tries++)
            at_once = are_answered_at_once((strata_completion_mode)mode);
        assert_true(at_once);
    }
}

static void a_worker_that_stops_answering_is_replaced(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.worker_silence =
        (test_under_valgrind() ? 6ull : 2ull) * TEST_SECOND; /* a busy machine's next worker answers */
    strata_service *own = test_service_make(&options);
    const pid_t worker = test_worker(own);
    strata_future *future;
    kill(worker, SIGSTOP);
    const uint64_t begun = test_clock();
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, "has said nothing for ");
    assert_true(test_clock() - begun >= 1900000000);
    strata_future_release(future);
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
    assert_false(test_has_zombie());
}

static void a_worker_at_rest_is_not_asked(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.worker_silence = 50000000;
    strata_service *own = test_service_make(&options);
    const uint64_t generation = test_generation(own);
    test_sleep_ms(300);
    assert_int_equal(test_generation(own), generation);
    check_ok(strata_service_destroy(own));
}

static void too_many_losses_stop_the_service(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.rebuild_limit = 1;
    strata_service *own = test_service_make(&options);
    const uint64_t generation = test_generation(own);
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    kill(test_worker(own), SIGKILL);
    for (int i = 0; i < 2000 && strata_service_stopped(own) == STRATA_SUCCESS; i++)
        test_sleep_ms(5);
    check_status(strata_service_stopped(own), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, "rebuilt 1 times");
    check_status(strata_service_allocate(own, STRATA_ELEMENT_U8, 1, NULL, NULL), STRATA_ERROR_POISONED);
    check_ok(strata_service_destroy(own));
}

static void three_losses_in_a_minute_are_survived_by_default(void **state)
{
    (void)state;
    enum { SURVIVED = 3 };
    strata_service *own = test_service_make(&test_options);
    for (int i = 0; i < SURVIVED; i++) {
        const uint64_t generation = test_generation(own);
        kill(test_worker(own), SIGKILL);
        test_wait_replaced(own, generation);
        check_ok(strata_ref_release(test_service_allocate(own, 64)));
    }
    kill(test_worker(own), SIGKILL);
    for (int i = 0; i < 2000 && strata_service_stopped(own) == STRATA_SUCCESS; i++)
        test_sleep_ms(5);
    check_status(strata_service_stopped(own), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, "rebuilt 3 times within 60 s");
    check_ok(strata_service_destroy(own));
}

/* A service that is ready, whose worker was killed and whose next ones end at once. */
static strata_service *lose_worker_for_good(const strata_service_options *options)
{
    strata_service *own = test_service_make(options);
    const uint64_t generation = test_generation(own);
    setenv("STRATA_WORKER", "/bin/true", 1); /* it is read for each start */
    kill(test_worker(own), SIGKILL);
    for (int i = 0; i < 20000 && test_generation(own) == generation; i++)
        test_sleep_ms(1);
    assert_int_not_equal(test_generation(own), generation);
    return own;
}

static void take_back_worker(char *before)
{
    if (before)
        setenv("STRATA_WORKER", before, 1);
    else
        unsetenv("STRATA_WORKER");
    free(before);
}

static char *copy_worker(void)
{
    const char *now = getenv("STRATA_WORKER");
    return now ? strdup(now) : NULL;
}

static void a_worker_that_cannot_be_replaced_stops_the_service_after_three_attempts(void **state)
{
    (void)state;
    static const char words[] = "no context could be made in 3 attempts",
                      last[] = "exited with status 0 when it started";
    char *before = copy_worker();
    strata_service *own = lose_worker_for_good(&test_options);
    strata_future *future = NULL;
    if (strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &future) ==
        STRATA_SUCCESS) /* waits, without a limit */
        check_status(strata_future_wait_for(future, 20ull * TEST_SECOND), STRATA_ERROR_POISONED);
    strata_future_release(future);
    check_status(strata_service_wait_ready(own, 20ull * TEST_SECOND), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, words);
    check_last_error(STRATA_ERROR_POISONED, last);
    check_status(strata_service_stopped(own), STRATA_ERROR_POISONED);
    check_status(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, NULL), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, last);
    check_ok(strata_service_destroy(own));
    take_back_worker(before);
    assert_false(test_has_zombie());
}

static void while_a_worker_cannot_be_replaced_a_timeout_says_why(void **state)
{
    (void)state;
    static const char last[] = "exited with status 0 when it started";
    const strata_send_options send = {.timeout = 1000000};
    strata_service_options options = test_options;
    options.rebuild_limit = 64; /* 64 attempts take longer than this */
    char *before = copy_worker();
    strata_service *own = lose_worker_for_good(&options);
    strata_future *future;
    for (int i = 0; i < 1000; i++) { /* until an attempt has failed */
        check_status(strata_service_wait_ready(own, 10000000), STRATA_ERROR_TIMEOUT);
        if (strstr(strata_last_error()->message, last))
            break;
    }
    check_last_error(STRATA_ERROR_TIMEOUT, "no context yet; the last failure: ");
    check_last_error(STRATA_ERROR_TIMEOUT, last);
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, &send, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_TIMEOUT);
    check_last_error(STRATA_ERROR_TIMEOUT,
                     "before it began: the device service has no context yet; the last failure: ");
    check_last_error(STRATA_ERROR_TIMEOUT, last);
    strata_future_release(future);
    check_ok(strata_service_destroy(own));
    take_back_worker(before);
    assert_false(test_has_zombie());
}

/* While there is no worker, requests wait, and can be cancelled. */
static void a_request_that_waits_for_a_worker_can_be_cancelled(void **state)
{
    (void)state;
    char *before = copy_worker();
    strata_service_options options = test_options;
    options.rebuild_limit = 64;
    strata_service *own = lose_worker_for_good(&options);
    strata_future *cancelled, *limited;
    const strata_send_options send = {.timeout = 1000000};
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &cancelled));
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, &send, &limited));
    check_ok(strata_future_cancel(cancelled));
    assert_int_equal(test_take(cancelled).status, STRATA_ERROR_CANCELLED);
    assert_int_equal(test_take(limited).status, STRATA_ERROR_TIMEOUT);
    take_back_worker(before);
    check_ok(strata_service_wait_ready(own, 60ull * TEST_SECOND));
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
}

/* Until an attempt has failed, and says so. */
static void await_failure(strata_service *own, const char *words)
{
    for (int i = 0; i < 1000; i++) {
        check_status(strata_service_wait_ready(own, 10000000), STRATA_ERROR_TIMEOUT);
        if (strstr(strata_last_error()->message, words))
            break;
    }
    check_last_error(STRATA_ERROR_TIMEOUT, words);
}

static void set_descriptor_limit(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* What waits is done when the shortage is over. */
static void a_shortage_of_descriptors_is_said_and_the_service_goes_on_after_it(void **state)
{
    (void)state;
    struct rlimit limit;
    strata_service_options options = test_options;
    if (test_under_valgrind())
        skip();                 /* it keeps the limit itself, for some calls */
    options.rebuild_limit = 64; /* three attempts would be over in three seconds */
    strata_service *own = test_service_make(&options);
    const uint64_t generation = test_generation(own);
    strata_future *future;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    set_descriptor_limit(3);
    kill(test_worker(own), SIGKILL);
    while (test_generation(own) == generation)
        test_sleep_ms(1);
    const strata_status sent = strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &future);
    await_failure(
        own, "a worker has no socket: socketpair: Too many open files; close some, or raise the limit (ulimit -n)");
    set_descriptor_limit(limit.rlim_cur);
    check_ok(sent);
    check_ok(strata_future_wait(future));
    strata_answer answer;
    check_ok(strata_future_take(future, &answer));
    strata_future_release(future);
    check_ok(strata_ref_release(answer.ref));
    check_ok(strata_service_destroy(own));
}

/* A worker that has `most` descriptors at most, or if the file is gone as many as this program. */
static void make_short_worker(char *script, size_t room, const char *file, unsigned most)
{
    char program[PATH_MAX];
    check_ok(isolated_program_find(NULL, program, sizeof program));
    snprintf(script, room, "%s.sh", file);
    FILE *out = fopen(script, "we");
    assert_non_null(out);
    fprintf(out, "#!/bin/sh\n[ ! -e '%s' ] || ulimit -S -n %u\nexec '%s' \"$@\"\n", file, most, program);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(script, 0700), 0);
}

static void a_worker_without_descriptors_for_the_driver_says_so_and_the_next_one_works(void **state)
{
    (void)state;
    char file[] = "/tmp/strata-test-XXXXXX", script[64];
    strata_service_options options = test_options;
    if (test_under_valgrind())
        skip();
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    unlink(file);
    make_short_worker(script, sizeof script, file, 5); /* what the worker has itself, and none for the driver */
    options.worker = script;
    options.rebuild_limit = 64; /* as above */
    strata_service *own = test_service_make(&options);
    const uint64_t generation = test_generation(own);
    const int mark = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(mark >= 0);
    kill(test_worker(own), SIGKILL);
    while (test_generation(own) == generation)
        test_sleep_ms(1);
    await_failure(own, "no file descriptor is left");
    unlink(file);
    check_ok(strata_service_wait_ready(own, 20ull * TEST_SECOND));
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
    unlink(script);
    close(fd);
    close(mark);
}

static void a_buffer_of_the_service_works_with_the_next_worker(void **state)
{
    (void)state;
    strata_service *own = test_service_make(&test_options);
    strata_host_buffer *buffer;
    strata_ref *ref = test_service_allocate(own, 5000);
    const uint64_t generation = test_generation(own);
    check_ok(strata_service_buffer_create(own, 5000, &buffer));
    check_ok(test_copy(own, ref, buffer, false));
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    check_ok(strata_ref_release(ref));
    test_fill_pattern(buffer, 9);
    ref = test_service_allocate(own, 5000);
    check_ok(test_copy(own, ref, buffer, false));
    memset(strata_host_buffer_memory(buffer), 0, 5000);
    check_ok(test_copy(own, ref, buffer, true));
    assert_true(test_has_pattern(buffer, 0, 9));
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
    assert_true(test_has_pattern(buffer, 0, 9)); /* it outlives its service */
    strata_host_buffer_release(buffer);
}

int main(void)
{
    if (!test_has_worker(&test_options))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_is_killed_at_rest_is_replaced),
        cmocka_unit_test(what_a_killed_worker_had_begun_answers_poisoned_at_once),
        cmocka_unit_test(a_module_of_a_worker_that_has_ended_is_not_taken_for_another_one),
        cmocka_unit_test(a_kernel_that_faults_costs_the_generation_and_not_the_service),
        cmocka_unit_test(what_is_behind_a_kernel_that_faults_is_answered_at_once),
        cmocka_unit_test(a_worker_that_stops_answering_is_replaced),
        cmocka_unit_test(a_worker_at_rest_is_not_asked),
        cmocka_unit_test(too_many_losses_stop_the_service),
        cmocka_unit_test(three_losses_in_a_minute_are_survived_by_default),
        cmocka_unit_test(a_worker_that_cannot_be_replaced_stops_the_service_after_three_attempts),
        cmocka_unit_test(while_a_worker_cannot_be_replaced_a_timeout_says_why),
        cmocka_unit_test(a_request_that_waits_for_a_worker_can_be_cancelled),
        cmocka_unit_test(a_shortage_of_descriptors_is_said_and_the_service_goes_on_after_it),
        cmocka_unit_test(a_worker_without_descriptors_for_the_driver_says_so_and_the_next_one_works),
        cmocka_unit_test(a_buffer_of_the_service_works_with_the_next_worker),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
