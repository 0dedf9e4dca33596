/* `strata log --follow`: the command beside this program prints a log while this program writes it. */
#include "support/effort.h"
#include "support/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

enum { OUTPUT = 1 << 23 };

static char program[PATH_MAX];
static char output[OUTPUT];

static int find_program(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 16);
    if (length < 0)
        return -1;
    program[length] = '\0';
    strcpy(strrchr(program, '/'), "/strata");
    return access(program, X_OK);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* `strata log --follow OPTION FILE`, into `output_end`, or the file "out" if that is -1, and the file "err". */
static pid_t start_following_into(int output_end, const char *option, const char *file)
{
    pid_t child;
    name path = in_folder(file), out = in_folder("out"), err = in_folder("err");
    char *arguments[] = {"strata", "log", "--follow", (char *)(uintptr_t)option, path.text, NULL};
    posix_spawn_file_actions_t actions;
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    if (output_end < 0)
        assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.text, flags, 0600), 0);
    else
        assert_int_equal(posix_spawn_file_actions_adddup2(&actions, output_end, STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.text, flags, 0600), 0);
    assert_int_equal(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static pid_t start_following(const char *option, const char *file)
{
    return start_following_into(-1, option, file);
}

static const char *text_of(const char *file)
{
    FILE *from = fopen(in_folder(file).text, "r");
    if (!from)
        return "";
    output[fread(output, 1, OUTPUT - 1, from)] = '\0';
    fclose(from);
    return output;
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void wait_for_lines(size_t lines)
{
    for (unsigned turn = 0; turn < test_timeout(20) * 200 && lines_of(text_of("out")) < lines; turn++)
        nap();
    assert_true(lines_of(text_of("out")) >= lines);
}

/* By then it knows what to do with signals. */
static void wait_until_open(pid_t child, const char *file)
{
    char link[64], target[PATH_MAX];
    name path = in_folder(file);
    for (unsigned turn = 0; turn < test_timeout(20) * 200; turn++) {
        for (int descriptor = 3; descriptor < 32; descriptor++) {
            snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)child, descriptor);
            ssize_t length = readlink(link, target, sizeof target - 1);
            target[length > 0 ? length : 0] = '\0';
            if (strcmp(target, path.text) == 0)
                return;
        }
        nap();
    }
    fail_msg("the command does not open %s", path.text);
}

static int end_of(pid_t child, int signal)
{
    int status;
    if (signal)
        assert_int_equal(kill(child, signal), 0);
    for (unsigned turn = 0; turn < test_timeout(20) * 200; turn++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
        nap();
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    fail_msg("the command did not end");
    return -1;
}

/* Lines of JSON with the numbers 1, 2, 3, ... and nothing else. */
static void check_sequence(size_t lines)
{
    const char *line = text_of("out");
    for (size_t i = 0; i < lines; i++) {
        char wanted[48];
        snprintf(wanted, sizeof wanted, "\"number\":%zu,", i + 1);
        const char *end = strchr(line, '\n');
        const char *found = strstr(line, wanted);
        if (!end || !found || found > end)
            fail_msg("line %zu has not %s: %.200s", i + 1, wanted, line);
        line = end + 1;
    }
    assert_string_equal(line, "");
}

static void write_some(strata_stack *stack, int pairs)
{
    make_pairs(stack, pairs);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
}

static void a_log_is_followed_across_its_rotation_until_ctrl_c(void **state)
{
    (void)state;
    const size_t rounds = test_effort(24, 12);
    size_t records = 200;
    strata_stack *stack = make_stack("run.slog", ", rotate=4KiB, keep=100, uses=off");
    write_some(stack, 100);
    pid_t child = start_following("--json", "run.slog");
    wait_for_lines(records);
    for (size_t i = 0; i < rounds; i++, records += 240) { /* several files between two looks */
        write_some(stack, 120);
        if (i % 8 == 7)
            wait_for_lines(records);
    }
    assert_true(exists("run.slog.4"));
    assert_int_equal(end_of(child, SIGINT), 0); /* what is there is printed all the same */
    check_sequence(records);
    assert_string_equal(text_of("err"), "");
    check_ok(strata_stack_destroy(stack));
}

static void a_log_that_is_begun_anew_is_followed_from_its_beginning(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", uses=off");
    write_some(stack, 50);
    pid_t child = start_following("--csv", "run.slog");
    wait_for_lines(101);
    check_ok(strata_stack_destroy(stack));
    stack = make_stack("run.slog", ", uses=off, existing=replace");
    write_some(stack, 3);
    wait_for_lines(107);
    check_ok(strata_stack_destroy(stack));
    stack = make_stack("run.slog", ", uses=off, existing=rotate");
    write_some(stack, 3);
    wait_for_lines(113);
    assert_int_equal(end_of(child, SIGTERM), 0);
    check_ok(strata_stack_destroy(stack));
}

static void a_summary_is_printed_when_the_following_ends(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", uses=off");
    write_some(stack, 50);
    pid_t child = start_following("--summary", "run.slog");
    wait_until_open(child, "run.slog");
    assert_string_equal(text_of("out"), "");
    assert_int_equal(end_of(child, SIGINT), 0);
    assert_non_null(strstr(text_of("out"), "records          100 in"));
    check_ok(strata_stack_destroy(stack));
}

