/* A process without standard descriptors, as a daemon may be. */
#ifndef STRATA_TESTS_SUPPORT_STANDARD_H
#define STRATA_TESTS_SUPPORT_STANDARD_H

#include <fcntl.h>
#include <unistd.h>

typedef struct test_standard {
    int kept[STDERR_FILENO + 1];
} test_standard;

static inline test_standard test_standard_close(void)
{
    test_standard standard;
    for (int i = 0; i <= STDERR_FILENO; i++) {
        standard.kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 100);
        close(i);
    }
    return standard;
}

/* Returns how many of them have been opened meanwhile. */
static inline int test_standard_open(const test_standard *standard)
{
    int taken = 0;
    for (int i = 0; i <= STDERR_FILENO; i++) {
        taken += fcntl(i, F_GETFD) >= 0;
        dup2(standard->kept[i], i);
        close(standard->kept[i]);
    }
    return taken;
}

#endif
