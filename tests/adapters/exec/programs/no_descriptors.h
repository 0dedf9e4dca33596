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

/* Milliseconds of processor time in a second of sleep; below 0: the connection was not made. */
static inline int spent_without_descriptors(const char *name, int type)
{
    const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int file = socket(AF_UNIX, type, 0);
    strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);
    setrlimit(RLIMIT_NOFILE, &few);
    while (dup(0) >= 0)
        ;
    if (connect(file, (const struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) != 0)
        return -1;
    const clock_t before = clock();
    sleep(1);
    return (int)((clock() - before) / (CLOCKS_PER_SEC / 1000));
}

#endif