/* Ctrl-C comes while the command waits for the reader of its output. */
static void what_a_slow_reader_has_not_taken_yet_is_printed_after_ctrl_c(void **state)
{
    (void)state;
    int ends[2], waiting = 0, before = -1;
    size_t size = 0;
    strata_stack *stack = make_stack("run.slog", ", uses=off");
    write_some(stack, 1000);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = start_following_into(ends[1], "--json", "run.slog");
    close(ends[1]);
    for (unsigned turn = 0; turn < test_timeout(20) * 200 && (waiting == 0 || waiting != before); turn++) {
        before = waiting;
        nap();
        assert_int_equal(ioctl(ends[0], FIONREAD, &waiting), 0);
    }
    assert_int_equal(kill(child, SIGINT), 0);
    nap();
    for (ssize_t got; size < OUTPUT - 1 && (got = read(ends[0], output + size, OUTPUT - 1 - size)) > 0;)
        size += (size_t)got;
    output[size] = '\0';
    close(ends[0]);
    assert_int_equal(end_of(child, 0), 0);
    assert_in_range(lines_of(output), 2000, 2004); /* the end of the stack may add some */
    assert_string_equal(text_of("err"), "");
}

/* A part of a batch at the end is waited for, and is damage once there is a whole one behind it. */
static void damage_in_a_log_that_is_followed_is_said_and_left_out(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", uses=off");
    off_t ends[3];
    for (int i = 0; i < 3; i++) {
        write_some(stack, 10);
        ends[i] = size_of("run.slog");
    }
    check_ok(strata_stack_destroy(stack));
    int file = open(in_folder("run.slog").text, O_RDWR);
    unsigned char bytes[8192];
    assert_true(file >= 0 && ends[2] <= (off_t)sizeof bytes);
    assert_int_equal(pread(file, bytes, (size_t)ends[2], 0), ends[2]);
    bytes[ends[0] + 4 + 2] ^= 1; /* the length of the second batch: beyond the end */
    bytes[ends[1] - 1] ^= 1;
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(pwrite(file, bytes, (size_t)ends[1], 0), ends[1]);
    pid_t child = start_following("--json", "run.slog");
    wait_for_lines(20);
    assert_string_equal(text_of("err"), "");
    assert_int_equal(pwrite(file, bytes + ends[1], (size_t)(ends[2] - ends[1]), ends[1]), ends[2] - ends[1]);
    wait_for_lines(40);
    assert_int_equal(end_of(child, SIGINT), 1);
    char words[64];
    snprintf(words, sizeof words, "byte %d: ", (int)ends[0]);
    assert_non_null(strstr(text_of("err"), words));
    snprintf(words, sizeof words, "bytes are left out, up to byte %d", (int)ends[1]);
    assert_non_null(strstr(text_of("err"), words));
    close(file);
}

static void what_is_no_log_or_no_plain_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(end_of(start_following("--json", "missing.slog"), 0), 2);
    assert_non_null(strstr(text_of("err"), "missing.slog: No such file or directory"));
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    assert_int_equal(end_of(start_following("--json", "pipe"), 0), 2);
    assert_non_null(strstr(text_of("err"), "only a regular file can be followed"));
    FILE *to = fopen(in_folder("other").text, "w");
    assert_non_null(to);
    fputs("something else that is longer than the header of a log", to);
    fclose(to);
    assert_int_equal(end_of(start_following("--json", "other"), 0), 2);
    assert_non_null(strstr(text_of("err"), "not a Strata log"));
    assert_int_equal(end_of(start_following("--csv", "other"), 0), 2);
    assert_string_equal(text_of("out"), ""); /* no head of a table */
}

static void a_gzip_file_is_said_to_be_one_and_not_followed(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", uses=off");
    write_some(stack, 10);
    check_ok(strata_stack_destroy(stack));
    char line[1200];
    snprintf(line, sizeof line, "gzip < %s > %s", in_folder("run.slog").text, in_folder("packed.slog.gz").text);
    assert_int_equal(system(line), 0);
    assert_int_equal(end_of(start_following("--json", "packed.slog.gz"), 0), 2);
    assert_non_null(strstr(text_of("err"), "packed.slog.gz: a gzip file cannot be followed"));
    assert_non_null(strstr(text_of("err"), "read it without --follow"));
    assert_null(strstr(text_of("err"), "not a Strata log"));
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_log_is_followed_across_its_rotation_until_ctrl_c),
        IN_FOLDER(a_log_that_is_begun_anew_is_followed_from_its_beginning),
        IN_FOLDER(a_summary_is_printed_when_the_following_ends),
        IN_FOLDER(what_a_slow_reader_has_not_taken_yet_is_printed_after_ctrl_c),
        IN_FOLDER(damage_in_a_log_that_is_followed_is_said_and_left_out),
        IN_FOLDER(what_is_no_log_or_no_plain_file_is_refused),
        IN_FOLDER(a_gzip_file_is_said_to_be_one_and_not_followed),
    };
    return cmocka_run_group_tests(tests, find_program, NULL);
}
