/* Runs the command `strata`, which stands beside the test program: exit status, stdout and stderr. */
#ifndef STRATA_TESTS_SUPPORT_COMMAND_H
#define STRATA_TESTS_SUPPORT_COMMAND_H

#include "support/replay.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

extern char **environ;

enum { OUTPUT_LIMIT = 1 << 16 };

typedef struct outcome {
    int status;
    char out[OUTPUT_LIMIT];
    char err[OUTPUT_LIMIT];
} outcome;

static char program[PATH_MAX];

static inline int find_program(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 16);
    if (length < 0)
        return -1;
    program[length] = '\0';
    strcpy(strrchr(program, '/'), "/strata");
    return access(program, X_OK);
}

static inline void read_whole(const char *path, char *into)
{
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    size_t length = fread(into, 1, OUTPUT_LIMIT - 1, from);
    into[length] = '\0';
    fclose(from);
}

/* `out` below 0: stdout is closed. */
static inline pid_t start(char *const *arguments, int out, int err)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    if (out < 0)
        assert_int_equal(posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO), 0);
    else
        assert_int_equal(posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO), 0);
    assert_int_equal(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static inline int exit_status_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* Runs `strata` with the words of `line`, which are separated by single spaces, and stdout to the file `out`, or closed
 * for NULL; the outcome is the caller's to free. */
static inline outcome *run_into(const char *line, const char *out)
{
    char words[1024];
    char *arguments[32] = {"strata"};
    size_t count = 1;
    assert_true(strlen(line) < sizeof words);
    strcpy(words, line);
    for (char *word = strtok(words, " "); word && count < 31; word = strtok(NULL, " "))
        arguments[count++] = word;
    scratch_file err = scratch_write("");
    int out_descriptor = out ? open(out, O_WRONLY | O_CLOEXEC) : -1;
    int err_descriptor = open(err.path, O_WRONLY | O_CLOEXEC);
    assert_true((!out || out_descriptor >= 0) && err_descriptor >= 0);
    outcome *result = calloc(1, sizeof *result);
    assert_non_null(result);
    result->status = exit_status_of(start(arguments, out_descriptor, err_descriptor));
    if (out)
        close(out_descriptor);
    close(err_descriptor);
    read_whole(err.path, result->err);
    scratch_remove(&err);
    return result;
}

static inline outcome *run(const char *line)
{
    scratch_file out = scratch_write("");
    outcome *result = run_into(line, out.path);
    read_whole(out.path, result->out);
    scratch_remove(&out);
    return result;
}

static inline outcome *run_on(const char *format, const scratch_file *file)
{
    char line[640];
    snprintf(line, sizeof line, "%s %s", format, file->path);
    return run(line);
}

static inline void assert_outcome(const outcome *of, int status, const char *in_out, const char *in_err)
{
    bool good = of->status == status && strstr(of->out, in_out) && strstr(of->err, in_err);
    if (!good)
        print_error("status %d\nstdout: %s\nstderr: %s\n", of->status, of->out, of->err);
    assert_int_equal(of->status, status);
    assert_non_null(strstr(of->out, in_out));
    assert_non_null(strstr(of->err, in_err));
}

#endif
