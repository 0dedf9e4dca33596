/* A process without standard descriptors, as a daemon may be. */
#ifndef STRATA_TESTS_SUPPORT_STANDARD_H
#define STRATA_TESTS_SUPPORT_STANDARD_H

#include <fcntl.h>
#include <stdbool.h>
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

/* Another thread that opens a file has one of these numbers for a moment, until it moves the descriptor. */
static inline bool test_stays_open(int descriptor)
{
    bool is_open = true;
    for (int ms = 0; ms < 1000 && is_open; ms++) {
        is_open = fcntl(descriptor, F_GETFD) >= 0;
        if (is_open)
            usleep(1000);
    }
    return is_open;
}

/* Returns how many of them have been opened meanwhile, and have stayed open. */
static inline int test_standard_open(const test_standard *standard)
{
    int taken = 0;
    for (int i = 0; i <= STDERR_FILENO; i++) {
        taken += test_stays_open(i);
        dup2(standard->kept[i], i);
        close(standard->kept[i]);
    }
    return taken;
}

#endif
