/* A process without a free descriptor, while a connection to a socket of its own waits to be accepted. */
#ifndef STRATA_TEST_EXEC_NO_DESCRIPTORS_H
#define STRATA_TEST_EXEC_NO_DESCRIPTORS_H

#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 64 };

/* Milliseconds of processor time in a second of sleep; below 0: the connection was not made. Then there are descriptors
 * again, of which a sanitizer needs some at the program's end. */
static inline int spent_without_descriptors(const char *name, int type)
{
    const struct rlimit few = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    int taken[DESCRIPTORS], count = 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int file = socket(AF_UNIX, type, 0);
    strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);
    setrlimit(RLIMIT_NOFILE, &few);
    while (count < DESCRIPTORS && (taken[count] = dup(0)) >= 0)
        count++;
    const int connected = connect(file, (const struct sockaddr *)&address,
                                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
    const clock_t before = clock();
    if (connected == 0)
        sleep(1);
    const clock_t after = clock();
    while (count > 0)
        close(taken[--count]);
    return connected == 0 ? (int)((after - before) / (CLOCKS_PER_SEC / 1000)) : -1;
}

#endif
