/* What tests of isolated device services look at: the worker, children, descriptors, shared memory. */
#ifndef STRATA_TEST_WORKER_H
#define STRATA_TEST_WORKER_H

#include "support/effort.h"
#include "support/service.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <strata/dlpack.h>

static inline uint64_t test_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TEST_SECOND + (uint64_t)now.tv_nsec;
}

static inline void test_sleep_ms(long milliseconds)
{
    const struct timespec time = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static inline pid_t test_worker(strata_service *which)
{
    strata_service_stats stats;
    check_ok(strata_service_get_stats(which, &stats));
    return stats.worker;
}

/* Nanoseconds within which a worker can do something. */
static inline uint64_t test_long_enough(uint64_t nanoseconds)
{
    return nanoseconds * test_timeout(1);
}

static inline void test_fill_pattern(strata_host_buffer *buffer, unsigned seed)
{
    unsigned char *memory = strata_host_buffer_memory(buffer);
    for (size_t i = 0; i < strata_host_buffer_bytes(buffer); i++)
        memory[i] = (unsigned char)(seed + i * 7 + i / 251);
}

static inline bool test_has_pattern(const strata_host_buffer *buffer, size_t from, unsigned seed)
{
    const unsigned char *memory = strata_host_buffer_memory(buffer);
    for (size_t i = 0; i < strata_host_buffer_bytes(buffer); i++)
        if (memory[i] != (unsigned char)(seed + (from + i) * 7 + (from + i) / 251))
            return false;
    return true;
}

/* Waits until there is a worker of a later generation. */
static inline void test_wait_replaced(strata_service *which, uint64_t generation)
{
    const uint64_t begun = test_clock();
    strata_service_stats stats;
    do {
        assert_true(test_clock() - begun < 20ull * TEST_SECOND);
        test_sleep_ms(1);
        check_ok(strata_service_get_stats(which, &stats));
    } while (!stats.ready || stats.generation == generation);
}

/* Until the service's thread has begun so many requests that are not finished. */
static inline void test_wait_begun(strata_service *which, uint64_t requests)
{
    const uint64_t begun = test_clock();
    strata_service_stats stats;
    do {
        assert_true(test_clock() - begun < 20ull * TEST_SECOND);
        test_sleep_ms(1);
        check_ok(strata_service_get_stats(which, &stats));
    } while (stats.in_flight != requests);
}

static inline uint64_t test_generation(strata_service *which)
{
    return strata_device_state_generation(strata_service_device_state(which));
}

/* Whether a worker has a driver here; else false, with the reason printed. Any other failure ends the program. The
 * program opens no driver: STRATA_DRIVER says which one the worker opens. */
static inline bool test_has_worker(const strata_service_options *options)
{
    strata_service *first;
    setenv("STRATA_DRIVER", "auto", 0);
    check_ok(strata_service_create(options, &first));
    const strata_status status = strata_service_wait_ready(first, 60ull * TEST_SECOND);
    if (status != STRATA_SUCCESS)
        fprintf(stderr, "no service: %s\n", strata_last_error()->message);
    strata_service_destroy(first);
    if (status != STRATA_SUCCESS && status != STRATA_ERROR_DRIVER_NOT_FOUND)
        exit(1);
    return status == STRATA_SUCCESS;
}

/* ---- descriptors ---- */

typedef struct test_descriptors {
    size_t count, sockets, memories; /* all; those of worker sockets and shared memory; none is inherited by exec */
    size_t handles;                  /* of processes */
    bool stay_closed;
} test_descriptors;

static inline test_descriptors test_count_descriptors(void)
{
    test_descriptors seen = {.stay_closed = true};
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) <= 0)
            continue;
        const bool socket = strncmp(target, "socket:", 7) == 0, memory = strncmp(target, "/memfd:strata", 13) == 0;
        seen.count++;
        seen.sockets += socket;
        seen.memories += memory;
        seen.handles += strstr(target, "[pidfd]") != NULL;
        if (socket || memory)
            seen.stay_closed = seen.stay_closed && fcntl(atoi(entry->d_name), F_GETFD) & FD_CLOEXEC;
    }
    closedir(folder);
    return seen;
}

/* Counts the process's mappings of shared memory. */
static inline size_t test_count_mappings(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:strata") != NULL;
    fclose(maps);
    return count;
}

/* Whether a child of this process has ended and is not collected within seconds, and which: services collect the slow
 * ends of their workers now and then. */
static inline bool test_has_zombie(void)
{
    siginfo_t info = {0};
    for (int i = 0; i < 1000; i++) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return false;
        test_sleep_ms(5);
    }
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)info.si_pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(name, sizeof name, file))
        strcpy(name, "?");
    if (file)
        fclose(file);
    print_message("process %d is a zombie: code %d, status %d, %s\n", (int)info.si_pid, info.si_code, info.si_status,
                  name);
    return true;
}

#endif
