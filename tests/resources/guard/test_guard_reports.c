/* What the guard says of its findings: as text, in reports, and as the last words of a process that ends of one, on
 * whatever standard error is. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/base/call_stack.h"
#include "support/child.h"
#include "support/effort.h"
#include "support/symbols.h"

typedef struct text {
    char bytes[1 << 16];
    size_t length;
} text;

static text written;

static void write_text(const char *bytes, size_t length, void *data)
{
    assert_ptr_equal(data, &written);
    assert_true(written.length + length < sizeof written.bytes);
    memcpy(written.bytes + written.length, bytes, length);
    written.length += length;
    written.bytes[written.length] = '\0';
}

static const char *print(const strata_guard_finding *finding)
{
    memset(&written, 0, sizeof written);
    strata_guard_finding_print(finding, write_text, &written);
    return written.bytes;
}

static size_t count_of(const char *in, const char *words)
{
    size_t count = 0;
    for (const char *at = in; (at = strstr(at, words)); at += strlen(words))
        count++;
    return count;
}

/* ---- text ---- */

static void each_kind_of_finding_has_its_words(void **state)
{
    (void)state;
    static const struct {
        strata_guard_finding finding;
        const char *words[2];
    } kinds[] = {
        {{.kind = STRATA_GUARD_OVERRUN, .offset = 104, .changed = 1, .shown = 1, .expected = 0xbd},
         {"guard: overrun: block 0x1000, 100 bytes", "  1 byte changed, the first at offset 104, 4 past the end;"}},
        {{.kind = STRATA_GUARD_UNDERRUN, .offset = -8, .changed = 8, .shown = 8, .expected = 0xbd},
         {"guard: underrun: block 0x1000", "  8 bytes changed, the first at offset -8, before the block;"}},
        {{.kind = STRATA_GUARD_WRITE_AFTER_FREE,
          .offset = 5,
          .changed = 2,
          .shown = 2,
          .expected = 0xdd,
          .freed = true},
         {"guard: write after free: block 0x1000", "  2 bytes changed, the first at offset 5;"}},
        {{.kind = STRATA_GUARD_DOUBLE_FREE, .freed = true}, {"guard: double free: block 0x1000", "device 0, freed\n"}},
        {{.kind = STRATA_GUARD_FOREIGN_FREE},
         {"guard: foreign free: block 0x1000", "device 0, no block of this stack\n"}},
        {{.kind = STRATA_GUARD_ILLEGAL_ACCESS}, {"guard: illegal access: block 0x1000", "could be one past its end\n"}},
        {{.kind = STRATA_GUARD_ILLEGAL_ACCESS, .freed = true}, {"illegal access:", "could be one after this free\n"}},
        {{.kind = (strata_guard_kind)99}, {"guard: finding: block 0x1000", "generation 5"}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        strata_guard_finding finding = kinds[i].finding;
        finding.block = (strata_block){.address = 0x1000, .requested = 100, .bytes = 100, .id.generation = 5};
        const char *found = print(&finding);
        for (size_t j = 0; j < 2; j++)
            if (!strstr(found, kinds[i].words[j]))
                fail_msg("kind %zu: \"%s\" is not in: %s", i, kinds[i].words[j], found);
        assert_int_equal(count_of(found, "changed, the first at"), kinds[i].finding.changed != 0);
        assert_int_equal(found[strlen(found) - 1], '\n');
    }
}

/* A finding of another version, or a made up one, says more than it has room for. */
static void no_more_bytes_are_shown_than_a_finding_has(void **state)
{
    (void)state;
    strata_guard_finding finding = {.kind = STRATA_GUARD_OVERRUN, .changed = 255, .shown = 255, .expected = 0xbd};
    memset(finding.found, 0x5a, sizeof finding.found);
    const char *found = print(&finding);
    assert_int_equal(count_of(found, " 5a"), STRATA_GUARD_BYTES_SHOWN);
    assert_int_equal(count_of(found, "expected"), 2);
    finding.shown = 17; /* the second line has one */
    found = print(&finding);
    assert_int_equal(count_of(found, " 5a"), 17);
    assert_int_equal(count_of(found, " bd"), 17);
}

static void nothing_is_written_without_a_finding_or_a_place_for_it(void **state)
{
    (void)state;
    assert_string_equal(print(NULL), "");
    strata_guard_finding_print(&(strata_guard_finding){0}, NULL, &written);
    assert_int_equal(written.length, 0);
}

static void a_refused_free_says_where_all_three_were(void **state)
{
    (void)state;
    if (!test_has_symbols())
        skip();
    strata_guard_finding finding = {.kind = STRATA_GUARD_DOUBLE_FREE, .freed = true};
    finding.allocated_at = finding.freed_at = finding.found_at = strata_call_stack_capture(0);
    const char *found = print(&finding), *allocated = strstr(found, "  allocated at\n    "),
               *freed = strstr(found, "  freed at\n    "), *again = strstr(found, "  freed again at\n    ");
    assert_true(allocated && freed && again && allocated < freed && freed < again);
    finding.kind = STRATA_GUARD_FOREIGN_FREE;
    finding.allocated_at = finding.freed_at = 0;
    found = print(&finding);
    assert_non_null(strstr(found, "  given to a free at\n    "));
    assert_null(strstr(found, "allocated at"));
}

/* As long as names of C++ templates are. */
#define LONG(x)   x x x x x x x x x x
#define LONGER(x) LONG(x) LONG(x) LONG(x) LONG(x) LONG(x) LONG(x)

uint32_t test_long_name(void) __asm__("test_" LONGER("abcdefghi_"));

__attribute__((noinline)) uint32_t test_long_name(void)
{
    uint32_t volatile stack = strata_call_stack_capture(0);
    return stack;
}

static void each_frame_has_a_line_of_its_own_however_long_its_name_is(void **state)
{
    (void)state;
    strata_guard_finding finding = {.kind = STRATA_GUARD_FOREIGN_FREE, .found_at = test_long_name()};
    const char *found = print(&finding), *at = strstr(found, "given to a free at\n");
    assert_non_null(at);
    const char *name = strstr(at, "    test_abcdefghi_abcdefghi_");
    if (!name)
        skip(); /* a stripped program */
    const char *end = strchr(name, '\n');
    assert_non_null(end);
    assert_true(end - name > 500);
    assert_ptr_equal(strstr(name + 4, "    "), end + 1); /* the next one begins on the next line */
}

static void a_report_has_refused_frees_without_bytes(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_status(strata_runtime_deallocate(runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    memset(&written, 0, sizeof written);
    check_ok(strata_stats_print(strata_runtime_stack(runtime), STRATA_FORMAT_JSON, write_text, &written));
    const char *kept = strstr(written.bytes, "\"kept_findings\"");
    assert_non_null(kept);
    assert_non_null(strstr(kept, "\"kind\": \"double free\""));
    assert_null(strstr(kept, "\"offset\""));
    assert_null(strstr(kept, "\"changed\""));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- last words ---- */

enum { BUGS = 25 };

/* So many findings in one check that their text is longer than what is written at a time. */
static void overrun_and_check(size_t bugs)
{
    strata_runtime *runtime;
    strata_block blocks[BUGS];
    child_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off, on_finding=exit), async"}, &runtime));
    for (size_t i = 0; i < bugs; i++) {
        child_ok(strata_runtime_allocate(runtime, 100, NULL, &blocks[i]));
        child_ok(strata_runtime_prepare_block_use(runtime, &blocks[i], NULL, STRATA_ACCESS_WRITE));
        child_check(test_cu()->MemsetD8Async(blocks[i].address + 100, 1, 1 + i, NULL) == CUDA_SUCCESS);
        child_ok(strata_runtime_finish_block_use(runtime, &blocks[i], NULL, STRATA_ACCESS_WRITE));
    }
    child_check(test_cu()->StreamSynchronize(NULL) == CUDA_SUCCESS);
    strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL);
    test_child_leave(2); /* it should not have come back */
}

static void overrun_many_and_check(void)
{
    test_open_driver_quietly();
    overrun_and_check(BUGS);
}

/* Standard error is the pipe from now on, full to its last byte. */
static void fill_standard_error(void)
{
    int pipe = open(getenv("STRATA_TEST_PIPE"), O_WRONLY | O_NONBLOCK);
    child_check(pipe >= 0);
    while (write(pipe, "x", 1) == 1) {
    }
    child_check(errno == EAGAIN && dup2(pipe, STDERR_FILENO) == STDERR_FILENO);
}

static void end_on_a_full_pipe(void)
{
    fill_standard_error();
    overrun_many_and_check();
}

static void on_alarm(int number)
{
    (void)number;
}

/* Calls that wait are interrupted, and not taken up again. */
static void send_signals(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {.it_value.tv_usec = 2000, .it_interval.tv_usec = 2000};
    child_check(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void end_on_a_full_pipe_among_signals(void)
{
    fill_standard_error();
    send_signals();
    overrun_many_and_check();
}

static void end_on_a_full_pipe_that_waits_among_signals(void)
{
    fill_standard_error();
    child_check(fcntl(STDERR_FILENO, F_SETFL, 0) == 0);
    send_signals();
    overrun_many_and_check();
}

static void end_without_standard_error(void)
{
    child_check(close(STDERR_FILENO) == 0);
    overrun_many_and_check();
}

static void print_half_a_line_and_end(void)
{
    test_open_driver_quietly();
    child_check(freopen(getenv("STRATA_TEST_OUTPUT"), "w", stdout) != NULL);
    printf("half a line");
    overrun_and_check(1);
}

static void print_to_a_reader_that_has_gone_and_end(void)
{
    int ends[2];
    test_open_driver_quietly();
    child_check(pipe(ends) == 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    close(ends[0]);
    printf("half a line");
    overrun_and_check(1);
}

static const test_scenario scenarios[] = {
    TEST_SCENARIO(print_half_a_line_and_end),
    TEST_SCENARIO(print_to_a_reader_that_has_gone_and_end),
    TEST_SCENARIO(end_on_a_full_pipe),
    TEST_SCENARIO(end_on_a_full_pipe_among_signals),
    TEST_SCENARIO(end_on_a_full_pipe_that_waits_among_signals),
    TEST_SCENARIO(end_without_standard_error),
};

static struct {
    int pipe;
    size_t length, filled;
    char bytes[1 << 18];
} heard;

/* Waits until the pipe is full, lets it be that for a while, and reads until its writer has gone. */
static void *read_late(void *data)
{
    int waiting = 0, most = fcntl(heard.pipe, F_GETPIPE_SZ);
    (void)data;
    for (unsigned turn = 0; waiting < most && turn < 500 * test_timeout(10); turn++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        ioctl(heard.pipe, FIONREAD, &waiting);
    }
    heard.filled = (size_t)waiting;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    fcntl(heard.pipe, F_SETFL, 0);
    for (ssize_t got; heard.length < sizeof heard.bytes - 1; heard.length += (size_t)got)
        if ((got = read(heard.pipe, heard.bytes + heard.length, sizeof heard.bytes - 1 - heard.length)) <= 0)
            break;
    return NULL;
}

static void end_on_pipe(const char *scenario, bool read)
{
    char folder[] = "/tmp/strata-guard-XXXXXX", path[64], setting[96];
    pthread_t reader;
    memset(&heard, 0, sizeof heard);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    snprintf(setting, sizeof setting, "STRATA_TEST_PIPE=%s", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    heard.pipe = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(heard.pipe >= 0);
    if (read)
        assert_int_equal(pthread_create(&reader, NULL, read_late, NULL), 0);
    int status = test_child_status(scenario, (const char *const[]){setting, NULL});
    if (read)
        assert_int_equal(pthread_join(reader, NULL), 0);
    close(heard.pipe);
    unlink(path);
    rmdir(folder);
    assert_int_equal(status, STRATA_GUARD_EXIT_STATUS);
}

static void the_last_words_wait_for_a_reader_that_is_slow(void **state)
{
    (void)state;
    static const char *const names[] = {"end_on_a_full_pipe", "end_on_a_full_pipe_among_signals",
                                        "end_on_a_full_pipe_that_waits_among_signals"};
    for (size_t i = 0; i < 3; i++) {
        end_on_pipe(names[i], true);
        const char *words = heard.bytes + heard.filled;
        assert_true(heard.filled > 0 && heard.length > heard.filled + 4096);
        assert_int_equal(count_of(words, "guard: overrun: block 0x"), BUGS); /* whole, each of them */
        assert_int_equal(count_of(words, "the first at offset 100, 0 past the end"), BUGS);
        assert_int_equal(heard.bytes[heard.length - 1], '\n');
    }
}

static void a_process_ends_of_a_finding_where_nobody_hears_of_it(void **state)
{
    (void)state;
    assert_int_equal(test_child_status("end_without_standard_error", NULL), STRATA_GUARD_EXIT_STATUS);
    time_t before = time(NULL);
    end_on_pipe("end_on_a_full_pipe", false);
    assert_true(time(NULL) - before < (time_t)test_timeout(5)); /* a reader is waited for once, for two seconds */
}

static void what_was_printed_before_a_process_ends_of_a_finding_is_written(void **state)
{
    (void)state;
    char path[] = "/tmp/strata-guard-XXXXXX", setting[64], printed[64] = "";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    snprintf(setting, sizeof setting, "STRATA_TEST_OUTPUT=%s", path);
    const int status = test_child_status("print_half_a_line_and_end", (const char *const[]){setting, NULL});
    assert_true(read(file, printed, sizeof printed - 1) >= 0);
    close(file);
    unlink(path);
    assert_int_equal(status, STRATA_GUARD_EXIT_STATUS);
    assert_string_equal(printed, "half a line");
    assert_int_equal(test_child_status("print_to_a_reader_that_has_gone_and_end", NULL), STRATA_GUARD_EXIT_STATUS);
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_finding_has_its_words),
        cmocka_unit_test(no_more_bytes_are_shown_than_a_finding_has),
        cmocka_unit_test(nothing_is_written_without_a_finding_or_a_place_for_it),
        cmocka_unit_test(a_refused_free_says_where_all_three_were),
        cmocka_unit_test(each_frame_has_a_line_of_its_own_however_long_its_name_is),
        cmocka_unit_test(a_report_has_refused_frees_without_bytes),
        cmocka_unit_test(the_last_words_wait_for_a_reader_that_is_slow),
        cmocka_unit_test(a_process_ends_of_a_finding_where_nobody_hears_of_it),
        cmocka_unit_test(what_was_printed_before_a_process_ends_of_a_finding_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
