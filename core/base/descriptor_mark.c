/* Descriptors that stay open: they are known again, and clear of the standard streams. */
#define _GNU_SOURCE
#include "core/base/descriptor_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* False: the descriptor is not open. A filter of system calls may refuse statx. */
static bool look_at_descriptor(int descriptor, strata_descriptor_mark *mark)
{
    struct statx more;
    struct stat is;
    if (fstat(descriptor, &is) != 0)
        return false;
    *mark = (strata_descriptor_mark){.device = is.st_dev, .inode = is.st_ino, .type = is.st_mode & S_IFMT};
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 && more.stx_mask & STATX_BTIME)
        mark->made = (struct timespec){.tv_sec = more.stx_btime.tv_sec, .tv_nsec = more.stx_btime.tv_nsec};
    return true;
}

strata_descriptor_mark strata_descriptor_mark_of(int descriptor)
{
    strata_descriptor_mark mark = {0};
    const int error = errno;
    (void)look_at_descriptor(descriptor, &mark);
    errno = error;
    return mark;
}

bool strata_descriptor_is_marked(int descriptor, const strata_descriptor_mark *mark)
{
    strata_descriptor_mark now;
    const int error = errno;
    const bool marked = descriptor >= 0 && look_at_descriptor(descriptor, &now) && now.device == mark->device &&
                        now.inode == mark->inode && now.type == mark->type && now.made.tv_sec == mark->made.tv_sec &&
                        now.made.tv_nsec == mark->made.tv_nsec;
    errno = error;
    return marked;
}

int strata_descriptor_move_up(int descriptor)
{
    if (descriptor < 0 || descriptor > STDERR_FILENO)
        return descriptor;
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(descriptor);
    errno = error;
    return moved;
}
