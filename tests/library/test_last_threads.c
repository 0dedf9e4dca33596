/* A process whose main thread ends by pthread_exit: it ends when its last own thread has, whatever threads the library
 * and the simulated driver keep, and a signal ends it. Each case is a child that the parent kills if it does not end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"
#include "support/rerun.h"

enum { DEADLINE_S = 30, KILLED = -1 };

static char path[64];

/* ---- in children ---- */

static strata_runtime *runtime;

static void begin(void)
{
    alarm(0); /* the parent has the deadline: a signal would be what ends the process */
    child_ok(strata_runtime_get(0, &runtime));
}

static void note(const char *text)
{
    FILE *file = fopen(getenv("STRATA_TEST_NOTES"), "a");
    child_check(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void note_exit(void)
{
    note("exit handler\n");
}

static void main_thread_ends(void)
{
    strata_block block;
    begin();
    child_check(atexit(note_exit) == 0);
    child_ok(strata_runtime_allocate(runtime, 4096, NULL, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
    pthread_exit(NULL);
}

static void several_logs_and_main_thread_ends(void)
{
    strata_stack *stacks[3];
    begin();
    for (size_t i = 0; i < 3; i++)
        child_ok(strata_stack_create("logging(format=memory, interval=60s), null", 0, &stacks[i]));
    pthread_exit(NULL);
}

static bool main_thread_is_gone(void)
{
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)getpid());
    FILE *file = fopen(name, "r");
    child_check(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

/* Lives for ten looks of the library's threads after the end of the main thread. */
static void *live_on(void *unused)
{
    strata_block block;
    while (!main_thread_is_gone())
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        child_ok(strata_runtime_allocate(runtime, 4096, NULL, &block));
        child_ok(strata_runtime_deallocate(runtime, &block));
        usleep(100000);
    }
    note("worker\n");
    return unused;
}

static void worker_outlives_the_main_thread(void)
{
    pthread_t worker;
    begin();
    child_check(atexit(note_exit) == 0);
    child_check(pthread_create(&worker, NULL, live_on, NULL) == 0);
    pthread_exit(NULL);
}

/* The signal waits for the process, as one that comes while no thread takes it. */
static void signal_waits_for_the_process(void)
{
    sigset_t term;
    begin();
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    child_check(pthread_sigmask(SIG_BLOCK, &term, NULL) == 0);
    child_check(kill(getpid(), SIGTERM) == 0);
    pthread_exit(NULL);
}

static void call_host(void *called)
{
    *(_Atomic bool *)called = true;
}

static void launch_host_function(void)
{
    static _Atomic bool called;
    CUresult (*launch)(CUstream, CUhostFn, void *);
    CUresult (*synchronize)(CUstream);
    strata_driver_info info;
    child_ok(strata_driver_get_info(&info));
    if (!info.simulated)
        exit(77);
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    void *found[] = {dlsym(library, "cuLaunchHostFunc"), dlsym(library, "cuStreamSynchronize")};
    child_check(found[0] && found[1]);
    memcpy(&launch, &found[0], sizeof launch);
    memcpy(&synchronize, &found[1], sizeof synchronize);
    CUcontext context;
    child_check(test_cu()->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(test_cu()->CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(launch(NULL, call_host, (void *)&called) == CUDA_SUCCESS && synchronize(NULL) == CUDA_SUCCESS);
    child_check(called);
}

static void main_thread_ends_after_a_host_function(void)
{
    begin();
    launch_host_function();
    pthread_exit(NULL);
}

/* A thread that a library's thread started is the program's, though it inherits that one's name. */
static void *note_worker(void *unused)
{
    while (!main_thread_is_gone())
        usleep(1000);
    usleep(1000000);
    note("worker\n");
    return unused;
}

static void start_worker(const strata_log_record *records, size_t count, void *started)
{
    (void)records, (void)count;
    pthread_t worker;
    if (!*(bool *)started)
        *(bool *)started = pthread_create(&worker, NULL, note_worker, NULL) == 0;
}

static void thread_of_a_log_callback_outlives_the_main_thread(void)
{
    static bool started;
    strata_resource *layers[2];
    strata_stack *stack;
    strata_block block;
    begin();
    child_ok(strata_logging_create(0, &(strata_logging_options){.callback = start_worker, .callback_data = &started},
                                   &layers[0]));
    child_ok(strata_null_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    child_ok(strata_resource_allocate(layers[0], &(strata_request){.bytes = 100}, &block));
    child_ok(strata_logging_flush(layers[0]));
    child_check(started);
    pthread_exit(NULL);
}

/* ---- in the parent ---- */

/* The thread sanitizer's own thread keeps such a process, with Strata or without. */
static void skip_under_thread_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    skip();
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
}

/* The status of waitpid, or KILLED after the deadline. */
static int run(const char *scenario, const char *stack)
{
    char variable[256];
    skip_under_thread_sanitizer();
    unlink(path);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        snprintf(variable, sizeof variable, "STRATA_STACK=%s", stack);
        putenv(variable);
        setenv("STRATA_TEST_NOTES", path, 1);
        test_rerun_program((char *const[]){"test", "--child", (char *)(uintptr_t)scenario, NULL});
        _exit(1);
    }
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
    assert_true(end.fd >= 0);
    bool ended = poll(&end, 1, (int)test_timeout(DEADLINE_S) * 1000) > 0;
    close(end.fd);
    if (!ended)
        kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    return ended ? status : KILLED;
}

static void check_notes(const char *expected)
{
    char notes[256] = "";
    FILE *file = fopen(path, "r");
    if (file) {
        notes[fread(notes, 1, sizeof notes - 1, file)] = '\0';
        fclose(file);
    }
    assert_string_equal(notes, expected);
}

static int begin_case(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/strata-last-threads-%d", (int)getpid());
    return 0;
}

static const char driver_threads[] = "libcuda's own threads keep such a process (docs/layers/logging.md)";

static int end_case(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void a_process_whose_main_thread_ends_by_pthread_exit_ends(void **state)
{
    (void)state;
    test_needs_simulated_driver(driver_threads);
    static const char *const stacks[] = {"", "logging(format=memory, interval=60s), async",
                                         "logging(format=null), pool", "pool"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        assert_int_equal(run("main_thread_ends", stacks[i]), 0);
        check_notes("exit handler\n");
    }
    assert_int_equal(run("several_logs_and_main_thread_ends", ""), 0);
}

static void a_log_is_whole_when_the_main_thread_ended_first(void **state)
{
    (void)state;
    test_needs_simulated_driver(driver_threads);
    char stack[160], log[80], command[256];
    snprintf(log, sizeof log, "%s.csv", path);
    snprintf(stack, sizeof stack, "logging(file=%s, interval=60s), null", log);
    unlink(log);
    assert_int_equal(run("main_thread_ends", stack), 0);
    snprintf(command, sizeof command, "grep -q ',free,' %s", log);
    assert_int_equal(system(command), 0);
    unlink(log);
}

static void a_thread_of_the_program_that_outlives_the_main_thread_is_not_cut_off(void **state)
{
    (void)state;
    test_needs_simulated_driver(driver_threads);
    assert_int_equal(run("worker_outlives_the_main_thread", ""), 0);
    check_notes("worker\nexit handler\n");
    assert_int_equal(run("thread_of_a_log_callback_outlives_the_main_thread", ""), 0);
    check_notes("worker\n");
}

static void a_signal_ends_a_process_that_has_only_the_librarys_threads(void **state)
{
    (void)state;
    int status = run("signal_waits_for_the_process", "");
    assert_true(status != KILLED && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void the_simulated_drivers_thread_keeps_no_process_alive(void **state)
{
    (void)state;
    assert_int_equal(run("main_thread_ends_after_a_host_function", "pool"), 0);
    assert_int_equal(run("main_thread_ends_after_a_host_function", ""), 0);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(main_thread_ends),
        TEST_SCENARIO(several_logs_and_main_thread_ends),
        TEST_SCENARIO(worker_outlives_the_main_thread),
        TEST_SCENARIO(signal_waits_for_the_process),
        TEST_SCENARIO(main_thread_ends_after_a_host_function),
        TEST_SCENARIO(thread_of_a_log_callback_outlives_the_main_thread),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin_case, end_case)
    const struct CMUnitTest tests[] = {
        CASE(a_process_whose_main_thread_ends_by_pthread_exit_ends),
        CASE(a_log_is_whole_when_the_main_thread_ended_first),
        CASE(a_thread_of_the_program_that_outlives_the_main_thread_is_not_cut_off),
        CASE(a_signal_ends_a_process_that_has_only_the_librarys_threads),
        CASE(the_simulated_drivers_thread_keeps_no_process_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
