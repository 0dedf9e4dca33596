/* What a guard says of a process that exits without having ended its stack: each case has a process of its own, whose
 * output, standard error included, is read when it is over. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver/kernels/kernels.h"
#include "support/captures.h"
#include "support/child.h"
#include "support/effort.h"

/* ---- in the child ---- */

static strata_runtime *runtime; /* never ended */

static void say_line(const char *line)
{
    child_check(write(STDERR_FILENO, line, strlen(line)) == (ssize_t)strlen(line));
}

static void log_error(const strata_error *error, void *data)
{
    (void)data;
    say_line("log: ");
    say_line(error->message);
    say_line("\n");
}

/* Both streams go to the file, as they would to a terminal's; stdout is buffered. */
static void open_driver(void)
{
    int file = open(getenv("STRATA_TEST_REPORT"), O_WRONLY | O_APPEND);
    child_check(file >= 0 && dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    test_open_driver_quietly();
}

static void get_runtime(void)
{
    strata_set_log_callback(log_error, NULL);
    child_ok(strata_runtime_get(0, &runtime));
}

static void begin(void)
{
    open_driver();
    get_runtime();
}

static strata_block allocate(strata_runtime *from)
{
    strata_block block;
    child_ok(strata_runtime_allocate(from, 100, NULL, &block));
    return block;
}

/* Writes so many bytes of a block and past it. */
static void write_block(strata_runtime *of, const strata_block *block, size_t bytes)
{
    child_ok(strata_runtime_prepare_block_use(of, block, NULL, STRATA_ACCESS_WRITE));
    child_check(test_cu()->MemsetD8Async(block->address, 1, bytes, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(of, block, NULL, STRATA_ACCESS_WRITE));
}

static void overrun(strata_runtime *of)
{
    strata_block block = allocate(of);
    write_block(of, &block, 101);
}

static void a_live_block_is_overrun(void)
{
    begin();
    overrun(runtime);
}

static void a_freed_block_is_written(void)
{
    begin();
    strata_block block = allocate(runtime);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_check(test_cu()->MemsetD8Async(block.address + 8, 1, 1, NULL) == CUDA_SUCCESS);
}

static void nothing_is_wrong(void)
{
    begin();
    strata_block block = allocate(runtime), freed = allocate(runtime);
    write_block(runtime, &block, 100);
    write_block(runtime, &freed, 100);
    child_ok(strata_runtime_deallocate(runtime, &freed));
}

static void a_private_runtime_was_not_ended(void)
{
    begin();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    overrun(runtime);
}

/* Its callback's data would be on a stack that is gone. */
static void never_called(const strata_guard_finding *finding, void *data)
{
    (void)finding, (void)data;
    say_line("called back\n");
}

static void a_stack_was_made_by_hand(void)
{
    strata_resource *layers[2];
    strata_stack *stack;
    begin();
    child_ok(strata_guard_create(0, &(strata_guard_options){.on_finding_call = never_called, .no_debuggers = 1},
                                 &layers[0]));
    child_ok(strata_async_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    overrun(runtime);
}

static void a_stack_was_ended(void)
{
    strata_runtime *own;
    begin();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &own));
    strata_block block = allocate(own);
    child_ok(strata_runtime_deallocate(own, &block));
    child_ok(strata_runtime_destroy(own));
}

static void overrun_in_handler(void)
{
    overrun(runtime);
}

/* Registered before the driver was opened, it runs when that has shut down. */
static void take_finding(void)
{
    strata_guard_finding finding;
    child_status(strata_runtime_allocate(runtime, 1, NULL, &(strata_block){0}), STRATA_ERROR_SHUT_DOWN);
    child_check(strata_guard_take_finding(strata_stack_top(strata_runtime_stack(runtime)), &finding));
    child_check(finding.kind == STRATA_GUARD_OVERRUN);
    say_line("taken\n");
}

static void handlers_overrun_and_take_what_was_found(void)
{
    child_check(atexit(take_finding) == 0);
    begin();
    child_check(atexit(overrun_in_handler) == 0);
    printf("said before the exit");
}

static void a_forked_child_exits(void)
{
    begin();
    overrun(runtime);
    pid_t forked = fork();
    if (forked == 0)
        exit(7);
    int status;
    child_check(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    say_line("forked\n");
    _exit(0);
}

static CUstream other;
static strata_stack *own_stack;

static void end_own_stack(void)
{
    child_ok(strata_stack_destroy(own_stack));
    say_line("the stack is ended\n");
}

static void make_a_guard(void)
{
    static strata_stack *stack;
    /* The driver loads no kernel while a stream waits for a value (docs/measurements.md). */
    child_ok(strata_stack_create("guard(debuggers=off, kernel=off), async", 0, &stack));
    say_line("a guard is made\n");
}

/* A block's use waits for a flag that is never set. */
static void the_device_does_not_end(void)
{
    uint32_t *flag;
    CUdeviceptr address;
    child_check(atexit(end_own_stack) == 0);
    open_driver();
    child_check(atexit(make_a_guard) == 0); /* it runs after the look, while the driver lives */
    get_runtime();
    child_ok(strata_stack_create("guard(debuggers=off), async", 0, &own_stack));
    child_check(test_cu()->MemHostAlloc((void **)&flag, sizeof *flag, 0) == CUDA_SUCCESS);
    *flag = 0;
    address = (CUdeviceptr)(uintptr_t)flag;
    overrun(runtime);
    child_check(test_cu()->StreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(runtime, other));
    strata_block block;
    child_ok(strata_runtime_allocate(runtime, 100, other, &block));
    child_ok(strata_runtime_prepare_block_use(runtime, &block, other, STRATA_ACCESS_WRITE));
    CUresult (*wait_for_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    test_find_driver_call("cuStreamWaitValue32", 11070, &wait_for_value);
    child_check(wait_for_value(other, address, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(runtime, &block, other, STRATA_ACCESS_WRITE));
}

/* An unknown stream waits for a flag that is never set; a block has an overrun. */
static void the_device_does_something_else_for_ever(void)
{
    uint32_t *flag;
    CUresult (*wait_for_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    begin();
    overrun(runtime);
    child_check(test_cu()->StreamSynchronize(NULL) == CUDA_SUCCESS);
    child_check(test_cu()->MemHostAlloc((void **)&flag, sizeof *flag, 0) == CUDA_SUCCESS);
    *flag = 0;
    child_check(test_cu()->StreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    test_find_driver_call("cuStreamWaitValue32", 11070, &wait_for_value);
    child_check(wait_for_value(other, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
}

static void a_stream_is_captured(void)
{
    begin();
    overrun(runtime);
    child_check(test_cu()->StreamSynchronize(NULL) == CUDA_SUCCESS);
    child_check(test_cu()->StreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    test_begin_capture(other);
}

static void the_context_is_gone(void)
{
    CUdevice device;
    begin();
    overrun(runtime);
    child_check(test_cu()->StreamSynchronize(NULL) == CUDA_SUCCESS);
    child_check(test_cu()->DeviceGet(&device, 0) == CUDA_SUCCESS);
    CUresult (*reset)(CUdevice);
    test_find_driver_call("cuDevicePrimaryCtxReset", 11000, &reset);
    child_check(reset(device) == CUDA_SUCCESS);
}

static void exit_at_once(const strata_error *error, void *data)
{
    static bool exits;
    log_error(error, data);
    if (exits)
        return;
    exits = true;
    exit(5);
}

static void the_log_callback_exits(void)
{
    begin();
    overrun(runtime);
    strata_set_log_callback(exit_at_once, NULL);
    strata_runtime_destroy(runtime);
    child_check(false); /* not reached */
}

static void *hold_stdout(void *data)
{
    flockfile(stdout);
    pthread_barrier_wait(data);
    for (;;)
        pause();
    return NULL;
}

static void a_thread_keeps_stdout(void)
{
    static pthread_barrier_t held;
    pthread_t thread;
    begin();
    overrun(runtime);
    child_check(pthread_barrier_init(&held, NULL, 2) == 0);
    child_check(pthread_create(&thread, NULL, hold_stdout, &held) == 0);
    pthread_barrier_wait(&held);
}

/* The program does not notice. */
static void the_device_was_stopped(void)
{
    begin();
    strata_block block = allocate(runtime);
    child_check(strata_kernel_pattern_fill(block.address, 1000, 1, NULL) == CUDA_SUCCESS);
}

static const test_scenario scenarios[] = {
    TEST_SCENARIO(a_live_block_is_overrun),
    TEST_SCENARIO(a_freed_block_is_written),
    TEST_SCENARIO(nothing_is_wrong),
    TEST_SCENARIO(a_private_runtime_was_not_ended),
    TEST_SCENARIO(a_stack_was_made_by_hand),
    TEST_SCENARIO(a_stack_was_ended),
    TEST_SCENARIO(handlers_overrun_and_take_what_was_found),
    TEST_SCENARIO(a_forked_child_exits),
    TEST_SCENARIO(the_device_does_not_end),
    TEST_SCENARIO(the_device_does_something_else_for_ever),
    TEST_SCENARIO(a_stream_is_captured),
    TEST_SCENARIO(the_context_is_gone),
    TEST_SCENARIO(the_log_callback_exits),
    TEST_SCENARIO(a_thread_keeps_stdout),
    TEST_SCENARIO(the_device_was_stopped),
};

/* ---- in the parent ---- */

static char said[65536]; /* by the child */

static const char *const a_check = "STRATA_SIM_CHECK", *const its_exit = "STRATA_SIM_CHECK_EXIT";

/* `policy` is a change of the environment, or NULL. */
static int run_under(const char *policy, const char *scenario, const char *stack)
{
    char path[] = "/tmp/strata-guard-XXXXXX", report[64], environment[128];
    int file = mkstemp(path);
    assert_true(file >= 0);
    snprintf(report, sizeof report, "STRATA_TEST_REPORT=%s", path);
    snprintf(environment, sizeof environment, "STRATA_STACK=%s", stack);
    /* The checker would report the bugs themselves. */
    int status =
        test_child_status(scenario, (const char *const[]){report, environment, a_check, its_exit, policy, NULL});
    ssize_t length = read(file, said, sizeof said - 1);
    close(file);
    unlink(path);
    assert_true(length >= 0);
    said[length] = '\0';
    return status;
}

static int run(const char *scenario, const char *stack)
{
    return run_under(NULL, scenario, stack);
}

static void expect_said(const char *words)
{
    if (!strstr(said, words))
        fail_msg("expected \"%s\" in:\n%s", words, said);
}

static void expect_silence(void)
{
    if (*said)
        fail_msg("expected nothing and not:\n%s", said);
}

static size_t times_said(const char *words)
{
    size_t times = 0;
    for (const char *at = said; (at = strstr(at, words)); at++)
        times++;
    return times;
}

#define GUARD "guard(debuggers=off), async"
#define ENDS  "guard(debuggers=off, on_finding=exit), async"

static void what_lives_and_what_was_freed_is_looked_at_when_the_process_exits(void **state)
{
    (void)state;
    assert_int_equal(run("a_live_block_is_overrun", GUARD), 0);
    expect_said("log: overrun: 1 byte changed at offset 100, 0 past the end");
    assert_int_equal(times_said("\n"), 1);
    assert_int_equal(run("a_live_block_is_overrun", "guard(debuggers=off, kernel=off), async"), 0);
    assert_int_equal(times_said("log: overrun: "), 1);
    assert_int_equal(run("a_freed_block_is_written", GUARD), 0);
    expect_said("log: write after free: 1 byte changed at offset 8");
    assert_int_equal(times_said("\n"), 1);
}

static void where_nothing_is_wrong_nothing_is_said(void **state)
{
    (void)state;
    assert_int_equal(run("nothing_is_wrong", GUARD), 0);
    expect_silence();
    assert_int_equal(run("nothing_is_wrong", ENDS), 0);
    expect_silence();
    assert_int_equal(run("a_stack_was_ended", "async"), 0);
    expect_silence();
    assert_int_equal(run("nothing_is_wrong", "guard(sample=1, on_finding=exit), async"), 0);
    expect_silence();
}

static void stacks_of_texts_are_looked_at_and_those_made_by_hand_are_not(void **state)
{
    (void)state;
    assert_int_equal(run("a_private_runtime_was_not_ended", "async"), 0);
    assert_int_equal(times_said("log: overrun: "), 1);
    assert_int_equal(run("a_live_block_is_overrun", "guard(debuggers=off), guard(debuggers=off), async"), 0);
    assert_int_equal(times_said("log: overrun: "), 1);
    assert_int_equal(run("a_stack_was_made_by_hand", "async"), 0);
    expect_silence();
}

static void with_on_finding_exit_the_status_says_so_and_nothing_else_is_lost(void **state)
{
    (void)state;
    assert_int_equal(run("handlers_overrun_and_take_what_was_found", "statistics(leaks=log), " ENDS),
                     STRATA_GUARD_EXIT_STATUS);
    expect_said("guard: overrun: block 0x");
    expect_said("allocated at\n");
    expect_said("taken\n");
    expect_said("log: statistics: 1 live block, 100 bytes");
    expect_said("said before the exit");
    assert_int_equal(times_said("guard: overrun: "), 1);
}

static void handlers_that_run_before_the_driver_ends_come_before_the_look(void **state)
{
    (void)state;
    assert_int_equal(run("handlers_overrun_and_take_what_was_found", GUARD), 0);
    assert_int_equal(times_said("log: overrun: "), 1);
    expect_said("taken\n");
    expect_said("said before the exit");
}

static void a_forked_child_does_not_look(void **state)
{
    (void)state;
    assert_int_equal(run("a_forked_child_exits", ENDS), 0);
    assert_string_equal(said, "forked\n");
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void a_device_that_does_not_end_is_waited_for_two_seconds(void **state)
{
    (void)state;
    double before = seconds();
    assert_int_equal(run("the_device_does_not_end", GUARD), 0);
    assert_true(seconds() - before < test_timeout(15));
    expect_said("log: guard: the checks at exit were not complete within 2 s");
    expect_said("a guard is made\n");
    expect_said("the stack is ended\n");
}

static void what_can_be_seen_is_told_though_the_device_does_something_else_for_ever(void **state)
{
    (void)state;
    assert_int_equal(run("the_device_does_something_else_for_ever", ENDS), STRATA_GUARD_EXIT_STATUS);
    expect_said("guard: overrun: block 0x");
    expect_said("log: guard: the checks at exit were not complete within 2 s");
    assert_int_equal(times_said("guard: overrun: "), 1);
}

static void where_a_stream_is_captured_that_is_said_and_what_can_be_seen_told(void **state)
{
    (void)state;
    assert_int_equal(run("a_stream_is_captured", GUARD), 0);
    expect_said("log: overrun: 1 byte changed at offset 100, 0 past the end");
    expect_said("log: guard: a stream of device 0 is being captured");
    assert_int_equal(times_said("\n"), 2);
}

static void a_context_that_is_gone_is_left_alone(void **state)
{
    (void)state;
    test_needs_simulated_driver("the context of the whole process is ended");
    assert_int_equal(run("the_context_is_gone", ENDS), 0);
    expect_silence();
}

static void an_exit_from_the_log_callback_is_no_look(void **state)
{
    (void)state;
    assert_int_equal(run("the_log_callback_exits", ENDS), 5);
    expect_said("log: the runtime of a device lives until the process ends");
    assert_int_equal(times_said("\n"), 1);
}

static void a_stream_that_a_thread_keeps_does_not_keep_the_process(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer flushes the streams itself when the process ends\n");
    skip();
#endif
    if (test_under_valgrind()) {
        print_message("skipped: Valgrind frees what the C library keeps, streams first, when the process ends\n");
        skip();
    }
    assert_int_equal(run("a_thread_keeps_stdout", ENDS), STRATA_GUARD_EXIT_STATUS);
    expect_said("guard: overrun: block 0x");
}

static void a_device_that_was_stopped_without_the_programs_notice_is_told_of(void **state)
{
    (void)state;
    /* The kernel may have come to it or not when the process exits. */
    static const char *const policies[] = {"STRATA_SIM_POLICY=late", "STRATA_SIM_POLICY=early"};
    for (size_t i = 0; i < 2; i++) {
        int status = run_under(policies[i], "the_device_was_stopped", "guard(sample=1, on_finding=exit), async");
        assert_int_equal(status, STRATA_GUARD_EXIT_STATUS);
        expect_said("CUDA_ERROR_ILLEGAL_ADDRESS (700). Sampled blocks of device 0");
        expect_said("guard: illegal access: block 0x");
        assert_int_equal(times_said("guard: illegal access: "), 1);
    }
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lives_and_what_was_freed_is_looked_at_when_the_process_exits),
        cmocka_unit_test(where_nothing_is_wrong_nothing_is_said),
        cmocka_unit_test(stacks_of_texts_are_looked_at_and_those_made_by_hand_are_not),
        cmocka_unit_test(with_on_finding_exit_the_status_says_so_and_nothing_else_is_lost),
        cmocka_unit_test(handlers_that_run_before_the_driver_ends_come_before_the_look),
        cmocka_unit_test(a_forked_child_does_not_look),
        cmocka_unit_test(a_device_that_does_not_end_is_waited_for_two_seconds),
        cmocka_unit_test(what_can_be_seen_is_told_though_the_device_does_something_else_for_ever),
        cmocka_unit_test(where_a_stream_is_captured_that_is_said_and_what_can_be_seen_told),
        cmocka_unit_test(a_context_that_is_gone_is_left_alone),
        cmocka_unit_test(an_exit_from_the_log_callback_is_no_look),
        cmocka_unit_test(a_stream_that_a_thread_keeps_does_not_keep_the_process),
        cmocka_unit_test(a_device_that_was_stopped_without_the_programs_notice_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
