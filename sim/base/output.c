/* Files that the simulation writes. Another user may have prepared what stands under their names, in a folder such as
 * /tmp. */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int number_behind(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0)
        return -1;
    const char *digits = path + length;
    size_t count = strspn(digits, "0123456789");
    return count > 0 && count < 8 && digits[count] == '\0' ? atoi(digits) : -1;
}

static int named_descriptor(const char *path)
{
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    int number = number_behind(path, "/dev/fd/");
    return number >= 0 ? number : number_behind(path, "/proc/self/fd/");
}

static bool look_at_folder(const char *path, struct stat *is)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (length >= sizeof folder)
        return false;
    memcpy(folder, path, length);
    strcpy(folder + length, ".");
    return stat(folder, is) == 0;
}

/* In a folder that all users write to, a regular file has one name and belongs to this user or the folder's owner. */
static bool trusted(const char *path, int descriptor)
{
    struct stat file, folder;
    if (fstat(descriptor, &file) != 0)
        return false;
    if (!S_ISREG(file.st_mode) || !look_at_folder(path, &folder) || !(folder.st_mode & S_IWOTH))
        return true;
    return (file.st_uid == geteuid() || file.st_uid == folder.st_uid) && file.st_nlink == 1;
}

int sim_output_open(const char *path, bool append)
{
    int given = named_descriptor(path);
    if (given >= 0)
        return fcntl(given, F_DUPFD_CLOEXEC, 3);
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (append ? O_APPEND : 0);
    int descriptor = open(path, flags, S_IRUSR | S_IWUSR);
    struct stat is;
    if (descriptor < 0 || (trusted(path, descriptor) && (append || fstat(descriptor, &is) != 0 ||
                                                         !S_ISREG(is.st_mode) || ftruncate(descriptor, 0) == 0)))
        return descriptor;
    close(descriptor);
    return -1;
}

/* Blocks the signals of failed writes, and takes one that a write raised, unless it was pending before. */
size_t sim_output_write(int descriptor, const char *text, size_t bytes)
{
    sigset_t alone, before, pending;
    size_t done = 0;
    int error = 0;
    sigemptyset(&alone);
    sigemptyset(&pending);
    sigpending(&pending);
    if (!sigismember(&pending, SIGPIPE))
        sigaddset(&alone, SIGPIPE);
    if (!sigismember(&pending, SIGXFSZ))
        sigaddset(&alone, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &alone, &before);
    while (done < bytes && !error) {
        ssize_t written = write(descriptor, text + done, bytes - done);
        done += written > 0 ? (size_t)written : 0;
        error = written < 0 && errno != EINTR ? errno : 0;
    }
    if (error == EPIPE || error == EFBIG) {
        while (sigtimedwait(&alone, NULL, &(struct timespec){0}) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return done;
}
