/* The worker's process. The program may ignore SIGCHLD, or collect all its children: the worker is then over before it
 * is collected here, and its number may be another process's. A pidfd is not misled by that. */
#include "service/isolated/process.h"

#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "service/isolated/descriptors.h"
#include "service/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- starting ---- */

static int open_handle(pid_t id)
{
#ifdef SYS_pidfd_open
    return strata_descriptor_move_up((int)syscall(SYS_pidfd_open, id, 0));
#else
    (void)id;
    return -1;
#endif
}

/* What the program did to signals is its own; the worker begins with none blocked and none ignored. */
static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error)
        error = posix_spawnattr_setsigdefault(attributes, &all);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
}

static int start(const char *path, posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, int socket,
                 pid_t *id)
{
    char parent[16], name[] = "strata-worker";
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    char *arguments[] = {name, parent, NULL};
    int error = posix_spawn_file_actions_adddup2(actions, socket, ISOLATED_SOCKET);
    if (!error)
        error = posix_spawn_file_actions_addclosefrom_np(actions, ISOLATED_SOCKET + 1);
    return error ? error : posix_spawn(id, path, actions, attributes, arguments, environ);
}

strata_status isolated_process_start(const char *path, int socket, isolated_process *out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    *out = (isolated_process){.handle = -1};
    int error = posix_spawn_file_actions_init(&actions);
    if (!error && (error = posix_spawnattr_init(&attributes)) != 0)
        posix_spawn_file_actions_destroy(&actions);
    if (!error) {
        error = set_attributes(&attributes);
        if (!error)
            error = start(path, &actions, &attributes, socket, &out->id);
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (error) {
        out->id = 0;
        return strata_fail(STRATA_ERROR_IO, "the worker's program %.300s could not be started: %s%s", path,
                           strerror(error), service_descriptor_advice(error));
    }
    const isolated_change change = isolated_descriptors_begin();
    out->handle = open_handle(out->id);
    isolated_descriptor_add(out->handle);
    isolated_descriptors_end(change);
    return STRATA_SUCCESS;
}

/* ---- ending ---- */

void isolated_process_kill(const isolated_process *process)
{
    if (!process->id || process->over)
        return;
#ifdef SYS_pidfd_send_signal
    if (process->handle >= 0) {
        syscall(SYS_pidfd_send_signal, process->handle, SIGKILL, NULL, 0);
        return;
    }
#endif
    kill(process->id, SIGKILL);
}

/* Collects it if it has ended. Without a child of that number it was collected for this process. */
static void collect(isolated_process *process)
{
    siginfo_t info = {0};
    const bool by_handle = process->handle >= 0;
    const int result = waitid(by_handle ? (idtype_t)3 /* P_PIDFD */ : P_PID,
                              by_handle ? (id_t)process->handle : (id_t)process->id, &info, WEXITED | WNOHANG);
    if (result == 0 && info.si_pid) {
        process->over = true;
        process->code = info.si_code;
        process->status = info.si_status;
    }
    if (result != 0 && errno == ECHILD)
        process->over = true;
}

static void sleep_until_over(const isolated_process *process, uint64_t nanoseconds)
{
    struct pollfd watched = {.fd = process->handle, .events = POLLIN};
    const uint64_t most = process->handle >= 0 ? nanoseconds : nanoseconds < 1000000 ? nanoseconds : 1000000;
    const struct timespec time = {.tv_sec = (time_t)(most / 1000000000), .tv_nsec = (long)(most % 1000000000)};
    ppoll(&watched, process->handle >= 0 ? 1 : 0, &time, NULL);
}

bool isolated_process_wait(isolated_process *process, uint64_t nanoseconds)
{
    const uint64_t begun = service_clock();
    uint64_t now = begun;
    if (!process->id)
        return true;
    collect(process);
    while (!process->over && (now = service_clock()) - begun < nanoseconds) {
        sleep_until_over(process, nanoseconds - (now - begun));
        collect(process);
    }
    return process->over;
}

void isolated_process_describe(const isolated_process *process, char *text, size_t room)
{
    if (process->code == CLD_EXITED)
        snprintf(text, room, "exited with status %d", process->status);
    else if (process->code == CLD_KILLED || process->code == CLD_DUMPED)
        snprintf(text, room, "was killed by signal %d", process->status);
    else
        snprintf(text, room, "ended");
}

void isolated_process_close(isolated_process *process)
{
    isolated_descriptor_close(process->handle);
    *process = (isolated_process){.handle = -1};
}
