/* Names, locks and renaming. */
#include "resources/logging/rotation.h"

#include "core/base/error.h"
#include "core/base/file_name.h"
#include "core/base/output_file.h"
#include "driver/driver.h"
#include "resources/logging/csv.h"
#include "resources/logging/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GIVEN_ROOM = 512, NUMBERED_ROOM = PATH_MAX + 24 };

/* ---- names ---- */

strata_status log_path_expand(log_path *path, const char *given, int device)
{
    static _Atomic int turns; /* logs of this process; any thread */
    const strata_file_part parts[] = {
        {'d', device, "device"},
        {'n', atomic_fetch_add(&turns, 1) + 1, "number of the log"},
    };
    char name[GIVEN_ROOM];
    strata_status status =
        strata_file_name(name, sizeof name, "logging", *given ? given : "strata-%p.%n.slog", parts, 2);
    if (status != STRATA_SUCCESS || strata_driver_path_from_here(name, path->text))
        return status;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "logging: %s: the path is too long, or the current folder is unknown; set an absolute path",
                       name);
}

static void numbered(const log_path *path, uint64_t number, char name[NUMBERED_ROOM])
{
    if (number)
        snprintf(name, NUMBERED_ROOM, "%s.%llu", path->text, (unsigned long long)number);
    else
        snprintf(name, NUMBERED_ROOM, "%s", path->text);
}

static void next_name(const log_path *path, char name[NUMBERED_ROOM])
{
    snprintf(name, NUMBERED_ROOM, "%s.new", path->text);
}

/* ---- locking ---- */

/* Locks a log's file. False with EBUSY if another log has it. Without support for locks no log is excluded. */
static bool lock_file(int descriptor)
{
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return true;
    errno = EBUSY;
    return false;
}

static bool is_at(const char *path, int descriptor)
{
    struct stat named, open;
    return lstat(path, &named) == 0 && fstat(descriptor, &open) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

/* Keeps errno. */
static int refuse(int descriptor)
{
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
}

static int make_locked(const char *path, mode_t mode)
{
    int descriptor = strata_output_open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    return descriptor < 0 || lock_file(descriptor) ? descriptor : refuse(descriptor);
}

int log_path_create(const log_path *path)
{
    return make_locked(path->text, path->mode);
}

/* Tries again if the file is renamed between open and lock. */
int log_path_open(const log_path *path, bool *regular)
{
    enum { TURNS = 100 };
    for (int turn = 0; turn < TURNS; turn++) {
        struct stat is;
        int descriptor = strata_output_open(path->text, O_WRONLY | O_NONBLOCK, 0);
        if (descriptor < 0)
            return -1;
        if (fstat(descriptor, &is) != 0)
            return refuse(descriptor);
        *regular = S_ISREG(is.st_mode);
        if (!*regular)
            return descriptor;
        if (!lock_file(descriptor))
            return refuse(descriptor);
        if (is_at(path->text, descriptor))
            return descriptor;
        close(descriptor);
    }
    errno = EBUSY;
    return -1;
}

/* ---- replacing ---- */

/* Whether a file is only a log's header, whole or in part. */
static bool is_header(int descriptor, off_t size)
{
    static const char columns[] = LOG_CSV_HEADER "\n";
    char bytes[sizeof columns];
    size_t count = size < (off_t)sizeof bytes ? (size_t)size : sizeof bytes;
    size_t magic = count < strlen(LOG_FILE_MAGIC) ? count : strlen(LOG_FILE_MAGIC);
    if (pread(descriptor, bytes, count, 0) != (ssize_t)count)
        return false;
    return (size <= LOG_FILE_HEADER && memcmp(bytes, LOG_FILE_MAGIC, magic) == 0) ||
           (size < (off_t)sizeof columns && memcmp(bytes, columns, count) == 0);
}

/* Removes a file that a killed log left: it has only a header, and is not locked. Other files stay. False with errno.
 */
static bool remove_leftover(const char *path)
{
    struct stat is;
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (descriptor < 0 && errno == ENOENT)
        return true;
    if (descriptor < 0) {
        errno = EEXIST;
        return false;
    }
    bool leftover = fstat(descriptor, &is) == 0 && S_ISREG(is.st_mode) && is_header(descriptor, is.st_size);
    errno = EEXIST;
    bool removed = leftover && lock_file(descriptor) && is_at(path, descriptor) && unlink(path) == 0;
    int error = errno;
    close(descriptor);
    errno = error;
    return removed;
}

int log_path_create_next(const log_path *path, const void *header, size_t bytes)
{
    char name[NUMBERED_ROOM];
    next_name(path, name);
    int descriptor = make_locked(name, path->mode);
    if (descriptor < 0 && errno == EEXIST && remove_leftover(name))
        descriptor = make_locked(name, path->mode);
    if (descriptor < 0)
        return -1;
    ssize_t wrote = pwrite(descriptor, header, bytes, 0);
    if (wrote == (ssize_t)bytes)
        return descriptor;
    if (wrote >= 0)
        errno = ENOSPC;
    int error = errno;
    unlink(name);
    errno = error;
    return refuse(descriptor);
}

static bool exists(const char *path)
{
    struct stat is;
    return lstat(path, &is) == 0;
}

/* Increments numbers up to the first free one. Stops at a failure: no file is overwritten. */
static bool move_on(const log_path *path)
{
    char from[NUMBERED_ROOM], to[NUMBERED_ROOM];
    uint64_t last = 1;
    for (numbered(path, last, to); last < path->keep && exists(to); numbered(path, last, to))
        last++;
    for (uint64_t number = last; number-- > 0;) {
        numbered(path, number, from);
        numbered(path, number + 1, to);
        if (rename(from, to) != 0)
            return false;
    }
    return true;
}

/* Renames a file; EEXIST instead of overwriting one, if kernel and file system can. */
static bool rename_to_free(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return true;
    return (errno == EINVAL || errno == ENOSYS) && rename(from, to) == 0;
}

bool log_path_install_next(const log_path *path, int descriptor)
{
    char first[NUMBERED_ROOM], next[NUMBERED_ROOM];
    bool stands = exists(path->text);
    if (stands && !is_at(path->text, descriptor)) {
        errno = EEXIST; /* another program's file */
        return false;
    }
    if (stands && !move_on(path))
        return false;
    next_name(path, next);
    if (rename_to_free(next, path->text))
        return true;
    int error = errno;
    numbered(path, 1, first);
    if (stands)
        rename_to_free(first, path->text);
    errno = error;
    return false;
}

void log_path_remove(const log_path *path, int descriptor)
{
    if (is_at(path->text, descriptor))
        unlink(path->text);
}

void log_path_remove_next(const log_path *path)
{
    char name[NUMBERED_ROOM];
    next_name(path, name);
    unlink(name);
}
