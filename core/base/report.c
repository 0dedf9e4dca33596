/* STRATA_REPORT, and writing what it is for. */
#include "core/base/report.h"

#include "core/base/cancel.h"
#include "core/base/output_file.h"
#include "driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_UNASKED = 64 }; /* findings written by a process that did not ask for them */

typedef enum report_place { UNSET, OFF, STDERR, IN_FILE } report_place;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static report_place place;  /* written once */
static char file[PATH_MAX]; /* absolute; written once */

/* ---- the variable ---- */

/* Copies the name with the process's number in place of %p. False for another %, or a name that is too long.
 * (core/base/file_name.h raises errors, which are written here.) */
static bool expand(const char *given, char name[PATH_MAX])
{
    size_t length = 0;
    for (const char *c = given; *c; c++) {
        const bool is_mark = *c == '%';
        const size_t room = PATH_MAX - length;
        c += is_mark;
        if (is_mark && *c != 'p' && *c != '%')
            return false;
        const int added = is_mark && *c == 'p' ? snprintf(name + length, room, "%ld", (long)getpid())
                                               : snprintf(name + length, room, "%c", *c);
        if (added < 0 || (size_t)added >= room)
            return false;
        length += (size_t)added;
    }
    return true;
}

static bool read_file_name(const char *given)
{
    char name[PATH_MAX];
    return expand(given, name) && strata_driver_path_from_start(name, file);
}

static void read_variable(void)
{
    const char *given = secure_getenv("STRATA_REPORT");
    if (!given || !*given)
        return;
    if (strcmp(given, "off") == 0)
        place = OFF;
    else if (strcmp(given, "stderr") == 0)
        place = STDERR;
    else if (strcmp(given, "stdout") == 0 || strcmp(given, "-") == 0)
        place = read_file_name("/dev/stdout") ? IN_FILE : STDERR;
    else
        place = read_file_name(given) ? IN_FILE : STDERR;
}

static report_place place_now(void)
{
    pthread_once(&once, read_variable);
    return place;
}

bool strata_report_has_place(void)
{
    return place_now() >= STDERR;
}

/* A program that hears of findings only here may find something at every call. */
static bool is_among_the_first(void)
{
    static _Atomic int count; /* any thread, relaxed */
    if (atomic_load_explicit(&count, memory_order_relaxed) > MOST_UNASKED)
        return false;
    int before = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (before == MOST_UNASKED)
        strata_report_line("more findings are not written", "STRATA_REPORT=stderr writes all");
    return before < MOST_UNASKED;
}

bool strata_report_is_wanted(bool has_sink, bool on_stderr)
{
    switch (place_now()) {
    case UNSET:
        return !has_sink && !on_stderr && is_among_the_first();
    case OFF:
        return false;
    case STDERR:
        return !on_stderr;
    default:
        return true;
    }
}

/* ---- writing ---- */

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Waits for a full descriptor, for a bounded time even if signals interrupt. */
static bool wait_for_room(int descriptor)
{
    enum { PATIENCE_MS = 2000 };
    struct pollfd one = {.fd = descriptor, .events = POLLOUT};
    int64_t left = PATIENCE_MS, until = now_ms() + PATIENCE_MS;
    int ready = -1;
    for (errno = EINTR; ready < 0 && errno == EINTR && left > 0; left = until - now_ms())
        ready = poll(&one, 1, (int)left);
    return ready > 0;
}

/* Blocks the signals of failed writes, and takes one that a write raised, unless it was pending before. */
ssize_t strata_write_without_signals(int descriptor, const char *text, size_t length)
{
    sigset_t alone, before, pending;
    const int cancel = strata_cancel_forbid(); /* the caller may hold a lock, and the signals are blocked */
    sigemptyset(&alone);
    sigemptyset(&pending);
    sigpending(&pending);
    if (!sigismember(&pending, SIGPIPE))
        sigaddset(&alone, SIGPIPE);
    if (!sigismember(&pending, SIGXFSZ))
        sigaddset(&alone, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &alone, &before);
    ssize_t written = write(descriptor, text, length);
    int error = errno;
    if (written < 0 && (error == EPIPE || error == EFBIG))
        while (sigtimedwait(&alone, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    strata_cancel_restore(cancel);
    errno = error;
    return written;
}

static void close_file(strata_report_text *self)
{
    if (self->is_opened)
        close(self->descriptor);
    self->is_opened = false;
}

/* What a file does not take goes to standard error: a full disk loses no finding. */
static bool go_on_on_stderr(strata_report_text *self)
{
    if (!self->is_opened)
        return false;
    close_file(self);
    self->descriptor = STDERR_FILENO;
    return true;
}

static void write_out(strata_report_text *self)
{
    for (size_t done = 0; done < self->used && !self->failed;) {
        ssize_t written = strata_write_without_signals(self->descriptor, self->text + done, self->used - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR) {
            self->error = errno;
            self->failed = !(errno == EAGAIN && wait_for_room(self->descriptor)) && !go_on_on_stderr(self);
        }
    }
    self->used = 0;
}

/* Opened anew for each text: a program may close descriptors that it does not know. */
void strata_report_text_begin(strata_report_text *self, bool to_stderr)
{
    int error = errno;
    int opened = !to_stderr && place_now() == IN_FILE ? strata_output_append(file, O_NONBLOCK, 0) : -1;
    self->descriptor = opened >= 0 ? opened : STDERR_FILENO;
    self->is_opened = opened >= 0;
    self->failed = false;
    self->error = 0;
    self->used = 0;
    errno = error;
}

void strata_report_text_add(const char *text, size_t length, void *data)
{
    strata_report_text *self = data;
    int error = errno;
    for (size_t done = 0, part; done < length; done += part) {
        if (self->used == sizeof self->text)
            write_out(self);
        part = sizeof self->text - self->used;
        part = part < length - done ? part : length - done;
        memcpy(self->text + self->used, text + done, part);
        self->used += part;
    }
    errno = error;
}

void strata_report_text_end(strata_report_text *self)
{
    int error = errno;
    write_out(self);
    close_file(self);
    errno = error;
}

void strata_report_line(const char *name, const char *message)
{
    strata_report_text text;
    const char *const parts[] = {"strata: ", name, ": ", message, "\n"};
    strata_report_text_begin(&text, false);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        strata_report_text_add(parts[i], strlen(parts[i]), &text);
    strata_report_text_end(&text);
}
