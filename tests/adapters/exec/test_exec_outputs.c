/* What leaves a program under `strata exec`: its log, a guard's findings, and reports, at the end and in between. */
#include "support/driver.h"
#include "support/exec.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- logs and guards ---- */

static void a_log_can_be_read(void **state)
{
    (void)state;
    char path[] = "/tmp/strata-exec-log-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    check(run_under(text_of("--log %s", path), "behaviour refused"), 0, "64 blocks", "");
    check(run(text_of("log %s", path)), 0, "behaviour", "");
    unlink(path);
}

static void a_guard_finds_what_the_program_overwrote(void **state)
{
    (void)state;
    check(run_under("--guard", "behaviour overrun"), 0, "", "guard: overrun: ");
}

/* A program that asks for no memory has none. */
static void a_log_is_only_tried_before_the_program(void **state)
{
    (void)state;
    char path[] = "/tmp/strata-exec-log-XXXXXX";
    struct stat is;
    const int file = mkstemp(path);
    assert_true(write(file, "kept", 4) == 4);
    close(file);
    check(run_under(text_of("--log %s", path), "/bin/true"), 0, "", "");
    assert_true(stat(path, &is) == 0 && is.st_size == 4);
    unlink(path);
    check(run_under(text_of("--log %s", path), "/bin/true"), 0, "", "");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    check(run_under(text_of("--log %s", path), "/bin/true"), 0, "", "");
    unlink(path);
}

/* ---- reports ---- */

static void a_report_names_libraries_and_what_is_left(void **state)
{
    (void)state;
    outcome *result = run_under("--json", "behaviour leak");
    assert_int_equal(result->status, 0);
    json_t *report = read_report(result);
    const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
    const json_t *library = json_object_get(json_object_get(device, "by_library"), "behaviour");
    assert_int_equal(json_integer_value(json_object_get(library, "live_blocks")), 3);
    assert_int_equal(json_integer_value(json_object_get(library, "peak")), 3 * 2 << 20);
    assert_int_equal(json_integer_value(json_object_get(device, "live")), 3 * 2 << 20);
    json_decref(report);
    free(result);
}

static void a_report_can_go_to_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/strata-exec-report-XXXXXX", text[OUTPUT_LIMIT];
    close(mkstemp(path));
    outcome *result = run_under(text_of("--output %s", path), "behaviour refused");
    assert_int_equal(result->status, 0);
    assert_string_equal(result->err, "");
    read_whole(path, text);
    assert_non_null(strstr(text, "allocations: 65"));
    unlink(path);
    free(result);
}

static void a_report_that_cannot_be_written_is_said_before_the_program_runs(void **state)
{
    (void)state;
    scratch_file script = scratch_write("#!/bin/sh\necho ran\n");
    assert_int_equal(chmod(script.path, 0700), 0);
    outcome *result = run_under("--output /no/such/folder/report", script.path);
    assert_outcome(result, 2, "", "--output: the report could not be written to /no/such/folder/report: No such file");
    assert_string_equal(result->out, "");
    free(result);
    scratch_remove(&script);
}

/* The program is not there: what exec tries beforehand leaves no file, and no end for a pipe's reader to see. */
static void a_program_that_does_not_run_leaves_no_report(void **state)
{
    (void)state;
    char place[] = "/tmp/strata-exec-report-XXXXXX";
    assert_non_null(mkdtemp(place));
    const char *file = text_of("%s/report", place), *pipe = text_of("%s/pipe", place);
    check(run_under(text_of("--output %s", file), "/no/such/program"), 127, "", "No such file");
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    struct pollfd reader = {.fd = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    assert_true(reader.fd >= 0);
    check(run_under(text_of("--output %s", pipe), "/no/such/program"), 127, "", "No such file");
    assert_int_equal(poll(&reader, 1, 0), 0); /* POLLHUP: a writer has been there */
    close(reader.fd);
    unlink(pipe);
    rmdir(place);
}

/* Without a reader the report is lost, and the program ends all the same. */
static void a_report_can_go_to_a_named_pipe(void **state)
{
    (void)state;
    char place[] = "/tmp/strata-exec-report-XXXXXX", text[OUTPUT_LIMIT];
    assert_non_null(mkdtemp(place));
    const char *pipe = text_of("%s/pipe", place);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    check(run_under(text_of("--output %s", pipe), "behaviour refused"), 0, "",
          text_of("the report could not be written to %s: a pipe without a reader", pipe));
    const int reader = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    outcome *result = run_under(text_of("--output %s", pipe), "behaviour refused");
    assert_outcome(result, 0, "", "");
    assert_string_equal(result->err, "");
    const ssize_t length = read(reader, text, sizeof text - 1);
    assert_true(length > 0);
    text[length] = '\0';
    assert_non_null(strstr(text, "allocations: 65"));
    close(reader);
    unlink(pipe);
    rmdir(place);
    free(result);
}

static void a_name_of_a_report_has_marks_and_its_folder_none(void **state)
{
    (void)state;
    char place[] = "/tmp/strata-exec-report-XXXXXX", before[PATH_MAX], text[OUTPUT_LIMIT];
    assert_non_null(mkdtemp(place));
    const char *inner = text_of("%s/50%%p", place);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(inner), 0);
    outcome *result = run_under("--output 100%%-%d", "behaviour refused");
    assert_int_equal(chdir(before), 0);
    assert_outcome(result, 0, "", "");
    assert_string_equal(result->err, "");
    const char *written = text_of("%s/100%%-%%d", inner);
    read_whole(written, text);
    assert_non_null(strstr(text, "allocations: 65"));
    unlink(written);
    rmdir(inner);
    rmdir(place);
    free(result);
}

