/* For the tests of recordings: two files in a folder of each case's own, and a service that asks them again. */
#ifndef STRATA_TEST_RECORDINGS_H
#define STRATA_TEST_RECORDINGS_H

#include "support/service.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strata/service_replay.h>

static char folder[64], first[96], second[96];

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/strata-recorder-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    unlink(first);
    unlink(second);
    return rmdir(folder);
}

static inline strata_service *recording_service(const char *path)
{
    return test_service_make(&(strata_service_options){.record = path});
}

static inline char *read_text(const char *path)
{
    struct stat is;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &is), 0);
    char *text = calloc(1, (size_t)is.st_size + 1);
    assert_non_null(text);
    assert_int_equal(read(file, text, (size_t)is.st_size), is.st_size);
    close(file);
    return text;
}

static inline void write_bytes(const char *path, const void *bytes, size_t count)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, count), count);
    close(file);
}

#define HEAD "strata service recording 1\n"

static inline void write_lines(const char *path, const char *lines)
{
    char text[8192];
    const int length = snprintf(text, sizeof text, HEAD "%s", lines);
    assert_true(length > 0 && length < (int)sizeof text);
    write_bytes(path, text, (size_t)length);
}

#define START "1 7 normal none 0 "
#define A     START "allocate 1 u8 4096 zeroed\n"
#define M     START "load 1 00\n"

static strata_service *reader;

static inline strata_status replay(const strata_service_replay_options *options, strata_service_replay_result *result)
{
    return strata_service_replay(reader, first, options, result);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
