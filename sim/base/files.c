/* Files that hold memory. */
#include "base/base.h"

#include <errno.h>
#include <sys/resource.h>
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
