/* Descriptors, and what a message says to do about an error of the system that made none. */
#include "service/service.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int service_descriptor_raise(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    const int raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(fd);
    errno = error;
    return raised;
}

const char *service_descriptor_advice(int error)
{
    if (error == EMFILE)
        return "; close some, or raise the limit (ulimit -n)";
    return error == ENFILE ? "; close some, or raise the limit of the system (fs.file-max)" : "";
}
