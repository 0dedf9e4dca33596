/* Processes, as /proc shows them. */
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

/* /proc/PID/stat, fields 3, 20, 22, and 26 to 28 (proc(5)). The last are 0 for processes of other users. */
typedef struct process_state {
    char letter;
    long threads;
    unsigned long long started, image;
} process_state;

/* Reads a process's state. False: it is *gone, or unknown. */
static bool read_state(int32_t pid, process_state *state, bool *gone)
{
    unsigned long long code[3]; /* where the code begins and ends, and the stack begins */
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
    bool known =
        behind_name &&
        sscanf(behind_name + 1,
               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu %*s %*s %*s %llu %llu "
               "%llu",
               &state->letter, &state->threads, &state->started, &code[0], &code[1], &code[2]) == 6;
    state->image = known && code[2] ? code[2] ^ code[0] << 16 ^ code[1] << 32 : 0;
    return known;
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
    if (!read_state(self->pid, &state, &gone))
        return;
    self->started = state.started;
    self->image = state.image;
}

uint64_t shared_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static bool has_waited(uint64_t seen_dead)
{
    return shared_clock() - seen_dead >= grace_ns;
}

bool shared_process_is_gone(const shared_identity *identity, uint64_t seen_dead)
{
    process_state state;
    uint64_t here = own_namespace();
    bool gone, waited = has_waited(seen_dead);
    if (!here || identity->pid_namespace != here || !identity->started)
        return waited;
    if (!read_state(identity->pid, &state, &gone))
        return gone || waited;
    if (state.started != identity->started || (identity->image && state.image && state.image != identity->image))
        return true;
    return (state.letter == 'Z' || state.letter == 'X') && state.threads <= 1;
}

/* Whether a line of /proc/PID/maps is of the file: its fifth field, proc(5), is the inode. */
static bool is_mapping_of(const char *line, ino_t inode)
{
    unsigned long long number;
    return sscanf(line, "%*s %*s %*s %*s %llu", &number) == 1 && number == (unsigned long long)inode;
}

/* Looks for the file in the whole lines of a text and takes them away. Returns how many there were. */
static size_t take_lines(char *text, size_t *length, ino_t inode, bool *found)
{
    size_t count = 0;
    char *line = text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        *end = '\0';
        *found |= is_mapping_of(line, inode);
    }
    *length -= (size_t)(line - text);
    memmove(text, line, *length + 1);
    return count;
}

/* Addresses tell most programs from those before an exec, but not where they are the same in each run. A process that
 * is ending has no mappings, and is not known to lack the file. */
bool shared_process_lacks_file(const shared_identity *identity, ino_t inode, uint64_t seen_dead)
{
    char path[64], text[8192];
    size_t length = 0, lines = 0;
    ssize_t got = 0;
    bool found = false;
    uint64_t here = own_namespace();
    if (!here || identity->pid_namespace != here)
        return false;
    snprintf(path, sizeof path, "/proc/%d/maps", identity->pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return (errno == EACCES || errno == EPERM) && has_waited(seen_dead);
    while (!found && length < sizeof text - 1 && (got = read(file, text + length, sizeof text - 1 - length)) > 0) {
        text[length += (size_t)got] = '\0';
        lines += take_lines(text, &length, inode, &found);
    }
    close(file);
    return !found && got == 0 && lines;
}
