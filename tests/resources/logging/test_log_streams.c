/* Logs on pipes whose readers go away in the middle of a piece, and on the standard streams of the process, which stay
 * the program's. */
#include "support/child.h"
#include "support/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

static void write_file(const char *file, const char *text)
{
    FILE *to = fopen(in_folder(file).text, "w");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static void check_file(const char *file, const char *text)
{
    char found[64] = "";
    FILE *from = fopen(in_folder(file).text, "r");
    assert_non_null(from);
    found[fread(found, 1, sizeof found - 1, from)] = '\0';
    fclose(from);
    assert_string_equal(found, text);
}

static strata_status flush(strata_stack *stack)
{
    return strata_logging_flush(strata_stack_top(stack));
}

/* ---- pipes ---- */

/* A pipe of two pages: the header has one, and the other is too small for the piece. */
static strata_stack *half_a_piece(int *reader)
{
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    *reader = open(in_folder("pipe").text, O_RDONLY | O_NONBLOCK);
    assert_true(*reader >= 0);
    assert_true(fcntl(*reader, F_SETPIPE_SZ, 8192) >= 8192);
    strata_stack *stack = make_stack("pipe", ", uses=off, interval=60s");
    make_pairs(stack, 1);
    check_ok(flush(stack)); /* its writer sleeps */
    make_pairs(stack, 400);
    check_ok(flush(stack));
    return stack;
}

static void what_a_lost_reader_had_begun_to_read_is_counted_as_dropped(void **state)
{
    (void)state;
    int reader;
    strata_stack *stack = half_a_piece(&reader);
    assert_int_equal(value(stack, "logging.dropped_records"), 0); /* the rest is kept for it */
    close(reader);
    make_pairs(stack, 10);
    check_status(flush(stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "Broken pipe");
    assert_int_equal(value(stack, "logging.dropped_records"), 820);
    check_ok(strata_stack_destroy(stack));
}

/* A file that replaced the pipe belongs to another program. */
static void a_pipe_that_was_replaced_by_a_file_is_not_written_to(void **state)
{
    (void)state;
    int reader;
    strata_stack *stack = half_a_piece(&reader);
    close(reader);
    make_pairs(stack, 10);
    check_status(flush(stack), STRATA_ERROR_IO);
    assert_int_equal(unlink(in_folder("pipe").text), 0);
    write_file("pipe", "another's");
    make_pairs(stack, 10);
    check_status(flush(stack), STRATA_ERROR_IO);
    assert_int_equal(value(stack, "logging.write_error"), ENXIO);
    check_file("pipe", "another's");
    check_ok(strata_stack_destroy(stack));
    check_file("pipe", "another's");
}

/* ---- standard streams ---- */

static strata_stack *child_stack(const char *text)
{
    strata_stack *stack;
    child_ok(strata_stack_create(text, 0, &stack));
    return stack;
}

static void child_pairs(strata_stack *stack, int pairs)
{
    strata_resource *first = strata_stack_top(stack);
    strata_block block;
    for (int i = 0; i < pairs; i++) {
        child_ok(strata_resource_allocate(first, &(strata_request){.bytes = (size_t)i + 1}, &block));
        child_ok(strata_resource_deallocate(first, &block, NULL));
    }
}

/* Both are files, and are the program's still when the log has ended. */
static void logs_to_standard_streams(void)
{
    static const char *const names[] = {"/dev/stdout", "/dev/stderr"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_ROOM], text[128], line[1024];
        snprintf(path, sizeof path, "%s.%d", getenv("STRATA_TEST_LOG"), i);
        int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        child_check(file >= 0 && dup2(file, STDOUT_FILENO + i) >= 0);
        snprintf(text, sizeof text, "logging(file=%s, format=csv, uses=off), null", names[i]);
        strata_stack *stack = child_stack(text);
        child_pairs(stack, 3);
        child_ok(strata_stack_destroy(stack));
        child_check(write(STDOUT_FILENO + i, "still there\n", 12) == 12);
        FILE *from = fopen(path, "r");
        child_check(from && fgets(line, sizeof line, from) && strncmp(line, "Thread,Time,Action,", 19) == 0);
        size_t lines = 0;
        while (fgets(line, sizeof line, from))
            lines++;
        child_check(lines >= 7 && strcmp(line, "still there\n") == 0);
        fclose(from);
        close(file);
    }
}

static void has_no_standard_output(void)
{
    strata_stack *stack = child_stack("null"); /* a driver that opens files now would take the descriptor */
    child_ok(strata_stack_destroy(stack));
    close(STDOUT_FILENO);
    child_status(strata_stack_create("logging(file=/dev/stdout), null", 0, &stack), STRATA_ERROR_IO);
    child_check_words("/dev/stdout: Bad file descriptor");
    child_check(stack == NULL);
}

/* The reader is gone: records are counted, the descriptor stays, and no signal is raised; a pending one is kept. */
static void loses_the_reader_of_standard_output(int ends[2], bool pending)
{
    sigset_t pipe_alone, now;
    uint64_t dropped = 0;
    child_check(dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    if (pending)
        child_check(pthread_sigmask(SIG_BLOCK, &pipe_alone, NULL) == 0 && kill(getpid(), SIGPIPE) == 0);
    strata_stack *stack = child_stack("logging(file=/dev/stdout, uses=off, interval=60s), null");
    close(ends[0]);
    for (int i = 0; i < 2; i++) {
        child_pairs(stack, 10);
        child_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_IO);
        child_check_words("Broken pipe");
    }
    child_ok(strata_control(stack, "logging.dropped_records", &dropped, NULL));
    child_check(dropped == 40);
    child_check(fcntl(STDOUT_FILENO, F_GETFD) >= 0);
    child_ok(strata_stack_destroy(stack));
    child_check(sigpending(&now) == 0 && sigismember(&now, SIGPIPE) == pending);
    test_child_leave(0);
}

static void loses_a_pipe(void)
{
    int ends[2];
    child_check(pipe(ends) == 0);
    loses_the_reader_of_standard_output(ends, true);
}

static void loses_a_socket(void)
{
    int ends[2];
    child_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    loses_the_reader_of_standard_output(ends, false);
}

static void a_log_on_a_standard_stream_leaves_the_stream_to_the_program(void **state)
{
    (void)state;
    char log_name[PATH_ROOM + 32];
    snprintf(log_name, sizeof log_name, "STRATA_TEST_LOG=%s", in_folder("out").text);
    const char *const changes[] = {log_name, NULL};
    test_child_run("logs_to_standard_streams", changes);
    test_child_run("has_no_standard_output", changes);
    test_child_run("loses_a_pipe", changes);
    test_child_run("loses_a_socket", changes);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(logs_to_standard_streams),
        TEST_SCENARIO(has_no_standard_output),
        TEST_SCENARIO(loses_a_pipe),
        TEST_SCENARIO(loses_a_socket),
    };
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_a_lost_reader_had_begun_to_read_is_counted_as_dropped),
        IN_FOLDER(a_pipe_that_was_replaced_by_a_file_is_not_written_to),
        IN_FOLDER(a_log_on_a_standard_stream_leaves_the_stream_to_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
