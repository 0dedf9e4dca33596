/* A library that is preloaded behind Strata's, and makes the two reports of a program overlap unless one waits for the
 * other: a thread other than the main one, which has just emptied a file, is slow to write it, and the main one is slow
 * to close one. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NONE = -1, SHORT_MS = 400, LONG_MS = 1200 };

static _Atomic int emptied = NONE; /* by the main thread */

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

int open(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    void *found = next ? NULL : dlsym(RTLD_NEXT, "open");
    va_list arguments;
    if (found)
        memcpy(&next, &found, sizeof found);
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    const int file = next(path, flags, mode);
    if (flags & O_TRUNC && gettid() == getpid())
        emptied = file;
    else if (flags & O_TRUNC)
        wait_ms(SHORT_MS);
    return file;
}

int close(int file)
{
    static int (*next)(int);
    void *found = next ? NULL : dlsym(RTLD_NEXT, "close");
    if (found)
        memcpy(&next, &found, sizeof found);
    if (file == emptied && gettid() == getpid()) {
        emptied = NONE;
        wait_ms(LONG_MS);
    }
    return next(file);
}