static void a_report_that_a_full_disk_loses_is_told_of(void **state)
{
    (void)state;
    check(run_under("--output /dev/full", "behaviour refused"), 0, "",
          "the report could not be written to /dev/full: No space left on device");
}

static void a_report_can_go_to_standard_output(void **state)
{
    (void)state;
    check(run_under("--output /dev/stdout", "behaviour leak"), 0, "live_blocks: 3", "");
    check(run_under("--output /dev/stderr", "behaviour leak"), 0, "", "live_blocks: 3");
    check(run_under("--output /dev/fd/77", "behaviour leak"), 2, "", "/dev/fd/77: Bad file descriptor");
}

/* With standard error as a pipe that no process reads. */
static int status_without_reader(const char *option, const char *value, const char *name)
{
    int ends[2];
    scratch_file out = scratch_write("");
    char *arguments[] = {"strata",
                         "exec",
                         "--driver",
                         "sim",
                         (char *)(uintptr_t)option,
                         (char *)(uintptr_t)value,
                         "--",
                         (char *)(uintptr_t)text_of("%s/%s", folder, name),
                         "refused",
                         NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    const int file = open(out.path, O_WRONLY | O_CLOEXEC);
    const int status = exit_status_of(start(arguments, file, ends[1]));
    close(file);
    close(ends[1]);
    scratch_remove(&out);
    return status;
}

static void a_report_without_a_reader_changes_no_exit_status(void **state)
{
    (void)state;
    assert_int_equal(status_without_reader("--report", "--report", "behaviour"), 0);
    setenv("STRATA_SHARED_DIR", "/no/such/folder", 1);
    assert_int_equal(status_without_reader("--shared", "exec-test", "behaviour"),
                     0); /* it says that there is no stack */
    unsetenv("STRATA_SHARED_DIR");
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

static void a_forked_child_reports_nothing(void **state)
{
    (void)state;
    outcome *result = run_under("--report", "behaviour fork");
    assert_int_equal(count_of(result->err, "process: "), 1);
    free(result);
}

static void a_report_does_not_go_into_a_file_of_the_programs(void **state)
{
    (void)state;
    char path[64], text[OUTPUT_LIMIT];
    outcome *result = run_under("--report", "behaviour closed");
    assert_int_equal(sscanf(result->out, "%63s", path), 1);
    read_whole(path, text);
    assert_string_equal(text, "");
    assert_int_equal(count_of(result->err, "process: "), 1);
    unlink(path);
    free(result);
}

static void a_program_that_closes_other_descriptors_is_reported(void **state)
{
    (void)state;
    outcome *result = run_under("--report", "behaviour closed-others");
    assert_int_equal(result->status, 0);
    assert_int_equal(count_of(result->err, "process: "), 1);
    free(result);
}

/* ---- running programs ---- */

typedef struct held_program {
    pid_t process;
    int input, output, errors;
} held_program;

/* Runs the program that waits for the end of its input, until it has memory. */
static held_program start_holding(const char *option)
{
    held_program held;
    int in[2], out[2], err[2];
    char word[8];
    posix_spawn_file_actions_t actions;
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    char *arguments[] = {"strata",
                         "exec",
                         "--driver",
                         "sim",
                         (char *)(uintptr_t)option,
                         "--",
                         (char *)(uintptr_t)text_of("%s/behaviour", folder),
                         "hold",
                         NULL};
    assert_int_equal(posix_spawn(&held.process, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    held.input = in[1];
    held.output = out[0];
    held.errors = err[0];
    assert_int_equal(read(held.output, word, sizeof word), 6);
    return held;
}

static void end_holding(const held_program *held)
{
    close(held->input);
    assert_int_equal(exit_status_of(held->process), 0);
    close(held->output);
    close(held->errors);
}

/* Has the program's connections wait in its queue until that takes no more: a stopped program takes none out. They are
 * closed at once, as those of looks that have given up. */
static void fill_queue(const held_program *held)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int name = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "strata-exec-%d", (int)held->process);
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
    for (int result = 0; result == 0;) {
        const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(file >= 0);
        result = connect(file, (const struct sockaddr *)&address, length);
        assert_true(result == 0 || errno == EAGAIN);
        close(file);
    }
}

static void a_running_program_can_be_looked_at(void **state)
{
    (void)state;
    const held_program held = start_holding("--report");
    check(run(text_of("top --once %d", (int)held.process)), 0, "live: 6291456 (6 MiB)", "");
    check(run(text_of("top --json %d", (int)held.process)), 0, "\"live\": 6291456", "");
    assert_int_equal(kill(held.process, SIGSTOP), 0);
    check(run(text_of("top --once %d", (int)held.process)), 2, "", "does not answer");
    fill_queue(&held);
    check(run(text_of("top --once %d", (int)held.process)), 2, "", "does not answer");
    assert_int_equal(kill(held.process, SIGCONT), 0);
    check(run(text_of("top --once %d", (int)held.process)), 0, "live: 6291456 (6 MiB)", "");
    end_holding(&held);
    check(run(text_of("top --once %d", (int)held.process)), 2, "", "there is no process");
    check(run(text_of("top --once %d", (int)getpid())), 2, "", "does not answer");
}

/* A rotation for which a name is not free: the log stays in its file, and lacks nothing. */
static void a_log_that_lacks_nothing_is_not_said_to_be_incomplete(void **state)
{
    (void)state;
    char path[64], next[72], text[OUTPUT_LIMIT] = "";
    snprintf(path, sizeof path, "/tmp/strata-whole-%d.slog", (int)getpid());
    snprintf(next, sizeof next, "%s.new", path);
    FILE *taken = fopen(next, "w");
    assert_non_null(taken);
    fputs("another program's", taken);
    fclose(taken);
    const held_program held = start_holding(text_of("--stack=logging(file=%s,rotate=1,interval=1ms),direct", path));
    usleep(200000); /* for the writer */
    close(held.input);
    assert_int_equal(exit_status_of(held.process), 0);
    assert_true(read(held.errors, text, sizeof text - 1) >= 0);
    assert_null(strstr(text, "incomplete"));
    close(held.output);
    close(held.errors);
    check(run(text_of("log --summary %s", path)), 0, "", "");
    unlink(path);
    unlink(next);
}

/* The command ends with the program, after some looks at the same. */
static void a_report_that_is_as_the_one_before_is_not_repeated(void **state)
{
    (void)state;
    const held_program held = start_holding("--report");
    char *arguments[] = {"strata", "top", "--every", "0.1", (char *)(uintptr_t)text_of("%d", (int)held.process), NULL};
    scratch_file file = scratch_write("");
    const int out = open(file.path, O_WRONLY | O_CLOEXEC);
    char text[OUTPUT_LIMIT] = "";
    assert_true(out >= 0);
    const pid_t top = start(arguments, out, STDERR_FILENO);
    close(out);
    for (int i = 0; i < 60000 && !strstr(text, "process: "); i++) {
        usleep(1000);
        read_whole(file.path, text);
    }
    usleep(500000);
    kill(held.process, SIGKILL);
    assert_int_equal(exit_status_of(top), 1);
    read_whole(file.path, text);
    assert_int_equal(count_of(text, "live: 6291456"), 2); /* of the device, and of its library */
    assert_int_equal(count_of(text, "process: "), 1);
    scratch_remove(&file);
    waitpid(held.process, NULL, 0);
    close(held.input);
    close(held.output);
    close(held.errors);
}

static void a_signal_asks_for_a_report(void **state)
{
    (void)state;
    const held_program held = start_holding("--report");
    char text[OUTPUT_LIMIT] = "";
    size_t used = 0;
    kill(held.process, SIGUSR1);
    while (!strstr(text, "live: 6291456")) {
        const ssize_t length = read(held.errors, text + used, sizeof text - 1 - used);
        assert_true(length > 0);
        used += (size_t)length;
        text[used] = '\0';
    }
    end_holding(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_can_be_read),
        cmocka_unit_test(a_guard_finds_what_the_program_overwrote),
        cmocka_unit_test(a_log_is_only_tried_before_the_program),
        cmocka_unit_test(a_report_names_libraries_and_what_is_left),
        cmocka_unit_test(a_report_can_go_to_a_file),
        cmocka_unit_test(a_report_that_cannot_be_written_is_said_before_the_program_runs),
        cmocka_unit_test(a_program_that_does_not_run_leaves_no_report),
        cmocka_unit_test(a_report_can_go_to_a_named_pipe),
        cmocka_unit_test(a_name_of_a_report_has_marks_and_its_folder_none),
        cmocka_unit_test(a_report_that_a_full_disk_loses_is_told_of),
        cmocka_unit_test(a_report_can_go_to_standard_output),
        cmocka_unit_test(a_report_without_a_reader_changes_no_exit_status),
        cmocka_unit_test(a_forked_child_reports_nothing),
        cmocka_unit_test(a_report_does_not_go_into_a_file_of_the_programs),
        cmocka_unit_test(a_program_that_closes_other_descriptors_is_reported),
        cmocka_unit_test(a_running_program_can_be_looked_at),
        cmocka_unit_test(a_log_that_lacks_nothing_is_not_said_to_be_incomplete),
        cmocka_unit_test(a_report_that_is_as_the_one_before_is_not_repeated),
        cmocka_unit_test(a_signal_asks_for_a_report),
    };
    return cmocka_run_group_tests_name("exec_outputs", tests, find_folders, forget_folders);
}
