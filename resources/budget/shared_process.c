/* Processes, by /proc. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t grace_ns = UINT64_C(5000000000);

/* /proc/PID/stat, fields 3, 20 and 22 (proc(5)). */
typedef struct process_state {
    char letter;
    long threads;
    unsigned long long started;
} process_state;

/* False and not *gone: unknown. */
static bool read_state(int32_t pid, process_state *state, bool *gone)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *gone = file < 0 && errno == ENOENT;
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    *gone = length < 0 && errno == ESRCH;
    close(file);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')'); /* the name may have any character */
    return behind_name &&
           sscanf(behind_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu",
                  &state->letter, &state->threads, &state->started) == 3;
}

static uint64_t own_namespace(void)
{
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? (uint64_t)about.st_ino : 0;
}

void shared_process_self(shared_identity *self)
{
    process_state state;
    bool gone;
    *self = (shared_identity){.pid = (int32_t)getpid(), .pid_namespace = own_namespace()};
    if (read_state(self->pid, &state, &gone))
        self->started = state.started;
}

uint64_t shared_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

bool shared_process_is_gone(const shared_identity *identity, uint64_t seen_dead)
{
    process_state state;
    uint64_t here = own_namespace();
    bool gone, waited = shared_clock() - seen_dead >= grace_ns;
    if (!here || identity->pid_namespace != here || !identity->started)
        return waited;
    if (!read_state(identity->pid, &state, &gone))
        return gone || waited;
    if (state.started != identity->started)
        return true;
    return (state.letter == 'Z' || state.letter == 'X') && state.threads <= 1;
}
