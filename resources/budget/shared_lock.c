/* The locks of a shared budget's file: record locks, which the kernel releases when a process ends. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include "core/base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct flock range(short type, off_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool shared_lock_byte(int descriptor, off_t byte, bool wait)
{
    struct flock lock = range(F_WRLCK, byte);
    int result;
    /* EDEADLK: the kernel sees processes, and may report two whose threads wait for two files. */
    while ((result = fcntl(descriptor, wait ? F_SETLKW : F_SETLK, &lock)) != 0 && (errno == EINTR || errno == EDEADLK))
        usleep(100);
    return result == 0;
}

void shared_unlock_byte(int descriptor, off_t byte)
{
    struct flock lock = range(F_UNLCK, byte);
    fcntl(descriptor, F_SETLK, &lock);
}

bool shared_byte_is_held(int descriptor, off_t byte)
{
    struct flock lock = range(F_WRLCK, byte);
    return fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool shared_lock_file(budget_shared *shared)
{
    const int cancel = strata_cancel_forbid(); /* no thread is ended with the lock */
    strata_lock_take(&shared->lock);
    shared->cancel = cancel;
    if (shared_lock_byte(shared->descriptor, 0, true))
        return true;
    strata_lock_release(&shared->lock);
    strata_cancel_restore(cancel);
    return false;
}

void shared_unlock_file(budget_shared *shared)
{
    const int cancel = shared->cancel;
    shared_unlock_byte(shared->descriptor, 0);
    strata_lock_release(&shared->lock);
    strata_cancel_restore(cancel);
}
