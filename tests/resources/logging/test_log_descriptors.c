/* Logs whose descriptors the program closes, as daemons close all that they do not know, and whose numbers it gives to
 * files of its own: those are left alone. */
#include "support/fixture.h"
#include "support/log.h"
#include "support/standard.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* An own file of the program under the numbers of a log's descriptors. */
typedef struct taken {
    int numbers[8];
    size_t count;
} taken;

/* Closes the descriptors of files whose names begin so, and has an own file with a text under each of their numbers. */
static taken take_the_numbers_of(const char *file)
{
    char link[64], target[PATH_ROOM];
    taken all = {.count = 0};
    const int own = open(in_folder("own.txt").text, O_RDWR | O_CREAT | O_TRUNC, 0600);
    const name path = in_folder(file);
    assert_true(own >= 0 && write(own, "mine", 4) == 4);
    for (int i = 3; i < 256 && all.count < 8; i++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = '\0';
        if (strncmp(target, path.text, strlen(path.text)) != 0)
            continue;
        assert_int_equal(dup2(own, i), i);
        all.numbers[all.count++] = i;
    }
    close(own);
    assert_true(all.count > 0);
    return all;
}

/* The files are open, and as they were. */
static void check_own(const taken *own)
{
    for (size_t i = 0; i < own->count; i++) {
        char text[16] = "";
        assert_int_equal(pread(own->numbers[i], text, sizeof text, 0), 4);
        assert_string_equal(text, "mine");
    }
}

static void end_own(const taken *own)
{
    check_own(own);
    for (size_t i = 0; i < own->count; i++)
        close(own->numbers[i]);
}

static void a_program_that_closes_the_logs_descriptor_keeps_its_own_file(void **state)
{
    (void)state;
    int status;
    strata_stack *stack = make_stack("daemon.slog", ", interval=60s");
    make_pairs(stack, 50);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    const taken own = take_the_numbers_of("daemon.slog");
    make_pairs(stack, 50);
    const pid_t child = fork();
    if (child == 0)
        _exit(fcntl(own.numbers[0], F_GETFD) < 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    check_own(&own);
    const taken again = take_the_numbers_of("daemon.slog"); /* of the log that was opened again */
    check_ok(strata_stack_destroy(stack));
    end_own(&again);
    end_own(&own);
    log_contents log = read_log("daemon.slog");
    assert_in_range(log.count, 200, 204);
    check_pairs(log.records, 100, 0);
    log_contents_free(&log);
}

static void a_log_whose_descriptor_and_file_are_gone_writes_nowhere(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("gone.slog", ", interval=60s");
    const taken own = take_the_numbers_of("gone.slog");
    unlink(in_folder("gone.slog").text);
    make_pairs(stack, 50);
    check_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_IO);
    check_own(&own);
    check_ok(strata_stack_destroy(stack));
    end_own(&own);
}

/* The next file that is made often has the inode of the one that is gone. */
static void a_log_whose_name_is_another_file_by_now_leaves_that_alone(void **state)
{
    (void)state;
    char text[16] = "";
    const name path = in_folder("other.slog");
    strata_stack *stack = make_stack("other.slog", ", interval=60s");
    const taken own = take_the_numbers_of("other.slog");
    unlink(path.text);
    const int other = open(path.text, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(other >= 0 && write(other, "another's", 9) == 9);
    make_pairs(stack, 50);
    check_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_IO);
    check_ok(strata_stack_destroy(stack));
    assert_true(pread(other, text, sizeof text, 0) == 9 && strcmp(text, "another's") == 0);
    end_own(&own);
    close(other);
}

/* Nor is what has its name now opened. */
static void a_log_whose_name_is_a_pipe_by_now_leaves_that_alone(void **state)
{
    (void)state;
    const name path = in_folder("piped.slog");
    strata_stack *stack = make_stack("piped.slog", ", interval=60s");
    const taken own = take_the_numbers_of("piped.slog");
    unlink(path.text);
    assert_int_equal(mkfifo(path.text, 0600), 0);
    struct pollfd reader = {.fd = open(path.text, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    assert_true(reader.fd >= 0);
    make_pairs(stack, 50);
    check_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_IO);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(poll(&reader, 1, 0), 0); /* POLLHUP: a writer has been there */
    end_own(&own);
    close(reader.fd);
    unlink(path.text);
}

static void a_file_that_is_there_is_kept_though_descriptors_are_closed(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("kept.slog", "");
    make_pairs(stack, 10);
    check_ok(strata_stack_destroy(stack));
    stack = make_stack("kept.slog", ", existing=rotate");
    const taken own = take_the_numbers_of("kept.slog");
    make_pairs(stack, 20);
    check_ok(strata_stack_destroy(stack));
    end_own(&own);
    log_contents before = read_log("kept.slog.1"), log = read_log("kept.slog");
    check_pairs(before.records, 20, 0);
    check_pairs(log.records, 40, 0);
    log_contents_free(&before);
    log_contents_free(&log);
}

static void whatever_stands_at_the_logs_name_its_descriptors_are_known(void **state)
{
    (void)state;
    static const char *const options[] = {"", ", existing=replace", ", existing=rotate"};
    for (size_t i = 0; i < 3; i++) { /* a new log, one that replaces a file, one with the next file ready */
        strata_stack *stack;
        if (i) {
            stack = make_stack("run.slog", "");
            make_pairs(stack, 10);
            check_ok(strata_stack_destroy(stack));
        }
        stack = make_stack("run.slog", options[i]);
        const taken own = take_the_numbers_of("run.slog");
        assert_int_equal(own.count, i == 2 ? 2 : 1);
        make_pairs(stack, 1);
        check_ok(strata_logging_flush(strata_stack_top(stack)));
        check_ok(strata_stack_destroy(stack));
        end_own(&own);
        unlink(in_folder("run.slog").text);
    }
}

/* A program that has closed these may still write there. */
static void no_log_has_a_standard_descriptor(void **state)
{
    (void)state;
    static const char *const options[] = {"", ", existing=replace", ", existing=rotate, rotate=1KiB"};
    for (size_t i = 0; i < 3; i++) {
        const test_standard standard = test_standard_close();
        strata_stack *stack = make_stack("apart.slog", options[i]);
        make_pairs(stack, 100);
        const strata_status status = strata_logging_flush(strata_stack_top(stack));
        assert_int_equal(test_standard_open(&standard), 0);
        check_ok(status);
        check_ok(strata_stack_destroy(stack));
    }
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_program_that_closes_the_logs_descriptor_keeps_its_own_file),
        IN_FOLDER(a_log_whose_descriptor_and_file_are_gone_writes_nowhere),
        IN_FOLDER(a_log_whose_name_is_another_file_by_now_leaves_that_alone),
        IN_FOLDER(a_log_whose_name_is_a_pipe_by_now_leaves_that_alone),
        IN_FOLDER(a_file_that_is_there_is_kept_though_descriptors_are_closed),
        IN_FOLDER(whatever_stands_at_the_logs_name_its_descriptors_are_known),
        IN_FOLDER(no_log_has_a_standard_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
