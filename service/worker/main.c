/* strata-worker, the program that has the context of an isolated device service. The service starts it with its own
 * process number and the socket as descriptor 3. It has no more rights than the service's process, gets none by
 * executing a program, and ends with that process: killed by the kernel, or because its socket ends. */
#include "service/isolated/process.h"
#include "service/worker/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static worker self;

static bool is_socket(int fd)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX)
        return false;
    bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

static void close_others(void)
{
#ifdef SYS_close_range
    syscall(SYS_close_range, (unsigned)ISOLATED_SOCKET + 1, ~0U, 0U);
#endif
}

/* Standard streams that the program has closed would be the worker's own files. Their numbers are the lowest ones. */
static bool open_standard(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* The parent may have ended before the kernel was told to end the worker with it: then it has another parent. */
static bool ends_with(const char *parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && (long)getppid() == strtol(parent, NULL, 10);
}

int main(int count, char **arguments)
{
    if (count != 2 || !is_socket(ISOLATED_SOCKET)) {
        fputs("strata-worker has the context of an isolated device service, which starts it. It is of no use by "
              "itself.\n",
              stderr);
        return 2;
    }
    if (!ends_with(arguments[1]) || !open_standard())
        return 1;
    prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL);
    close_others();
    fcntl(ISOLATED_SOCKET, F_SETFD, FD_CLOEXEC); /* the driver may execute programs, which could outlive the worker */
    signal(SIGPIPE, SIG_IGN);
    if (!worker_open(&self, ISOLATED_SOCKET))
        return 1;
    const worker_end end = worker_serve(&self);
    if (end == WORKER_LOST)
        _exit(3); /* a lost context cannot be ended in order */
    worker_close(&self);
    return end == WORKER_DONE ? 0 : 4;
}
