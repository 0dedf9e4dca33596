/* `strata top`: what a program under `strata exec --report` holds now. */
#include "tools/command.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { OPTION_JSON = 256, OPTION_ONCE, OPTION_EVERY };
enum { PATIENCE = 5 /* s: for the first answer */ };

typedef struct top_request {
    const char *program;
    long process;
    double seconds;
    bool json, once;
} top_request;

static void read_process(const struct argp_state *state, top_request *to, const char *text)
{
    char *end;
    if (to->process)
        argp_error(state, "unexpected \"%s\"", text);
    to->process = strtol(text, &end, 10);
    if (end == text || *end || to->process <= 0 || to->process > INT_MAX)
        argp_error(state, "invalid process \"%s\"; expected its number", text);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    top_request *to = state->input;
    char *end;
    switch (key) {
    case OPTION_JSON:
        to->json = to->once = true;
        return 0;
    case OPTION_ONCE:
        to->once = true;
        return 0;
    case OPTION_EVERY:
        to->seconds = strtod(text, &end);
        if (end == text || *end || !(to->seconds >= 0.1 && to->seconds <= 3600))
            argp_error(state, "--every: invalid time \"%s\"; expected seconds, from 0.1 on", text);
        return 0;
    case ARGP_KEY_ARG:
        read_process(state, to, text);
        return 0;
    case ARGP_KEY_END:
        if (!to->process)
            argp_error(state, "missing PROCESS");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"once", OPTION_ONCE, NULL, 0, "Print one report and end", 0},
    {"every", OPTION_EVERY, "SECONDS", 0,
     "The time between reports; default: 1. To a file or a pipe goes what differs from the report before", 0},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object; implies --once", 0},
    {0},
};

static const char documentation[] = "Shows what the program PROCESS holds, which runs under strata exec --report; by "
                                    "call stack, too, if it runs with --stacks.\vThe "
                                    "program answers the same user and "
                                    "root. Exit status: 0; 1 if the program ended meanwhile or the output could not be "
                                    "written; 2 if it does not run so.";

static const struct argp usage = {options, parse, "PROCESS", documentation, command_common, NULL, NULL};
static const command_values values[] = {{0}};

/* Whether the process itself answers: any process can bind its name. */
static bool is_process(int connection, long process)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && (long)peer.pid == process;
}

/* Each step waits for `patience` at most; 0 seconds: without a limit. Also this one: a program that is stopped accepts
 * nothing, and where its queue is full connect waits for room. */
static int open_connection(const top_request *request, const struct timeval *patience)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int name = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "strata-exec-%ld", request->process);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
    if (file >= 0) {
        setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, patience, sizeof *patience);
        setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, patience, sizeof *patience);
    }
    if (file >= 0 && connect(file, (const struct sockaddr *)&address, length) == 0 &&
        is_process(file, request->process))
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

static void copy_report(int file, FILE *to)
{
    char text[4096];
    ssize_t length;
    while ((length = read(file, text, sizeof text)) > 0 || (length < 0 && errno == EINTR))
        if (length > 0)
            fwrite(text, 1, (size_t)length, to);
}

/* Reads a report, which the caller frees. NULL: there is no such program, it is another user's, it ended meanwhile, or
 * there is no host memory; or it is the first report, and the program, which may be stopped, does not answer. One that
 * is stopped later is waited for. */
static char *read_report(const top_request *request, bool is_first)
{
    char *text = NULL;
    size_t bytes = 0;
    const struct timeval patience = {.tv_sec = is_first ? PATIENCE : 0};
    const int file = open_connection(request, &patience);
    FILE *to = file >= 0 ? open_memstream(&text, &bytes) : NULL;
    if (to && send(file, request->json ? "j" : "t", 1, MSG_NOSIGNAL) == 1)
        copy_report(file, to);
    if (file >= 0)
        close(file);
    if (to && fclose(to) == 0 && bytes > 1 && text[bytes - 1] == '\0') /* whole */
        return text;
    free(text);
    return NULL;
}

/* Prints a report: on a screen in place of the one before; to a file or a pipe behind an empty line, if it differs. */
static void print_report(const char *text, const char *before, bool is_screen)
{
    if (is_screen)
        printf("\033[H\033[2J%s", text); /* to the corner, and an empty screen */
    else if (!before || strcmp(text, before) != 0)
        printf("%s%s", before ? "\n" : "", text);
}

static void wait_for_next(double seconds)
{
    const time_t whole = (time_t)seconds;
    nanosleep(&(struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)}, NULL);
}

static int tell_no_answer(const top_request *request)
{
    if (kill((pid_t)request->process, 0) != 0 && errno == ESRCH) {
        fprintf(stderr, "%s: there is no process %ld\n", request->program, request->process);
        return COMMAND_USAGE;
    }
    fprintf(
        stderr,
        "%s: process %ld does not answer: it must run under strata exec --report, have called the driver, be of this "
        "user, and not be stopped\n",
        request->program, request->process);
    return COMMAND_USAGE;
}

/* Shows reports until the program ends. *before: the last report, which the caller frees. */
static int show_reports(const top_request *request, char **before)
{
    const bool is_screen = !request->once && isatty(STDOUT_FILENO);
    for (;;) {
        char *text = read_report(request, !*before);
        if (!text && *before)
            return COMMAND_FOUND;
        if (!text)
            return tell_no_answer(request);
        print_report(text, *before, is_screen);
        free(*before);
        *before = text;
        if (fflush(stdout) != 0 || ferror(stdout))
            return command_lose_output(request->program, "the report", errno);
        if (request->once)
            return COMMAND_FINE;
        wait_for_next(request->seconds);
    }
}

static int run(int argc, char **argv)
{
    top_request request = {.program = argv[0], .seconds = 1};
    if (!command_parse(&usage, argc, argv, 0, &request))
        return COMMAND_USAGE;
    char *before = NULL;
    const int status = show_reports(&request, &before);
    free(before);
    return status;
}

const command command_top = {"top", "strata top", "what a program under strata exec holds now", &usage, values, run};
