/* Files that hold memory. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool sim_file_resize(int file, uint64_t bytes)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && bytes > most.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    return ftruncate(file, (off_t)bytes) == 0;
}

/* A program that has closed its standard output still writes there. */
static int above_standard_ones(int descriptor)
{
    if (descriptor < 0 || descriptor > STDERR_FILENO)
        return descriptor;
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(descriptor);
    return moved;
}

bool sim_file_take(sim_file *file, int given)
{
    struct stat status;
    const int descriptor = above_standard_ones(given);
    if (descriptor < 0)
        return false;
    if (fstat(descriptor, &status) != 0) {
        close(descriptor);
        return false;
    }
    *file = (sim_file){.descriptor = descriptor, .device = status.st_dev, .inode = status.st_ino};
    return true;
}

bool sim_file_is_open(const sim_file *file)
{
    struct stat status;
    return fstat(file->descriptor, &status) == 0 && status.st_dev == file->device && status.st_ino == file->inode;
}

void sim_file_close(const sim_file *file)
{
    if (sim_file_is_open(file))
        close(file->descriptor);
}
