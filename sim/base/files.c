/* Files that hold memory. */
#include "base/base.h"

#include <errno.h>
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

bool sim_file_take(sim_file *file, int descriptor)
{
    struct stat status;
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
