/* Text for standard error, buffered. */
#include "resources/findings/findings.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Waits for a full descriptor, for a bounded time even if signals interrupt. */
static bool wait_for_room(void)
{
    enum { PATIENCE_MS = 2000 };
    struct pollfd one = {.fd = STDERR_FILENO, .events = POLLOUT};
    int64_t left = PATIENCE_MS, until = now_ms() + PATIENCE_MS;
    int ready = -1;
    for (errno = EINTR; ready < 0 && errno == EINTR && left > 0; left = until - now_ms())
        ready = poll(&one, 1, (int)left);
    return ready > 0;
}

static void write_out(stderr_text *self)
{
    for (size_t done = 0; done < self->used && !self->failed;) {
        ssize_t written = write(STDERR_FILENO, self->text + done, self->used - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR)
            self->failed = errno != EAGAIN || !wait_for_room();
    }
    self->used = 0;
}

void stderr_text_begin(stderr_text *self)
{
    self->used = 0;
    self->failed = false;
}

void stderr_text_add(const char *text, size_t length, void *data)
{
    stderr_text *self = data;
    for (size_t done = 0, part; done < length; done += part) {
        if (self->used == sizeof self->text)
            write_out(self);
        part = sizeof self->text - self->used;
        part = part < length - done ? part : length - done;
        memcpy(self->text + self->used, text + done, part);
        self->used += part;
    }
}

void stderr_text_end(stderr_text *self)
{
    write_out(self);
}
